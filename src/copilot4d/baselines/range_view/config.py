"""What all networks that read range images have in common: their images, their frames, what they put out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from copilot4d.baselines.range_view.geometry import RangeGeometry
from copilot4d.errors import UsageError, check_range

# own: each sweep in its own frame, as published, without any pose. reference: all sweeps in the newest past one's.
Frame = Literal["own", "reference"]


@dataclass(frozen=True, kw_only=True)
class RangeViewConfig:
    """The images of a network, and how many it reads and predicts."""

    network: ClassVar[str]  # its name on the command line, in checkpoints and in score files

    geometry: RangeGeometry = field(default_factory=RangeGeometry)
    past_frames: int = 5
    future_frames: int = 5
    frame: Frame = "own"
    mean_m: float = 10.839  # ranges are standardised by these: the published ones of KITTI
    std_m: float = 9.314
    mask_threshold: float = 0.5  # of the probability that a cell has a return

    def __post_init__(self) -> None:
        check_range("range_view.past_frames", self.past_frames, 1, 64)
        check_range("range_view.future_frames", self.future_frames, 1, 64)
        if self.frame not in get_args(Frame):
            raise UsageError(f"range_view.frame is one of {', '.join(get_args(Frame))}, got {self.frame!r}")
        if not self.std_m > 0:
            raise UsageError(f"range_view.std_m must be above 0, got {self.std_m}")
        if not 0 < self.mask_threshold < 1:
            raise UsageError(f"range_view.mask_threshold must lie between 0 and 1, got {self.mask_threshold}")
        if self.geometry.columns % self.column_unit:
            raise UsageError(
                f"the {self.geometry.columns} columns of the range image must divide by {self.column_unit}, by which "
                f"{self.network} shrinks them"
            )

    @property
    def column_unit(self) -> int:
        """Columns that one column of the smallest map stands for."""
        return 1

    @property
    def row_unit(self) -> int:
        """Rows that one row of the smallest map stands for; missing rows are filled with empty ones."""
        return 1

    @property
    def padded_rows(self) -> int:
        """Rows with those that fill up the last unit."""
        return -(-self.geometry.rows // self.row_unit) * self.row_unit

    @property
    def name(self) -> str:
        """In score files: the network, and whether it is given the poses."""
        return self.network if self.frame == "own" else f"{self.network}_poses"


class RangePrediction(NamedTuple):
    """Future range images."""

    ranges_m: Tensor  # (B, F, H, W)
    mask_logits: Tensor  # (B, F, H, W) of the probability that the cell has a return
    kl: Tensor | None = None  # (B,) nats per frame, of networks with a latent that were shown the future

    def masked(self, threshold: float) -> Tensor:
        """(B, F, H, W) the ranges, and 0 where there is no return."""
        return torch.where(torch.sigmoid(self.mask_logits) >= threshold, self.ranges_m, 0.0)


class RangeViewNetwork(nn.Module, ABC):
    """Past range images -> future ones. B clips, P past and F future frames, H rows, W columns; 0 is an empty cell."""

    config: RangeViewConfig

    @abstractmethod
    def forward(self, past: Tensor, *, future: Tensor | None = None, noise: Tensor | None = None) -> RangePrediction:
        """(B, P, H, W) metres -> all future frames.

        future: (B, F, H, W), the truth, from which networks with a latent learn what to draw.
        noise: (B, *latent_shape), what such networks draw from; None: nothing is drawn, the mean is taken.
        """

    @property
    def latent_shape(self) -> tuple[int, ...] | None:
        """Of one clip's noise; None where nothing is drawn."""
        return None

    @abstractmethod
    def blocks(self) -> Sequence[nn.Module]:
        """The parts that a training run may shard or compile one by one."""

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    def standardised(self, ranges_m: Tensor) -> Tensor:
        """(..., H, W) -> (..., H', W): standardised ranges, 0 where a cell is empty; rows filled up to the unit."""
        standard = torch.where(ranges_m > 0, (ranges_m - self.config.mean_m) / self.config.std_m, 0.0)
        return nn.functional.pad(standard, (0, 0, 0, self.config.padded_rows - self.config.geometry.rows))

    def prediction(self, output: Tensor, kl: Tensor | None = None) -> RangePrediction:
        """(B, 2, F, H', W) -> ranges between the sensor's nearest and furthest, and logits of the mask."""
        geometry = self.config.geometry
        output = output[:, :, :, : geometry.rows].float()
        span = geometry.max_range_m - geometry.min_range_m
        return RangePrediction(geometry.min_range_m + torch.sigmoid(output[:, 0]) * span, output[:, 1], kl)


def images(past: Sequence[Tensor], frames: int) -> Tensor:
    """The newest `frames` images, (P, H, W); images that are missing at the start are empty."""
    kept = list(past)[-frames:]
    empty = [torch.zeros_like(kept[0])] * (frames - len(kept))
    return torch.stack([*empty, *kept])
