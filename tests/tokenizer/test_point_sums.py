"""Sums of a layer over the points of a voxel: what layer by layer gives, and its gradients."""

from __future__ import annotations

import doctest

import torch

from copilot4d.tokenizer import point_sums
from copilot4d.tokenizer.point_sums import POINTS_AT_ONCE, relu_sums, relu_sums_plain


def example(count: int, dtype=torch.float32, channels: int = 5):
    draws = torch.Generator().manual_seed(count)
    points = torch.rand(count, 3, generator=draws, dtype=dtype) * 2 - 1
    weight, bias = (torch.randn(*shape, generator=draws, dtype=dtype) for shape in ((channels, 3), (channels,)))
    voxels = count // 3 + 2  # the last has no points
    voxel_of_point = torch.sort(torch.randint(0, voxels - 1, (count,), generator=draws)).values
    return points, weight.requires_grad_(), bias.requires_grad_(), voxel_of_point, voxels


def test_the_worked_example():
    assert doctest.testmod(point_sums).failed == 0


def test_values_and_gradients_are_those_of_layer_by_layer():
    for count in (0, 1, 40, POINTS_AT_ONCE, POINTS_AT_ONCE + 1, 5000):
        points, weight, bias, voxel_of_point, voxels = example(count)
        upstream = torch.randn(voxels, 5, generator=torch.Generator().manual_seed(1))
        found = relu_sums(points, weight, bias, voxel_of_point, voxels)
        expected = relu_sums_plain(points, weight, bias, voxel_of_point, voxels)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        got = torch.autograd.grad((found * upstream).sum(), (weight, bias))
        wanted = torch.autograd.grad((expected * upstream).sum(), (weight, bias))
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)


def test_gradients_by_finite_differences():
    points, weight, bias, voxel_of_point, voxels = example(12, torch.float64, channels=3)
    assert torch.autograd.gradcheck(lambda w, b: relu_sums(points, w, b, voxel_of_point, voxels), (weight, bias))


def test_a_feature_that_is_exactly_zero_has_no_gradient():
    """As relu has it: the kink belongs to the flat side."""
    points = torch.tensor([[1.0, 0.0, 0.0]])
    weight, bias = torch.tensor([[1.0, 0.0, 0.0]], requires_grad=True), torch.tensor([-1.0], requires_grad=True)
    relu_sums(points, weight, bias, torch.tensor([0]), 1).sum().backward()
    assert (weight.grad.tolist(), bias.grad.tolist()) == ([[0.0, 0.0, 0.0]], [0.0])


def test_weights_of_another_precision_take_the_long_way():
    points, weight, bias, voxel_of_point, voxels = example(40)
    half = relu_sums(points.bfloat16(), weight.bfloat16(), bias.bfloat16(), voxel_of_point, voxels)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(
        half.float(), relu_sums(points, weight, bias, voxel_of_point, voxels), rtol=0.1, atol=0.1
    )
