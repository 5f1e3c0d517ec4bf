from __future__ import annotations

import numpy as np
import pytest
import torch

from copilot4d.errors import UsageError
from copilot4d.evaluation import chamfer, chamfer_torch
from copilot4d.evaluation.chamfer import chamfer_full_and_roi
from copilot4d.geometry import inside_box

BOX = np.array([-5.0, -3, -1, 5, 3, 1])


def brute(predicted: np.ndarray, true: np.ndarray) -> float:
    squared = ((predicted[:, None].astype(np.float64) - true[None].astype(np.float64)) ** 2).sum(-1)
    return 0.5 * (squared.min(axis=1).mean() + squared.min(axis=0).mean())


def clouds(n: int, m: int, seed: int, scale: float = 4.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, 3)) * scale).astype(np.float32), (rng.normal(size=(m, 3)) * scale).astype(np.float32)


def test_by_hand_squared_distances_both_ways():
    predicted, true = np.array([[0.0, 0, 0]]), np.array([[3.0, 0, 0], [0, 0, 4]])
    assert chamfer(predicted, true) == pytest.approx(0.5 * (9 + (9 + 16) / 2))


@pytest.mark.parametrize(("n", "m"), [(1, 1), (300, 200), (50, 900)])
def test_agrees_with_brute_force(n, m):
    predicted, true = clouds(n, m, n)
    assert chamfer(predicted, true) == pytest.approx(brute(predicted, true), rel=1e-5)
    assert chamfer(true, predicted) == pytest.approx(chamfer(predicted, true), rel=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_roi_crops_each_cloud_on_its_own(seed):
    predicted, true = clouds(400, 300, seed)
    pair = chamfer_full_and_roi(predicted, true, BOX)
    assert pair.full == pytest.approx(brute(predicted, true), rel=1e-5)
    assert pair.roi == pytest.approx(
        brute(predicted[inside_box(predicted, BOX)], true[inside_box(true, BOX)]), rel=1e-5
    )


def test_a_neighbour_that_is_cropped_away_is_replaced():
    box = np.array([-10.0, -10, -10, 10, 10, 10])
    predicted, true = np.array([[9.9, 0, 0]]), np.array([[10.1, 0, 0], [0, 0, 0]])
    assert chamfer_full_and_roi(predicted, true, box).roi == pytest.approx(9.9**2)


def test_the_roi_is_closed_in_the_points_own_precision():
    box = np.array([-51.2, -51.2, -5, 51.2, 51.2, 3])
    edge = np.array([[51.2, 0, 0]], dtype=np.float32)  # a hair above 51.2 when widened
    assert chamfer_full_and_roi(edge, edge, box).roi == 0
    assert np.isnan(chamfer_full_and_roi(np.nextafter(edge, np.float32(99)), edge, box).roi)


def test_odd_clouds():
    some = np.ones((4, 3), dtype=np.float32)
    assert np.isnan(chamfer(some, some[:0]))
    assert np.isnan(chamfer(some[:0], some))
    odd = some.copy()
    odd[2, 1] = np.inf
    assert chamfer(odd, some) == np.inf
    odd[0, 0] = np.nan
    assert np.isnan(chamfer(odd, some))
    assert chamfer_full_and_roi(odd, some, BOX).roi == 0  # what is not finite is not in the box


def test_many_copies_of_one_point():
    same = np.tile(np.array([[1.0, 2, 3]], dtype=np.float32), (20_000, 1))
    assert chamfer(same, same[:7] + np.float32(1)) == pytest.approx(3.0)


@pytest.mark.parametrize("chunk", [1, 7, 64, 4096])
def test_torch_agrees_whatever_the_chunk(chunk):
    predicted, true = clouds(130, 90, 3, scale=30.0)
    value = chamfer_torch(torch.from_numpy(predicted)[None], torch.from_numpy(true)[None], chunk=chunk)
    assert value.shape == (1,)
    assert float(value[0]) == pytest.approx(chamfer(predicted, true), rel=1e-5)


def test_torch_keeps_its_digits_far_from_the_origin():
    """|a|^2 + |b|^2 - 2ab would lose all of a 1 cm distance at 1 km."""
    predicted, true = (c + np.float32(1000) for c in clouds(500, 400, 4, scale=0.02))
    value = chamfer_torch(torch.from_numpy(predicted)[None], torch.from_numpy(true)[None], chunk=100)
    assert float(value[0]) == pytest.approx(brute(predicted, true), rel=1e-5)


def test_torch_padding_is_not_looked_at():
    predicted, true = clouds(60, 80, 5)
    padded_predicted, padded_true = np.full((2, 100, 3), np.nan, np.float32), np.zeros((2, 100, 3), np.float32)
    padded_predicted[0, :60], padded_predicted[1, :20] = predicted, predicted[:20]
    padded_true[0, :80], padded_true[1, :80] = true, true
    padded_predicted[np.isnan(padded_predicted)] = 1e6
    value = chamfer_torch(
        torch.from_numpy(padded_predicted), torch.from_numpy(padded_true),
        torch.tensor([60, 20]), torch.tensor([80, 80]), chunk=32,
    )  # fmt: skip
    expected = [chamfer(predicted, true), chamfer(predicted[:20], true)]
    np.testing.assert_allclose(value.numpy(), expected, rtol=1e-5)


def test_torch_empty_clouds_are_nan():
    value = chamfer_torch(torch.ones(2, 5, 3), torch.ones(2, 5, 3), torch.tensor([0, 5]), torch.tensor([5, 5]))
    assert torch.isnan(value[0])
    assert float(value[1]) == 0


def test_torch_gradient_pulls_towards_the_truth():
    predicted = torch.tensor([[[2.0, 0, 0]]], requires_grad=True)
    chamfer_torch(predicted, torch.zeros(1, 1, 3)).sum().backward()
    assert predicted.grad is not None
    np.testing.assert_allclose(predicted.grad.numpy(), [[[4.0, 0, 0]]])  # d/dx of 1/2 (x^2 + x^2)


def test_torch_refuses_wrong_shapes():
    with pytest.raises(UsageError, match=r"\(B, N, 3\)"):
        chamfer_torch(torch.ones(5, 3), torch.ones(1, 5, 3))
    with pytest.raises(UsageError, match="lengths"):
        chamfer_torch(torch.ones(1, 5, 3), torch.ones(1, 5, 3), torch.tensor([6]))
