from __future__ import annotations

import numpy as np
import pytest

from copilot4d.errors import ForecastError
from copilot4d.geometry import se3
from copilot4d.geometry.beam_pattern import estimate_beam_pattern
from tests.support.scenes import beam_directions
from tests.tokenizer.clouds import sweep_of

BEAMS = beam_directions(rings=8, azimuths=180)


def seen(missing: slice, depth: float = 10.0, turn_deg: float = 0.0):
    kept = np.delete(np.arange(len(BEAMS)), missing)
    directions = se3.rotate_vectors(se3.from_yaw(np.deg2rad(turn_deg)), BEAMS[kept])
    return sweep_of(depth * directions)


def test_gaps_of_the_newest_sweep_are_filled_from_older_ones():
    pattern = estimate_beam_pattern([seen(slice(500, 700)), seen(slice(100, 250))])
    assert len(pattern.directions) == len(BEAMS)
    nearest = (pattern.directions @ BEAMS.T).max(axis=0)
    assert nearest.min() > np.cos(np.deg2rad(0.01))
    np.testing.assert_allclose(np.linalg.norm(pattern.directions, axis=-1), 1.0)


def test_a_beam_that_fired_again_at_another_phase_is_not_doubled():
    """Azimuths are 2 degrees apart; the older sweep began 0.8 degrees later."""
    pattern = estimate_beam_pattern([seen(slice(0, 0), turn_deg=0.8), seen(slice(0, 0))])
    assert len(pattern.directions) == len(BEAMS)


def test_reach_is_the_furthest_return_or_what_is_given():
    assert estimate_beam_pattern([seen(slice(0, 9), 33.0), seen(slice(0, 9))]).max_range_m == pytest.approx(33.0)
    assert estimate_beam_pattern([seen(slice(0, 9))], max_range_m=120.0).max_range_m == 120.0


def test_empty_sweeps_are_passed_over_and_nothing_is_an_error():
    pattern = estimate_beam_pattern([seen(slice(0, 9)), sweep_of([])])
    assert len(pattern.directions) == len(BEAMS) - 9
    with pytest.raises(ForecastError, match="a past sweep with points"):
        estimate_beam_pattern([sweep_of([])])
    assert len(estimate_beam_pattern([sweep_of([(1.0, 2, 3)])]).directions) == 1
