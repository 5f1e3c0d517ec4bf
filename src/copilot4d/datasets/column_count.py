"""How many columns a bare file of floats seems to have: the numbers of one column are like each other.

With the right number of columns, or a multiple of it, each column has its own size of numbers (x in tens of metres, z
in metres, intensity below 1 or up to 255). With a wrong one every column is the same mixture.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_COUNTS = range(3, 13)
_MOST_VALUES = 200_000
_FEWEST_VALUES = 600
_LEAST_EXPLAINED = 0.03  # of the variance of the ranks
_NAMES = ("x", "y", "z", "intensity")


def likely_columns(values: NDArray[np.float32]) -> int | None:
    """The number of columns that explains a flat row-major array best; None where no number stands out.

    >>> rows = np.stack([np.linspace(20, 40, 300), np.linspace(-3, 3, 300), np.full(300, 0.01)], axis=1)
    >>> likely_columns(rows.astype(np.float32).ravel())
    3
    """
    values = values[:_MOST_VALUES]
    if len(values) < _FEWEST_VALUES or not np.isfinite(values).all():
        return None
    ranks = np.argsort(np.argsort(np.abs(values), kind="stable"), kind="stable").astype(np.float64)
    explained = {count: _explained(ranks, count) for count in _COUNTS}
    most = max(explained.values())
    if most < _LEAST_EXPLAINED:
        return None
    return next(count for count, share in explained.items() if share >= 0.85 * most)


def columns_line(count: int) -> str:
    """The line of copilot4d.yaml for files of so many columns; the names beyond intensity are of no interest."""
    return "columns: " + " ".join([*_NAMES[:count], *["_"] * (count - len(_NAMES))])


def _explained(ranks: NDArray[np.float64], count: int) -> float:
    rows = ranks[: len(ranks) // count * count].reshape(-1, count)
    return float(rows.mean(axis=0).var() / max(float(rows.var()), 1e-12))
