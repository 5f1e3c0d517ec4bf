"""Sweeps in .bin (bare float32 rows, as KITTI and nuScenes have them), .npy and .npz files."""

from __future__ import annotations

import math
import os
import struct
import sys
import tokenize
import zipfile
import zlib
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copilot4d.datasets.column_count import columns_line, likely_columns
from copilot4d.datasets.point_fields import (
    COPY_AGAIN,
    INTENSITY_NAMES,
    ORIGIN_NAMES,
    USED_NAMES,
    Array,
    PointFile,
    damaged,
    from_fields,
    missing_columns,
    to_float32,
)
from copilot4d.datasets.sizes import check_decoded_size
from copilot4d.errors import DataError, UsageError

KITTI_COLUMNS = ("x", "y", "z", "intensity")
NUSCENES_COLUMNS = ("x", "y", "z", "intensity", "ring")

_NPZ_NAMES = ("points", "intensity", "origins")
_READ_BYTES = os.O_RDONLY | getattr(os, "O_BINARY", 0)  # the latter on Windows
_HAS_READV = hasattr(os, "readv")

# What numpy and zipfile raise on damaged files, beside OSError.
_DAMAGE = (
    ValueError, EOFError, SyntaxError, TypeError, KeyError, IndexError, OverflowError, MemoryError,
    NotImplementedError, RuntimeError, RecursionError, struct.error, tokenize.TokenError, zlib.error,
    zipfile.BadZipFile,
)  # fmt: skip


def read_bin(path: Path, columns: Sequence[str] = KITTI_COLUMNS, time_names: Sequence[str] = ()) -> PointFile:
    """Rows of little-endian float32. The points are a strided view of the rows."""
    values = _read_floats(path, columns)
    rows = values.reshape(-1, len(columns))
    finite = math.isfinite(np.vdot(values, values))  # one pass over all columns; NaN and infinity survive it
    if columns == KITTI_COLUMNS:  # without looking names up: this is the way of most sweeps ever read
        return PointFile(points=rows[:, :3], intensity=rows[:, 3], known_finite=finite)
    return _from_rows(path, rows, tuple(columns), time_names, known_finite=finite)


