"""Other scans of a moment: what the encoder gets, what the decoder is asked, and that both are one street."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from copilot4d.errors import UsageError
from copilot4d.presets import tiny
from copilot4d.simulator import simulate_drive
from copilot4d.simulator.sensors import SENSORS
from copilot4d.tokens.augmentation import AugmentationConfig
from copilot4d.tokens.scans import ScanConfig, matched_drives, moved_into
from copilot4d.training import SampleKey
from copilot4d.training.ema import Ema
from copilot4d.training.tasks.tokenizer import TokenizerTask, TokenizerTraining
from tests.support.scenes import make_drive
from tests.tokenizer.clouds import random_sweep

STILL = AugmentationConfig(mirror_probability=0.0, max_yaw_deg=0.0)


@pytest.fixture(scope="module")
def pair():
    """One street for half a second, by two sensors."""
    return tuple(simulate_drive(seed=5, sensor=s, seconds=0.5, rate_hz=10.0, name="a") for s in ("mini32", "varied"))


def training(**changes) -> TokenizerTraining:
    return TokenizerTraining(
        tokenizer=tiny().tokenizer, rays_per_sweep=200, **{"augmentation": STILL} | changes
    )  # fmt: skip


def key(step: int) -> SampleKey:
    return SampleKey(seed=0, step=step, index=0, batch=1)


def test_a_varied_sensor_is_another_for_each_sweep_and_the_same_each_time(pair):
    varied = SENSORS["varied"]
    assert varied.of_sweep(1, 2) == varied.of_sweep(1, 2)
    drawn = [varied.of_sweep(1, i) for i in range(20)]
    assert len({len(s.heads[0].elevations_deg) for s in drawn}) > 5
    assert len({s.mount_x_m for s in drawn}) == len({s.mount_z_m for s in drawn}) == 20
    assert all(0.9 * 20_480 < s.rays <= 20_480 for s in drawn)
    assert SENSORS["mini32"].of_sweep(1, 2) is SENSORS["mini32"]


def test_both_scans_are_at_the_same_times_and_lie_on_the_same_ground(pair):
    own, other = pair
    assert np.array_equal(own.timestamps_ns, other.timestamps_ns)
    for i in range(len(own)):
        ground = []
        for drive in pair:
            points, ids = drive[i].points, drive.truth(i).object_ids
            world = points @ drive.world_from_lidar[i, :3, :3].T + drive.world_from_lidar[i, :3, 3]
            near = (ids < 0) & (np.linalg.norm(points[:, :2], axis=-1) < 12)
            ground.append(np.median(world[near, 2]))
        assert abs(ground[0] - ground[1]) < 0.05
        assert np.linalg.norm(own.world_from_lidar[i, :3, 3] - other.world_from_lidar[i, :3, 3]) > 0.01


def test_samples_have_rays_of_both_scans_and_points_of_one_in_the_first_ones_frame(pair):
    own, other = pair
    task = TokenizerTask(training(), [own], other_scans={"a": other})
    reversed_seen = set()
    for step in range(8):
        sample = task.sample(key(step))
        frame = key(step).item(len(own))
        origins = torch.unique(sample.origins, dim=0)
        assert len(sample.origins) == 200
        assert len(origins) == 2  # one sensor at the frame's origin, the other where it was mounted
        moved = np.linalg.inv(own.world_from_lidar[frame]) @ other.world_from_lidar[frame]
        assert min(np.abs(origins.numpy() - moved[:3, 3]).max(axis=-1)) < 1e-4
        counts = [len(drive[frame].points) for drive in pair]
        reversed_seen.add(abs(len(sample.points) - counts[0]) > abs(len(sample.points) - counts[1]))
    assert reversed_seen == {True, False}


def test_the_encoder_loses_points_and_gets_noise_but_what_is_asked_stays_true(pair):
    own, _ = pair
    calm = TokenizerTask(training(), [own]).sample(key(3))
    loud = TokenizerTask(training(scan=ScanConfig(dropped_share=0.6, jitter_m=0.05)), [own]).sample(key(3))
    assert torch.equal(calm.depths_m, loud.depths_m)
    assert torch.equal(calm.directions, loud.directions)
    assert 0.3 * len(calm.points) < len(loud.points) < len(calm.points)
    nearest = torch.cdist(loud.points[:200], calm.points).min(dim=1).values
    assert 0 < float(nearest.median()) < 0.15


def test_a_moment_that_sways_stays_rigid(pair):
    own, _ = pair
    calm = TokenizerTask(training(), [own]).sample(key(1))
    swayed = TokenizerTask(training(scan=ScanConfig(sway_deg=3.0)), [own]).sample(key(1))
    assert torch.allclose(calm.depths_m, swayed.depths_m, atol=1e-3)
    tilt = (calm.directions * swayed.directions).sum(dim=-1).clamp(max=1).acos().rad2deg()
    assert 0.05 < float(tilt.max()) < 4.5


def test_a_moved_sweep_has_the_same_rays_in_the_world():
    sweep = random_sweep(50, seed=1)
    change = np.eye(4)
    change[:3, 3] = (1.0, 2.0, 3.0)
    moved = moved_into(sweep, change)
    world = sweep.points @ sweep.world_from_lidar[:3, :3].T + sweep.world_from_lidar[:3, 3]
    again = moved.points @ moved.world_from_lidar[:3, :3].T + moved.world_from_lidar[:3, 3]
    np.testing.assert_allclose(world, again, atol=1e-5)
    np.testing.assert_allclose(moved.origins, np.broadcast_to([1.0, 2.0, 3.0], (50, 3)), atol=1e-6)


def test_drives_that_do_not_match_are_refused():
    drive = make_drive(4, rings=4, azimuths=20)
    with pytest.raises(UsageError, match="holds none of the 1 drives"):
        matched_drives([drive], {"elsewhere": drive})
    with pytest.raises(UsageError, match="sweeps at the same times"):
        matched_drives([drive], {drive.name: drive[:3]})
    assert matched_drives([drive], {drive.name: drive}) == (drive,)


@pytest.mark.parametrize("bad", [{"dropped_share": 1.0}, {"jitter_m": -0.1}, {"sway_deg": 90.0}])
def test_impossible_scans_are_refused(bad):
    with pytest.raises(UsageError, match=r"`scan\."):
        ScanConfig(**bad)


def test_agreement_is_zero_for_equal_scans_and_counts_only_shared_columns():
    from copilot4d.tokenizer.losses import agreement_loss

    one = torch.tensor([[[[1.0, 0.0]], [[3.0, 4.0]]]])
    shared = torch.tensor([[[True], [False]]])
    assert agreement_loss(one, one, torch.ones(1, 2, 1, dtype=torch.bool)).item() == 0.0
    other = torch.tensor([[[[0.0, 1.0]], [[9.0, 9.0]]]])
    assert agreement_loss(one, other, shared).item() == pytest.approx(2.0)  # |(1, -1)|^2 over a mean length of 1
    assert agreement_loss(one, other, torch.zeros(1, 2, 1, dtype=torch.bool)).item() == 0.0


def test_the_average_of_a_codebook_made_anew_starts_anew():
    model = torch.nn.Linear(2, 2)
    ema = Ema(model, 0.9)
    with torch.no_grad():
        model.weight.fill_(7.0)
        model.bias.fill_(7.0)
    ema.restart(model, model.weight)
    assert (ema.shadow["weight"] == 7.0).all()
    assert (ema.shadow["bias"] != 7.0).any()
