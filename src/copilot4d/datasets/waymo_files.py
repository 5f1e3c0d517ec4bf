"""Waymo's parquet files: range images, the poses of their pixels, calibration, vehicle poses. No package of Waymo's."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copilot4d.datasets.pose_files import rigid_poses
from copilot4d.datasets.sizes import check_decoded_size
from copilot4d.errors import DataError
from copilot4d.geometry.se3 import FloatArray

TOP = 1  # of key.laser_name: the spinning lidar on the roof; the others see 20 m
_TIME, _LASER = "key.frame_timestamp_micros", "key.laser_name"
_IMAGE, _PIXELS = "[LiDARComponent].range_image_return1", "[LiDARPoseComponent].range_image_return1"
_VEHICLE = "[VehiclePoseComponent].world_from_vehicle.transform"
_CALIBRATION = "[LiDARCalibrationComponent]"
_RESTORE = "download the file again"


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Of the top lidar: where it is, and where each row of its range image looks."""

    vehicle_from_sensor: FloatArray  # (4, 4)
    inclinations: FloatArray | None  # (H,) radians, row 0 of the image first; None: evenly from `highest` to `lowest`
    lowest: float
    highest: float

    def points(self, ranges_m: NDArray[Any]) -> FloatArray:
        """(H, W) ranges -> (H, W, 3) in the vehicle's frame. Columns go clockwise, and begin behind the vehicle: the
        sensor's own turn about z is taken out of their angles.
        """
        height, width = ranges_m.shape
        ranges = ranges_m.astype(np.float64)
        up = self.inclinations
        if up is None:
            step = (self.highest - self.lowest) / height
            up = self.highest - step * (np.arange(height) + 0.5)
        turn = np.arctan2(self.vehicle_from_sensor[1, 0], self.vehicle_from_sensor[0, 0])
        around = np.pi * (1 - (2 * np.arange(width) + 1) / width) - turn
        level = ranges * np.cos(up)[:, None]
        sensor = np.stack([level * np.cos(around), level * np.sin(around), ranges * np.sin(up)[:, None]], axis=-1)
        vehicle: FloatArray = sensor @ self.vehicle_from_sensor[:3, :3].T + self.vehicle_from_sensor[:3, 3]
        return vehicle


