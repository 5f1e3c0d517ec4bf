"""Algorithm 2 as a whole: a scripted model, and every step computed token by token from the paper's lines."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from copilot4d.world_model.sampler import Draws, SamplerConfig, denoise, uniform_numbers

N, V, MASK, SEED, FRAME = 24, 7, 7, 3, 2
BASE = np.random.default_rng(5).normal(scale=1.5, size=(N, V)).astype(np.float32)


def scripted(x: np.ndarray) -> np.ndarray:
    """(N,) tokens -> (N, V) logits: a token that is decoded makes the one after it on its right more likely."""
    logits = BASE.copy()
    for n in range(N):
        left = x[n - 1]
        if left != MASK:
            logits[n, (left + 1) % V] += 1.25
    return logits


def by_hand(steps: int, top_k: int | None, schedule: str, frozen: bool, future: int):
    """Yields x_k for k = K-1 ... 0. frozen: decoded tokens keep their value, as in MaskGIT."""
    x = np.full(N, MASK)
    for k in range(steps - 1, -1, -1):
        for_token, for_gumbel = uniform_numbers(SEED, future, FRAME, k, N)
        logits = scripted(x).astype(np.float64)
        sampled, level = np.zeros(N, dtype=int), np.zeros(N)
        for n in range(N):
            likely = np.argsort(-logits[n])[: top_k or V]
            weight = np.exp(logits[n, likely])
            sampled[n] = likely[np.searchsorted(np.cumsum(weight) / weight.sum(), for_token[n], side="right")]
            if frozen and x[n] != MASK:
                sampled[n] = x[n]
            log_p = logits[n, sampled[n]] - math.log(np.exp(logits[n]).sum())
            level[n] = log_p + k / steps * -math.log(-math.log(for_gumbel[n]))
        if schedule == "paper":
            count = math.ceil(math.cos(math.pi / 2 * k / steps) * N - 1e-9)
        else:
            count = N - math.floor(math.cos(math.pi / 2 * (1 - k / steps)) * N + 1e-9)
        level[x != MASK] = np.inf
        kept = set(np.argsort(-level, kind="stable")[:count]) | set(np.flatnonzero(x != MASK))
        x = np.array([sampled[n] if n in kept else MASK for n in range(N)])
        yield x


@pytest.mark.parametrize("schedule", ["paper", "few_first"])
@pytest.mark.parametrize("reverse", ["paper", "frozen"])
@pytest.mark.parametrize(("steps", "top_k"), [(1, 3), (4, 3), (10, 3), (6, None), (6, 1)])
def test_every_step_is_the_papers(steps, top_k, schedule, reverse):
    futures = [0, 4]
    config = SamplerConfig(steps=steps, top_k=top_k, schedule=schedule, reverse=reverse)

    def logits_of(x):
        return torch.from_numpy(np.stack([scripted(row) for row in x.numpy()]))

    made = list(denoise(logits_of, Draws(SEED, futures, FRAME), config, tokens=N, vocabulary=V, eta=0.2))
    assert len(made) == steps
    for row, future in enumerate(futures):
        expected = list(by_hand(steps, top_k, schedule, reverse == "frozen", future))
        for step, (found, right) in enumerate(zip(made, expected, strict=True)):
            assert found[row].tolist() == right.tolist(), f"future {future}, step {step}"
        assert (expected[-1] != MASK).all()


def test_the_script_exercises_what_it_should():
    """Tokens are revised after they were decoded, noise changes which come first, and futures differ."""
    free, frozen = (list(by_hand(10, 3, "paper", keep, 0)) for keep in (False, True))
    revised = sum(
        int(((a != MASK) & (b != a)).sum()) for a, b in itertools.pairwise(free)
    )  # fmt: skip
    assert revised > 5
    assert all(((a == MASK) | (b == a)).all() for a, b in itertools.pairwise(frozen))
    assert free[-1].tolist() != list(by_hand(10, 3, "paper", False, 4))[-1].tolist()
