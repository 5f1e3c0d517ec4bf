"""Counter-based random numbers: a number is a function of its key (seed, purpose, time, who), never of a hidden state.

Two branches of one moment therefore draw the same numbers for the same event, whatever happened before it, and any
worker draws what any other would.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from copilot4d.compiled import compiled

# What a number is for; part of its key. A drive is reproducible only while these keep their values.
STREET, LAYOUT, POPULATION, ROUTE, DRIVER, NOISE, EGO, SENSOR = range(1, 9)

_GOLDEN, _MIX_1, _MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


@compiled
def mix(value: Any) -> Any:
    """A bijection of 64-bit words in which every input bit moves every output bit (the finaliser of SplitMix64)."""
    value = np.uint64(value) + np.uint64(_GOLDEN)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(_MIX_1)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(_MIX_2)
    return value ^ (value >> np.uint64(31))


@compiled
def unit(word: Any) -> Any:
    """A 64-bit word -> a number in [0, 1), by its upper 53 bits."""
    return np.float64(word >> np.uint64(11)) * (1.0 / 9007199254740992.0)


def key(*parts: int) -> int:
    """A 64-bit key from integers; the order of the parts matters."""
    word = 0
    for part in parts:
        word = _mix_int(word ^ (int(part) & 0xFFFFFFFFFFFFFFFF))
    return word


def generator(*parts: int) -> np.random.Generator:
    """A numpy generator that belongs to this key."""
    return np.random.Generator(np.random.Philox(key=[key(*parts), key(*parts, 1)]))


def uniform(base_key: int, *counters: Any) -> NDArray[np.float64]:
    """Numbers in [0, 1), one per entry of the counters (integers or arrays of integers that broadcast)."""
    word: NDArray[np.uint64] = np.asarray(base_key, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for counter in counters:
            word = _mix_array(word ^ np.asarray(counter).astype(np.uint64))
        return np.asarray((word >> np.uint64(11)) * (1.0 / 9007199254740992.0), dtype=np.float64)


def _mix_int(value: int) -> int:
    mask = 0xFFFFFFFFFFFFFFFF
    value = (value + _GOLDEN) & mask
    value = ((value ^ (value >> 30)) * _MIX_1) & mask
    value = ((value ^ (value >> 27)) * _MIX_2) & mask
    return value ^ (value >> 31)


def _mix_array(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    value = value + np.uint64(_GOLDEN)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(_MIX_1)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(_MIX_2)
    return value ^ (value >> np.uint64(31))