@dataclass(frozen=True, kw_only=True)
class Segment:
    """The files of one segment."""

    lidar: Path
    lidar_calibration: Path
    lidar_pose: Path
    vehicle_pose: Path

    def vehicle_poses(self) -> tuple[NDArray[np.int64], FloatArray]:
        """(N,) microseconds in increasing order, and (N, 4, 4) world_from_vehicle."""
        table = _read(self.vehicle_pose, (_TIME, _VEHICLE))
        times = _whole_numbers(self.vehicle_pose, table, _TIME)
        poses = np.array([_row(self.vehicle_pose, v, _VEHICLE, 16) for v in table.column(_VEHICLE)]).reshape(-1, 4, 4)
        if not len(times):
            raise _bad(self.vehicle_pose, _TIME, "poses", "none")
        order = np.argsort(times, kind="stable")
        return times[order], poses[order]

    def places(self, times_us: NDArray[np.int64]) -> NDArray[np.int64]:
        """(N, 2, 2) where these frames of the top lidar are in `lidar` and in `lidar_pose`: row group, and row in it.
        Only keys are read.
        """
        return np.stack([_places(path, times_us) for path in (self.lidar, self.lidar_pose)], axis=1)

    def calibration(self) -> Calibration:
        """Of the top lidar."""
        path, names = self.lidar_calibration, [f"{_CALIBRATION}.beam_inclination.{part}" for part in ("min", "max")]
        extrinsic, values = f"{_CALIBRATION}.extrinsic.transform", f"{_CALIBRATION}.beam_inclination.values"
        table = _read(path, (_LASER, extrinsic, *names, values))
        rows = np.flatnonzero(_whole_numbers(path, table, _LASER) == TOP)
        if len(rows) != 1:
            raise _bad(path, _LASER, f"one row for the top lidar ({TOP})", f"{len(rows)}")
        row = int(rows[0])
        transform = np.array(_row(path, table.column(extrinsic)[row], extrinsic, 16)).reshape(4, 4)
        beams = table.column(values)[row].as_py()
        lowest, highest = (float("nan") if (v := table.column(n)[row].as_py()) is None else float(v) for n in names)
        inclinations = None
        if beams:
            inclinations = np.array(_row(path, table.column(values)[row], values, len(beams)))[::-1].copy()
        elif not -np.pi / 2 <= lowest < highest <= np.pi / 2:
            raise _bad(path, "beam_inclination", "its values, or min below max in radians", f"{lowest}, {highest}")
        return Calibration(
            vehicle_from_sensor=rigid_poses(path, transform[None], ["the top lidar"])[0],
            inclinations=inclinations, lowest=lowest, highest=highest,
        )  # fmt: skip

    def range_image(self, place: NDArray[np.int64], calibration: Calibration) -> NDArray[np.float32]:
        """(H, W, channels) of the first returns: range in metres (not above 0: none), intensity, ..."""
        image = _image(self.lidar, place, _IMAGE)
        beams = calibration.inclinations
        if image.shape[2] < 2 or (beams is not None and len(beams) != len(image)):
            rows = "any number of" if beams is None else str(len(beams))
            raise _bad(self.lidar, f"{_IMAGE}.shape", f"{rows} rows, with range and intensity", f"{image.shape}")
        return image

    def pixel_poses(self, place: NDArray[np.int64], shape: tuple[int, ...]) -> FloatArray:
        """(H, W, 6) roll, pitch, yaw, x, y, z of world_from_vehicle at the time of each pixel."""
        poses = _image(self.lidar_pose, place, _PIXELS)
        if poses.shape != (*shape, 6) or not np.isfinite(poses).all():
            raise _bad(self.lidar_pose, f"{_PIXELS}.shape", f"{(*shape, 6)}, finite", f"{poses.shape}")
        return poses.astype(np.float64)


def _places(path: Path, times_us: NDArray[np.int64]) -> NDArray[np.int64]:
    """(N, 2) row group of each frame of the top lidar, and the row in it."""
    found: dict[int, tuple[int, int]] = {}
    for group in range(_file(path).num_row_groups):
        table = _read(path, (_TIME, _LASER), row_group=group)
        times, lasers = (_whole_numbers(path, table, name) for name in (_TIME, _LASER))
        found |= {int(times[row]): (group, int(row)) for row in np.flatnonzero(lasers == TOP)}
    missing = [int(time) for time in times_us if int(time) not in found]
    if missing:
        raise _bad(
            path, _TIME, "a row of the top lidar for every vehicle pose",
            f"none for {len(missing)} of {len(times_us)}, {missing[0]} first",
        )  # fmt: skip
    return np.array([found[int(time)] for time in times_us], dtype=np.int64)


def _image(path: Path, place: NDArray[np.int64], component: str) -> NDArray[np.float32]:
    """The range image of one row, as its shape says."""
    values, shape = f"{component}.values", f"{component}.shape"
    batch = _row_alone(path, (values, shape), *place.tolist())
    numbers, size = batch.column(values)[0].values, batch.column(shape)[0].as_py()
    if numbers is None or numbers.null_count or size is None or len(size) != 3 or None in size:
        raise _bad(path, component, "a range image with its shape", "a row without one")
    flat = numbers.to_numpy(zero_copy_only=False)
    if min(size) < 1 or int(np.prod([int(n) for n in size])) != len(flat) or flat.dtype.kind != "f":
        raise _bad(path, shape, f"a shape of {len(flat)} numbers", f"{tuple(size)} of {flat.dtype}")
    image: NDArray[np.float32] = flat.astype(np.float32).reshape(size)
    return image


