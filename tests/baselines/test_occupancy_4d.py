"""4D-Occ: what the network sees, where its outputs lie in space and time, and its forecasts of hand-made occupancy."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch
from torch.nn import functional

from copilot4d import presets
from copilot4d.baselines.occupancy_4d import (
    Occupancy4d,
    Occupancy4dConfig,
    Occupancy4dForecaster,
    PastVoxels,
    occupancy_4d_preset,
    past_voxels,
)
from copilot4d.errors import ForecastError, UsageError
from copilot4d.forecaster import Forecaster
from copilot4d.geometry import Rays, Sweep, VoxelGrid, se3
from copilot4d.rendering import BEYOND_EXIT_M, RayBatch

TINY = occupancy_4d_preset("tiny")  # +-16 m x +-16 m x +-3 m, cells of 0.5 m, 2 + 2 frames, fold 2


def sweep_at(world_from_lidar: np.ndarray, points: list[tuple[float, float, float]], time_s: float) -> Sweep:
    rows = np.array(points, dtype=np.float32).reshape(-1, 3)
    return Sweep(points=rows, world_from_lidar=world_from_lidar, timestamp_ns=round(time_s * 1e9))


def occupied(past: PastVoxels, config: Occupancy4dConfig) -> set[tuple[int, int, int, int]]:
    """(past frame, x, y, z) of each voxel, from positions in the network's input map."""
    height, width = config.map_size
    h, w = np.divmod(past.cells.numpy() % (height * width), width)
    sub, rest = np.divmod(past.channels.numpy(), config.past_frames * config.grid.shape[2])
    frame, z = np.divmod(rest, config.grid.shape[2])
    sub_x, sub_y = np.divmod(sub, config.fold)
    rows = zip(frame, h * config.fold + sub_x, w * config.fold + sub_y, z, strict=True)
    return {tuple(int(v) for v in row) for row in rows}


def test_the_past_is_seen_in_the_newest_sweeps_frame():
    older = sweep_at(se3.from_yaw(0, (100, 50, 7)), [(5.2, 1.1, -1.0), (5.3, 1.2, -1.0)], 0.0)
    # 2 m forward and a quarter turn to the left: what was 5.2 ahead and 1.1 left is now 1.1 ahead and 3.2 to the right.
    newest = sweep_at(se3.from_yaw(np.pi / 2, (102, 50, 7)), [(-3.9, 0.3, 1.6), (40.0, 0, 0)], 0.6)
    past = past_voxels([older, newest], TINY)
    there = TINY.grid.index_of(np.array([1.1, -3.2, -1.0]))
    here = TINY.grid.index_of(np.array([-3.9, 0.3, 1.6]))
    assert occupied(past, TINY) == {(0, *there), (1, *here)}
    assert past.intervals_s.item() == pytest.approx(0.6)


def test_missing_frames_stay_empty_and_only_the_newest_are_seen():
    sweeps = [sweep_at(np.eye(4), [(float(i), 0, 0)], 0.1 * i) for i in range(4)]
    assert {v[0] for v in occupied(past_voxels(sweeps[:1], TINY), TINY)} == {1}
    x_of = {v[0]: v[1] for v in occupied(past_voxels(sweeps, TINY), TINY)}
    assert x_of == {0: 32 + 4, 1: 32 + 6}  # x = 2 m and 3 m


def random_past(clips: int, seed: int = 0) -> PastVoxels:
    generator = np.random.default_rng(seed)
    pasts = []
    for _ in range(clips):
        clouds = [generator.uniform(-17, 17, (60, 3)) * [1, 1, 0.15] for _ in range(2)]
        pasts.append(past_voxels([sweep_at(np.eye(4), c.tolist(), 0.2 * i) for i, c in enumerate(clouds)], TINY))
    return PastVoxels.joined(pasts, TINY)


