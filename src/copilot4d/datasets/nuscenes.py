"""nuScenes: scenes as drives, from the official tables, without the devkit.

On disk the lidar has x to the right and y forward; here points and poses are turned to x forward, y left, z up.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np

from copilot4d.datasets.dataset import Dataset
from copilot4d.datasets.indexing import Indexed
from copilot4d.datasets.json_records import Record
from copilot4d.datasets.nuscenes_splits import VERSION_SPLITS, split_of
from copilot4d.datasets.nuscenes_tables import TABLES, SceneSweeps, read_scenes, read_sweeps
from copilot4d.datasets.point_files import PointFile, read_points
from copilot4d.datasets.sweep_files import SweepReader
from copilot4d.errors import DataError, UsageError
from copilot4d.geometry import Drive, se3

FORMAT = "nuscenes"
COLUMNS = ("x", "y", "z", "intensity", "ring")  # of a .pcd.bin, float32
# Returns from the ego vehicle: |x| <= 0.8, -1.5 <= y <= 2.5 in nuScenes' axes; here in ours, any height, closed.
EGO_BOX = np.array([-1.5, -0.8, -np.inf, 2.5, 0.8, np.inf])

_LATEST_US = 1 << 52  # in nanoseconds it still fits 64 bits
_BARE_SWEEP = re.compile(r"(?P<log>.+)__LIDAR_TOP__(?P<timestamp_us>[0-9]{1,16})\.pcd\.bin")


def recognise(path: str | Path) -> Path | None:
    """The folder to give to `open`, or None: a root that has v1.0-*/ with tables, one such v1.0-* folder itself, or a
    folder of bare LIDAR_TOP sweeps.
    """
    path = Path(path)
    found = _version_folders(path) or _bare_sweeps(path)
    return path if found else None


def open(root: str | Path, sweeps: Literal["keyframes", "all"] = "keyframes") -> Dataset:
    """The scenes of a nuScenes root, or of one v1.0-* folder; several versions in a root are joined.

    sweeps: "keyframes" are the 2 Hz sweeps that the protocol scores, "all" the 20 Hz of the sensor. Opening reads
    scene.json alone; the first drive of all reads the other tables and leaves an index for every later process.
    """
    if sweeps not in ("keyframes", "all"):
        raise UsageError(f'nuScenes has sweeps="keyframes" or sweeps="all", not {sweeps!r}')
    root = Path(root)
    folders = _version_folders(root)
    if not folders:
        return _open_bare(root)
    index = cache(lambda folder: read_sweeps(folder, keyframes_only=sweeps == "keyframes"))
    scenes: dict[str, tuple[Path, Record]] = {}
    for folder in folders:
        for name, record in read_scenes(folder).items():
            scenes.setdefault(name, (folder, record))  # the scenes of v1.0-mini are in v1.0-trainval too
    splits: dict[str, list[str]] = {split: [] for folder in folders for split in VERSION_SPLITS.get(folder.name, ())}
    for name, (folder, _) in scenes.items():
        if (split := split_of(folder.name, name)) is not None:
            splits[split].append(name)

    def open_drive(name: str) -> Drive:
        folder, record = scenes[name]
        found = index(folder).get(record["token"])
        if found is None or found.keyframes != record["nbr_samples"]:
            raise DataError(
                folder / "sample_data.json", f"scene {name}",
                expected=f"{record['nbr_samples']} LIDAR_TOP keyframes (nbr_samples in scene.json)",
                found=str(found.keyframes if found else 0),
                remedy="unpack sample.json and sample_data.json again, both of the same version",
            )  # fmt: skip
        return _drive(name, folder.parent, found, split_of(folder.name, name))

    return Dataset(
        format=FORMAT,
        root=root,
        names=tuple(scenes),
        open_drive=open_drive,
        splits={split: tuple(names) for split, names in splits.items() if names},
        indexed=Indexed(
            files=lambda name: (scenes[name][0] / f"{table}.json" for table in TABLES),
            read_file=lambda numbers: read_sweep_file,
            options=f"sweeps={sweeps}",
            together=True,
            forget=index.cache_clear,
        ),
    )


def read_sweep_file(path: Path) -> PointFile:
    """One .pcd.bin (x right, y forward, z up, intensity, ring) in our axes: (x, y, z) -> (y, -x, z)."""
    file = read_points(path, columns=COLUMNS)
    x_and_y = file.points[:, :2].view(np.complex64)  # a quarter turn in place: (x + iy) (-i) = y - ix, in one pass
    np.multiply(x_and_y, np.complex64(-1j), out=x_and_y)
    return file


def _drive(name: str, root: Path, sweeps: SceneSweeps, split: str | None) -> Drive:
    reader = SweepReader(
        paths=tuple(root / file for file in sweeps.files),
        world_from_lidar=sweeps.world_from_lidar,
        timestamps_ns=sweeps.timestamps_ns,
        read_file=read_sweep_file,
    )
    return Drive(
        name=name, world_from_lidar=sweeps.world_from_lidar, timestamps_ns=sweeps.timestamps_ns, read=reader,
        split=split, format=FORMAT, source=str(root), ego_box=EGO_BOX,
    )  # fmt: skip


def _version_folders(path: Path) -> list[Path]:
    """The v1.0-* folders with tables: `path` itself or those in it, trainval and test before mini."""

    def has_tables(folder: Path, least: int) -> bool:
        return sum((folder / f"{name}.json").is_file() for name in TABLES) >= least

    if not path.is_dir():
        return []
    if has_tables(path, 1 if re.match(r"v1\.", path.name) else len(TABLES)):
        return [path]
    order = {version: at for at, version in enumerate(VERSION_SPLITS)}
    found = [folder for folder in path.glob("v1.*") if folder.is_dir() and has_tables(folder, 1)]
    return sorted(found, key=lambda folder: (order.get(folder.name, len(order)), folder.name))


def _bare_sweeps(path: Path) -> dict[str, list[tuple[int, Path]]]:
    """Log name -> (time in microseconds, file) of the sweeps that lie in a folder without any tables."""
    logs = defaultdict(list)
    for file in sorted(path.glob("*__LIDAR_TOP__*.pcd.bin")) if path.is_dir() else []:
        match = _BARE_SWEEP.fullmatch(file.name)
        if match and int(match["timestamp_us"]) < _LATEST_US:
            logs[match["log"]].append((int(match["timestamp_us"]), file))
    return logs


def _open_bare(path: Path) -> Dataset:
    """Single sweeps without tables: each log's sweep is its own world. More than one would need the poses."""
    logs = _bare_sweeps(path)
    if not logs:
        raise DataError(
            path, "nuScenes", expected="a folder v1.0-trainval, v1.0-test or v1.0-mini with the tables",
            found="none", remedy="give the folder that holds samples/, sweeps/ and v1.0-*/",
        )  # fmt: skip

    def open_drive(name: str) -> Drive:
        if len(logs[name]) > 1:
            raise DataError(
                path, f"log {name}", expected="tables (v1.0-*/) with the poses of its sweeps",
                found=f"{len(logs[name])} sweeps and no tables", remedy="unpack the data set's metadata archive",
            )  # fmt: skip
        (timestamp_us, file) = logs[name][0]
        times = np.array([timestamp_us], dtype=np.int64) * 1000
        found = SceneSweeps(files=(file.name,), timestamps_ns=times, world_from_lidar=se3.identity((1,)), keyframes=1)
        return _drive(name, path, found, None)

    names = tuple(logs)
    return Dataset(format=FORMAT, root=path, names=names, open_drive=open_drive, names_without_poses=names)
