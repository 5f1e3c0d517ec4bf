"""Errors of rays that meet something moving, counted by horizon: for score files of data that knows what moves."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

from copilot4d.geometry.se3 import FloatArray

NEAR_M = 1.0
BIN_M = 0.01
LAST_BIN = 2000  # and all beyond 20 m


class MovingTally:
    """Absolute depth errors in bins of 1 cm, by horizon (1 is the first future frame)."""

    def __init__(self) -> None:
        self._bins: defaultdict[int, Counter[int]] = defaultdict(Counter)

    def add(self, horizon: int, errors_m: FloatArray) -> None:
        """Errors of some rays; a ray without an answer (NaN) is as wrong as can be."""
        known = np.nan_to_num(np.asarray(errors_m, dtype=np.float64), nan=np.inf, posinf=np.inf)
        bins = np.minimum(known / BIN_M, LAST_BIN).astype(np.int64)
        values, counts = np.unique(bins, return_counts=True)
        self._bins[horizon].update(dict(zip(values.tolist(), counts.tolist(), strict=True)))

    def summary(self) -> dict[str, Any]:
        """What a score file says of moving rays; nothing where none were met."""
        every = sum(self._bins.values(), Counter[int]())
        if not every:
            return {}
        rows = [{"horizon": horizon, **_described(bins)} for horizon, bins in sorted(self._bins.items()) if bins]
        return {**_described(every), "per_horizon": rows}

    def to_plain(self) -> list[list[int]]:
        """All counts: horizon, bin, rays."""
        return [[horizon, b, n] for horizon, bins in sorted(self._bins.items()) for b, n in sorted(bins.items())]

    @classmethod
    def from_plain(cls, rows: Iterable[Iterable[int]]) -> MovingTally:
        """The tally whose `to_plain` this is."""
        tally = cls()
        for horizon, b, n in rows:
            tally._bins[int(horizon)][int(b)] = int(n)
        return tally


def _described(bins: Counter[int]) -> dict[str, float]:
    """Rays, the share within 1 m, and the median error to 1 cm."""
    order = sorted(bins)
    counts = np.array([bins[b] for b in order])
    total = int(counts.sum())
    near = sum(bins[b] for b in order if b < round(NEAR_M / BIN_M))
    middle = order[int(np.searchsorted(np.cumsum(counts), (total + 1) // 2))]
    return {"rays": total, "within_1m": near / total, "median_m": (middle + 0.5) * BIN_M}