def test_the_stem_is_a_strided_convolution_over_the_binary_voxels():
    torch.manual_seed(0)
    stem, fold = Occupancy4d(TINY).stem, TINY.fold
    torch.nn.init.normal_(stem.bias)
    past = random_past(2)
    x, y, z = TINY.grid.shape
    dense = torch.zeros(2, 2 * z, x, y)  # times and heights are channels
    for clip in range(2):
        mine = (past.cells // (x * y // fold**2)) == clip
        one = PastVoxels(cells=past.cells[mine], channels=past.channels[mine], intervals_s=past.intervals_s[:1])
        for frame, i, j, k in occupied(one, TINY):
            dense[clip, frame * z + k, i, j] = 1
    kernel = stem.weight.view(fold, fold, 2 * z, -1).permute(3, 2, 0, 1)
    expected = functional.conv2d(dense, kernel, stem.bias, stride=fold)
    torch.testing.assert_close(stem(past), expected, atol=1e-4, rtol=1e-4)


def test_outputs_are_voxels_and_steps_in_the_order_that_rendering_reads():
    """The head says: solid below z = -1 m, at the second step and in the voxel columns of odd y only."""
    model = Occupancy4d(Occupancy4dConfig(**{**vars(TINY), "persistence": None}))
    bias = torch.full((2, 2, 2, TINY.grid.shape[2]), -60.0)  # (f along x, f along y, step, z)
    bias[:, 1, 1, :4] = 1e4  # cells of 0.5 m from -3 m on
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias.copy_(bias.flatten())
    rows = [(0.3, 0.7, 2.0, 0, 0, -1), (0.3, 0.2, 2.0, 0, 0, -1), (0.8, -4.3, 2.0, 0, 0, -1)]
    table = torch.tensor(rows)
    rays = RayBatch(origins=table[:, :3], directions=table[:, 3:], scenes=torch.tensor([1, 1, 0]))
    logits = model(random_past(2))
    depths = [model.render(logits, rays, torch.full((3,), step)).expected_m.tolist() for step in (0, 1)]
    assert depths[0] == pytest.approx([5, 5, 5], abs=1e-3)
    assert depths[1] == pytest.approx([3, 5, 3], abs=1e-3)


def test_what_the_past_holds_persists_in_the_same_voxels_with_the_weight_of_its_frame_height_and_step():
    model = Occupancy4d(TINY)
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias.fill_(-3)
        model.persistence.weight.copy_(torch.arange(2 * 12 * 2).view(2, 12, 2) / 10)
    older = sweep_at(np.eye(4), [(-4.1, 2.8, -0.9), (7.3, -5.2, 1.4)], 0.0)
    newest = sweep_at(np.eye(4), [(-4.1, 2.8, -0.9)], 0.2)
    past = past_voxels([older, newest], TINY)
    dense = torch.full((1, 64, 64, 2, 12), -3.0)
    for frame, x, y, z in occupied(past, TINY):
        dense[0, x, y, :, z] += model.persistence.weight[frame, z].detach()
    folded = dense.view(1, 32, 2, 32, 2, 2, 12).permute(0, 1, 3, 2, 4, 5, 6)
    logits = model(past)
    torch.testing.assert_close(logits, folded)
    logits[0, 11, 18, 1, 1, 1, 4].backward()  # x cell 23, y cell 37, z cell 4, second step: both frames hold it
    assert model.persistence.weight.grad.nonzero().tolist() == [[0, 4, 1], [1, 4, 1]]
    assert Occupancy4d(Occupancy4dConfig(**{**vars(TINY), "persistence": None})).persistence is None


def test_a_clip_does_not_see_the_others_of_its_batch_but_sees_its_own_rate():
    torch.manual_seed(0)
    model, both = Occupancy4d(TINY).eval(), random_past(2)
    with torch.no_grad():
        whole = model(both)
        alone = PastVoxels.joined([random_past(1)], TINY)
        torch.testing.assert_close(model(alone)[0], whole[0], atol=1e-4, rtol=1e-4)
        slower = PastVoxels(cells=alone.cells, channels=alone.channels, intervals_s=alone.intervals_s * 3)
        assert (model(slower)[0] - whole[0]).abs().max() > 1e-3


class Wall(Occupancy4d):
    """Nothing, but at step t a solid wall behind x = 8 m + 2 m x t of the reference frame, 2 m high from -3 m on."""

    def forward(self, past: PastVoxels) -> torch.Tensor:
        x, y, z = self.config.grid.shape
        voxels = torch.full((1, x, y, 2, z), -60.0)
        for step in range(2):
            voxels[:, int((8 + 2 * step + 16) / 0.5) :, :, step, :4] = 1e4
        height, width = self.config.map_size
        return voxels.view(1, height, 2, width, 2, 2, z).permute(0, 1, 3, 2, 4, 5, 6)


PAST = [
    sweep_at(se3.from_yaw(0.2, (10, 20, 1)), [(1.0, 1, 1)], 0.0),
    sweep_at(se3.from_yaw(0.3, (11, 20, 1)), [(9.0, 0, -2), (0, 5.0, -1), (0, 0, 12.0), (9.0, 3, 0)], 0.2),
]
FORWARD = Rays.from_origin(np.zeros(3), np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]]))


