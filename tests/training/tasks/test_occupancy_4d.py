"""4D-Occ through the training engine: what a sample holds, splits and resuming, learning, loading, and the verb."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch

from copilot4d import load_forecaster
from copilot4d.baselines.occupancy_4d import Occupancy4d, Occupancy4dForecaster, occupancy_4d_preset
from copilot4d.checkpoints.load_occupancy_4d import load_occupancy_4d
from copilot4d.cli.main import main
from copilot4d.datasets import write_folder
from copilot4d.errors import ProtocolError, UsageError
from copilot4d.geometry import Clip, se3
from copilot4d.tokens.augmentation import AugmentationConfig
from copilot4d.training import Recipe, SampleKey, StepCounter, TrainingConfig, open_checkpoint, train
from copilot4d.training.occupancy_scores import score_forecasts
from copilot4d.training.tasks.occupancy_4d import OccupancyTask, OccupancyTraining, clip_mean, future_rays
from tests.support.scenes import make_drive
from tests.training.small_runs import quiet_config, state_after
from tests.training.toy import ToyTask, toy_config

TINY = occupancy_4d_preset("tiny")
SMALL = OccupancyTraining(model=dataclasses.replace(TINY, dims=(8, 8)), rays_per_frame=60)


def small_drive(frames: int = 26, **properties):
    return make_drive(frames, rings=16, azimuths=90, **properties)


def small_task(config: OccupancyTraining = SMALL, **properties) -> OccupancyTask:
    return OccupancyTask(config, [small_drive(**properties)])


def key(index: int = 0, step: int = 0) -> SampleKey:
    return SampleKey(seed=1, step=step, index=index, batch=4)


def voxel_of(points: np.ndarray) -> np.ndarray:
    return TINY.grid.flat_index(TINY.grid.index_of(points))


def past_cells(past) -> np.ndarray:
    """Flat voxels of the grid that any past frame occupies, from positions in the input map."""
    width, levels = TINY.map_size[1], TINY.grid.shape[2]
    h, w = np.divmod(past.cells.numpy(), width)
    sub, z = past.channels.numpy() // (TINY.past_frames * levels), past.channels.numpy() % levels
    return TINY.grid.flat_index(np.stack([h * 2 + sub // 2, w * 2 + sub % 2, z], axis=-1))


@pytest.mark.parametrize("yaw", [0.0, 180.0])
def test_in_a_world_that_stands_still_rays_end_in_voxels_that_the_past_holds(yaw):
    """Ego and world stand still: the future is the past, whatever the augmentation; rays, poses and voxels agree."""
    config = dataclasses.replace(SMALL, augmentation=AugmentationConfig(max_yaw_deg=yaw))
    task = small_task(config, speed=0.0, yaw_rate=0.0, mover=0.0)
    for index in range(4):
        sample = task.sample(key(index))
        future = sample.future
        ends = future.rays.points_at(future.depths_m)[future.ends_inside].double().numpy()
        assert len(ends) > 20
        # 2 mm to and fro along the ray: an end on the very face between two voxels may be counted to either
        nearby = [voxel_of(ends + d * future.rays.directions[future.ends_inside].numpy()) for d in (-2e-3, 0, 2e-3)]
        held = set(past_cells(sample.past).tolist())
        assert all(any(int(v) in held for v in found) for found in zip(*nearby, strict=True))


def test_rays_of_a_moving_ego_start_at_its_future_places_and_end_on_the_returns():
    drive = small_drive()
    clip = Clip(drive="toy", past=(drive[0], drive[2]), future=(drive[4], drive[6]), past_frames=(0, 2),
                future_frames=(4, 6))  # fmt: skip
    future = future_rays(clip, TINY.grid.box, 80, np.random.default_rng(0))
    for step in range(2):
        mine = future.steps == step
        reference_from_future = clip.reference_from(clip.future[step])
        origins = future.rays.origins[mine].numpy()
        np.testing.assert_allclose(origins, np.broadcast_to(reference_from_future[:3, 3], origins.shape), atol=1e-5)
        returns = se3.transform_points(reference_from_future, clip.future[step].points.astype(np.float64))
        ends = future.rays.points_at(future.depths_m)[mine & future.ends_inside].double().numpy()
        distance = np.linalg.norm(ends[:, None] - returns[None], axis=-1).min(axis=1)
        assert distance.max() < 1e-3
    leaving = future.rays.points_at(future.depths_m)[~future.ends_inside]
    on_face = (leaving.abs() - torch.tensor(TINY.grid.maximum)).abs().amin(dim=-1)
    assert len(leaving) > 5
    assert on_face.max() < 1e-3


def test_rays_stopped_before_they_reach_the_region_are_never_taken():
    drive = small_drive()
    far = dataclasses.replace(drive[4], world_from_lidar=se3.from_yaw(0, (60, 0, 1.73)))  # 44 m before the region
    clip = Clip(drive="toy", past=(drive[0],), future=(far,), past_frames=(0,), future_frames=(4,))
    future = future_rays(clip, TINY.grid.box, 10_000, np.random.default_rng(0))
    entry, leave = future.rays.span(TINY.grid)
    assert 0 < len(future.depths_m) < len(far)
    assert (future.depths_m > entry).all()
    assert (future.depths_m <= leave + 1e-3).all()


def test_samples_depend_on_their_key_alone_and_name_their_frames():
    task = small_task()
    again = small_task()
    a, b = task.sample(key(1)), again.sample(key(1))
    assert torch.equal(a.future.rays.directions, b.future.rays.directions)
    assert torch.equal(a.past.channels, b.past.channels)
    assert not torch.equal(a.future.rays.directions, task.sample(key(2)).future.rays.directions)
    words = task.describe(key(1))
    spacing = words["future"][0] - words["past"][-1]
    assert spacing in (2, 6)  # 0.2 s and 0.6 s at 10 Hz
    assert a.past.intervals_s.item() == pytest.approx(spacing * 0.1 if len(words["past"]) > 1 else 0.2)


def test_clips_are_the_protocols_windows_of_both_settings():
    """26 frames at 10 Hz: references with a future are 0 ... 23 at a step of 2, and 0 ... 19 at a step of 6."""
    task = small_task()
    steps = [window.future[0] - window.reference for _, window in task.items]
    assert (steps.count(2), steps.count(6), len(steps)) == (24, 20, 44)
    one = small_task(dataclasses.replace(SMALL, settings=("3s",)))
    assert len(one.items) == 20
    with pytest.raises(UsageError, match="needs a sweep with a future"):
        OccupancyTask(SMALL, [small_drive(1)])
    with pytest.raises(ProtocolError, match="3 Hz"):
        OccupancyTask(SMALL, [small_drive(30, rate_hz=3.0)])
    with pytest.raises(UsageError, match="`settings`"):
        OccupancyTraining(settings=("2s",))


def test_every_clip_counts_the_same_however_many_rays_it_has():
    values, clips = torch.tensor([1.0, 3.0, 10.0]), torch.tensor([0, 0, 1])
    assert clip_mean(values, clips, 2).item() == 6.0
    assert clip_mean(values, clips, 3).item() == 4.0


def test_empty_sweeps_among_the_samples_do_not_stop_training():
    drive = small_drive(8)
    empty = dataclasses.replace(drive, read=lambda i: drive[i].select(np.zeros(0, dtype=np.int64)))
    task = OccupancyTask(SMALL, [drive, empty])
    batch = task.collate([task.sample(key(i, step)) for step in range(2) for i in range(4)])
    clips_with_rays = batch.future.rays.scenes.unique()
    assert 0 < len(clips_with_rays) < 8
    torch.manual_seed(0)
    model = task.build_model()
    total = task.loss(model, batch, StepCounter(seed=0, step=0, indices=tuple(range(8))))["total"]
    total.backward()
    assert total.isfinite()
    assert all(p.grad.isfinite().all() for p in model.parameters())


def config_of(run, **changes) -> TrainingConfig:
    return quiet_config(run, Recipe(batch=4, warmup_steps=2, cosine_steps=4, clip_norm=1.0), **changes)


def after(run, **changes) -> dict[str, torch.Tensor]:
    return state_after(small_task(), config_of(run, **changes))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return after(tmp_path_factory.mktemp("whole"))


def test_two_passes_per_update_give_the_same_weights(whole, tmp_path):
    for name, value in after(tmp_path, accumulation=2).items():
        torch.testing.assert_close(value, whole[name], rtol=1e-3, atol=1e-4, msg=lambda m, n=name: f"{n}: {m}")


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(whole, tmp_path):
    after(tmp_path, max_steps=3)
    resumed = after(tmp_path)
    assert all(torch.equal(resumed[name], value) for name, value in whole.items())


def test_it_learns_a_street_that_stands_still():
    """One standing street, without the start that persistence gives: after 60 steps the depth error on its rays is a
    third of what it was."""
    config = OccupancyTraining(
        model=dataclasses.replace(TINY, persistence=None),
        settings=("1s",),
        rays_per_frame=300,
        augmentation=AugmentationConfig(max_yaw_deg=0),
    )
    task = small_task(config, speed=0.0, yaw_rate=0.0, mover=0.0)
    torch.manual_seed(0)
    model = task.build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    errors = []
    for step in range(60):
        batch = task.collate([task.sample(key(i, step)) for i in range(2)])
        losses = task.loss(model, batch, StepCounter(seed=0, step=step, indices=(0, 1)))
        optimizer.zero_grad()
        losses["total"].backward()
        optimizer.step()
        errors.append(losses["surface"].item())
    assert np.mean(errors[-5:]) < np.mean(errors[:5]) / 3


def test_scores_of_held_out_clips_are_those_of_the_protocol_and_of_each_setting():
    drive = small_drive(60)
    task = OccupancyTask(SMALL, [drive[:26]], [drive], held_out_clips=4)
    assert [setting for _, setting, _ in task.held_out] == ["1s", "1s", "3s", "3s"]
    assert all(window.complete for _, _, window in task.held_out)
    torch.manual_seed(0)
    clips = [(setting, task._clip(drive, window)) for drive, setting, window in task.held_out]
    scores = score_forecasts(task.build_model().eval(), clips)
    assert scores["frames_not_scored"] == 0
    assert scores["chamfer_roi"] == pytest.approx((scores["chamfer_roi_1s"] + scores["chamfer_roi_3s"]) / 2)
    assert 0 < scores["roi_l1_median"] < 32


def test_an_oracle_scores_zero():
    """Solid voxels exactly where the standing street's ground lies give depths within the voxels' size."""
    drive = small_drive(30, speed=0.0, yaw_rate=0.0, mover=0.0)
    task = OccupancyTask(SMALL, [drive], [drive], held_out_clips=2)

    class Ground(Occupancy4d):
        def forward(self, past):
            height, width = self.config.map_size
            logits = torch.full((1, height, width, 2, 2, 2, 12), -60.0)
            logits[..., :3] = 1e4  # below -1.5 m; the ground lies at -1.73 m
            return logits

    drive_, setting, window = task.held_out[0]
    clip = task._clip(drive_, window)
    ground = tuple(s.select((s.points[:, 2] < -1.72) & (np.abs(s.points).max(axis=1) < 15)) for s in clip.future)
    scores = score_forecasts(Ground(SMALL.model), [(setting, dataclasses.replace(clip, future=ground))])
    # A ray at angle a below the horizon stops 0.23 m above the ground: 0.23 / sin(a) too early.
    points = ground[0].points.astype(np.float64)
    early = 0.23 * np.linalg.norm(points, axis=1) / -points[:, 2]
    assert scores["roi_l1_mean"] == pytest.approx(early.mean(), rel=0.01)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A data set of two drives and a run of a few steps, made by the verb."""
    folder = tmp_path_factory.mktemp("verbs")
    for name in ("a", "b"):
        write_folder(make_drive(26, rings=12, azimuths=60, name=name), folder / "data" / name)
    words = ["train", "occupancy-4d", "--preset", "tiny", "--data", folder / "data", "--run", folder / "run",
             "--updates", 4, "--held-out", "b", "--held-out-clips", 2, "--evaluate-every", 2, "--pictures-every", 4,
             "--workers", 0, "--rays-per-frame", 40, "--precision", "fp32", "--log-every", 2,
             "--settings", "1s"]  # fmt: skip
    assert main([str(w) for w in words]) == 0
    return folder


