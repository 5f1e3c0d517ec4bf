"""What the baselines that draw nothing at random share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from copilot4d.forecaster import Forecast
from copilot4d.geometry import Sweep
from copilot4d.geometry.se3 import FloatArray


def newest_with_points(past: Sequence[Sweep]) -> Sweep:
    """The newest sweep that is not empty (an input frame that a log lacks is an empty sweep)."""
    return next(sweep for sweep in reversed(past) if len(sweep))


def same_futures(sweeps: Sequence[Sweep], depths: Sequence[FloatArray] | None, futures: int) -> Forecast:
    """A forecast whose alternatives are all the same: there is only one thing this forecaster can say."""
    only = Forecast(sweeps=tuple(sweeps), depths=None if depths is None else tuple(depths))
    return replace(only, alternatives=(only,) * (futures - 1))
