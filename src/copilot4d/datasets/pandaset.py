"""PandaSet, converted: <sequence>/lidar/<frame>.feather beside the files as published.

Its sweeps are published as pickles, which can run any program when they are read, and are never read here: its user
writes them again as tables (docs/datasets_pandaset_waymo_once.md). A table has world coordinates x y z, i, t and d.

Poses: lidar/poses.json is not where the lidar is, so they come from the front camera, whose images are taken in the
middle of a sweep, and its place on the vehicle.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copilot4d.datasets.dataset import Dataset
from copilot4d.datasets.json_files import (
    LEFT_BACK_UP_FROM_LIDAR,
    RESTORE,
    bad_value,
    number_list,
    poses_of,
    read_json,
)
from copilot4d.datasets.sweep_files import subfolders
from copilot4d.datasets.text_files import check_increasing
from copilot4d.errors import DataError
from copilot4d.geometry import Drive, Sweep, se3
from copilot4d.geometry.se3 import FloatArray

FORMAT = "pandaset"
PAGE = "docs/datasets_pandaset_waymo_once.md"
SPINNING = 0  # of column d: Pandar64; 1 is PandarGT, which looks ahead alone
# The front camera's calibration as published with the data set: camera_from_lidar, with the lidar's own axes.
CAMERA_FROM_LIDAR = se3.from_quaternion(
    np.array([0.016213200031258722, 0.0030578899383849464, 0.7114721800418571, -0.7025205466606356]),
    np.array([0.0002585796504896516, -0.03907777167811011, -0.0440125762408362]),
)
_LIDAR, _CAMERA = Path("lidar"), Path("camera") / "front_camera"
_PICKLE = ".pkl.gz"
_COLUMNS = ("x", "y", "z", "i", "d")


def recognise(path: Path) -> Path | None:
    """The folder of the sequences, converted or not; or one sequence."""
    if _is_sequence(path) or any(_is_sequence(folder) for folder in subfolders(path)):
        return path
    return path.parent if path.name == "lidar" and _is_sequence(path.parent) else None


def open(root: Path) -> Dataset:
    """The sequences at a path, by the folder's name. DataError where none has been converted."""
    found = [root] if _is_sequence(root) else [folder for folder in subfolders(root) if _is_sequence(folder)]
    folders = {folder.name: folder for folder in found}
    if not any(_frames(folder / _LIDAR, ".feather") for folder in found):
        raise _not_converted(found[0] / _LIDAR)
    return Dataset(format=FORMAT, root=root, names=tuple(folders), open_drive=partial(_open, folders=folders))


def _is_sequence(folder: Path) -> bool:
    """poses.json and timestamps.json beside numbered sweeps tell it from every other format."""
    lidar = folder / _LIDAR
    if not ((lidar / "poses.json").is_file() and (lidar / "timestamps.json").is_file()):
        return False
    return bool(_frames(lidar, _PICKLE) or _frames(lidar, ".pkl") or _frames(lidar, ".feather"))


def _frames(lidar: Path, suffix: str) -> dict[int, Path]:
    """Frame number -> file."""
    pattern = re.compile(rf"([0-9]{{1,6}}){re.escape(suffix)}")
    found = {int(match[1]): path for path in lidar.iterdir() if (match := pattern.fullmatch(path.name))}
    return dict(sorted(found.items()))


def _not_converted(lidar: Path) -> DataError:
    return DataError(
        lidar, "sweeps", expected="00.feather, 01.feather, ...", found="pickles (.pkl.gz) alone, which are never read: "
        "reading a pickle runs whatever program it holds",
        remedy=f"write them again as tables with the program of {PAGE}, in an environment of your own",
    )  # fmt: skip


