"""Argoverse 2's files: sweeps (.feather, float16 in the ego frame), ego poses, calibration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copilot4d.datasets.point_files import PointFile
from copilot4d.datasets.pose_files import rigid_poses
from copilot4d.datasets.text_files import check_increasing, describe
from copilot4d.errors import DataError
from copilot4d.geometry import se3
from copilot4d.geometry.se3 import FloatArray

UPPER_LIDAR, LOWER_LIDAR = "up_lidar", "down_lidar"
LASERS_PER_LIDAR = 32  # laser_number 0..31 belong to the upper lidar, 32..63 to the lower

_SWEEP_COLUMNS = ("x", "y", "z", "intensity", "laser_number")
_POSE_COLUMNS = ("qw", "qx", "qy", "qz", "tx_m", "ty_m", "tz_m")
_QUATERNION_TOLERANCE = 1e-2
_RESTORE = "download the file again"


@dataclass(frozen=True, kw_only=True)
class Argoverse2Points:
    """Reads the sweep files of one log. Plain data, so that worker processes can be sent one."""

    lidar_from_ego: FloatArray
    lower_origin: FloatArray
    with_times: bool = False

    def timed(self) -> Argoverse2Points:
        """The same reader, which reads the times of the points as well."""
        return replace(self, with_times=True)

    def __call__(self, path: Path) -> PointFile:
        """The sweep of a file."""
        return read_sweep_file(
            path, lidar_from_ego=self.lidar_from_ego, lower_origin=self.lower_origin, with_times=self.with_times
        )


def read_sweep_file(
    path: Path, *, lidar_from_ego: FloatArray, lower_origin: FloatArray, with_times: bool = False
) -> PointFile:
    """One sweep in the lidar frame, with the origin of each point: zero, or `lower_origin` (3,) for the lower lidar.

    with_times: and the nanoseconds from the sweep's time to each point's, which do not move the points: they are
    compensated.
    """
    table = _read_table(path, (*_SWEEP_COLUMNS, *(("offset_ns",) if with_times else ())), threads=False)
    count = table.num_rows
    if count == 0:
        raise DataError(path, "points", expected="at least one point", found="none", remedy=_RESTORE)
    points, origins, intensity = _empty(count, 3), _empty(count, 3), _empty(count)
    at = 0
    for batch in table.to_batches():
        if not len(batch):
            continue
        rows = slice(at, at + len(batch))
        xyz = [_floats(path, name, batch.column(name)) for name in "xyz"]
        lasers = _integers(path, "laser_number", batch.column("laser_number"))
        if not 0 <= lasers.min() <= lasers.max() < 2 * LASERS_PER_LIDAR:
            raise DataError(
                path, "column laser_number", expected="0..63", found=f"{lasers.min()}..{lasers.max()}", remedy=_RESTORE
            )
        _place(path, xyz, lasers, lidar_from_ego, lower_origin, points[rows], origins[rows])
        intensity[rows] = _integers(path, "intensity", batch.column("intensity"))
        at += len(batch)
    times = _integers(path, "offset_ns", _whole(table, "offset_ns")).astype(np.int64) if with_times else None
    return PointFile(points=points, intensity=intensity, origins=origins, times=times)


def _place(
    path: Path, ego_xyz: list[NDArray[Any]], lasers: NDArray[Any], lidar_from_ego: FloatArray,
    lower_origin: FloatArray, points: NDArray[np.float32], origins: NDArray[np.float32],
) -> None:  # fmt: skip
    """Fill `points` and `origins` (N, 3) in the lidar frame."""
    if all(column.dtype == np.float16 for column in ego_xyz):
        from copilot4d.datasets.argoverse2_kernel import FLOAT_FROM_HALF, place_points  # compiles: only when needed

        x, y, z = (column.view(np.uint16) for column in ego_xyz)
        finite = place_points(
            FLOAT_FROM_HALF, x, y, z, lasers.astype(np.uint8, copy=False),
            LASERS_PER_LIDAR, lidar_from_ego[:3].astype(np.float32), lower_origin.astype(np.float32), points, origins,
        )  # fmt: skip
    else:  # logs that someone wrote again in another precision
        with np.errstate(over="ignore", invalid="ignore"):
            points[:] = se3.transform_points(lidar_from_ego, np.stack(ego_xyz, axis=-1).astype(np.float64))
        origins[:] = np.where((lasers >= LASERS_PER_LIDAR)[:, None], lower_origin, 0)
        finite = np.isfinite(points).all()
    if not finite:
        bad = ~np.isfinite(points).all(axis=-1)
        raise DataError(
            path, "columns x, y, z", expected="finite numbers",
            found=f"{int(bad.sum())} points that are NaN, infinite or too large", remedy=_RESTORE,
        )  # fmt: skip


def read_ego_poses(path: Path, timestamps_ns: NDArray[np.int64]) -> FloatArray:
    """(N, 4, 4) world_from_ego at exactly these times, from city_SE3_egovehicle.feather."""
    table = _read_table(path, ("timestamp_ns", *_POSE_COLUMNS))
    times = _integers(path, "timestamp_ns", _whole(table, "timestamp_ns")).astype(np.int64)
    check_increasing(path, times, [f"row {row}" for row in range(len(times))])
    rows = np.searchsorted(times, timestamps_ns)
    known = (times[np.minimum(rows, len(times) - 1)] == timestamps_ns) if len(times) else np.zeros(len(rows), bool)
    if not known.all():
        first = int(timestamps_ns[np.argmin(known)])
        raise DataError(
            path, "timestamp_ns", expected=f"a pose at {first}, the time of a sweep",
            found=f"none for {int((~known).sum())} of {len(known)} sweeps, this one first",
            remedy="download the log's poses again, or remove the sweeps that have none",
        )  # fmt: skip
    return _poses(path, table.take(rows), [f"timestamp {time}" for time in timestamps_ns])


def read_calibration(path: Path, sensors: Sequence[str]) -> dict[str, FloatArray]:
    """ego_from_sensor (4, 4) of these sensors, from egovehicle_SE3_sensor.feather."""
    table = _read_table(path, ("sensor_name", *_POSE_COLUMNS))
    names = _texts(path, "sensor_name", _whole(table, "sensor_name"))
    rows = []
    for sensor in sensors:
        if names.count(sensor) != 1:
            raise DataError(
                path, "sensor_name", expected=f"one row {sensor}",
                found=f"{names.count(sensor)} among {', '.join(map(str, names)) or 'none'}",
                remedy="download the log's calibration again",
            )  # fmt: skip
        rows.append(names.index(sensor))
    poses = _poses(path, table.take(rows), list(sensors))
    return dict(zip(sensors, poses, strict=True))


def read_columns(path: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Columns of numbers, of any type, of a small .feather table."""
    table = _read_table(path, names)
    return {name: _numbers(path, name, _whole(table, name), "fiu", "numbers") for name in names}