def later(forward: float, left: float, yaw: float, up: float = -2.0) -> np.ndarray:
    """The future lidar, placed in the reference frame. The wall's middle lies 2 m below the sensor."""
    return se3.compose(PAST[-1].world_from_lidar, se3.from_yaw(yaw, (forward, left, up)))


def test_rays_of_each_future_frame_meet_the_occupancy_of_the_reference_frame():
    poses = np.stack([later(3, 1, 0), later(4, 2, np.pi / 2)])
    forecast = Occupancy4dForecaster(Wall(TINY)).forecast(PAST, poses, [FORWARD, FORWARD])
    first, second = forecast.depths
    assert first == pytest.approx([5, 15 + 0.05, 5 + 0.05], abs=1e-3)  # to the wall; without return: behind the exit
    assert second[2] == pytest.approx(5.05, abs=1e-3)
    assert second[0] == pytest.approx(14.05, abs=1e-3)  # now looks to the left: to y = 16
    backwards = Rays.from_origin(np.zeros(3), np.array([[0.0, -1, 0]]))
    (to_wall,) = Occupancy4dForecaster(Wall(TINY)).forecast(PAST, poses[1:], [backwards]).depths
    assert to_wall == pytest.approx([4], abs=1e-3)  # the only frame asked for is the first step: the wall at 8 m
    np.testing.assert_allclose(forecast.sweeps[0].points[0], [5, 0, 0], atol=1e-3)
    np.testing.assert_allclose(forecast.sweeps[1].world_from_lidar, poses[1])
    assert [s.timestamp_ns for s in forecast.sweeps] == [400_000_000, 600_000_000]


def test_an_offset_origin_and_a_ray_that_misses_the_region_are_answered():
    rays = Rays(np.array([[1.0, 0, 0], [200.0, 0, 0]]), np.array([[1.0, 0, 0], [0, 1, 0]]))
    forecast = Occupancy4dForecaster(Wall(TINY)).forecast(PAST, later(0, 0, 0)[None], [rays])
    assert forecast.depths[0][0] == pytest.approx(7, abs=1e-3)
    assert np.isfinite(forecast.depths[0]).all()
    np.testing.assert_array_equal(forecast.sweeps[0].origins, rays.origins.astype(np.float32))


def test_without_rays_the_pasts_beams_are_cast_and_those_without_return_dropped():
    """Of five directions seen, two meet the wall, whose upper edge is 10 cm above the sensor."""
    (sweep,) = Occupancy4dForecaster(Wall(TINY)).forecast(PAST, later(0, 0, 0, -1.1)[None]).sweeps
    assert sweep.points[:, 0] == pytest.approx([8, 8], abs=1e-3)
    directions = sweep.points / np.linalg.norm(sweep.points, axis=1, keepdims=True)
    expected = np.array([(9.0, 3, 0), (9, 0, -2)])
    for row in expected / np.linalg.norm(expected, axis=1, keepdims=True):
        assert (directions @ row).max() > 1 - 1e-5
    near = [*PAST[:1], sweep_at(PAST[1].world_from_lidar, [(5.0, 0, 0)], 0.2)]
    (nothing,) = Occupancy4dForecaster(Wall(TINY)).forecast(near, later(0, 0, 0)[None]).sweeps
    assert len(nothing) == 0  # the sensor sees 5 m far, the wall is 8 m away


