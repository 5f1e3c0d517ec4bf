from __future__ import annotations

import pytest
import torch

from copilot4d.rendering import interpolate
from copilot4d.tokenizer import feature_grid
from copilot4d.tokenizer.feature_grid import FeatureGrid, FeatureGridConfig
from tests.tokenizer.clouds import SMALL
from tests.tokenizer.oracle import oracle_tokenizer, scene_with


@pytest.fixture
def grid() -> FeatureGrid:
    torch.manual_seed(0)
    return FeatureGrid(FeatureGridConfig(upsample=2, channels=3, hidden=5), 6, SMALL, (4, 2))


def points_and_scenes(count: int, scenes: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    low, high = torch.tensor(SMALL.minimum), torch.tensor(SMALL.maximum)
    return low + torch.rand(count, 3, generator=generator) * (high - low), torch.arange(count) % scenes


def test_lazy_columns_equal_the_dense_grid(grid):
    features = torch.randn(3, 4, 2, 6, generator=torch.Generator().manual_seed(1))
    points, scenes = points_and_scenes(40, 3)
    dense = grid.dense(features)
    assert dense.shape == (3, 8, 4, 4, 3)
    expected = grid.occupancy_logits(interpolate(dense, points, scenes, grid.grid))
    torch.testing.assert_close(grid(features, points, scenes), expected)


def test_many_points_are_taken_in_parts(grid, monkeypatch):
    features = torch.randn(2, 4, 2, 6, generator=torch.Generator().manual_seed(1))
    points, scenes = points_and_scenes(50, 2)
    with torch.no_grad():
        whole = grid(features, points, scenes)
        monkeypatch.setattr(feature_grid, "POINTS_AT_ONCE", 7)
        torch.testing.assert_close(grid(features, points, scenes), whole)


def test_only_columns_under_the_points_are_evaluated(grid):
    features = torch.full((1, 4, 2, 6), torch.nan)
    features[0, 3, 0] = 1.0  # x in [2, 4), y in [-2, 0)
    inside = torch.tensor([[3.0, -1.0, 0.2], [3.2, -1.2, -0.4]])
    assert grid(features, inside, torch.zeros(2, dtype=torch.int64)).isfinite().all()


def test_gradients_reach_the_map_by_finite_differences(grid):
    grid.double()
    features = torch.randn(1, 4, 2, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    points, scenes = points_and_scenes(5, 1)

    assert torch.autograd.gradcheck(
        lambda f, w: torch.func.functional_call(grid, {"linear.weight": w}, (f, points.double(), scenes)),
        (features.requires_grad_(), grid.linear.weight.detach().clone().requires_grad_()),
    )


CELLS = [(40, 13, 3), (5, 60, 9), (33, 32, 6), (63, 0, 0)]


@pytest.mark.parametrize("cell", CELLS)
def test_an_object_is_where_it_was_put(cell):
    """The grid's first axis is x, its second y, its third z."""
    tokenizer = oracle_tokenizer()
    grid = tokenizer.feature_grid
    scene = scene_with(tokenizer, [cell])
    centre = torch.from_numpy(grid.grid.centre_of(torch.tensor(cell).numpy())).float()
    probe = torch.stack([centre, centre[[1, 0, 2]], centre * torch.tensor([-1.0, 1, 1]), centre + torch.tensor([0, 0, 1.0])])  # fmt: skip # noqa: E501
    logits = grid(scene.features, probe, torch.zeros(4, dtype=torch.int64))
    expected = [True, cell[0] == cell[1], False, False]
    assert (logits > 0).tolist() == expected