def _open(name: str, *, folders: dict[str, Path]) -> Drive:
    folder = folders[name]
    frames = _frames(folder / _LIDAR, ".feather")
    if not frames:
        raise _not_converted(folder / _LIDAR)
    missing = sorted({*_frames(folder / _LIDAR, _PICKLE), *_frames(folder / _LIDAR, ".pkl")} - set(frames))
    if missing:
        raise DataError(
            folder / _LIDAR, "sweeps", expected="every sweep as a .feather table",
            found=f"{len(missing)} of {len(frames) + len(missing)} as pickles alone, frame {missing[0]:02d} first",
            remedy=f"run the program of {PAGE} again",
        )  # fmt: skip
    numbers = list(frames)
    poses, timestamps_ns = _camera(folder / _CAMERA, numbers)
    world_from_lidar = se3.compose(poses, CAMERA_FROM_LIDAR, LEFT_BACK_UP_FROM_LIDAR)
    reader = PandaSetSweeps(
        paths=tuple(frames.values()), world_from_lidar=world_from_lidar, timestamps_ns=timestamps_ns
    )  # fmt: skip
    return Drive(
        name=name, world_from_lidar=world_from_lidar, timestamps_ns=timestamps_ns, read=reader, format=FORMAT,
        source=str(folder),
    )  # fmt: skip


def _camera(folder: Path, numbers: list[int]) -> tuple[FloatArray, NDArray[np.int64]]:
    """(N, 4, 4) world_from_camera and times of these frames."""
    path, times_path = folder / "poses.json", folder / "timestamps.json"
    stated, times = read_json(path, "poses", list), read_json(times_path, "timestamps", list)
    for file, values in ((path, stated), (times_path, times)):
        if len(values) <= numbers[-1]:
            raise DataError(
                file, "frames", expected=f"one for each sweep, up to {numbers[-1]:02d}", found=f"{len(values)}",
                remedy=RESTORE,
            )  # fmt: skip
    labels = [f"frame {number:02d}" for number in numbers]
    quaternions = [_parts(path, stated[n], n, "heading", "wxyz") for n in numbers]
    places = [_parts(path, stated[n], n, "position", "xyz") for n in numbers]
    seconds = number_list(times_path, "timestamps", [times[n] for n in numbers], len(numbers))
    if not all(0 <= s < 4e9 for s in seconds):
        raise bad_value(times_path, "timestamps", "Unix seconds", min(seconds))
    timestamps_ns = np.array([round(s * 1e6) * 1000 for s in seconds], dtype=np.int64)
    check_increasing(times_path, timestamps_ns, labels)
    return poses_of(path, np.array(quaternions), np.array(places), labels), timestamps_ns


def _parts(path: Path, pose: Any, number: int, part: str, names: str) -> list[float]:
    given = pose.get(part) if isinstance(pose, dict) else None
    values = [given.get(name) for name in names] if isinstance(given, dict) else given
    return number_list(path, f"[{number}].{part}", values, len(names))


@dataclass(frozen=True, kw_only=True)
class PandaSetSweeps:
    """`Drive.read`: the spinning lidar's points of a table, moved from the world to the lidar."""

    paths: tuple[Path, ...]
    world_from_lidar: FloatArray  # (N, 4, 4)
    timestamps_ns: NDArray[np.int64]

    def __call__(self, index: int) -> Sweep:
        """Sweep `index` of the drive, from its table."""
        from copilot4d.datasets.argoverse2_files import read_columns  # loads pyarrow: only when needed

        path, pose = self.paths[index], self.world_from_lidar[index]
        columns = read_columns(path, _COLUMNS)
        spinning = columns["d"] == SPINNING
        world = np.stack([columns[axis][spinning] for axis in "xyz"], axis=1)
        if not len(world) or not np.isfinite(world).all():
            found = "none" if not len(world) else "NaN or infinity"
            raise DataError(
                path, "points", expected="finite points of the spinning lidar (d = 0)", found=found,
                remedy="convert the sweep again",
            )  # fmt: skip
        return Sweep(
            points=se3.transform_points(se3.invert(pose), world).astype(np.float32),
            intensity=columns["i"][spinning].astype(np.float32),
            world_from_lidar=pose,
            timestamp_ns=int(self.timestamps_ns[index]),
        )
