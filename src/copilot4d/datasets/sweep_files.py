"""What the formats with one file per sweep share: listing the files and reading one as a `Sweep`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

import numpy as np
from numpy.typing import NDArray

from copilot4d.datasets.deskewing import Deskewing, RecordedSweep
from copilot4d.datasets.point_files import PointFile, read_kitti_points, read_points
from copilot4d.datasets.text_files import describe
from copilot4d.errors import DataError
from copilot4d.geometry import Drive, Sweep
from copilot4d.geometry.se3 import FloatArray
from copilot4d.geometry.trajectory import Trajectory

# Returns from the recording car's own body (4D-Occ's box for KITTI): closed, any height, lidar frame.
KITTI_EGO_BOX = np.array([-2.0, -1.55, -np.inf, 3.5, 1.55, np.inf])


@dataclass(frozen=True, kw_only=True)
class SweepReader:
    """`Drive.read` for sweeps that are one file each. A plain object, so that worker processes can be sent one."""

    paths: Sequence[Path]
    world_from_lidar: FloatArray  # (N, 4, 4)
    timestamps_ns: NDArray[np.int64]  # (N,)
    read_file: Callable[[Path], PointFile] = read_points
    # Moves points to their sweep's time; None: they are as the files have them. `read_file` then reads times, too.
    deskewing: Deskewing | None = None

    def __call__(self, index: int) -> Sweep:
        """Sweep `index` of the drive, from its file."""
        file = self.read_file(self.paths[index])
        if self.deskewing is not None:
            stamp, pose = int(self.timestamps_ns[index]), self.world_from_lidar[index]
            file = self.deskewing.moved(self.paths[index], file, stamp, pose)
        return Sweep(
            points=file.points,
            intensity=file.intensity,
            origins=file.origins,
            world_from_lidar=self.world_from_lidar[index],
            timestamp_ns=int(self.timestamps_ns[index]),
        )

    def recorded(self, index: int) -> RecordedSweep | None:
        """Sweep `index` as its file has it, with the times of its points; None where it has none that can be read."""
        timed = getattr(self.read_file, "timed", None)  # the same reader, which reads times as well
        if not callable(timed):
            return None
        way = self.deskewing or Deskewing(
            trajectory=Trajectory(timestamps_ns=self.timestamps_ns, world_from_body=self.world_from_lidar)
        )
        file = timed()(self.paths[index])
        return None if file.times is None else way.recorded(self.paths[index], file, int(self.timestamps_ns[index]))

    @property
    def is_deskewed(self) -> bool:
        """Whether points are moved to their sweep's time when they are read."""
        return self.deskewing is not None


def kitti_drive(
    name: str, folder: Path, paths: Sequence[Path], world_from_lidar: FloatArray, timestamps_ns: NDArray[np.int64], *,
    format: str, split: str | None = None, ego_box: FloatArray | None = None,
) -> Drive:  # fmt: skip
    """A drive of velodyne files as KITTI writes them; without an ego box of its own, KITTI's."""
    reader = SweepReader(
        paths=paths, world_from_lidar=world_from_lidar, timestamps_ns=timestamps_ns, read_file=read_kitti_points
    )
    return Drive(
        name=name, world_from_lidar=world_from_lidar, timestamps_ns=timestamps_ns, read=reader, split=split,
        format=format, source=str(folder), ego_box=KITTI_EGO_BOX.copy() if ego_box is None else ego_box,
    )  # fmt: skip


class SweepFiles(Sequence[Path]):
    """The files of a drive by a folder and their names in it; a path is made when it is asked for."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.folder, self.names = folder, names

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, index: int) -> Path: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Path]: ...
    def __getitem__(self, index: int | slice) -> Path | Sequence[Path]:
        if isinstance(index, slice):
            return SweepFiles(self.folder, self.names[index])
        return self.folder / self.names[index]


def list_folder(folder: Path, field: str) -> list[Path]:
    """Everything in a folder, in natural order, without hidden files."""
    try:
        entries = [path for path in folder.iterdir() if not path.name.startswith(".")]
    except OSError as error:
        raise DataError(
            folder, field, expected="a folder that can be read", found=describe(error), remedy="restore the folder"
        ) from error
    return natural_sort(entries)


def subfolders(folder: Path) -> list[Path]:
    """The folders in a folder, in natural order; none where it cannot be read."""
    try:
        return natural_sort(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError:
        return []


def natural_sort(paths: Iterable[Path]) -> list[Path]:
    """By name, numbers by their value: sweep_2 before sweep_10."""
    return sorted(paths, key=lambda path: (natural_key(path.name), path.name))


def natural_key(name: str) -> list[tuple[int, int, str]]:
    """A sort key in which runs of digits compare as numbers."""
    parts = re.findall(r"[0-9]+|[^0-9]+", name)
    return [(0, int(part), "") if part[0] in "0123456789" else (1, 0, part) for part in parts]


def numbered_sweeps(folder: Path, suffix: str = ".bin") -> tuple[NDArray[np.int64], tuple[Path, ...]]:
    """The sweeps of a folder whose file names are frame numbers: (N,) increasing numbers and their files."""
    paths = [path for path in list_folder(folder, "sweeps") if path.suffix == suffix]
    if not paths:
        raise DataError(
            folder, "sweeps", expected=f"files such as 000000{suffix}", found="none", remedy="copy the sweeps there"
        )
    by_number: dict[int, Path] = {}
    for path in paths:
        if not re.fullmatch(r"[0-9]{1,18}", path.stem):
            raise DataError(
                path, "file name", expected=f"a frame number such as 000000{suffix}", found=path.name,
                remedy="move the file elsewhere or give it its frame's number",
            )  # fmt: skip
        if (number := int(path.stem)) in by_number:
            raise DataError(
                path, "file name", expected="one file per frame number",
                found=f"the number of {by_number[number].name} once more", remedy="remove one of the two",
            )  # fmt: skip
        by_number[number] = path
    numbers = sorted(by_number)
    return np.array(numbers, dtype=np.int64), tuple(by_number[number] for number in numbers)
