"""What the demo says about its numbers follows from the numbers alone."""

from __future__ import annotations

import doctest
import math

import pytest

from copilot4d.cli import demo_words
from copilot4d.cli.demo_words import COLUMNS, obeys, verdict

METRICS = [column.metric for column in COLUMNS]


def scores(*values):
    return dict(zip(METRICS, values, strict=True))


def test_the_documented_example():
    assert doctest.testmod(demo_words).failed == 0
    assert doctest.testmod(demo_words).attempted > 0


def test_every_column_has_its_own_verdict_against_its_own_best_rival():
    means = {
        "mini": scores(3.0, 0.5, 1.0, 0.1),
        "copy_last": scores(2.0, 1.0, 1.01, 0.2),
        "ray_tracing": scores(1.5, 2.0, 4.0, 0.4),
    }
    assert verdict("mini", means) == (
        "mini is better than the best of the others in the median error of a ray (0.50 times copy_last's) and the mean "
        "error in % of range (0.50 times copy_last's), and about as good in the mean error of a ray (0.99 times "
        "copy_last's), and worse in Chamfer (2.00 times ray_tracing's)."
    )
    assert verdict("ray_tracing", means).startswith(
        "ray_tracing is better than the best of the others in Chamfer (0.75 times copy_last's), and worse in the median"
    )


@pytest.mark.parametrize(
    ("own", "how"), [(0.97, "better than"), (0.99, "about as good as"), (1.0, "about as good as"), (1.03, "worse than")]
)
def test_what_is_nearly_even_is_called_even(own, how):
    assert verdict("a", {"a": scores(own, *[math.nan] * 3), "b": scores(1.0, *[math.nan] * 3)}).startswith(
        f"a is {how} the best of the others in Chamfer ({own:.2f} times b's)"
    )


def test_nothing_is_said_where_nothing_can_be_compared():
    nothing = scores(*[math.nan] * 4)
    assert verdict("a", {"a": nothing, "b": scores(1, 1, 1, 1)}) == ""
    assert verdict("a", {"a": scores(1, 1, 1, 1)}) == ""
    assert verdict("a", {"a": scores(1, 1, 1, 1), "b": scores(0, 0, 0, 0), "c": nothing}) == ""


@pytest.mark.parametrize(
    ("keep", "brake", "swerve", "words"),
    [
        ((1, 2, 3), (2, 1, 3), (3, 2, 1), "Here it does, under every plan."),
        ((1, 2, 3), (2, 1, 3), (3, 2, 9), "Here it does under keep and brake, but not under swerve."),
        ((9, 2, 3), (2, 9, 3), (3, 2, 1), "Here it does under swerve, but not under keep and brake."),
        ((9, 2, 3), (2, 9, 3), (3, 2, 9), "Here it does under no plan."),
    ],
)
def test_whether_the_forecast_follows_its_plan_is_read_off_the_diagonal(keep, brake, swerve, words):
    names = ("keep", "brake", "swerve")
    rows = (keep, brake, swerve)
    assert obeys({name: dict(zip(names, row, strict=True)) for name, row in zip(names, rows, strict=True)}) == words