def test_the_verb_trains_scores_and_draws(trained):
    lines = [json.loads(line) for line in (trained / "run" / "log.jsonl").read_text().splitlines()]
    text = json.dumps(lines)
    assert "chamfer_roi_1s" in text
    assert "surface" in text
    assert len(list((trained / "run" / "pictures").glob("*forecast_1s.png"))) == 1


def test_a_loaded_run_forecasts_with_its_weights(trained):
    forecaster = load_occupancy_4d(trained / "run")
    assert forecaster.name == "occupancy_4d"
    assert forecaster.model.config == TINY
    assert not forecaster.model.training
    checkpoint = open_checkpoint(sorted((trained / "run" / "checkpoints").glob("step_*"))[-1])
    assert checkpoint.content["task"] == "occupancy_4d"
    drive = make_drive(4, rings=12, azimuths=60)
    asked = [drive[3].rays()[0]]
    (depths,) = forecaster.forecast([drive[0], drive[2]], drive[3].world_from_lidar[None], asked).depths
    assert np.isfinite(depths).all()
    median = load_occupancy_4d(trained / "run", depth="median")
    assert (median.name, median.depth) == ("occupancy_4d_median", "median")


def test_the_runs_folder_and_its_checkpoints_are_models_by_their_path(trained):
    checkpoint = sorted((trained / "run" / "checkpoints").glob("step_*"))[-1]
    for folder in (trained / "run", checkpoint):
        forecaster = load_forecaster(folder)
        assert isinstance(forecaster, Occupancy4dForecaster)
        assert forecaster.name == "occupancy_4d"