def _row_alone(path: Path, columns: Sequence[str], row_group: int, row: int) -> Any:
    """One row of a row group, without holding the rows before it: a segment may be one group of half a gigabyte."""
    import pyarrow as pa

    file = _checked(path, columns)
    try:
        stated = file.metadata.row_group(row_group)
        check_decoded_size(path, _unpacked_bytes(file, [row_group], columns) // max(1, stated.num_rows))
        rows = file.iter_batches(batch_size=1, row_groups=[row_group], columns=list(columns), use_threads=False)
        batch = next(itertools.islice(rows, row, None), None)
        if batch is not None:
            batch.validate()
    except (OSError, pa.ArrowException, ValueError, IndexError) as error:
        raise _damaged(path, error) from error
    if batch is None or len(batch) != 1:
        raise _bad(path, f"row group {row_group}", f"a row {row}", "fewer")
    return batch


def _file(path: Path) -> Any:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        return parquet.ParquetFile(str(path))
    except (OSError, pa.ArrowException, ValueError) as error:
        raise _damaged(path, error) from error


def _read(path: Path, columns: Sequence[str], *, row_group: int | None = None) -> Any:
    """Some columns of a file, or of one row group of it."""
    import pyarrow as pa

    file = _checked(path, columns)
    groups = range(file.num_row_groups) if row_group is None else [row_group]
    try:
        check_decoded_size(path, _unpacked_bytes(file, groups, columns))
        table = file.read_row_groups(list(groups), columns=list(columns), use_threads=False)
        table.validate()
    except (OSError, pa.ArrowException, ValueError, IndexError) as error:
        raise _damaged(path, error) from error
    return table


def _checked(path: Path, columns: Sequence[str]) -> Any:
    """The open file, which has these columns."""
    file = _file(path)
    missing = [name for name in columns if name not in file.schema_arrow.names]
    if missing:
        raise _bad(path, "columns", ", ".join(columns), f"no {', '.join(missing)}")
    return file


def _unpacked_bytes(file: Any, groups: Sequence[int], columns: Sequence[str]) -> int:
    """What these columns take once unpacked, by the file's own table."""
    total = 0
    for group in groups:
        stated = file.metadata.row_group(group)
        for k in range(stated.num_columns):
            column = stated.column(k)
            if any(column.path_in_schema == name or column.path_in_schema.startswith(f"{name}.") for name in columns):
                total += column.total_uncompressed_size
    return total


def _whole_numbers(path: Path, table: Any, name: str) -> NDArray[np.int64]:
    column = table.column(name).combine_chunks()
    values = column.to_numpy(zero_copy_only=False)
    if column.null_count or values.dtype.kind not in "iu":
        raise _bad(path, name, "whole numbers", str(column.type))
    found: NDArray[np.int64] = values.astype(np.int64)
    if len(found) and not 0 <= found.min() <= found.max() < 1 << 52:
        raise _bad(path, name, "numbers from 0 to 2^52", f"{found.min()} to {found.max()}")
    return found


def _row(path: Path, value: Any, name: str, count: int) -> list[float]:
    numbers = value.as_py()
    if not isinstance(numbers, list) or len(numbers) != count or not all(_is_finite(n) for n in numbers):
        raise _bad(path, name, f"{count} finite numbers", repr(numbers)[:60])
    return [float(n) for n in numbers]


def _is_finite(number: Any) -> bool:
    return isinstance(number, (int, float)) and math.isfinite(number)


def _damaged(path: Path, error: Exception) -> DataError:
    found = " ".join(str(error).split())[:120]
    return DataError(path, "file", expected="a whole parquet file", found=found, remedy=_RESTORE)


def _bad(path: Path, field: str, expected: str, found: str) -> DataError:
    return DataError(path, field, expected=expected, found=found, remedy=_RESTORE)
