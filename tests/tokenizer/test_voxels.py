from __future__ import annotations

import numpy as np
import pytest
import torch

from copilot4d.errors import UsageError
from copilot4d.tokenizer.point_keys import fingerprint_bits, keyed_by_tensors, keyed_points
from copilot4d.tokenizer.voxels import PointBatch, VoxelPointNet, voxelise
from tests.tokenizer.clouds import SMALL, random_sweep, sweep_of


def cells_by_hand(sweeps) -> dict[tuple[int, ...], int]:
    """Points per (scene, x, y, z), point by point."""
    found: dict[tuple[int, ...], int] = {}
    for b, sweep in enumerate(sweeps):
        for point in sweep.points[SMALL.contains(sweep.points)]:
            cell = (b, *SMALL.index_of(point).tolist())
            found[cell] = found.get(cell, 0) + 1
    return found


def test_voxels_are_those_of_the_grid_point_by_point():
    sweeps = [random_sweep(300, seed=1), sweep_of([]), random_sweep(200, seed=2)]
    voxels = voxelise(PointBatch.of(sweeps), SMALL)
    counts = torch.bincount(voxels.voxel_of_point, minlength=len(voxels.flat))
    found = dict(zip(map(tuple, voxels.cells.tolist()), counts.tolist(), strict=True))
    assert found == cells_by_hand(sweeps)
    assert voxels.offsets.abs().max() <= 0.5
    assert (voxels.flat.diff() > 0).all()


def points_of(*scenes) -> PointBatch:
    """Points as they are, also those that no sweep may have."""
    parts = [torch.from_numpy(np.asarray(points, dtype=np.float32)) for points in scenes]
    numbers = torch.repeat_interleave(torch.arange(len(parts)), torch.tensor([len(part) for part in parts]))
    return PointBatch(points=torch.cat(parts), scenes=numbers, count=len(parts))


def test_edges_belong_to_the_cell_above_and_the_upper_edge_to_none():
    inside = [(-4, -2, -1), (0, 0, 0), (-0.0, 0, 0), (3.999, 1.999, 0.999)]
    outside = [(4, 0, 0), (0, 2, 0), (0, 0, 1), (-4.001, 0, 0), (np.nan, 0, 0), (0, np.inf, 0)]
    voxels = voxelise(points_of(inside + outside), SMALL)
    assert voxels.cells.tolist() == [[0, 0, 0, 0], [0, 8, 4, 2], [0, 15, 7, 3]]
    assert len(voxels.offsets) == 4


def test_offsets_are_measured_from_the_centre_in_cells():
    voxels = voxelise(PointBatch.of([sweep_of([(1.35, -0.25, 0.25)])]), SMALL)  # the cell's centre is (1.25, -.25, .25)
    torch.testing.assert_close(voxels.offsets, torch.tensor([[0.2, 0.0, 0.0]]), atol=1e-6, rtol=0)


def test_the_order_of_points_changes_not_one_bit():
    sweep = random_sweep(2000, seed=3)
    shuffled = sweep.select(np.random.default_rng(0).permutation(len(sweep)))
    torch.manual_seed(0)
    net = VoxelPointNet(16)
    a, b = (voxelise(PointBatch.of([s]), SMALL) for s in (sweep, shuffled))
    assert torch.equal(a.offsets, b.offsets)
    assert torch.equal(net(a), net(b))


def test_one_pass_over_the_points_and_tensors_give_the_same_bits():
    sweep = random_sweep(3000, seed=4)
    odd = [
        (-4, -2, -1),
        (-0.0, 0, 0),
        (0, 0, 0),
        (4, 0, 0),
        (np.nan, 0, 0),
        (0, -np.inf, 0),
        (1e30, 0, 0),
        (3.9999998, 0, 0),
    ]
    batch = points_of(sweep.points, odd, np.zeros((0, 3)))
    bits = fingerprint_bits(batch.count, SMALL)
    assert bits >= 30
    once = keyed_points(batch.points, batch.scenes, SMALL, bits)
    expected = keyed_by_tensors(batch.points, batch.scenes, SMALL, bits)
    assert torch.equal(once.keys, expected.keys)
    assert torch.equal(once.offsets, expected.offsets)
    assert len(once.keys.unique()) == len(once.keys) - 1  # 0 and -0 are one point
    assert (once.keys >= 0).all()


def test_features_are_the_normalised_sum_not_the_mean_or_maximum():
    torch.manual_seed(0)
    net = VoxelPointNet(16)
    points = np.array([(0.1, 0.1, 0.1), (0.2, 0.4, 0.3), (0.45, 0.2, 0.1)])
    offsets = torch.from_numpy((points - 0.25) / 0.5).float()
    each = net.leave(torch.relu(net.enter(2 * offsets)))
    found = net(voxelise(PointBatch.of([sweep_of(points)]), SMALL))
    torch.testing.assert_close(found[0], net.norm(each.sum(dim=0)), rtol=1e-4, atol=1e-5)


def test_no_sweep_is_refused():
    with pytest.raises(UsageError, match="at least one sweep"):
        PointBatch.of([])