def _poses(path: Path, table: Any, labels: list[str]) -> FloatArray:
    columns = [_floats(path, name, _whole(table, name)) for name in _POSE_COLUMNS]
    numbers = np.stack(columns, axis=-1).astype(np.float64)  # (N, 7)
    with np.errstate(over="ignore"):
        lengths = np.linalg.norm(numbers[:, :4], axis=-1)
    wrong = ~(np.abs(lengths - 1) <= _QUATERNION_TOLERANCE)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataError(
            path, f"qw qx qy qz, {labels[row]}", expected="a unit quaternion", found=f"length {lengths[row]:.6g}",
            remedy=_RESTORE,
        )  # fmt: skip
    return rigid_poses(path, se3.from_quaternion(numbers[:, :4], numbers[:, 4:]), labels)


def _read_table(path: Path, columns: Sequence[str], *, threads: bool = True) -> Any:
    """The columns of a .feather file as an Arrow table whose buffers are as long as it says."""
    import pyarrow as pa
    from pyarrow import feather, ipc

    from copilot4d.datasets.arrow_sizes import check_feather_size

    try:
        with pa.OSFile(str(path)) as source:
            check_feather_size(path, source, ipc.open_file(source).num_record_batches)
        table = feather.read_table(str(path), columns=list(columns), use_threads=threads)
        table.validate(full=threads)  # lengths always; the small tables' text as well
    except (OSError, pa.ArrowException, ValueError, KeyError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise DataError(
                path, "file", expected="a file that can be read", found=describe(error), remedy=_RESTORE
            ) from error
        try:
            names = ipc.open_file(str(path)).schema.names
        except (OSError, pa.ArrowException, ValueError):
            names = None
        missing = [name for name in columns if names is not None and name not in names]
        if missing:
            raise DataError(
                path, "columns", expected=", ".join(columns),
                found=f"{', '.join(names) or 'none'} (no {', '.join(missing)})", remedy=_RESTORE,
            ) from error  # fmt: skip
        raise DataError(
            path, "file", expected="a whole .feather file",
            found=f"a damaged one ({' '.join(str(error).split())[:120]})", remedy=_RESTORE,
        ) from error  # fmt: skip
    return table


def _whole(table: Any, name: str) -> Any:
    """A column as one Arrow array."""
    return table.column(name).combine_chunks()


def _texts(path: Path, name: str, column: Any) -> list[str | None]:
    import pyarrow as pa

    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise DataError(path, f"column {name}", expected="text", found=f"the type {column.type}", remedy=_RESTORE)
    values: list[str | None] = column.to_pylist()
    return values


def _floats(path: Path, name: str, column: Any) -> NDArray[Any]:
    return _numbers(path, name, column, "f", "floating point numbers")


def _integers(path: Path, name: str, column: Any) -> NDArray[Any]:
    return _numbers(path, name, column, "iu", "whole numbers")


def _numbers(path: Path, name: str, column: Any, kinds: str, expected: str) -> NDArray[Any]:
    """An Arrow array as numpy, without copying it."""
    found = f"the type {column.type}"
    if column.null_count:
        found = f"{column.null_count} rows without a value"
    else:
        values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
        if values.dtype.kind in kinds:
            return values
    raise DataError(path, f"column {name}", expected=expected, found=found, remedy=_RESTORE)


def _empty(*shape: int) -> NDArray[np.float32]:
    """An array to be filled, from Arrow's pool, which reuses memory: fresh pages cost as much as reading the sweep."""
    import pyarrow as pa

    return np.frombuffer(pa.allocate_buffer(4 * math.prod(shape)), dtype=np.float32).reshape(shape)
