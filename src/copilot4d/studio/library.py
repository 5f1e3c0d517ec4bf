"""What all windows of the studio share: opened data sets and loaded models, each opened once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from copilot4d.datasets import Dataset, open_dataset
from copilot4d.forecaster import Forecaster, Sampling, sampling_of
from copilot4d.forecasting.load import load_forecaster

MOST_DATA_SETS = 4  # kept open; the oldest is closed for a fifth


class Library:
    """Opens by name, once. Safe to be used from several threads."""

    def __init__(self, *, models: tuple[str, ...] = (), load: Callable[[str], Forecaster] = load_forecaster) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._data_sets: dict[str, Dataset] = {}
        self._forecasters: dict[str, Forecaster] = {}
        self._models = tuple(dict.fromkeys(models))

    @property
    def models(self) -> tuple[str, ...]:
        """Names to choose from: those that were given, and what was loaded since."""
        with self._lock:
            return self._models

    def dataset(self, path: str | Path) -> Dataset:
        """The data set at a path or of a name."""
        key = str(path)
        with self._lock:
            if key in self._data_sets:
                return self._data_sets[key]
        opened = open_dataset(path)
        with self._lock:
            while len(self._data_sets) >= MOST_DATA_SETS:
                self._data_sets.pop(next(iter(self._data_sets)))
            return self._data_sets.setdefault(key, opened)

    def limits(self, name: str) -> str:
        """How far a trained model sees and what it was trained on; nothing for a baseline, or before it is loaded."""
        with self._lock:
            loaded = self._forecasters.get(name)
            return "" if loaded is None else loaded.limits

    def sampling(self, name: str) -> Sampling:
        """Guidance and steps as stored with a model; the usual ones before it is loaded."""
        with self._lock:
            return sampling_of(self._forecasters.get(name))

    def forecaster(self, name: str) -> Forecaster:
        """A model by its name or folder; it stays loaded."""
        with self._lock:
            if name in self._forecasters:
                return self._forecasters[name]
        loaded = self._load(name)
        with self._lock:
            if name not in self._models:
                self._models = (*self._models, name)
            return self._forecasters.setdefault(name, loaded)
