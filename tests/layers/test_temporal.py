"""Attention over time: causal, identity and guided masks, and the cache, against a slow version."""

from __future__ import annotations

import pytest
import torch

from copilot4d.errors import UsageError
from copilot4d.layers.temporal import AttentionMask, KeyValueCache, TemporalAttention, TemporalBlock


def layer(dim=8, heads=2):
    torch.manual_seed(0)
    return TemporalAttention(dim, heads)


def slow(attention, x, sees):
    """(B, T, N, C) with sees[t] the frames that frame t attends to."""
    heads, size = attention.heads, x.shape[-1] // attention.heads
    q, k, v = attention.qkv(x).view(*x.shape[:3], 3, heads, size).unbind(3)
    out = torch.zeros_like(q)
    for t, frames in enumerate(sees):
        scores = torch.stack([(q[:, t] * k[:, s]).sum(-1) * size**-0.5 for s in frames]).softmax(0)
        out[:, t] = sum(p[..., None] * v[:, s] for p, s in zip(scores, frames, strict=True))
    return attention.project(out.flatten(-2))


@pytest.mark.parametrize(
    ("mask", "sees"),
    [
        (AttentionMask.CAUSAL, [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3]]),
        (AttentionMask.GUIDANCE, [[0], [0, 1], [0, 1, 2], [3]]),
        (AttentionMask.IDENTITY, [[0], [1], [2], [3]]),
    ],
)
@pytest.mark.parametrize("grad", [False, True])
def test_each_frame_sees_what_it_should(mask, sees, grad):
    attention, x = layer(), torch.randn(2, 4, 5, 8)
    with torch.set_grad_enabled(grad):
        torch.testing.assert_close(attention(x, mask=mask), slow(attention, x, sees), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("chunks", [(4,), (1, 1, 1, 1), (2, 2), (3, 1), (1, 3)])
@torch.no_grad()
def test_frames_given_in_pieces_through_the_cache_equal_one_pass(chunks):
    block = TemporalBlock(8, 2)
    x = torch.randn(2, 4, 5, 8)
    cache, pieces = KeyValueCache(4), []
    for piece in x.split(chunks, dim=1):
        pieces.append(block(piece, cache=cache))
        cache.keep(piece.shape[1])
    torch.testing.assert_close(torch.cat(pieces, dim=1), block(x), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_what_was_not_kept_leaves_no_trace():
    block = TemporalBlock(8, 2)
    x = torch.randn(1, 3, 5, 8)
    cache = KeyValueCache(3)
    block(x[:, :1], cache=cache)
    cache.keep(1)
    clean = block(x[:, 1:2], cache=cache)
    block(torch.randn(1, 3, 5, 8), mask=AttentionMask.GUIDANCE, cache=cache)  # two tries and a frame alone, none kept
    assert torch.equal(block(x[:, 1:2], cache=cache), clean)


@torch.no_grad()
def test_repeated_rows_are_separate_copies():
    block = TemporalBlock(8, 2)
    x = torch.randn(2, 2, 5, 8)
    cache = KeyValueCache(3)
    block(x, cache=cache)
    cache.keep(2)
    twice = cache.repeated(2)
    new = torch.randn(4, 1, 5, 8)
    out = block(new, cache=twice)
    for row, past in enumerate((0, 0, 1, 1)):
        alone = block(torch.cat([x[past], new[row]])[None])[:, -1:]
        torch.testing.assert_close(out[row : row + 1], alone, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_full_cache_says_so():
    block, cache = TemporalBlock(8, 2), KeyValueCache(2)
    with pytest.raises(UsageError, match="holds 2 frames"):
        block(torch.randn(1, 3, 5, 8), cache=cache)
