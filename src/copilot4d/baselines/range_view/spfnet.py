"""SPFNet: X. Weng, J. Wang, S. Levine, K. Kitani, N. Rhinehart, *Inverting the Pose Forecasting Pipeline with SPF2:
Sequential Pointcloud Forecasting for Sequential Pose Forecasting*, CoRL 2020.

One encoder for the range image of every past sweep, a recurrent core over them, and one decoder for the range image and
the mask of every future sweep. After the past the core is fed with what it said last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from copilot4d.baselines.range_view.config import RangePrediction, RangeViewConfig, RangeViewNetwork
from copilot4d.baselines.range_view.layers import ConvLstm, Decoder, Encoder
from copilot4d.errors import UsageError, check_range


@dataclass(frozen=True, kw_only=True)
class SpfnetConfig(RangeViewConfig):
    """The paper gives no widths that we could check: these are ours."""

    network: ClassVar[str] = "spfnet"

    channels: tuple[int, ...] = (64, 128, 256, 512)  # of each level; the core has as many as the last

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("range_view.channels", self.channels, 1, 4096)
        if not self.channels:
            raise UsageError("range_view.channels needs a value per level, got none")

    @property
    def column_unit(self) -> int:
        """See `RangeViewConfig`."""
        return int(2 ** len(self.channels))

    @property
    def row_unit(self) -> int:
        """See `RangeViewConfig`."""
        return self.column_unit


class Spfnet(RangeViewNetwork):
    """The network of a configuration."""

    def __init__(self, config: SpfnetConfig) -> None:
        super().__init__()
        self.config: SpfnetConfig = config
        width = config.channels[-1]
        self.encoder = Encoder(config.channels)
        self.core = ConvLstm(width, width)
        self.decoder = Decoder(config.channels)

    def forward(self, past: Tensor, *, future: Tensor | None = None, noise: Tensor | None = None) -> RangePrediction:
        """See `RangeViewNetwork`."""
        seen = range_and_mask(self, past)
        maps = [self.encoder(seen[:, t])[-1] for t in range(seen.shape[1])]
        state = self.core.start(maps[0])
        for map_ in maps:
            state = self.core(map_, state)
        outputs = []
        for _ in range(self.config.future_frames):
            outputs.append(self.decoder(state.hidden, []))
            state = self.core(state.hidden, state)
        return self.prediction(torch.stack(outputs, dim=2))  # (B, 2, F, H, W)

    def blocks(self) -> Sequence[nn.Module]:
        """See `RangeViewNetwork`."""
        return [self.encoder, self.core, self.decoder]


def range_and_mask(network: RangeViewNetwork, images_m: Tensor) -> Tensor:
    """(B, T, H, W) metres -> (B, T, 2, H', W): standardised ranges, and where there are returns."""
    standard = network.standardised(images_m)
    rows = standard.shape[-2] - images_m.shape[-2]
    mask = nn.functional.pad((images_m > 0).to(standard.dtype), (0, 0, 0, rows))
    return torch.stack([standard, mask], dim=2)
