"""The clock of a log: how long a sweep takes, and which place each sweep has, where stamps jitter and sweeps are lost.

A sensor turns at a steady rate; the stamps of its sweeps do not show it exactly. Times are therefore read on the clock
that fits the stamps around them: `readings` gives each sweep's place on it, counted in sweeps. A sweep that is 20 ms
late at 10 Hz reads 0.2 too much, and one that lacks its predecessor is two further than the one before.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

_RANGE = np.linspace(0.75, 1.25, 201)  # of the median interval: where the true one is looked for
_LONG = 5.5  # intervals; across a longer gap nothing is known about the rate
_LAGS = (1, 2, 3)  # sweeps between the two stamps of a span; long spans tell the length better, short ones are surer
_LOOKED_AT = 500  # spans of each lag, spread over the log
_AROUND = 5  # sweeps before and after, whose stamps tell what the clock shows


def interval_ns(timestamps_ns: NDArray[np.int64]) -> float:
    """The time of one sweep: of all lengths near the median interval, the one that divides the intervals best.

    The median alone is no measure: lost sweeps pull it up, and jitter moves it. NaN for fewer than two stamps.
    Increasing stamps at 10 Hz, of which every third is lost, have intervals of 0.1 and 0.2 s:

    >>> float(interval_ns(np.array([0, 1, 3, 4, 6, 7, 9]) * 100_000_000))
    100000000.0
    """
    if len(timestamps_ns) < 2:
        return float("nan")
    intervals = np.diff(timestamps_ns).astype(np.float64)
    candidates = float(np.median(intervals)) * _RANGE
    starts = np.unique(np.linspace(0, len(intervals) - 1, _LOOKED_AT).astype(np.int64))
    spans = []
    for lag in _LAGS:
        first = starts[starts + lag < len(timestamps_ns)]
        spans.append((timestamps_ns[first + lag] - timestamps_ns[first]).astype(np.float64))
    near = np.concatenate([span[span < lag * _LONG * candidates[-1]] for lag, span in zip(_LAGS, spans, strict=True)])
    # A whole multiple of the right length has a cosine of 1.
    fits = np.cos(2 * np.pi * near[None] / candidates[:, None]).sum(axis=1)
    length = float(candidates[np.argmax(fits)])
    short = intervals[intervals < _LONG * length]
    return float(short.sum() / np.maximum(1, np.rint(short / length)).sum())


def readings(timestamps_ns: NDArray[np.int64]) -> NDArray[np.float64]:
    """(N,) not decreasing: each sweep's place on the log's own clock, in sweeps; near a whole number unless it jitters.

    The clock follows the stamps around each sweep, so that a slow drift of the rate never adds up to a gap. Stamps
    that jitter by less than a quarter of a sweep either way always read within half a sweep of their true place.
    """
    if len(timestamps_ns) < 2:
        return np.zeros(len(timestamps_ns))
    turns = (timestamps_ns - timestamps_ns[0]).astype(np.float64) / interval_ns(timestamps_ns)
    stretches = np.split(turns, np.flatnonzero(np.diff(turns) > _LONG) + 1)
    read = [_readings_of_stretch(stretches[0])]
    for before, stretch in itertools.pairwise(stretches):  # across a long gap only the number of sweeps is a guess
        start = np.rint(read[-1][-1]) + np.rint(stretch[0] - before[-1])
        read.append(start + _readings_of_stretch(stretch))
    return np.maximum.accumulate(np.concatenate(read))


def lost_after(timestamps_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """(N - 1,) how many sweeps are missing after each sweep but the last."""
    steps = np.diff(np.rint(readings(timestamps_ns)).astype(np.int64))
    return np.maximum(0, steps - 1)


def _readings_of_stretch(turns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Times in sweeps without a long gap -> what the clock shows, from about 0 on."""
    pointers = np.concatenate([[0], np.cumsum(np.exp(2j * np.pi * turns))])
    index = np.arange(len(turns))
    around = pointers[np.minimum(index + _AROUND + 1, len(turns))] - pointers[np.maximum(index - _AROUND, 0)]
    late = np.unwrap(np.angle(around)) / (2 * np.pi)
    read: NDArray[np.float64] = turns - late
    read -= np.rint(read[0])
    return read
