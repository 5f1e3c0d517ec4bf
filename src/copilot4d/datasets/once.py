"""ONCE: data/<sequence>/<sequence>.json and lidar_roof/<frame>.bin; 2 sweeps a second, with a pose for most of them.

On disk the lidar has x to the left and y backward; here points and poses are turned to x forward, y left, z up. A
frame's number is its time in Unix milliseconds.
"""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path

import numpy as np

from copilot4d.datasets.dataset import Dataset
from copilot4d.datasets.json_files import (
    LEFT_BACK_UP_FROM_LIDAR,
    RESTORE,
    bad_value,
    number_list,
    poses_of,
    read_json,
)
from copilot4d.datasets.point_files import PointFile, read_points
from copilot4d.datasets.sweep_files import SweepReader, subfolders
from copilot4d.datasets.text_files import check_increasing, numbered_lines
from copilot4d.errors import Copilot4dWarning, DataError
from copilot4d.geometry import Drive, se3

FORMAT = "once"
SWEEPS = "lidar_roof"
SPLITS = ("train", "val", "test", "raw_small", "raw_medium", "raw_large")  # ImageSets/<split>.txt


def recognise(path: Path) -> Path | None:
    """The folder of the sequences: the path itself or data/ in it; or one sequence, or its lidar_roof."""
    if _is_sequence(path):
        return path
    if path.name == SWEEPS and _is_sequence(path.parent):
        return path.parent
    return next((f for f in (path, path / "data") if any(_is_sequence(one) for one in subfolders(f))), None)


def open(root: Path) -> Dataset:
    """The sequences at a root that `recognise` gave, by the folder's name."""
    found = [root] if _is_sequence(root) else [folder for folder in subfolders(root) if _is_sequence(folder)]
    folders = {folder.name: folder for folder in found}
    return Dataset(
        format=FORMAT, root=root, names=tuple(folders), splits=_splits(folders),
        open_drive=partial(_open, folders=folders),
    )  # fmt: skip


def read_sweep_file(path: Path) -> PointFile:
    """One .bin (x left, y backward, z up, intensity) in our axes: (x, y, z) -> (-y, x, z)."""
    file = read_points(path)
    points = np.stack([-file.points[:, 1], file.points[:, 0], file.points[:, 2]], axis=1)
    return PointFile(points=points, intensity=file.intensity, known_finite=True)


def _is_sequence(folder: Path) -> bool:
    return (folder / f"{folder.name}.json").is_file() and (folder / SWEEPS).is_dir()


def _splits(folders: dict[str, Path]) -> dict[str, tuple[str, ...]]:
    """By the lists in ImageSets beside data/; without lists, by the name of the folder around data/."""
    if not folders:
        return {}
    around = next(iter(folders.values())).parent.parent
    found = {}
    for split in SPLITS:
        file = around / "ImageSets" / f"{split}.txt"
        names = [line for _, line in numbered_lines(file, "split")] if file.is_file() else []
        if not names and around.name == split:
            names = list(folders)
        if members := tuple(name for name in names if name in folders):
            found[split] = members
    return found


def _open(name: str, *, folders: dict[str, Path]) -> Drive:
    folder = folders[name]
    path = folder / f"{name}.json"
    frames = read_json(path, "sequence", dict).get("frames")
    if not isinstance(frames, list) or not frames:
        raise bad_value(path, "frames", "a list of frames", frames)
    ids, numbers = [], []
    for at, frame in enumerate(frames):
        identity = str(frame.get("frame_id")) if isinstance(frame, dict) else ""
        if not (identity.isascii() and identity.isdecimal() and len(identity) <= 15):
            raise bad_value(path, f"frames[{at}].frame_id", "a time in Unix milliseconds", frame)
        ids.append(identity)
        numbers.append(number_list(path, f"frames[{at}].pose", frame.get("pose"), 7))
    xyzw = np.array(numbers)  # quaternion x y z w, then the translation
    posed = np.flatnonzero(np.abs(xyzw[:, :4]).sum(axis=1) > 0)  # a frame without a pose has zeros
    if not len(posed):
        raise DataError(path, "poses", expected="poses of its frames", found="zeros alone", remedy=RESTORE)
    if len(posed) < len(ids):
        warnings.warn(
            f"{path}: {len(ids) - len(posed)} of {len(ids)} frames have no pose and are left out",
            Copilot4dWarning, stacklevel=2,
        )  # fmt: skip
    labels = [f"frame {ids[k]}" for k in posed]
    timestamps_ns = np.array([int(ids[k]) for k in posed], dtype=np.int64) * 1_000_000
    check_increasing(path, timestamps_ns, labels)
    world_from_sensor = poses_of(path, xyzw[posed][:, [3, 0, 1, 2]], xyzw[posed][:, 4:], labels)
    world_from_lidar = se3.compose(world_from_sensor, LEFT_BACK_UP_FROM_LIDAR)
    reader = SweepReader(
        paths=tuple(folder / SWEEPS / f"{ids[k]}.bin" for k in posed), world_from_lidar=world_from_lidar,
        timestamps_ns=timestamps_ns, read_file=read_sweep_file,
    )  # fmt: skip
    split = next((split for split, names in _splits(folders).items() if name in names), None)
    return Drive(
        name=name, world_from_lidar=world_from_lidar, timestamps_ns=timestamps_ns, read=reader, split=split,
        format=FORMAT, source=str(folder),
    )  # fmt: skip
