"""`open_dataset("street-v1/val")`: the simulator's benchmark, made when it is asked for and kept on disk.

Names: street-v1, street-v1/val, street-v1/test, street-v1/train (1,000 drives), street-v1/train:5000, street-v1-whatif.
`@hdl64` at the end gives the same streets with another sensor. The cache is COPILOT4D_CACHE, else the user's cache
folder; a drive there is reproducible and may be removed at any time. A drive that turns out to be damaged is made
again, with a warning.
"""

from __future__ import annotations

import os
import re
import shutil
import warnings
from functools import partial
from pathlib import Path

from copilot4d.datasets.cache_folder import cache_folder
from copilot4d.datasets.dataset import Dataset
from copilot4d.datasets.file_lock import held
from copilot4d.datasets.simulated_files import read_simulated, write_simulated
from copilot4d.errors import Copilot4dWarning, DataError, UsageError, did_you_mean
from copilot4d.geometry import Drive
from copilot4d.simulator.benchmark import (
    MOMENTS,
    PLANS,
    SENSOR,
    SIMULATOR_VERSION,
    SIZES,
    street_v1_drive,
    whatif_drive,
)
from copilot4d.simulator.drive import SimulatedDrive
from copilot4d.simulator.sensors import sensor_named

FORMAT = "simulated"
TRAIN_DRIVES = 1000  # of street-v1/train where no number is given: the split has no end
_NAME = re.compile(r"street-v1(?P<whatif>-whatif)?(/(?P<split>[a-z]+)(:(?P<count>\d+))?)?(@(?P<sensor>\w+))?")


def open(name: str) -> Dataset:
    """The data set of a name; drives are simulated (and cached) one by one, when they are asked for."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise UsageError(
            f"there is no simulated data set {name!r}; try street-v1/val, street-v1/train:5000, street-v1-whatif, or "
            "one of them with another sensor, as in street-v1/val@hdl64"
        )
    sensor = sensor_named(match["sensor"] or SENSOR).name
    root = cache_folder() / f"street-v1.{SIMULATOR_VERSION}" / sensor
    if match["whatif"]:
        if match["split"] not in (None, "test") or match["count"]:
            raise UsageError(f"street-v1-whatif has no part {match['split']!r}: it is 60 moments of the test split")
        names = tuple(f"whatif_{number:02d}_{plan}" for number in range(MOMENTS) for plan in PLANS)
        return _dataset(root, names, {"test": names}, sensor)
    counts = {**SIZES, "train": TRAIN_DRIVES}
    if match["count"]:
        if match["split"] != "train":
            raise UsageError(f"{name}: only street-v1/train takes a number of drives")
        counts["train"] = int(match["count"])
    splits = {split: tuple(_drive_name(split, i) for i in range(n)) for split, n in counts.items()}
    if match["split"] is None:
        ordered = tuple(n for split in ("train", "val", "test") for n in splits[split])
        return _dataset(root, ordered, splits, sensor)
    if match["split"] not in splits:
        raise UsageError(
            f"street-v1 has no split {match['split']!r}{did_you_mean(match['split'], list(splits))}; "
            "its splits: train, val, test"
        )
    names = splits[match["split"]]
    if not names:
        raise UsageError(f"{name}: asks for no drives at all")
    return _dataset(root, names, {match["split"]: names}, sensor)


def _dataset(root: Path, names: tuple[str, ...], splits: dict[str, tuple[str, ...]], sensor: str) -> Dataset:
    open_drive = partial(_open_drive, root=root, sensor=sensor)
    return Dataset(format=FORMAT, root=root, names=names, splits=splits, open_drive=open_drive)


def _drive_name(split: str, index: int) -> str:
    return f"{split}_{index:0{6 if split == 'train' else 3}d}"


def _open_drive(name: str, *, root: Path, sensor: str) -> Drive:
    split = "test" if name.startswith("whatif_") else name.split("_")[0]
    folder = root / name
    if not folder.exists():
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"simulated drives cannot be kept in {root} ({error.strerror}); set COPILOT4D_CACHE to a folder that "
                "can be written"
            ) from error
        write_simulated(_simulate(name, sensor), root)
    repair = partial(_repair, name=name, root=root, sensor=sensor)
    try:
        return read_simulated(folder, split=split, repair=repair)
    except DataError as error:
        repair(error)
        return read_simulated(folder, split=split, repair=repair)


def _repair(error: DataError, *, name: str, root: Path, sensor: str) -> None:
    """Make a damaged drive of the cache again; one process at a time, for all that found the same damage."""
    with held(root / f".repair-{name}.lock"):
        try:
            for _ in read_simulated(root / name):  # all of it: perhaps somebody else has just made it again
                pass
            return
        except DataError:
            pass
        found = f"{error.field}: expected {error.expected}, found {error.found}"
        warnings.warn(
            Copilot4dWarning(f"the simulated drive {root / name} is damaged ({error.path}: {found}): it is made again"),
            stacklevel=2,
        )
        damaged = root / f".partial-{name}-damaged-{os.getpid()}"
        if (root / name).exists():
            (root / name).rename(damaged)
        try:
            write_simulated(_simulate(name, sensor), root)
        finally:
            shutil.rmtree(damaged, ignore_errors=True)


def _simulate(name: str, sensor: str) -> SimulatedDrive:
    kind, index, *plan = name.split("_")
    return whatif_drive(int(index), plan[0], sensor) if kind == "whatif" else street_v1_drive(kind, int(index), sensor)
