from __future__ import annotations

import pytest
import torch

from copilot4d.geometry import VoxelGrid
from copilot4d.rendering import (
    RayBatch,
    composite,
    median_depth,
    pad_samples,
    rendering_weights,
    sample_rays,
    weights_from_logits,
)


def test_weights_of_a_hand_made_sequence():
    alpha = torch.tensor([[0.1, 0.5, 0.0, 0.8, 0.3], [0.0, 0.0, 1.0, 0.9, 1.0]], dtype=torch.float64)
    # 0.1; 0.5 * 0.9; 0; 0.8 * 0.9 * 0.5; 0.3 * 0.9 * 0.5 * 0.2
    expected = [[0.1, 0.45, 0.0, 0.36, 0.027], [0.0, 0.0, 1.0, 0.0, 0.0]]
    weights = rendering_weights(alpha)
    torch.testing.assert_close(weights, torch.tensor(expected, dtype=torch.float64))
    seen = composite(weights, torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0], [2.0, 4.0, 6.0, 8.0, 10.0]]))
    # 0.1 + 0.9 + 0 + 1.44 + 0.135, not divided by the opacity 0.937
    torch.testing.assert_close(seen.depth_m, torch.tensor([2.575, 6.0], dtype=torch.float64))
    torch.testing.assert_close(seen.opacity, torch.tensor([0.937, 1.0], dtype=torch.float64))


def test_the_median_is_on_a_surface_where_the_mean_is_in_the_air():
    """A car's edge at 10 m that stops 0.6 of a ray, the wall at 30 m stops 0.3; a ray that nothing stops; no weight at
    the front; half exactly between two samples."""
    depths = torch.tensor([[9.9, 10.0, 30.0]] * 4)
    weights = torch.tensor([[0.0, 0.6, 0.3], [0.0, 0.0, 0.0], [0.0, 0.0, 0.8], [0.2, 0.2, 0.0]])
    found = median_depth(weights, depths, 0.1)
    # half of 0.9 lies at 0.45 / 0.6 of the sample's step
    assert found.tolist() == pytest.approx([9.95 + 0.1 * 0.75, 0.0, 30.0, 9.95], abs=1e-5)
    assert float(composite(weights, depths).depth_m[0] / 0.9) == pytest.approx(16.67, abs=0.01)


def test_logits_give_the_weights_of_their_occupancies():
    logits = torch.randn(5, 40, dtype=torch.float64) * 3
    torch.testing.assert_close(weights_from_logits(logits), rendering_weights(torch.sigmoid(logits)))


def test_weights_sum_to_what_is_stopped_and_survive_thousands_of_samples():
    logits = torch.full((1, 4000), 2.0)
    logits[0, 3999] = 50.0
    weights = weights_from_logits(logits)
    assert weights.isfinite().all()
    assert float(weights.sum()) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("function", [rendering_weights, weights_from_logits])
def test_gradients_by_finite_differences(function):
    torch.manual_seed(0)
    values = torch.rand(3, 6, dtype=torch.float64) * 0.8 + 0.1
    assert torch.autograd.gradcheck(function, values.requires_grad_())


def test_an_empty_sample_changes_nothing_and_has_no_gradient():
    logits = torch.tensor([0.3, -1.0], dtype=torch.float64, requires_grad=True)
    padded = torch.full((1, 4), -torch.inf, dtype=torch.float64).index_put((torch.zeros(2).long(), torch.tensor([0, 2])), logits)  # fmt: skip # noqa: E501
    weights = weights_from_logits(padded)
    torch.testing.assert_close(weights[0, [0, 2]], weights_from_logits(logits))
    assert weights[0, [1, 3]].tolist() == [0, 0]
    weights.square().sum().backward()
    assert logits.grad.isfinite().all()


def test_padding_puts_each_sample_in_its_ray_and_slot():
    grid = VoxelGrid.from_bounds((0, 0, 0), (4, 4, 4), (4, 4, 4))
    rays = RayBatch(
        origins=torch.tensor([[0.0, 0.5, 0.5], [3.0, 0.5, 0.5]]),
        directions=torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]),
        scenes=torch.tensor([0, 0]),
    )
    samples = sample_rays(rays, grid, step_m=1.0, max_samples=10)
    padded = pad_samples(samples.depths_m, samples, -7.0)
    assert padded.tolist() == [[0.5, 1.5, 2.5, 3.5], [0.5, -7.0, -7.0, -7.0]]
