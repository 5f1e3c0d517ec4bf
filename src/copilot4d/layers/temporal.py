"""GPT-2 blocks over time: each location of the feature map attends to itself in other frames.

Axes: B batch, T frames, N locations in any order, C channels. `AttentionMask` says which frames a frame sees.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

import torch
from torch import Tensor, nn
from torch.nn import functional

from copilot4d.errors import UsageError
from copilot4d.layers.feed_forward import FeedForward
from copilot4d.layers.temporal_kernels import causal_attention, causal_self_attention, loops_apply


class AttentionMask(Enum):
    """Which frames a frame sees."""

    CAUSAL = "causal"  # itself and all before it
    IDENTITY = "identity"  # itself alone
    GUIDANCE = "guidance"  # causal, but for the last frame, which sees itself alone: the unconditional one

    def alone(self, frames: int) -> int:
        """How many of so many frames, the last ones, see themselves alone."""
        return {AttentionMask.CAUSAL: 0, AttentionMask.IDENTITY: frames, AttentionMask.GUIDANCE: 1}[self]


class KeyValueCache:
    """Keys and values of one temporal block for the frames of the past: buffers (B, frames, N, C), filled in order.

    New keys and values are written behind the `length` frames that were kept; `keep` makes them part of the past, and
    what was not kept is overwritten by the next pass.
    """

    def __init__(self, frames: int) -> None:
        self.frames = frames
        self.length = 0
        self._buffers: tuple[Tensor, Tensor] | None = None

    def write(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """(B, new, N, C) twice -> all keys and values up to and with the new ones, as views."""
        end = self.length + keys.shape[1]
        if end > self.frames:
            raise UsageError(f"the cache holds {self.frames} frames, {end} were asked for; slide the window first")
        if self._buffers is None:
            shape = (keys.shape[0], self.frames, *keys.shape[2:])
            self._buffers = keys.new_empty(shape), values.new_empty(shape)
        for buffer, new in zip(self._buffers, (keys, values), strict=True):
            buffer[:, self.length : end] = new
        return self._buffers[0][:, :end], self._buffers[1][:, :end]

    def keep(self, frames: int) -> None:
        """The first `frames` of what was written last are now past."""
        self.length += frames

    def repeated(self, times: int) -> KeyValueCache:
        """A copy with every row of the batch repeated, row after row: one past for several futures."""
        copy = KeyValueCache(self.frames)
        copy.length = self.length
        if self._buffers is not None:
            keys, values = (buffer.repeat_interleave(times, dim=0) for buffer in self._buffers)
            copy._buffers = keys, values
        return copy


class TemporalAttention(nn.Module):
    """Multi-head attention over frames at each location; no biases."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.project = nn.Linear(dim, dim, bias=False)

    def forward(self, x: Tensor, *, mask: AttentionMask, cache: KeyValueCache | None = None) -> Tensor:
        """(B, T, N, C) -> (B, T, N, C)."""
        seeing = x.shape[1] - mask.alone(x.shape[1])
        if loops_apply(x) and (cache is None or not torch.is_grad_enabled()):
            mixed = self._in_loops(x, seeing, cache)
        else:
            mixed = self._in_products(x, seeing, cache)
        result: Tensor = self.project(mixed)
        return result

    def _in_loops(self, x: Tensor, seeing: int, cache: KeyValueCache | None) -> Tensor:
        """(B, T, N, C) -> (B, T, N, C) before the projection."""
        if seeing == 0:
            return functional.linear(x, self.qkv.weight.chunk(3)[2])  # a softmax over one frame is 1
        qkv = self.qkv(x[:, :seeing])
        if cache is None:
            mixed = causal_self_attention(qkv, self.heads)
        else:
            q, k, v = qkv.chunk(3, dim=-1)
            mixed = causal_attention(q, *cache.write(k, v), self.heads)
        if seeing == x.shape[1]:
            return mixed
        return torch.cat([mixed, functional.linear(x[:, seeing:], self.qkv.weight.chunk(3)[2])], dim=1)

    def _in_products(self, x: Tensor, seeing: int, cache: KeyValueCache | None) -> Tensor:
        """(B, T, N, C) -> (B, T, N, C) before the projection."""
        query, key, value = self.qkv.weight.chunk(3)
        # Three products: each result then views as (B, N heads, T, C / heads), which one product's would not.
        v = functional.linear(x, value)
        if seeing == 0:
            return v
        seen = x[:, :seeing]
        mixed = self._causal(functional.linear(seen, query), functional.linear(seen, key), v[:, :seeing], cache)
        return torch.cat([mixed, v[:, seeing:]], dim=1) if seeing < x.shape[1] else mixed

    def _causal(self, q: Tensor, k: Tensor, v: Tensor, cache: KeyValueCache | None) -> Tensor:
        """(B, T, N, C) three times -> (B, T, N, C), each frame over the cache's frames and those up to itself."""
        new = q.shape[1]
        if cache is not None:
            k, v = cache.write(k, v)
        past = k.shape[1] - new
        q, k, v = (t.reshape(*t.shape[:2], -1, t.shape[-1] // self.heads).transpose(1, 2) for t in (q, k, v))
        if new == 1:
            mixed = functional.scaled_dot_product_attention(q, k, v)
        elif past == 0:
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            sees = torch.ones(new, past + new, dtype=torch.bool, device=q.device).tril(diagonal=past)
            mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=sees)
        return mixed.transpose(1, 2).reshape(q.shape[0], new, -1, self.heads * q.shape[-1])


class TemporalBlock(nn.Module):
    """x + attention over time(norm(x)), then x + MLP(norm(x))."""

    def __init__(self, dim: int, heads: int, mlp_ratio: float = 4.0) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(dim)
        self.attention = TemporalAttention(dim, heads)
        self.mlp_norm = nn.LayerNorm(dim)
        self.mlp = FeedForward(dim, mlp_ratio)

    def forward(
        self, x: Tensor, *, mask: AttentionMask = AttentionMask.CAUSAL, cache: KeyValueCache | None = None
    ) -> Tensor:
        """(B, T, N, C) -> (B, T, N, C); frames that see themselves alone never enter the cache."""
        x = x + self.attention(self.attention_norm(x), mask=mask, cache=cache)
        return x + self.mlp(self.mlp_norm(x))  # type: ignore[no-any-return]

    def residual_outputs(self) -> Iterable[nn.Linear]:
        """The linear layers whose outputs are added to the main branch."""
        return (self.attention.project, self.mlp.project)