class Fog(Occupancy4d):
    """The same density everywhere, per metre."""

    density = 0.5

    def forward(self, past: PastVoxels) -> torch.Tensor:
        height, width = self.config.map_size
        return torch.full((1, height, width, 2, 2, 2, 12), float(np.log(np.expm1(self.density * 0.5))))


def depths_in_fog(density: float) -> dict[str, float]:
    rays = Rays.from_origin(np.zeros(3), np.array([[1.0, 0, 0]]))  # leaves the region after 16 m
    answers = {}
    for depth in ("expected", "normalised", "median"):
        fog = Fog(Occupancy4dConfig(**{**vars(TINY), "depth": depth}))
        fog.density = density
        answers[depth] = Occupancy4dForecaster(fog).forecast(PAST, later(0, 0, 0, 0)[None], [rays]).depths[0][0]
    return answers


@pytest.mark.parametrize("density", [0.5, 0.01])  # the second stops 15% of the ray
def test_expectation_and_what_presumes_a_return_are_different_answers(density):
    answers = depths_in_fog(density)
    stopped = 1 - np.exp(-density * 16)
    expected = stopped / density
    assert answers["expected"] == pytest.approx(expected, rel=1e-4)
    assert answers["normalised"] == pytest.approx((expected - (1 - stopped) * 16) / stopped, rel=1e-3)
    assert answers["median"] == pytest.approx(-np.log(1 - stopped / 2) / density, rel=1e-3)


def test_a_ray_that_nothing_stops_ends_behind_the_region():
    answers = depths_in_fog(1e-5)
    assert answers["normalised"] == answers["median"] == pytest.approx(16 + BEYOND_EXIT_M)


def test_it_speaks_the_protocol_and_refuses_what_it_cannot_do():
    forecaster = Occupancy4dForecaster(Wall(TINY))
    assert isinstance(forecaster, Forecaster)
    assert inspect.signature(Occupancy4dForecaster.forecast) == inspect.signature(Forecaster.forecast)
    pose = later(0, 0, 0)
    several = forecaster.forecast(PAST, pose[None], [FORWARD], futures=3)
    assert len(several.futures) == 3
    np.testing.assert_array_equal(several.alternatives[1].depths[0], several.depths[0])
    with pytest.raises(ForecastError, match=r"forecasts 2 frames, but 3 were asked.*future_frames: 3"):
        forecaster.forecast(PAST, np.stack([pose] * 3), [FORWARD] * 3)
    with pytest.raises(ForecastError, match="at least one past sweep"):
        forecaster.forecast([], pose[None])
    nothing = Rays(np.zeros((0, 3)), np.zeros((0, 3)))
    assert forecaster.forecast(PAST, pose[None], [nothing]).depths[0].shape == (0,)
    assert len(forecaster.forecast(PAST[1:], pose[None], [FORWARD]).depths[0]) == 3  # a past of one sweep


def test_the_mini_presets_region_and_voxels_are_those_of_the_mini_tokenizer():
    mini = occupancy_4d_preset("mini")
    assert mini.grid == presets.mini().tokenizer.grid
    world_model = presets.mini().world_model
    assert (mini.past_frames, mini.past_frames + mini.future_frames) == (world_model.past_frames, world_model.frames)
    paper = occupancy_4d_preset("paper").grid
    assert paper.cell_size == pytest.approx((0.2, 0.2, 0.2))
    assert paper.maximum == pytest.approx((70.4, 70.4, 4.5))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"blocks": (1,)}, "one value per level"),
        ({"fold": 0}, "at least 1"),
        ({"grid": VoxelGrid.from_bounds((-1, -1, -1), (1, 1, 1), shape=(30, 30, 4))}, r"must divide by .* = 4"),
        ({"depth": "mode"}, "expected, normalised, median"),
        ({"min_opacity": 0.0}, "occupancy_4d.min_opacity"),
    ],
)
def test_configurations_that_do_not_fit_are_refused(change, message):
    with pytest.raises(UsageError, match=message):
        Occupancy4dConfig(**{**vars(TINY), **change})
    with pytest.raises(UsageError, match="`preset`"):
        occupancy_4d_preset("huge")
