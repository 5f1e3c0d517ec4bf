"""Waymo Open Dataset, perception, version 2 (parquet): <split>/lidar/<segment>.parquet and the components beside it.

Read are lidar, lidar_calibration, lidar_pose and vehicle_pose. Sweeps are the first returns of the top lidar, each
point where it is at the frame's time, with the place from which its ray started. The frame has its origin at the top
lidar and the vehicle's axes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from copilot4d.datasets.dataset import Dataset
from copilot4d.datasets.pose_files import rigid_poses
from copilot4d.datasets.text_files import check_increasing
from copilot4d.datasets.waymo_files import Calibration, Segment
from copilot4d.errors import DataError
from copilot4d.geometry import Drive, Sweep, se3
from copilot4d.geometry.se3 import FloatArray

FORMAT = "waymo"
SPLITS = {"training": "train", "validation": "val", "testing": "test", "testing_location": "test"}
PARTS = ("lidar", "lidar_calibration", "lidar_pose", "vehicle_pose")
_SUFFIX = ".parquet"


def recognise(path: Path) -> Path | None:
    """The root with training/, validation/, ..., or one of these folders, or a component in it."""
    for folder in (path, path.parent):
        if _is_split(folder):
            return folder if path == folder or path.name in PARTS else None
    return path if any(_is_split(path / name) for name in SPLITS) else None


def open(root: Path) -> Dataset:
    """The segments at a root that `recognise` gave, by the name of their files."""
    splits = [root] if _is_split(root) else [root / name for name in SPLITS if _is_split(root / name)]
    homes = {file.stem: folder for folder in splits for file in sorted((folder / "lidar").glob(f"*{_SUFFIX}"))}
    members: dict[str, list[str]] = {}
    for name, folder in homes.items():
        if folder.name in SPLITS:
            members.setdefault(SPLITS[folder.name], []).append(name)
    return Dataset(
        format=FORMAT, root=root, names=tuple(homes), open_drive=partial(_open, homes=homes),
        splits={split: tuple(names) for split, names in members.items()},
    )  # fmt: skip


def _is_split(folder: Path) -> bool:
    return (folder / "vehicle_pose").is_dir() and any((folder / "lidar").glob(f"*{_SUFFIX}"))


def _open(name: str, *, homes: dict[str, Path]) -> Drive:
    folder = homes[name]
    segment = Segment(**{part: folder / part / f"{name}{_SUFFIX}" for part in PARTS})
    times_us, vehicle = segment.vehicle_poses()
    labels = [f"frame {time}" for time in times_us]
    check_increasing(segment.vehicle_pose, times_us, labels)
    calibration = segment.calibration()
    world_from_vehicle = rigid_poses(segment.vehicle_pose, vehicle, labels)
    vehicle_from_lidar = se3.from_rotation_translation(np.eye(3), calibration.vehicle_from_sensor[:3, 3])
    world_from_lidar = se3.compose(world_from_vehicle, vehicle_from_lidar)
    timestamps_ns = times_us * 1000
    reader = WaymoSweeps(
        segment=segment, calibration=calibration, world_from_lidar=world_from_lidar, timestamps_ns=timestamps_ns,
        places=segment.places(times_us),
    )  # fmt: skip
    return Drive(
        name=name, world_from_lidar=world_from_lidar, timestamps_ns=timestamps_ns, read=reader, format=FORMAT,
        source=str(segment.lidar), split=SPLITS.get(folder.name),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class WaymoSweeps:
    """`Drive.read` of a segment. Plain data, so that worker processes can be sent one."""

    segment: Segment
    calibration: Calibration
    world_from_lidar: FloatArray  # (N, 4, 4)
    timestamps_ns: NDArray[np.int64]
    places: NDArray[np.int64]  # (N, 2, 2) see `Segment.places`

    def __call__(self, index: int) -> Sweep:
        """Sweep `index` of the drive: its range image, and the vehicle's pose at each pixel's time."""
        image = self.segment.range_image(self.places[index, 0], self.calibration)
        returned = image[:, :, 0] > 0
        if not returned.any():
            raise DataError(
                self.segment.lidar, f"frame {self.timestamps_ns[index] // 1000}", expected="returns", found="none",
                remedy="leave this frame out",
            )  # fmt: skip
        points = self.calibration.points(image[:, :, 0])[returned]  # (N, 3) in the vehicle's frame of its own time
        motion = self._lidar_from_vehicles(index, returned)  # (N, 4, 4)
        start = self.calibration.vehicle_from_sensor[:3, 3]
        return Sweep(
            points=_moved(motion, points).astype(np.float32),
            origins=_moved(motion, np.broadcast_to(start, points.shape)).astype(np.float32),
            intensity=np.nan_to_num(image[:, :, 1][returned]),
            world_from_lidar=self.world_from_lidar[index],
            timestamp_ns=int(self.timestamps_ns[index]),
        )

    def _lidar_from_vehicles(self, index: int, returned: NDArray[np.bool_]) -> FloatArray:
        """(N, 4, 4): from the vehicle at the time of each pixel with a return to the lidar at the frame's time."""
        pose = self.segment.pixel_poses(self.places[index, 1], returned.shape)[returned]
        world_from_vehicles = se3.from_rotation_translation(_rotations(pose[:, :3]), pose[:, 3:])
        return se3.compose(se3.invert(self.world_from_lidar[index]), world_from_vehicles)


def _rotations(roll_pitch_yaw: FloatArray) -> FloatArray:
    """(..., 3) -> (..., 3, 3): a roll about x, then a pitch about y, then a yaw about z."""
    roll, pitch, yaw = np.moveaxis(roll_pitch_yaw, -1, 0)
    (sr, sp, sy), (cr, cp, cy) = (np.sin((roll, pitch, yaw)), np.cos((roll, pitch, yaw)))
    rows = [
        [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
        [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
        [-sp, cp * sr, cp * cr],
    ]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def _moved(motion: FloatArray, points: FloatArray) -> FloatArray:
    moved: FloatArray = np.einsum("nij,nj->ni", motion[:, :3, :3], points) + motion[:, :3, 3]
    return moved
