"""How a feature map is cut into (shifted) windows, as orders of its tokens.

A feature map of H x W tokens is kept as a list of N = H W tokens. The windows of Swin are an order of that list in
which each window's tokens stand together, so that attention over windows is a view; going from one order to another is
one gather, and parts that treat tokens one by one (LayerNorm, linear layers, attention over time) work in any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from copilot4d.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class WindowGrid:
    """Square windows of `window` tokens a side on an H x W map that was first rolled up and left by `shift` tokens."""

    height: int
    width: int
    window: int
    shift: int = 0

    def __post_init__(self) -> None:
        if self.height % self.window or self.width % self.window:
            raise UsageError(
                f"windows of {self.window} tokens must tile the feature map, which is {self.height} x {self.width}; "
                "choose a window that divides both sides"
            )
        if not 0 <= self.shift < self.window:
            raise UsageError(f"the shift must lie in [0, {self.window}), got {self.shift}")

    @classmethod
    def fitted(cls, height: int, width: int, window: int, *, shifted: bool) -> WindowGrid:
        """As in Swin: no window is larger than the map, and where one window covers the map nothing shifts."""
        window = min(window, height, width)
        covers = window == height == width
        return cls(height=height, width=width, window=window, shift=window // 2 if shifted and not covers else 0)

    @property
    def windows(self) -> int:
        """How many windows there are."""
        return (self.height // self.window) * (self.width // self.window)

    def order(self) -> NDArray[np.int64]:
        """(N,) row-major token indices, window after window, each window row-major."""
        tokens = np.arange(self.height * self.width).reshape(self.height, self.width)
        return self._cut(np.roll(tokens, (-self.shift, -self.shift), axis=(0, 1))).reshape(-1)

    def regions(self) -> NDArray[np.int64]:
        """(windows, window^2) which part of the unrolled map a token is from: 0 to 8. Parts must not mix."""

        def part(size: int) -> NDArray[np.int64]:
            position = np.arange(size)
            return (position >= size - self.window).astype(np.int64) + (position >= size - self.shift)

        return self._cut(3 * part(self.height)[:, None] + part(self.width)[None, :])

    def _cut(self, values: NDArray[Any]) -> NDArray[Any]:
        """(H, W) -> (windows, window^2)."""
        w = self.window
        cut = values.reshape(self.height // w, w, self.width // w, w).transpose(0, 2, 1, 3)
        return cut.reshape(-1, w * w)


@lru_cache(maxsize=256)
def shift_mask(grid: WindowGrid, device: torch.device) -> Tensor | None:
    """(windows, 1, window^2, window^2): 0 within a part, -inf between parts that the roll brought together."""
    if grid.shift == 0:
        return None
    regions = grid.regions()
    apart = regions[:, :, None] != regions[:, None, :]
    return _kept(np.where(apart, -np.inf, 0.0).astype(np.float32)[:, None], device)


@lru_cache(maxsize=64)
def relative_position_index(window: int, device: torch.device) -> Tensor:
    """(window^2 * window^2,) for query i and key j, the row of the bias table of their offset (Swin, equation 4)."""
    rows, columns = np.divmod(np.arange(window * window), window)
    offset_row = rows[:, None] - rows[None, :] + window - 1
    offset_column = columns[:, None] - columns[None, :] + window - 1
    return _kept((offset_row * (2 * window - 1) + offset_column).reshape(-1), device)


def reorder(tokens: Tensor, source: WindowGrid | None, target: WindowGrid | None) -> Tensor:
    """(F, N, C) in the order of `source` -> the same tokens in the order of `target`. None is row-major."""
    if source == target:
        return tokens
    there, back = _permutations(source, target, tokens.device)
    permuted: Tensor = _Permute.apply(tokens, there, back)  # type: ignore[no-untyped-call]
    return permuted


@lru_cache(maxsize=256)
def _permutations(source: WindowGrid | None, target: WindowGrid | None, device: torch.device) -> tuple[Tensor, Tensor]:
    """The gather from source to target and its inverse."""
    known = source or target
    assert known is not None
    row_major = np.arange(known.height * known.width)
    from_order = row_major if source is None else source.order()
    to_order = row_major if target is None else target.order()
    there = np.argsort(from_order)[to_order]  # argsort of a permutation is its inverse
    back = np.argsort(there)
    return _kept(there, device), _kept(back, device)


def _kept(array: NDArray[Any], device: torch.device) -> Tensor:
    """A tensor that later calls reuse: never an inference tensor, which training could not use after sampling."""
    with torch.inference_mode(False):
        return torch.from_numpy(array).to(device)


class _Permute(torch.autograd.Function):
    """Gather whose backward is the inverse gather: the backward of index_select would be a slow scatter-add."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, there: Tensor, back: Tensor) -> Tensor:
        ctx.save_for_backward(there, back)
        return tokens.index_select(1, there)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        there, back = ctx.saved_tensors
        gradient: Tensor = _Permute.apply(grad, back, there)  # type: ignore[no-untyped-call]
        return gradient, None, None