def test_an_exported_run_forecasts_the_same_and_can_be_trained_on(trained, tmp_path, capsys):
    out = tmp_path / "shared"
    assert main(["export", "--occupancy-4d", str(trained / "run"), "--out", str(out), "--trained-on", "a street"]) == 0
    assert "copilot4d demo --model" in capsys.readouterr().out
    assert "a street" in (out / "README.md").read_text()
    drive = make_drive(4, rings=12, azimuths=60)
    asked = ([drive[0], drive[2]], drive[3].world_from_lidar[None], [drive[3].rays()[0]])
    ours, shared = (load_forecaster(folder).forecast(*asked).depths[0] for folder in (trained / "run", out))
    np.testing.assert_array_equal(ours, shared)
    on = ["train", "occupancy-4d", "--preset", "tiny", "--data", trained / "data", "--init-from", out, "--dry-run"]
    assert main([str(w) for w in (*on, "--run", tmp_path / "next", "--settings", "1s")]) == 0
    assert f"starting from the weights of {out}" in " ".join(capsys.readouterr().out.split())


def test_other_models_and_drives_on_both_sides_are_refused(trained, tmp_path, capsys):
    train(ToyTask(), toy_config(tmp_path / "toy", max_steps=1))
    with pytest.raises(UsageError, match="is of task 'toy', not 'occupancy_4d': pass a run of"):
        load_occupancy_4d(tmp_path / "toy")
    words = ["train", "occupancy-4d", "--data", trained / "data", "--run", tmp_path / "r", "--held-out-data",
             trained / "data"]  # fmt: skip
    assert main([str(w) for w in words]) == 2
    assert "drives that are trained on: a, b" in capsys.readouterr().err
