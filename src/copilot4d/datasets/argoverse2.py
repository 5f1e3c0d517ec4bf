"""Argoverse 2 Lidar and Sensor logs: <split>/<log>/sensors/lidar/<timestamp_ns>.feather, poses and calibration.

A sweep merges two stacked lidars and lies in the ego frame, motion-compensated. Here it is in the upper lidar's frame
(x forward, y left, z up), and `Sweep.origins` says from which of the two lidars each point was seen.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import permutations, product
from pathlib import Path

import numpy as np

from copilot4d.datasets.argoverse2_files import (
    LOWER_LIDAR,
    UPPER_LIDAR,
    Argoverse2Points,
    read_calibration,
    read_ego_poses,
)
from copilot4d.datasets.dataset import Dataset
from copilot4d.datasets.indexing import Indexed
from copilot4d.datasets.point_files import PointFile
from copilot4d.datasets.sweep_files import SweepReader, numbered_sweeps
from copilot4d.errors import DataError
from copilot4d.geometry import Drive, se3
from copilot4d.geometry.se3 import FloatArray

FORMAT = "argoverse2"
SPLITS = ("train", "val", "test")
DATASETS = ("lidar", "sensor", "tbv")  # folders of the three Argoverse 2 data sets that have sweeps
# Returns from the ego vehicle in the upper lidar's frame: |y| <= 1.25, -1.75 <= x <= 3.75, any height, closed.
EGO_BOX = np.array([-1.75, -1.25, -np.inf, 3.75, 1.25, np.inf])

_SWEEPS = Path("sensors") / "lidar"
_POSES = Path("city_SE3_egovehicle.feather")
_CALIBRATION = Path("calibration") / "egovehicle_SE3_sensor.feather"


def recognise(path: str | Path) -> Path | None:
    """The folder to give to `open`, or None: a log, a split of logs, a root with splits, or a folder of such roots."""
    path = Path(path)
    return path if next(_logs(path), None) is not None else None


def open(root: str | Path) -> Dataset:
    """The logs at or below a path, by their log id. A log's split is the name of the folder that it lies in.

    Logs come in the order of their ids as text, which is that of the public code's split lists: the protocol takes
    every fifth entry of the logs put one behind the other, so their order decides which frames are scored.
    """
    root = Path(root)
    folders = list(_logs(root))
    if not folders:
        raise DataError(
            root, "Argoverse 2", expected="logs with sensors/lidar/*.feather", found="none",
            remedy="give the path of a log, of a split (train, val, test) or of the folder that holds the splits",
        )  # fmt: skip
    known = Counter(folder.name for folder in folders)
    logs = {
        folder.name if known[folder.name] == 1 else folder.relative_to(root).as_posix(): folder for folder in folders
    }
    members: dict[str, list[str]] = {split: [] for split in SPLITS}
    for name, folder in logs.items():
        if (split := _split_of(folder)) is not None:
            members[split].append(name)
    return Dataset(
        format=FORMAT,
        root=root,
        names=tuple(logs),
        open_drive=lambda name: _open_log(name, logs[name]),
        splits={split: tuple(names) for split, names in members.items() if names},
        indexed=Indexed(
            files=lambda name: (logs[name] / part for part in (_SWEEPS, _POSES, _CALIBRATION)),
            numbers=_placement,
            read_file=_reader,
        ),
    )


def _open_log(name: str, folder: Path) -> Drive:
    timestamps_ns, paths = numbered_sweeps(folder / _SWEEPS, ".feather")
    ego_from_sensor = read_calibration(folder / _CALIBRATION, (UPPER_LIDAR, LOWER_LIDAR))
    ego_from_lidar = x_forward(ego_from_sensor[UPPER_LIDAR])
    lidar_from_ego = se3.invert(ego_from_lidar)
    lower_origin = se3.compose(lidar_from_ego, ego_from_sensor[LOWER_LIDAR])[:3, 3]
    world_from_ego = read_ego_poses(folder / _POSES, timestamps_ns)
    world_from_lidar = se3.compose(world_from_ego, ego_from_lidar)
    reader = SweepReader(
        paths=paths,
        world_from_lidar=world_from_lidar,
        timestamps_ns=timestamps_ns,
        read_file=Argoverse2Points(lidar_from_ego=lidar_from_ego, lower_origin=lower_origin),
    )
    return Drive(
        name=name, world_from_lidar=world_from_lidar, timestamps_ns=timestamps_ns, read=reader,
        split=_split_of(folder), format=FORMAT, source=str(folder), ego_box=EGO_BOX,
    )  # fmt: skip


def _placement(drive: Drive) -> FloatArray:
    """(15,) what the reader needs beside the file: the top of lidar_from_ego, and the lower lidar's place."""
    assert isinstance(drive.read, SweepReader)
    given = drive.read.read_file
    assert isinstance(given, Argoverse2Points)
    return np.concatenate([given.lidar_from_ego[:3].ravel(), given.lower_origin])


def _reader(placement: FloatArray) -> Callable[[Path], PointFile]:
    """The reader of a log's sweeps, of the numbers that `_placement` gave."""
    lidar_from_ego = np.vstack([placement[:12].reshape(3, 4), [0, 0, 0, 1]])
    return Argoverse2Points(lidar_from_ego=lidar_from_ego, lower_origin=placement[12:])


def x_forward(ego_from_sensor: FloatArray) -> FloatArray:
    """The sensor's frame with its axes renamed, if need be, so that x is the one nearest to forward and z to up.

    Known calibrations give the upper lidar axes within a degree of the ego's, and then nothing changes; one that is
    mounted turned by quarters (or upside down) would still come out as x forward, y left, z up.
    """
    rotation = ego_from_sensor[:3, :3]
    turned = max(_quarter_turns(), key=lambda quarter: float(np.sum(quarter * rotation)))
    return se3.from_rotation_translation(rotation @ turned.T, ego_from_sensor[:3, 3])


def _quarter_turns() -> Iterator[FloatArray]:
    """The 24 rotations that map axes onto axes."""
    for order, signs in product(permutations(range(3)), product((1.0, -1.0), repeat=3)):
        matrix = np.eye(3)[list(order)] * np.array(signs)[:, None]
        if np.linalg.det(matrix) > 0:
            yield matrix


def _split_of(log: Path) -> str | None:
    name = log.absolute().parent.name
    return name if name in SPLITS else None


def _is_log(folder: Path) -> bool:
    """Any one part makes a log, so that a missing other part is an error that names it, not a log passed over."""
    return (folder / _SWEEPS).is_dir() or (folder / _POSES).is_file() or (folder / _CALIBRATION).is_file()


def _logs(path: Path) -> Iterator[Path]:
    """The logs at a path: itself, or in it, or in its splits, or in the splits of the data sets in it."""
    if _is_log(path):
        yield path
        return
    for child in _folders(path):
        if child.name in SPLITS:
            yield from filter(_is_log, _folders(child))
        elif child.name in DATASETS:
            yield from (log for split in SPLITS for log in _folders(child / split) if _is_log(log))
        elif _is_log(child):
            yield child


def _folders(path: Path) -> list[Path]:
    """The folders in a folder in the order of their names as text; none where it cannot be read."""
    try:
        with os.scandir(path) as entries:  # which knows folders from files without asking for each
            names = sorted(e.name for e in entries if not e.name.startswith(".") and e.is_dir())
    except OSError:
        return []
    return [path / name for name in names]
