"""Counter-based randomness: everything follows from (seed, step, index) and the purpose."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from copilot4d.counter import SampleKey, StepCounter, counter_generator, counter_seed, permuted, slots_of


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 16, 17, 37, 1000])
def test_each_epoch_is_a_permutation(size):
    for epoch in range(3):
        assert sorted(permuted(i, size, 7, epoch) for i in range(size)) == list(range(size))


def test_permutations_look_random():
    """Over many epochs each item lands everywhere equally often: chi-square with 31 degrees of freedom per row."""
    size, epochs = 32, 320
    table = np.zeros((size, size))
    for epoch in range(epochs):
        for i in range(size):
            table[i, permuted(i, size, 3, epoch)] += 1
    expected = epochs / size
    chi = ((table - expected) ** 2 / expected).sum(axis=1)  # mean 31, standard deviation 8
    assert 26 < chi.mean() < 36
    assert chi.max() < 75


def test_successors_are_not_kept_together():
    order = [permuted(i, 1000, 1, 0) for i in range(1000)]
    assert sum(b - a == 1 for a, b in itertools.pairwise(order)) < 8
    other = [permuted(i, 1000, 2, 0) for i in range(1000)]
    assert sum(a == b for a, b in zip(order, other, strict=True)) < 8


def test_positions_outside_are_refused():
    with pytest.raises(ValueError, match="outside"):
        permuted(5, 5, 0, 0)


def test_epochs_run_over_batch_boundaries():
    keys = [SampleKey(seed=1, step=s, index=i, batch=4) for s in range(10) for i in range(4)]
    items = [k.item(10) for k in keys]
    for epoch in range(4):
        assert sorted(items[10 * epoch : 10 * epoch + 10]) == list(range(10))
    assert [k.epoch(10) for k in keys[8:12]] == [0, 0, 1, 1]


def test_all_of_seed_purpose_step_and_index_matter():
    base = {"seed": 1, "purpose": "noise", "step": 2, "index": 3}
    draws = [counter_generator(**base).random(4)]
    for change in ({"seed": 2}, {"purpose": "rays"}, {"step": 3}, {"index": 2}, {"step": 3, "index": 2}):
        draws.append(counter_generator(**(base | change)).random(4))
    assert len({tuple(d) for d in draws}) == 6
    assert (counter_generator(**base).random(4) == draws[0]).all()


def test_neighbouring_streams_are_uncorrelated():
    rows = np.stack([counter_generator(0, "noise", step, 0).standard_normal(4000) for step in range(8)])
    off_diagonal = np.corrcoef(rows) - np.eye(8)
    assert np.abs(off_diagonal).max() < 0.08  # five standard deviations


def test_the_streams_are_the_ones_of_older_checkpoints():
    """Golden values: changing the generator would change the data order of every run that is resumed."""
    assert [permuted(i, 10, 7, 0) for i in range(10)] == [0, 1, 6, 5, 4, 7, 9, 3, 8, 2]
    assert counter_seed(7, "noise", 3, 1) == 7264538423905668415


def test_noise_follows_the_sample_not_the_rank():
    whole = StepCounter(seed=1, step=5, indices=(0, 1, 2, 3)).sample_torch("noise")
    part = StepCounter(seed=1, step=5, indices=(2, 3)).sample_torch("noise")
    a = [torch.rand(3, generator=g) for g in whole][2:]
    b = [torch.rand(3, generator=g) for g in part]
    assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
    assert not torch.equal(b[0], b[1])
    first, second = (StepCounter(seed=1, step=5, indices=i).step_torch("objective") for i in ((0,), (1,)))
    assert torch.equal(torch.rand(3, generator=first), torch.rand(3, generator=second))


@pytest.mark.parametrize(("ranks", "accumulation"), [(1, 1), (2, 1), (1, 4), (2, 2), (4, 3)])
def test_slots_partition_the_batch_in_rank_order(ranks, accumulation):
    parts = [slots_of(24, ranks, rank, accumulation) for rank in range(ranks)]
    gathered = [slot for a in range(accumulation) for rank in range(ranks) for slot in parts[rank][a]]
    assert gathered == list(range(24))
