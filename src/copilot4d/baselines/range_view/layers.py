"""Convolutions over range images: the columns close to a circle, so nothing in a network knows where the front is."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

GROUP = 8  # channels that are normalised together


class CircularConv2d(nn.Module):
    """A 3 x 3 convolution: zeros above and below, the other end of the row at the sides."""

    def __init__(self, inputs: int, outputs: int, *, stride: tuple[int, int] = (1, 1)) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=(1, 0))

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W)."""
        return self.conv(functional.pad(x, (1, 1, 0, 0), mode="circular"))  # type: ignore[no-any-return]


class ConvBlock(nn.Module):
    """Convolution, normalisation over groups of channels, leaky ReLU."""

    def __init__(self, inputs: int, outputs: int, *, stride: tuple[int, int] = (1, 1)) -> None:
        super().__init__()
        self.conv = CircularConv2d(inputs, outputs, stride=stride)
        self.norm = nn.GroupNorm(max(1, outputs // GROUP), outputs)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W)."""
        return functional.leaky_relu(self.norm(self.conv(x)))


class Encoder(nn.Module):
    """Range and mask of one sweep -> a map per level, each half as high and wide as the one before."""

    def __init__(self, channels: tuple[int, ...]) -> None:
        super().__init__()
        inputs = (2, *channels[:-1])
        self.levels = nn.ModuleList(
            nn.Sequential(ConvBlock(a, b, stride=(2, 2)), ConvBlock(b, b))
            for a, b in zip(inputs, channels, strict=True)
        )  # fmt: skip

    def forward(self, image: Tensor) -> list[Tensor]:
        """(B, 2, H, W) -> the finest map first."""
        maps = []
        for level in self.levels:
            image = level(image)
            maps.append(image)
        return maps


class Decoder(nn.Module):
    """The coarsest map -> range and mask of one sweep. skips: whether finer maps are joined on the way up."""

    def __init__(self, channels: tuple[int, ...], *, extra: int = 0, skips: bool = False) -> None:
        super().__init__()
        self.skips = skips
        outputs = (*reversed(channels[:-1]), channels[0])
        inputs = (channels[-1] + extra, *outputs[:-1])
        self.levels = nn.ModuleList()
        for i, (a, b) in enumerate(zip(inputs, outputs, strict=True)):
            joined = b if skips and i < len(channels) - 1 else 0
            self.levels.append(
                nn.ModuleList([nn.ConvTranspose2d(a, b, 2, stride=2), ConvBlock(b + joined, b)])
            )  # fmt: skip
        self.head = nn.Conv2d(channels[0], 2, 1)

    def forward(self, coarsest: Tensor, finer: list[Tensor]) -> Tensor:
        """(B, C, h, w), and maps of all levels but the coarsest, the finest first -> (B, 2, H, W)."""
        x = coarsest
        for i, level in enumerate(self.levels):
            assert isinstance(level, nn.ModuleList)
            grow, block = level
            x = grow(x)
            if self.skips and i < len(finer):
                x = torch.cat([x, finer[-1 - i]], dim=1)
            x = block(x)
        return self.head(x)  # type: ignore[no-any-return]


class LstmState(NamedTuple):
    """What a recurrent core remembers."""

    hidden: Tensor  # (B, C, H, W)
    cell: Tensor  # (B, C, H, W)


class ConvLstm(nn.Module):
    """A recurrent core whose gates are convolutions."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.gates = CircularConv2d(inputs + hidden, 4 * hidden)
        with torch.no_grad():  # remember at first
            assert self.gates.conv.bias is not None
            self.gates.conv.bias[hidden : 2 * hidden] = 1.0

    def start(self, x: Tensor) -> LstmState:
        """Before the first map."""
        empty = x.new_zeros(len(x), self.hidden, *x.shape[2:])
        return LstmState(empty, empty)

    def forward(self, x: Tensor, state: LstmState) -> LstmState:
        """The next map."""
        entry, forget, out, new = self.gates(torch.cat([x, state.hidden], dim=1)).chunk(4, dim=1)
        cell = torch.sigmoid(forget) * state.cell + torch.sigmoid(entry) * torch.tanh(new)
        return LstmState(torch.sigmoid(out) * torch.tanh(cell), cell)
