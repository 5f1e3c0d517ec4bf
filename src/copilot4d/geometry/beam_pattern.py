"""What a sensor fires, estimated from what came back: the newest sweep's beams, and older ones that fill its gaps."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from copilot4d.errors import Copilot4dWarning, ForecastError
from copilot4d.geometry.rays import BeamPattern
from copilot4d.geometry.sweep import Sweep

# Of the usual spacing of neighbours. A beam that fired again lies within half a spacing of its old place, whatever
# the phase of the turn; a beam that was missing lies a whole spacing from its neighbours.
SAME_BEAM = 0.75
MIN_RANGE_M = 0.01
MAX_BEAMS = 200_000  # of an estimate: what is rendered stays bounded, whatever a sweep holds


def estimate_beam_pattern(sweeps: Sequence[Sweep], max_range_m: float | None = None) -> BeamPattern:
    """The beams of a sensor from its past sweeps, oldest first.

    Beams that never came back (into the sky) are unknown and missing, which is what generation wants: it would drop
    them. max_range_m: how far the sensor sees; None: the furthest return. Where a sweep merges several lidars,
    directions are those of each point's own origin. At most MAX_BEAMS, with a warning.
    """
    directions = [_directions(sweep) for sweep in sweeps]
    newest = next((d for d in reversed(directions) if len(d)), None)
    if newest is None:
        raise ForecastError("a beam pattern needs a past sweep with points, and there is none; give one explicitly")
    pattern = newest
    if len(newest) > 1:
        spacing = np.asarray(cKDTree(newest).query(newest, k=2)[0])
        same = SAME_BEAM * float(np.median(spacing[:, 1]))
        for older in reversed(directions):
            if older is newest or len(older) == 0:
                continue
            distance, _ = cKDTree(pattern).query(older, distance_upper_bound=max(same, 1e-9))
            pattern = np.concatenate([pattern, older[~np.isfinite(distance)]])
    if len(pattern) > MAX_BEAMS:
        warnings.warn(
            f"the past sweeps show {len(pattern)} beams; {MAX_BEAMS} of them, evenly chosen, are rendered. Give a "
            "BeamPattern or rays to render others",
            Copilot4dWarning, stacklevel=2,
        )  # fmt: skip
        pattern = pattern[np.linspace(0, len(pattern) - 1, MAX_BEAMS).astype(np.int64)]
    if max_range_m is None:
        max_range_m = max(float(sweep.rays()[1].max()) for sweep in sweeps if len(sweep))
    return BeamPattern(pattern, max_range_m)


def _directions(sweep: Sweep) -> NDArray[np.float64]:
    """(N, 3) unit directions of the returns."""
    rays, depths = sweep.rays()
    kept = np.isfinite(depths) & (depths > MIN_RANGE_M)
    directions = rays.directions[kept].astype(np.float64)
    return np.asarray(directions / np.linalg.norm(directions, axis=-1, keepdims=True))
