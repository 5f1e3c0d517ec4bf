from __future__ import annotations

import numpy as np
import pytest

from copilot4d.errors import UsageError
from copilot4d.evaluation import Protocol, protocol_by_name


@pytest.mark.parametrize(
    ("protocol", "name"),
    [
        (Protocol(), "4docc-roi70"),
        (Protocol(roi_half_m=32, every=12), "4docc-roi32-every12"),
        (Protocol(convention="vidar"), "vidar-roi51.2"),
        (Protocol(convention="evalkit", parity=True), "evalkit-roi70-parity"),
        (Protocol(roi_half_m=12.5, limit=3), "4docc-roi12.5-first3"),
    ],
)
def test_names_lead_there_and_back(protocol, name):
    assert protocol.name == name
    assert protocol_by_name(name) == protocol


def test_a_bare_convention_is_its_default():
    assert protocol_by_name("vidar") == Protocol(convention="vidar")


def test_everything_that_decides_a_score_is_in_the_hash():
    variants = [
        Protocol(), Protocol(roi_half_m=32), Protocol(every=2), Protocol(parity=True), Protocol(limit=5),
        Protocol(convention="vidar"), Protocol(convention="evalkit"), Protocol(convention="vidar", roi_half_m=70),
    ]  # fmt: skip
    assert len({p.hash for p in variants}) == len(variants)
    assert Protocol().hash == Protocol(roi_half_m=70.0).hash


def test_the_hash_of_the_default_is_pinned():
    """Two versions whose scores may be compared have one hash; a change here needs a new RULES_VERSION."""
    assert Protocol().hash == "3042a5f0da5c"


def test_the_conventions_differ_as_documented():
    np.testing.assert_array_equal(Protocol().roi, [-70, -70, -4.5, 70, 70, 4.5])
    np.testing.assert_array_equal(Protocol(convention="vidar").roi, [-51.2, -51.2, -5, 51.2, 51.2, 3])
    assert Protocol(convention="vidar").scoring_frame == "own"
    assert not Protocol(convention="evalkit").clamp
    assert Protocol(parity=True).pairing == "nearest"
    assert Protocol(convention="evalkit", parity=True).pairing == "ray"


@pytest.mark.parametrize(
    "name", ["4dock", "", "4docc-roi", "4docc-roi1.2.3", "4docc-every0", "4docc-roi70-extra", "4docc-roi0"]
)
def test_wrong_names_are_refused(name):
    with pytest.raises(UsageError):
        protocol_by_name(name)


@pytest.mark.parametrize(
    "bad", [{"roi_half_m": -1.0}, {"roi_half_m": float("nan")}, {"every": 0}, {"limit": 0}, {"convention": "x"}]
)
def test_wrong_numbers_are_refused(bad):
    with pytest.raises(UsageError):
        Protocol(**bad)
