"""Attention over time in loops equals torch's fused attention, values and gradients."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from copilot4d.layers import temporal_kernels
from copilot4d.layers.temporal import AttentionMask, KeyValueCache, TemporalAttention
from copilot4d.layers.temporal_kernels import causal_attention, causal_self_attention, loops_apply


def heads_first(t, heads):
    """(B, T, N, C) -> (B, N, heads, T, C / heads)."""
    return t.unflatten(-1, (heads, -1)).permute(0, 2, 3, 1, 4)


def fused(q, k, v, heads):
    """By a mask in which frame i of the last S sees all up to itself."""
    asking, frames = q.shape[1], k.shape[1]
    sees = torch.ones(asking, frames, dtype=torch.bool).tril(diagonal=frames - asking)
    mixed = functional.scaled_dot_product_attention(*(heads_first(t, heads) for t in (q, k, v)), attn_mask=sees)
    return mixed.permute(0, 3, 1, 2, 4).flatten(-2)


@pytest.mark.parametrize(
    ("batch", "frames", "locations", "heads", "size"), [(1, 1, 3, 1, 4), (2, 5, 3, 2, 8), (1, 4, 2, 3, 5)]
)
def test_self_attention_and_its_gradient(batch, frames, locations, heads, size):
    torch.manual_seed(0)
    qkv = (2 * torch.randn(batch, frames, locations, 3 * heads * size)).requires_grad_()
    slope = torch.randn(batch, frames, locations, heads * size)
    loops, products = causal_self_attention(qkv, heads), fused(*qkv.chunk(3, dim=-1), heads)
    torch.testing.assert_close(loops, products, rtol=1e-5, atol=1e-5)
    one, other = (torch.autograd.grad(out, qkv, slope)[0] for out in (loops, products))
    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("asking", [1, 2, 5])
def test_frames_that_ask_a_longer_past_in_a_larger_buffer(asking):
    torch.manual_seed(0)
    q = torch.randn(2, asking, 3, 8)
    keys, values = torch.randn(2, 2, 9, 3, 8)  # a buffer of 9 frames of which 5 are filled
    out = causal_attention(q, keys[:, :5], values[:, :5], 2)
    torch.testing.assert_close(out, fused(q, keys[:, :5], values[:, :5], 2), rtol=1e-5, atol=1e-5)


def test_large_scores_do_not_overflow():
    q = torch.full((1, 2, 1, 4), 100.0)
    out = causal_attention(q, q, q, 1)
    assert torch.equal(out, q)


@pytest.mark.parametrize("mask", list(AttentionMask))
def test_the_layer_gives_the_same_with_large_inputs(mask, monkeypatch):
    torch.manual_seed(0)
    layer, x = TemporalAttention(8, 2), torch.randn(2, 3, 5, 8)
    found = []
    for limit in (10**9, 0):  # loops, then products
        monkeypatch.setattr(temporal_kernels, "LOOPS_UP_TO_NUMBERS", limit)
        layer.zero_grad()
        out = layer(x, mask=mask)
        out.square().sum().backward()
        with torch.no_grad():
            cached = layer(x, mask=mask, cache=KeyValueCache(3))
        found.append([out.detach(), layer.qkv.weight.grad.clone(), cached])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found[0][0], found[0][2], rtol=1e-5, atol=1e-5)


def test_loops_are_for_short_small_and_plain_inputs(monkeypatch):
    x = torch.randn(1, 2, 3, 8)
    assert loops_apply(x)
    assert not loops_apply(x.double())
    with torch.autocast("cpu", torch.bfloat16):
        assert not loops_apply(x)
    assert not loops_apply(torch.randn(1, 17, 3, 8))  # long
    monkeypatch.setattr(temporal_kernels, "LOOPS_UP_TO_NUMBERS", x.numel() - 1)
    assert not loops_apply(x)
