"""Obedience: the truth obeys, another plan's truth does not, and what cannot be told apart is not counted."""

from __future__ import annotations

import numpy as np
import pytest

from copilot4d.errors import UsageError
from copilot4d.evaluation.counterfactual import Branch, inside_boxes, near_moving, obedience
from copilot4d.evaluation.whatif_summary import summarise
from copilot4d.geometry import se3

ROI = np.array([-10.0, -10, -2, 10, 10, 2])
RNG = np.random.default_rng(3)
CLOUD = RNG.uniform((-8, -8, -1), (8, 8, 1), (200, 3))


def moved(x, frames=2):
    return [CLOUD + np.array([x * (i + 1), 0.0, 0.0]) for i in range(frames)]


TRUTHS = {"keep": moved(0.0), "brake": moved(-0.4), "turn": moved(0.7)}


@pytest.mark.parametrize("plan", TRUTHS)
def test_the_truth_obeys_and_another_plans_truth_does_not(plan):
    for imagined, clouds in TRUTHS.items():
        found = obedience(plan, clouds, TRUTHS, ROI)
        assert found.obeys is (imagined == plan)
        assert found.chamfer[imagined] == pytest.approx(0.0, abs=1e-9)
        assert set(found.told_apart) == set(TRUTHS) - {plan}


def test_distances_are_means_over_frames_of_cropped_clouds():
    one = {
        "a": [np.array([[0.0, 0, 0]]), np.array([[0.0, 0, 0]])],
        "b": [np.array([[3.0, 0, 0]]), np.array([[5.0, 0, 0]])],
    }
    forecast = [np.array([[1.0, 0, 0], [50.0, 0, 0]]), np.array([[2.0, 0, 0], [0, 99.0, 0]])]
    found = obedience("a", forecast, one, ROI)
    assert found.chamfer == pytest.approx({"a": (1 + 4) / 2, "b": (4 + 9) / 2})
    assert found.obeys is True
    assert obedience("b", forecast, one, ROI).obeys is False


def test_one_nearer_truth_is_enough_to_disobey():
    between = [(a + b) / 2 + 0.01 for a, b in zip(TRUTHS["keep"], TRUTHS["brake"], strict=True)]
    assert obedience("brake", between, TRUTHS, ROI).obeys is False
    assert obedience("turn", between, TRUTHS, ROI).obeys is False


def test_plans_with_the_same_truth_are_not_told_apart():
    same = {"keep": moved(0.0), "turn": moved(0.0), "brake": moved(-0.4)}
    found = obedience("turn", same["turn"], same, ROI)
    assert found.told_apart == ("brake",)
    assert found.obeys is True
    assert obedience("keep", moved(3.0), {"keep": moved(0.0), "turn": moved(0.0)}, ROI).obeys is None


def test_frames_without_truth_do_not_count_and_a_forecast_without_points_disobeys():
    empty = np.zeros((0, 3))
    truths = {"a": [empty, CLOUD], "b": [CLOUD, CLOUD + 0.5]}
    found = obedience("a", [CLOUD + 9.0, CLOUD], truths, ROI)
    assert found.obeys is True
    assert found.chamfer["a"] == pytest.approx(0.0, abs=1e-9)
    nothing = obedience("a", [empty, empty], truths, ROI)
    assert nothing.obeys is False
    assert np.isnan(nothing.chamfer["a"])
    assert obedience("a", [CLOUD, CLOUD], {"a": [empty, empty], "b": [CLOUD, CLOUD]}, ROI).obeys is None


def test_frames_must_match():
    with pytest.raises(UsageError, match="3 frames were forecast"):
        obedience("keep", [CLOUD] * 3, TRUTHS, ROI)
    with pytest.raises(UsageError, match="own plan"):
        obedience("fly", [CLOUD] * 2, TRUTHS, ROI)


def test_a_box_is_turned_stands_on_its_ground_and_has_a_margin():
    box = np.array([[10.0, 5.0, 1.0, np.pi / 2, 4.0, 2.0, 1.5]])  # long along y
    points = np.array([
        [10.0, 6.9, 2.0], [11.9, 5.0, 2.0],  # inside; beside the width, though within the length
        [10.0, 7.4, 2.0], [10.0, 7.6, 2.0],  # in the margin; beyond it
        [10.0, 5.0, 1.2], [10.0, 5.0, 2.9], [10.0, 5.0, 3.1],  # the ground; the margin above; too high
    ])  # fmt: skip
    assert inside_boxes(points, box).tolist() == [True, False, True, False, False, True, False]
    assert not inside_boxes(points, np.zeros((0, 7))).any()


def test_points_on_moving_things_are_chosen_in_the_world_for_all_branches_alike():
    pose = se3.from_yaw(0.8, (100.0, 20.0, 0.0))
    places = np.array([[3.0, 1.0, 0.7], [-4.0, 2.0, 0.7], [6.0, -5.0, 0.7]])  # in the world, off the ego
    in_world = places + np.array([100.0, 20.0, 0.0])
    forecast = [se3.transform_points(se3.invert(pose), in_world)]

    def branch(row):
        box = np.array([[*in_world[row, :2], 0.0, 0.3, 2.0, 1.0, 1.5]])
        return Branch(points=[CLOUD], moving=[np.zeros(200, bool)], moving_boxes=[box], world_from_lidar=pose[None])

    kept = near_moving(forecast, pose[None], {"a": branch(0), "b": branch(1)})
    np.testing.assert_allclose(kept[0], forecast[0][:2])


def test_moving_points_are_those_of_the_mask():
    mask = np.arange(200) % 7 == 0
    branch = Branch(points=[CLOUD], moving=[mask], moving_boxes=[np.zeros((0, 7))], world_from_lidar=np.eye(4)[None])
    np.testing.assert_array_equal(branch.moving_points()[0], CLOUD[mask])


def test_summary_counts_pairs_and_moments():
    def entry(obeys, told_apart, **chamfer):
        return {"obeys": obeys, "told_apart": told_apart, "chamfer": chamfer}

    line = {
        "all": {"a": entry(True, ["b"], a=1.0, b=2.0), "b": entry(False, ["a"], a=3.0, b=5.0)},
        "moving": {"a": entry(None, [], a=None, b=None), "b": entry(False, ["a"], a=None, b=None)},
        "reaction": {"true_m": -4.0, "imagined_m": None, "reacts": False},
    }
    other = {**line, "reaction": {"true_m": -2.0, "imagined_m": -1.5, "reacts": True}}
    third = {**line, "reaction": None}
    found = summarise([line, other, third])
    assert found.moments == 3
    assert (found.obedience["all"].count, found.obedience["all"].of) == (3, 6)
    assert (found.obedience["moving"].count, found.obedience["moving"].of) == (0, 3)
    assert (found.pairs["all"].count, found.pairs["all"].of) == (3, 6)
    assert (found.pairs["moving"].count, found.pairs["moving"].of) == (0, 3)
    assert found.chamfer["all"] == {"a": 1.0, "b": 5.0}
    assert np.isnan(found.chamfer["moving"]["a"])
    assert (found.reaction.count, found.reaction.of) == (1, 2)
    assert found.displacement == {"true_m": -3.0, "imagined_m": -1.5}
    assert "reaction 50% (1/2)" in found.text()
