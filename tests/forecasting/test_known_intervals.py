"""A model that is given another time between sweeps than it was trained on says so, once."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest

from copilot4d import load_forecaster
from copilot4d.checkpoints.load_world_model import checked_intervals
from copilot4d.checkpoints.model_folder import DESCRIPTION, read_description
from copilot4d.errors import Copilot4dWarning, DataError
from copilot4d.forecaster import warn_of_interval
from copilot4d.forecasting.copilot4d import Copilot4D
from tests.forecasting.test_copilot4d import past_of, way
from tests.support.shipped import shipped_mini
from tests.support.stub_models import PillarTokenizer, StandingWorld

KNOWN = (0.2, 0.6)


def at_intervals(*seconds):
    """Sweeps whose gaps are these."""
    stamps = np.cumsum([0, *(round(gap * 1e9) for gap in seconds)])
    return [replace(s, timestamp_ns=int(t)) for s, t in zip(past_of(len(stamps)), stamps, strict=True)]


@pytest.mark.parametrize("seconds", [[0.2], [0.219], [0.541], [0.2, 0.2, 0.9], []])
def test_known_intervals_single_sweeps_and_one_lost_sweep_are_silent(seconds):
    assert not warn_of_interval("m", at_intervals(*seconds), KNOWN)


@pytest.mark.parametrize(("seconds", "found"), [([0.1, 0.1], "0.1 s apart"), ([0.5, 0.5], "0.5"), ([0.7], "0.7")])
def test_another_interval_is_told_with_expected_and_found(seconds, found):
    with pytest.warns(Copilot4dWarning, match=rf"m was trained on sweeps 0\.2 s or 0\.6 s apart.* are {found}"):
        assert warn_of_interval("m", at_intervals(*seconds), KNOWN)


def test_a_model_without_that_information_is_silent():
    assert not warn_of_interval("m", at_intervals(0.37), ())


def test_the_warning_comes_once_for_a_model_and_its_variants():
    model = Copilot4D(PillarTokenizer(), StandingWorld(), name="toy", intervals_s=KNOWN)
    past, future = at_intervals(0.1), way(1, start=2)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        for asked in (model, model, model.with_sampler(top_k=3)):
            asked.forecast(past, future, steps=1)
    assert [str(w.message)[:31] for w in heard] == ["toy was trained on sweeps 0.2 s"]
    assert "_warned" not in repr(model)


def test_only_the_sweeps_that_the_model_reads_count():
    model = Copilot4D(PillarTokenizer(), StandingWorld(), intervals_s=KNOWN)  # reads two
    model.forecast(at_intervals(0.1, 0.1, 0.1, 0.2), way(1, start=5), steps=1)


def test_mini_states_its_intervals():
    assert load_forecaster("mini").intervals_s == read_description(shipped_mini()).intervals_s == KNOWN


@pytest.mark.parametrize("stated", ["0.2", [0.2, 0], [True], [None], [float("nan")], [float("inf")]])
def test_what_is_no_interval_is_refused(stated, tmp_path):
    with pytest.raises(DataError, match=r"intervals_s: expected a list of seconds between frames"):
        checked_intervals(stated, tmp_path)


def test_a_description_with_bad_intervals_is_refused(tmp_path):
    said = {"format": "copilot4d-model", "format_version": 1, "name": "x", "intervals_s": [-1.0]}
    (tmp_path / DESCRIPTION).write_text(json.dumps(said))
    with pytest.raises(DataError, match=r"found \[-1\.0\]"):
        read_description(tmp_path)
