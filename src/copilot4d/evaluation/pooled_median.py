"""The median over all rays of a data set, in bounded memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from copilot4d.geometry.se3 import FloatArray


class PooledMedian:
    """Counts values in logarithmic bins: the median is right to one part in ten thousand, however many there are.

    Values below 1e-7 (errors of nothing) count as 0, values above 1e5 as 1e5.
    """

    _LOW, _HIGH, _STEP = 1e-7, 1e5, 1e-4

    def __init__(self) -> None:
        bins = int(np.ceil(np.log(self._HIGH / self._LOW) / self._STEP))
        self.counts: NDArray[np.int64] = np.zeros(bins + 2, dtype=np.int64)  # bin 0 holds the zeros

    def add(self, values: FloatArray) -> None:
        """Count more values, all >= 0."""
        positive = np.clip(np.asarray(values, dtype=np.float64), self._LOW, self._HIGH)
        index = np.ceil(np.log(positive / self._LOW) / self._STEP).astype(np.int64)
        np.add.at(self.counts, index, 1)

    @property
    def count(self) -> int:
        """How many values were added."""
        return int(self.counts.sum())

    def value(self) -> float:
        """The median so far; NaN where nothing was added."""
        if self.count == 0:
            return float("nan")
        cumulative = np.cumsum(self.counts)
        ranks = ((self.count - 1) // 2, self.count // 2)  # one rank, or the two in the middle
        return float(np.mean([self._centre(int(np.searchsorted(cumulative, rank, side="right"))) for rank in ranks]))

    def _centre(self, index: int) -> float:
        return 0.0 if index == 0 else float(self._LOW * np.exp((index - 0.5) * self._STEP))
