"""Attention over time in loops: sequences of ten frames are too short for kernels made for long ones.

Axes: B batch, S frames that ask, T >= S frames that are asked, N locations, heads, d channels of a head. The S frames
are the last of the T, and each sees itself and all before it. Arrays are flat; (B, S or T, N) have strides, and a
location's heads and channels lie side by side.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from copilot4d.compiled import compiled_sums

LOOPS_UP_TO_FRAMES = 16  # longer sequences are what the library's kernels are made for
LOOPS_UP_TO_NUMBERS = 1 << 23  # larger inputs gain more from kernels that use all threads


def loops_apply(x: Tensor) -> bool:
    """Whether (B, T, N, C) goes through the loops: short and not large, fp32 on the CPU, neither mixed precision nor a
    compiler. `TemporalAttention._in_products` is the plain reference, and what runs everywhere else.
    """
    return (
        x.device.type == "cpu"
        and x.dtype == torch.float32
        and x.shape[1] <= LOOPS_UP_TO_FRAMES
        and x.numel() <= LOOPS_UP_TO_NUMBERS
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )


def causal_attention(q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
    """(B, S, N, C), (B, T, N, C) twice -> (B, S, N, C), without gradients."""
    out = q.new_empty(q.shape)
    nothing = q.new_empty(0)
    _attend(_flat(q), _flat(k), _flat(v), _sizes(q, k, heads), _strides(q), _strides(k), _flat(out), _flat(nothing))
    return out


def causal_self_attention(qkv: Tensor, heads: int) -> Tensor:
    """(B, T, N, 3 C) queries, keys, values side by side -> (B, T, N, C)."""
    result: Tensor = _CausalSelfAttention.apply(qkv, heads)  # type: ignore[no-untyped-call]
    return result


class _CausalSelfAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv: Tensor, heads: int) -> Tensor:
        qkv = qkv.contiguous()
        q, k, v = qkv.chunk(3, dim=-1)
        batch, frames, locations, _ = q.shape
        out = q.new_empty(q.shape)
        shares = q.new_empty(batch, locations, heads, frames, frames)
        ctx.sizes = _sizes(q, k, heads)
        _attend(_flat(q), _flat(k), _flat(v), ctx.sizes, _strides(q), _strides(k), _flat(out), _flat(shares))
        ctx.save_for_backward(qkv, shares)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        qkv, shares = ctx.saved_tensors
        to_qkv = torch.empty_like(qkv)
        q, k, v = qkv.chunk(3, dim=-1)
        to_q, to_k, to_v = to_qkv.chunk(3, dim=-1)
        gradient = gradient.contiguous()
        _attend_backward(
            _flat(q), _flat(k), _flat(v), ctx.sizes, _strides(q), _flat(gradient), _flat(shares),
            _flat(to_q), _flat(to_k), _flat(to_v),
        )  # fmt: skip
        return to_qkv, None


def _flat(t: Tensor) -> Any:
    """The memory from a tensor's first to its last number."""
    length = 1 + sum((size - 1) * stride for size, stride in zip(t.shape, t.stride(), strict=True)) if t.numel() else 0
    return t.detach().as_strided((length,), (1,)).numpy()


def _sizes(q: Tensor, k: Tensor, heads: int) -> tuple[int, ...]:
    return (q.shape[0], q.shape[1], k.shape[1], q.shape[2], heads, q.shape[3] // heads)


def _strides(t: Tensor) -> tuple[int, ...]:
    assert t.stride(3) == 1
    return t.stride()[:3]


@compiled_sums
def _dot(one: Any, other: Any) -> Any:
    total = np.float32(0)
    for c in range(len(one)):
        total += one[c] * other[c]
    return total


@compiled_sums
def _add(total: Any, factor: Any, row: Any) -> None:
    for c in range(len(total)):
        total[c] += factor * row[c]


@compiled_sums
def _attend(
    q: Any, k: Any, v: Any, sizes: Any, q_strides: Any, k_strides: Any, out: Any, shares: Any
) -> None:  # fmt: skip
    batch, asking, frames, locations, heads, size = sizes
    past = frames - asking
    scale = np.float32(1 / math.sqrt(size))
    share, mixed = np.empty(frames, np.float32), np.empty(size, np.float32)
    for b in range(batch):
        for n in range(locations):
            for h in range(heads):
                keys = b * k_strides[0] + n * k_strides[2] + h * size
                for i in range(asking):
                    query = b * q_strides[0] + i * q_strides[1] + n * q_strides[2] + h * size
                    seen = past + i + 1
                    highest = np.float32(-np.inf)
                    for j in range(seen):
                        share[j] = _dot(q[query : query + size], k[keys + j * k_strides[1] :]) * scale
                        highest = max(highest, share[j])
                    total = np.float32(0)
                    for j in range(seen):
                        share[j] = math.exp(share[j] - highest)
                        total += share[j]
                    mixed[:] = 0
                    for j in range(seen):
                        share[j] /= total
                        _add(mixed, share[j], v[keys + j * k_strides[1] :])
                    place = (((b * asking + i) * locations + n) * heads + h) * size
                    for c in range(size):
                        out[place + c] = mixed[c]
                    if len(shares):
                        row = (((b * locations + n) * heads + h) * asking + i) * frames
                        for j in range(seen):
                            shares[row + j] = share[j]


@compiled_sums
def _attend_backward(
    q: Any, k: Any, v: Any, sizes: Any, strides: Any, gradient: Any, shares: Any, to_q: Any, to_k: Any, to_v: Any
) -> None:  # fmt: skip
    batch, frames, _, locations, heads, size = sizes
    scale = np.float32(1 / math.sqrt(size))
    slopes = np.empty((frames, frames), np.float32)
    one, other = np.empty(size, np.float32), np.empty(size, np.float32)
    step = locations * heads * size  # of the gradient, from frame to frame
    for b in range(batch):
        for n in range(locations):
            for h in range(heads):
                first = b * strides[0] + n * strides[2] + h * size
                given = ((b * frames * locations + n) * heads + h) * size
                row = ((b * locations + n) * heads + h) * frames * frames
                for i in range(frames):
                    mean = np.float32(0)
                    for j in range(i + 1):
                        value, place = first + j * strides[1], given + i * step
                        slope = _dot(gradient[place : place + size], v[value:])
                        slopes[i, j] = slope
                        mean += slope * shares[row + i * frames + j]
                    one[:] = 0
                    for j in range(i + 1):
                        slope = shares[row + i * frames + j] * (slopes[i, j] - mean) * scale
                        slopes[i, j] = slope
                        _add(one, slope, k[first + j * strides[1] :])
                    for c in range(size):
                        to_q[first + i * strides[1] + c] = one[c]
                for j in range(frames):
                    one[:] = 0
                    other[:] = 0
                    for i in range(j, frames):
                        slope, share = slopes[i, j], shares[row + i * frames + j]
                        _add(one, slope, q[first + i * strides[1] :])
                        _add(other, share, gradient[given + i * step :])
                    for c in range(size):
                        to_k[first + j * strides[1] + c] = one[c]
                        to_v[first + j * strides[1] + c] = other[c]
