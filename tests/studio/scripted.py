"""A forecaster whose every step waits to be let through, and a library of toy drives: nothing here takes time."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np

from copilot4d.datasets import Dataset
from copilot4d.errors import DataError
from copilot4d.forecaster import ImaginedFrame, PlainForecaster
from copilot4d.geometry import Sweep
from copilot4d.studio.library import Library
from tests.support.scenes import make_drive


class Scripted(PlainForecaster):
    """Imagines the newest sweep again, shifted by a random number that depends on (seed, future, frame) alone."""

    name = "scripted"

    def __init__(self, gate: threading.Semaphore | None = None) -> None:
        self.gate = gate  # None: every step goes through at once
        self.begun = 0
        self.steps: list[np.ndarray] = []
        self.arrived = threading.Semaphore(0)

    def forecast(self, *_, **__):
        raise AssertionError("the studio asks frame by frame")

    def imagine(self, past, *, guidance=None, steps=None, seed=0, futures=1):
        self.begun += 1
        return _Imagination(self, past, seed, futures, 0)


class _Imagination:
    def __init__(self, owner, past, seed, futures, made):
        self.owner, self.past, self.seed, self.futures, self.made = owner, past, seed, futures, made

    def step(self, world_from_lidar, rays=None):
        assert rays is None, "a model that imagines by itself chooses its own points"
        self.owner.arrived.release()
        if self.owner.gate is not None:
            assert self.owner.gate.acquire(timeout=60)
        self.owner.steps.append(world_from_lidar)
        self.made += 1
        return tuple(self._frame(world_from_lidar, future) for future in range(self.futures))

    def fork(self):
        return _Imagination(self.owner, self.past, self.seed, self.futures, self.made)

    def _frame(self, pose, future):
        drawn = np.random.default_rng([self.seed, future, self.made]).normal(size=3) * 0.3
        newest = self.past[-1]
        points = (newest.points + drawn).astype(np.float32)
        return ImaginedFrame(sweep=replace(newest, points=points, world_from_lidar=pose))


def toy_dataset(tmp_path, **drives) -> Dataset:
    """Drives by name; None stands for one without poses."""
    opened = drives or {"one": make_drive(30, name="one", rings=8, azimuths=60)}

    def open_drive(name):
        if opened[name] is None:
            raise DataError(
                tmp_path / name / "poses.txt", "poses", expected="poses", found="no file", remedy="estimate them"
            )
        return opened[name]

    without = tuple(name for name, drive in opened.items() if drive is None)
    return Dataset(
        format="folder", root=tmp_path, names=tuple(opened), open_drive=open_drive, names_without_poses=without
    )


class ToyLibrary(Library):
    """Knows one data set, called "toy", and the scripted forecaster beside those that load_forecaster knows."""

    def __init__(self, dataset: Dataset, scripted: Scripted | None = None) -> None:
        super().__init__(models=("copy_last", "ray_tracing"))
        self.toy = dataset
        if scripted is not None:
            self._models = ("scripted", *self._models)
            self._forecasters["scripted"] = scripted

    def dataset(self, path):
        return self.toy if str(path) == "toy" else super().dataset(path)


def empty_like(sweep: Sweep) -> Sweep:
    return replace(sweep, points=np.zeros((0, 3), dtype=np.float32), intensity=None, origins=None)