def _read_floats(path: Path, columns: Sequence[str]) -> NDArray[np.float32]:
    """The whole file, by the operating system's own calls: what numpy.fromfile and `open` do beside costs time."""
    descriptor = os.open(path, _READ_BYTES)
    try:
        size, row = os.fstat(descriptor).st_size, 4 * len(columns)
        if size % row:
            raise DataError(
                path, "points", expected=f"a multiple of {row} bytes (float32 {' '.join(columns)})",
                found=f"{size} bytes, {size % row} too many", remedy=_other_columns(path, len(columns)) or COPY_AGAIN,
            )  # fmt: skip
        values = np.empty(size // 4, dtype=np.float32)
        got = _fill(descriptor, values.data.cast("B")) if size else 0
    finally:
        os.close(descriptor)
    if got != size:
        raise damaged(path, f"{size} bytes of points", f"only {got} bytes could be read")
    return values if sys.byteorder == "little" else values.byteswap()


def _other_columns(path: Path, given: int) -> str | None:
    """What to write where a file looks like whole rows of another number of columns."""
    values = np.fromfile(path, dtype="<f4")
    count = likely_columns(values)
    if count is None or count == given or len(values) % count:
        return None
    return f"the file looks like {count} columns, not {given}: write `{columns_line(count)}` in copilot4d.yaml"


def _fill(descriptor: int, buffer: memoryview) -> int:
    """Read into the buffer until it is full or the file ends (network file systems may give less at a time)."""
    got = 0
    while got < len(buffer):
        if _HAS_READV:
            count = os.readv(descriptor, (buffer[got:],))
        else:  # Windows
            content = os.read(descriptor, len(buffer) - got)
            count = len(content)
            buffer[got : got + count] = content
        if not count:
            break
        got += count
    return got


def read_npy(path: Path, columns: Sequence[str] | None = None, time_names: Sequence[str] = ()) -> PointFile:
    """An (N, >= 3) array whose columns are x y z [intensity], or as `columns` says, or a structured array."""
    values = _load(path)
    if not isinstance(values, np.ndarray):
        raise damaged(path, "one array (.npy)", "an archive of arrays; name it .npz")
    if values.dtype.names and values.ndim == 1:
        return from_fields(path, {name: _column(path, values[name], name) for name in values.dtype.names}, time_names)
    values = _real(path, values, "points")
    names = tuple(columns) if columns else KITTI_COLUMNS[: values.shape[-1] if values.ndim == 2 else 3]
    if values.ndim != 2 or values.shape[1] < max(3, len(names)):
        raise DataError(
            path, "points", expected=f"an array (N, {max(3, len(names))}) of {' '.join(names)}",
            found=f"shape {values.shape}", remedy="save one row per point",
        )  # fmt: skip
    file = _from_rows(path, to_float32(values), names)
    at = next((names.index(name) for name in time_names if name in names), None)
    return file if at is None else replace(file, times=values[:, at])  # as wide as they were saved


def read_npz(path: Path, time_names: Sequence[str] = ()) -> PointFile:
    """Arrays `points` (N, 3), and where there, `intensity` (N,), `origins` (N, 3) and one of `time_names` (N,); or one
    array per column.
    """
    archive = _load(path)
    if isinstance(archive, np.ndarray):
        raise damaged(path, "an archive of arrays (.npz)", "a single array; name it .npy")
    with archive:
        has_points = "points" in archive.files
        wanted = {*(_NPZ_NAMES if has_points else USED_NAMES), *time_names}
        _check_members(path, archive, wanted)
        try:
            arrays = {name: archive[name] for name in archive.files if name in wanted}
        except _DAMAGE as error:
            raise damaged(path, "a whole .npz file", error) from error
        if not has_points:
            if any(name not in arrays for name in "xyz"):
                raise missing_columns(path, archive.files)
            return from_fields(path, {name: _column(path, values, name) for name, values in arrays.items()}, time_names)
    count = len(arrays["points"]) if arrays["points"].ndim else 0
    for name, values in arrays.items():
        expected = (count, 3) if name in ("points", "origins") else (count,)
        if _real(path, values, name).shape != expected:
            raise DataError(
                path, name, expected=f"shape {expected}", found=f"shape {values.shape}", remedy="save one row per point"
            )
    found = {name: to_float32(values) for name, values in arrays.items() if name in _NPZ_NAMES}
    times = next((arrays[name] for name in time_names if name in arrays), None)
    return PointFile(
        points=found["points"], intensity=found.get("intensity"), origins=found.get("origins"), times=times
    )


def _check_members(path: Path, archive: Any, wanted: Container[str]) -> None:
    """What the wanted arrays take once they are unpacked, by the archive's own table."""
    members = [info for info in archive.zip.infolist() if info.filename.removesuffix(".npy") in wanted]
    check_decoded_size(path, sum(info.file_size for info in members))


def write_bin(path: Path, fields: Mapping[str, Array]) -> None:
    """x y z intensity as little-endian float32, intensity 0 where there is none."""
    if any(name in fields for name in ORIGIN_NAMES):
        raise UsageError(f"{path.name}: a .bin has no place for ray origins; write .npz, .ply, .pcd or .feather")
    zeros = np.zeros(len(fields["x"]), dtype=np.float32)
    np.stack([fields.get(name, zeros) for name in KITTI_COLUMNS], axis=1).astype("<f4").tofile(path)


def write_npy(path: Path, fields: Mapping[str, Array]) -> None:
    """(N, 3) or, with intensity, (N, 4) float32."""
    if any(name in fields for name in ORIGIN_NAMES):
        raise UsageError(f"{path.name}: a .npy has no place for ray origins; write .npz, .ply, .pcd or .feather")
    np.save(path, np.stack(list(fields.values()), axis=1), allow_pickle=False)


def write_npz(path: Path, fields: Mapping[str, Array]) -> None:
    """Arrays `points`, `intensity` and `origins`, uncompressed: reading is then as fast as .bin."""
    arrays = {"points": np.stack([fields[name] for name in "xyz"], axis=1)}
    if "intensity" in fields:
        arrays["intensity"] = fields["intensity"]
    if ORIGIN_NAMES[0] in fields:
        arrays["origins"] = np.stack([fields[name] for name in ORIGIN_NAMES], axis=1)
    np.savez(path, **arrays)  # type: ignore[arg-type]  # mypy takes the arrays for savez's own options


def _from_rows(
    path: Path, rows: Array, names: tuple[str, ...], time_names: Sequence[str] = (), *, known_finite: bool = False
) -> PointFile:
    """Rows of float32 -> PointFile; positions that are the first three columns stay a view of the rows."""
    if names[:3] != ("x", "y", "z"):
        return from_fields(path, {name: rows[:, k] for k, name in enumerate(names)}, time_names)
    intensity = next((rows[:, names.index(name)] for name in INTENSITY_NAMES if name in names), None)
    has_origins = all(name in names for name in ORIGIN_NAMES)
    origins = rows[:, [names.index(name) for name in ORIGIN_NAMES]] if has_origins else None
    times = next((rows[:, names.index(name)] for name in time_names if name in names), None)
    return PointFile(points=rows[:, :3], intensity=intensity, origins=origins, times=times, known_finite=known_finite)


def _load(path: Path) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except _DAMAGE as error:
        raise damaged(path, f"a whole {path.suffix} file", error) from error


def _real(path: Path, values: Array, field: str) -> Array:
    if values.dtype.kind not in "fiu":
        raise DataError(
            path, field, expected="an array of real numbers", found=f"dtype {values.dtype}",
            remedy="save plain float32 arrays",
        )  # fmt: skip
    return values


def _column(path: Path, values: Array, field: str) -> Array:
    if values.ndim != 1:
        raise DataError(
            path, field, expected="one number per point", found=f"shape {values.shape}",
            remedy="save one array (N,) per column, or the positions as one array (N, 3)",
        )  # fmt: skip
    return _real(path, values, field)
