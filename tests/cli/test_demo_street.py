"""The demo's simulated street: plans part at the moment and never before it."""

from __future__ import annotations

import numpy as np
import pytest

from copilot4d.cli.demo_questions import street_questions
from copilot4d.cli.demo_street import interest_of, open_street
from copilot4d.errors import UsageError
from copilot4d.simulator.benchmark import split_seed, street_v1_drive
from copilot4d.simulator.ego import EgoPlan
from copilot4d.simulator.simulation import branch, start


@pytest.fixture(scope="module")
def street():
    return open_street(7, 80)


def test_it_is_the_test_drive_and_keep_is_its_own_future(street):
    official = street_v1_drive("test", 7)
    np.testing.assert_array_equal(street.drive.world_from_lidar, official.world_from_lidar)
    for frame in (60, 80, 81, 110):
        np.testing.assert_array_equal(street.plan_drives["keep"][frame].points, official[frame].points)


def test_plans_share_the_past_to_the_bit_and_part_after_it(street):
    keep, brake, swerve = (street.plan_drives[plan] for plan in ("keep", "brake", "swerve"))
    for other in (brake, swerve):
        for frame in (56, 80):
            np.testing.assert_array_equal(other[frame].points, keep[frame].points)
    behind = np.linalg.norm(brake.world_from_lidar[110, :3, 3] - keep.world_from_lidar[110, :3, 3])
    assert behind > 5.0
    sideways = np.linalg.inv(keep.world_from_lidar[100]) @ swerve.world_from_lidar[100]
    assert abs(sideways[1, 3]) > 0.5


def test_questions_have_the_truth_of_each_plans_own_branch(street):
    one, three = street_questions(street.drive, street.plan_drives, street.frame)
    assert (one.setting, three.setting) == ("1s", "3s")
    assert three.past_frames == (56, 62, 68, 74, 80)
    assert three.future_s == pytest.approx((0.6, 1.2, 1.8, 2.4, 3.0))
    for question, steps in ((one, (82, 84, 86, 88, 90)), (three, (86, 92, 98, 104, 110))):
        for plan in question.plans:
            drive = street.plan_drives[plan.name]
            np.testing.assert_array_equal(plan.world_from_lidar, drive.world_from_lidar[list(steps)])
            true = drive[steps[-1]].without_box(drive.ego_box)
            np.testing.assert_array_equal(plan.truth[-1].points, true.points)


def test_a_moment_is_interesting_where_the_plan_matters():
    early = start(split_seed("test", 7)).run(4.85)
    assert interest_of(early.run(3.2)) > interest_of(early) > 1.0
    standing = branch(early, EgoPlan.brake()).run(3.0)
    assert interest_of(standing) == 0.0


def test_streets_and_frames_that_are_not_there_are_refused():
    with pytest.raises(UsageError, match="0 to 19"):
        open_street(20)
    for frame in (23, 90, -1):
        with pytest.raises(UsageError, match="24 to 89"):
            open_street(7, frame)
