from __future__ import annotations

import numpy as np
import pytest

from copilot4d.errors import UsageError
from copilot4d.simulator import MOVING_BASE, EgoPlan, branch
from copilot4d.simulator.benchmark import (
    FIRST_SEED,
    MOMENTS,
    PLANS,
    SIZES,
    split_seed,
    street_v1_drive,
    whatif_drive,
    whatif_moment,
)  # fmt: skip
from copilot4d.simulator.moments import ENOUGH, FOLLOWER_M, FUTURE_S, PAST_S, TURN_M, interest_of
from copilot4d.simulator.roads import StreetOptions, draw_roads

QUICK = 11  # a moment that is found early in its first street


def test_no_street_is_shared_between_splits():
    seeds = {split: {split_seed(split, i) for i in range(SIZES.get(split, 1000))} for split in FIRST_SEED}
    assert not seeds["train"] & seeds["val"]
    assert not seeds["train"] & seeds["test"]
    assert not seeds["val"] & seeds["test"]
    shapes = [
        draw_roads(seed, StreetOptions()).junctions[:3].round(6).tobytes()
        for split in ("val", "test", "train")
        for seed in sorted(seeds[split])[:20]
    ]
    assert len(set(shapes)) == len(shapes)  # other seeds are other streets, not only other numbers


def test_street_v1_is_twelve_seconds_at_ten_hertz_of_about_twenty_thousand_rays():
    drive = street_v1_drive("val", 0)
    assert (drive.name, len(drive)) == ("val_000", 120)
    assert drive.interval_s == pytest.approx(0.1)
    assert 13_000 < len(drive[60]) < 20_480
    other = street_v1_drive("val", 0, sensor="hdl32")
    # The same street and the same ego, seen by another sensor: same way, other points.
    np.testing.assert_allclose(other.world_from_lidar[2, :2, 3], drive.world_from_lidar[1, :2, 3], atol=0.5)
    assert len(other) == 240
    assert len(other[0]) != len(drive[0])


def test_one_moment_has_four_futures_that_share_their_past_to_the_bit():
    drives = {plan: whatif_drive(QUICK, plan) for plan in PLANS}
    keep = drives["keep"]
    moment = keep.moment_frame
    assert moment == 30
    assert len(keep) == 71
    for plan, drive in drives.items():
        assert (drive.plan, drive.moment_frame, drive.split) == (plan, moment, "test")
        np.testing.assert_array_equal(drive.world_from_lidar[: moment + 1], keep.world_from_lidar[: moment + 1])
        for i in (0, moment - 1, moment):
            np.testing.assert_array_equal(drive[i].points, keep[i].points)
    last = {plan: drive.world_from_lidar[-1, :3, 3] for plan, drive in drives.items()}
    assert np.linalg.norm(last["brake"] - last["keep"]) > 2.0
    assert not np.array_equal(drives["brake"][moment + 1].points, keep[moment + 1].points)
    assert drives["brake"].truth(-1).agent_speeds_m_s[0] == 0.0
    # The truth that counterfactuals are scored by: the follower is held up by the braking ego, and by nothing else.
    follower = keep.follower
    assert follower is not None
    ends = {plan: drive.truth(-1).agent_poses[follower, :2] for plan, drive in drives.items()}
    ego = keep.truth(moment).agent_poses[0, :2]
    assert np.linalg.norm(ends["brake"] - ends["keep"]) > 1.0
    assert np.linalg.norm(ends["brake"] - ego) < np.linalg.norm(ends["keep"] - ego) + 15.0


def test_a_moment_is_chosen_by_what_the_plans_lead_to():
    moment = whatif_moment(QUICK)
    futures = {plan: branch(moment.simulation, EgoPlan(kind=plan)).run(FUTURE_S) for plan in PLANS}
    places = {plan: future.state.pose[:, :2] for plan, future in futures.items()}
    follower = moment.simulation.follower()
    assert np.linalg.norm(places["turn"][0] - places["keep"][0]) > TURN_M
    assert np.linalg.norm(places["brake"][follower] - places["keep"][follower]) > FOLLOWER_M
    assert interest_of(moment.simulation, kept=futures["keep"]) == ENOUGH
    assert moment.time_s >= PAST_S + 0.1
    # Under an ego that goes where it would have gone anyway, nothing differs: such a moment is of no interest.
    assert interest_of(futures["brake"], kept=futures["brake"]) == 0.0


@pytest.mark.slow
def test_turning_and_braking_have_consequences_in_most_moments():
    moments = [whatif_moment(number) for number in range(10)]
    seeds = [m.simulation.street.seed for m in moments]
    assert len(set(seeds)) == 10
    assert all(FIRST_SEED["test"] <= seed < FIRST_SEED["test"] + 5 * MOMENTS for seed in seeds)
    turned_m, held_up_m = [], []
    for m in moments:
        ends = {
            plan: branch(m.simulation, EgoPlan(kind=plan)).run(FUTURE_S).state.pose[:, :2]
            for plan in ("keep", "brake", "turn")
        }
        follower = m.simulation.follower()
        turned_m.append(np.linalg.norm(ends["turn"][0] - ends["keep"][0]))
        held_up_m.append(0.0 if follower is None else np.linalg.norm(ends["brake"] - ends["keep"], axis=1)[follower])
    assert sum(d > TURN_M for d in turned_m) >= 9
    assert sum(d > FOLLOWER_M for d in held_up_m) >= 6


def test_what_is_not_there_is_refused():
    for call, message in (
        (lambda: split_seed("dev", 0), "dev"),
        (lambda: split_seed("val", 20), "0 to 19"),
        (lambda: whatif_moment(MOMENTS), "0 to 59"),
        (lambda: whatif_drive(0, "fly"), "fly"),
    ):
        with pytest.raises(UsageError, match=message):
            call()
    assert MOVING_BASE == 1_000_000
