"""ST3DCNN: B. Mersch, X. Chen, J. Behley, C. Stachniss, *Self-supervised Point Cloud Prediction Using 3D
Spatio-temporal Convolutional Networks*, CoRL 2021.

The past range images stacked to one volume of time, rows and columns; 3D convolutions shrink it (2 rows, 4 columns,
one frame a level), transposed ones let it grow again to as many future frames as there were past ones.

    B clips, C channels, T frames, H rows, W columns
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from copilot4d.baselines.range_view.config import RangePrediction, RangeViewConfig, RangeViewNetwork
from copilot4d.errors import UsageError, check_range

ROWS, COLUMNS = 2, 4  # by which a level shrinks the image


@dataclass(frozen=True, kw_only=True)
class St3dcnnConfig(RangeViewConfig):
    """The defaults are the published sizes: 17.0 M parameters."""

    network: ClassVar[str] = "st3dcnn"

    channels: tuple[int, ...] = (16, 32, 64, 128, 256, 512)
    temporal_kernels: tuple[int, ...] = (2, 2, 2, 2, 1)  # of each level; 2 joins two frames to one

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("range_view.channels", self.channels, 1, 4096)
        check_range("range_view.temporal_kernels", self.temporal_kernels, 1, 64)
        if len(self.channels) < 2 or len(self.temporal_kernels) != len(self.channels) - 1:
            raise UsageError(
                "range_view.channels needs two values or more and range_view.temporal_kernels one less, got "
                f"{self.channels} and {self.temporal_kernels}"
            )
        if self.future_frames != self.past_frames:
            raise UsageError(
                f"st3dcnn predicts as many frames as it reads: range_view.past_frames {self.past_frames} and "
                f"range_view.future_frames {self.future_frames} must be the same"
            )
        if sum(kernel - 1 for kernel in self.temporal_kernels) >= self.past_frames:
            raise UsageError(
                f"range_view.temporal_kernels {self.temporal_kernels} join more frames than the {self.past_frames} "
                "that there are"
            )

    @property
    def column_unit(self) -> int:
        """See `RangeViewConfig`."""
        return int(COLUMNS ** len(self.temporal_kernels))

    @property
    def row_unit(self) -> int:
        """See `RangeViewConfig`."""
        return int(ROWS ** len(self.temporal_kernels))


class St3dcnn(RangeViewNetwork):
    """The network of a configuration."""

    def __init__(self, config: St3dcnnConfig) -> None:
        super().__init__()
        self.config: St3dcnnConfig = config
        widths, kernels = config.channels, config.temporal_kernels
        levels = range(len(kernels))
        self.entry = nn.Conv3d(1, widths[0], 1)
        self.down = nn.ModuleList(DownBlock(widths[i], widths[i + 1], kernels[i]) for i in levels)
        self.up = nn.ModuleList(
            UpBlock(widths[i + 1], widths[i], kernels[i], skip=i < levels[-1]) for i in reversed(levels)
        )
        self.exit = nn.Conv3d(widths[0], 2, 1)

    def forward(self, past: Tensor, *, future: Tensor | None = None, noise: Tensor | None = None) -> RangePrediction:
        """See `RangeViewNetwork`."""
        x = self.entry(self.standardised(past)[:, None])  # (B, C, T, H, W)
        kept = []
        for down in self.down:
            x = down(x)
            kept.append(x)
        for level, up in zip(reversed(range(len(kept))), self.up, strict=True):
            x = up(x, kept[level] if level < len(kept) - 1 else None)
        return self.prediction(self.exit(x))

    def blocks(self) -> Sequence[nn.Module]:
        """See `RangeViewNetwork`."""
        return [*self.down, *self.up]


class DownBlock(nn.Module):
    """A convolution, and one that shrinks."""

    def __init__(self, inputs: int, outputs: int, frames: int) -> None:
        super().__init__()
        self.conv = CircularConv3d(inputs, inputs)
        self.norm = nn.BatchNorm3d(inputs)
        kernel, stride = (frames, ROWS, COLUMNS), (1, ROWS, COLUMNS)
        self.shrink = nn.Conv3d(inputs, outputs, kernel, stride=stride, bias=False)
        self.shrink_norm = nn.BatchNorm3d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, T, H, W)."""
        x = functional.leaky_relu(self.norm(self.conv(x)))
        return functional.leaky_relu(self.shrink_norm(self.shrink(x)))


class UpBlock(nn.Module):
    """The map of the way down joined, a convolution that grows, and one more."""

    def __init__(self, inputs: int, outputs: int, frames: int, *, skip: bool) -> None:
        super().__init__()
        self.join = CircularConv3d(2 * inputs, inputs) if skip else None
        self.join_norm = nn.BatchNorm3d(inputs) if skip else None
        kernel, stride = (frames, ROWS, COLUMNS), (1, ROWS, COLUMNS)
        self.grow = nn.ConvTranspose3d(inputs, inputs, kernel, stride=stride, bias=False)
        self.grow_norm = nn.BatchNorm3d(inputs)
        self.conv = CircularConv3d(inputs, outputs)
        self.norm = nn.BatchNorm3d(outputs)

    def forward(self, x: Tensor, kept: Tensor | None) -> Tensor:
        """(B, C, T, H, W)."""
        if self.join is not None and self.join_norm is not None:
            assert kept is not None
            x = functional.leaky_relu(self.join_norm(self.join(torch.cat([x, kept], dim=1))))
        x = functional.leaky_relu(self.grow_norm(self.grow(x)))
        return functional.leaky_relu(self.norm(self.conv(x)))


class CircularConv3d(nn.Module):
    """A 3 x 3 x 3 convolution: zeros in time and above and below, the other end of the row at the sides."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv = nn.Conv3d(inputs, outputs, 3, padding=(1, 1, 0), bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, T, H, W)."""
        return self.conv(functional.pad(x, (1, 1, 0, 0, 0, 0), mode="circular"))  # type: ignore[no-any-return]
