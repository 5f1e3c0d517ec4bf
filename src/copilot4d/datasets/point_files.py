"""One sweep's points in a file, read and written: .bin, .npy, .npz, .pcd, .ply, .feather, chosen by the suffix.

What comes back is checked: float32, at least one point, all numbers finite. Fields beyond position, intensity, ray
origin and, where they are asked for, times (ring, colour, ...) are ignored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from copilot4d.datasets import numpy_files
from copilot4d.datasets.point_fields import COPY_AGAIN, ORIGIN_NAMES, Array, PointFile
from copilot4d.datasets.text_files import describe
from copilot4d.errors import DataError, UsageError

__all__ = ["SUFFIXES", "PointFile", "read_kitti_points", "read_points", "suffix_of", "write_points"]

SUFFIXES = (".bin", ".npy", ".npz", ".pcd", ".ply", ".feather")  # and .pcd.bin, for reading


def read_points(
    path: str | Path, *, columns: Sequence[str] | None = None, drop_invalid: bool = False,
    time_names: Sequence[str] = (),
) -> PointFile:  # fmt: skip
    """Read one sweep. `columns` names the columns of a .bin or .npy file (by default x y z intensity). `time_names`, in
    lower case: the times of the points are read, too, from the first of these columns that there is.

    Points that are NaN or infinite are a DataError, or are left out if `drop_invalid`. The points of a .bin are a
    strided view of the file's rows: copying them apart would cost as much again as reading the file.
    """
    path = path if isinstance(path, Path) else Path(path)
    try:
        file = _read(path, columns, time_names)
    except OSError as error:
        raise _unreadable(path, error) from error
    return file if file.known_finite and len(file.points) else _checked(path, file, drop_invalid)


def read_kitti_points(path: Path) -> PointFile:
    """`read_points` of a .bin with x y z intensity, told so beforehand: that saves some of what is beside the read."""
    try:
        file = numpy_files.read_bin(path)
    except OSError as error:
        raise _unreadable(path, error) from error
    return file if file.known_finite and len(file.points) else _checked(path, file, drop_invalid=False)


def write_points(path: str | Path, points: Array, intensity: Array | None = None, origins: Array | None = None) -> None:
    """Write one sweep; the suffix of `path` says how. A .bin has x y z intensity (0 where not given), no origins."""
    path = Path(path)
    points = np.asarray(points, dtype=np.float32)
    if points.ndim != 2 or points.shape[1] != 3:
        raise UsageError(f"write_points: points must be (N, 3), got {points.shape}")
    fields = {name: points[:, k] for k, name in enumerate("xyz")}
    if intensity is not None:
        fields["intensity"] = np.asarray(intensity, dtype=np.float32).reshape(-1)
    if origins is not None:
        fields |= dict(zip(ORIGIN_NAMES, np.asarray(origins, dtype=np.float32).reshape(-1, 3).T, strict=True))
    for name, values in fields.items():
        if len(values) != len(points):
            raise UsageError(f"write_points: {name} has {len(values)} rows for {len(points)} points")
    _writer(path)(path, fields)


def suffix_of(path: Path) -> str:
    """ ".bin", ".npy", ..., in lower case; ".pcd.bin" (nuScenes) counts as one suffix."""
    suffix = path.suffix.lower()
    return ".pcd.bin" if suffix == ".bin" and path.name.lower().endswith(".pcd.bin") else suffix


def _read(path: Path, columns: Sequence[str] | None, time_names: Sequence[str]) -> PointFile:
    match suffix_of(path):
        case ".bin":
            return numpy_files.read_bin(path, columns or numpy_files.KITTI_COLUMNS, time_names)
        case ".pcd.bin":
            return numpy_files.read_bin(path, columns or numpy_files.NUSCENES_COLUMNS, time_names)
        case ".npy":
            return numpy_files.read_npy(path, columns, time_names)
        case ".npz":
            return numpy_files.read_npz(path, time_names)
        case ".pcd":
            from copilot4d.datasets.pcd import read_pcd

            return read_pcd(path, time_names)
        case ".ply":
            from copilot4d.datasets.ply import read_ply

            return read_ply(path, time_names)
        case ".feather":
            from copilot4d.datasets.feather import read_feather  # the only user of pyarrow, which is slow to import

            return read_feather(path, time_names)
        case other:
            raise DataError(
                path, "file name", expected=f"one of {' '.join(SUFFIXES)}", found=other or "no suffix",
                remedy="convert the sweep to one of these formats",
            )  # fmt: skip


def _writer(path: Path) -> Callable[[Path, Mapping[str, Array]], None]:
    match path.suffix.lower():
        case ".bin":
            return numpy_files.write_bin
        case ".npy":
            return numpy_files.write_npy
        case ".npz":
            return numpy_files.write_npz
        case ".pcd":
            from copilot4d.datasets.pcd import write_pcd

            return write_pcd
        case ".ply":
            from copilot4d.datasets.ply import write_ply

            return write_ply
        case ".feather":
            from copilot4d.datasets.feather import write_feather

            return write_feather
        case other:
            raise UsageError(f"{path.name}: cannot write {other or 'a file without suffix'}; use {' '.join(SUFFIXES)}")


def _unreadable(path: Path, error: OSError) -> DataError:
    return DataError(path, "points", expected="a file that can be read", found=describe(error), remedy=COPY_AGAIN)


def _checked(path: Path, file: PointFile, drop_invalid: bool) -> PointFile:
    if not len(file.points):
        raise DataError(path, "points", expected="at least one point", found="none", remedy=COPY_AGAIN)
    parts = [part for part in (file.points, file.intensity, file.origins) if part is not None]
    if all(_sum_is_finite(part) for part in parts):
        return file
    bad = np.zeros(len(file.points), dtype=bool)
    for part in parts:
        bad |= ~np.isfinite(part).reshape(len(part), -1).all(axis=1)
    if not bad.any():  # finite, but too large for the quick test
        return file
    if not drop_invalid:
        at = int(np.argmax(bad))
        raise DataError(
            path, "points", expected="finite numbers",
            found=f"{int(bad.sum())} of {len(bad)} points with NaN or infinity, the first at row {at}",
            remedy="leave such points out when the file is written, or set `invalid_points: drop` in copilot4d.yaml",
        )  # fmt: skip
    if bad.all():
        raise DataError(path, "points", expected="finite points", found="none", remedy=COPY_AGAIN)
    return PointFile(
        points=file.points[~bad],
        intensity=None if file.intensity is None else file.intensity[~bad],
        origins=None if file.origins is None else file.origins[~bad],
        times=None if file.times is None else file.times[~bad],
        known_finite=True,
    )


def _sum_is_finite(values: Array) -> bool:
    """One fast pass, whatever the memory order: NaN and infinity survive a sum of squares."""
    flat = values.ravel(order="K")
    return math.isfinite(np.vdot(flat, flat))
