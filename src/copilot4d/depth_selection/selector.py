"""`DepthSelector`: which of a ray's candidate depths to take. Ten thousand weights, trained on a model's forecasts.

R rays, F features, C candidates, B frames, E elevations, A azimuths, V channels of the view
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from copilot4d.depth_selection.candidates import (
    CANDIDATES,
    FEATURES,
    MOTION_CANDIDATES,
    MOTION_FEATURES,
    OCCUPANCY_CANDIDATES,
    OCCUPANCY_FEATURES,
    Candidates,
)
from copilot4d.depth_selection.neighbours import RangeView
from copilot4d.errors import UsageError, check_range

RAYS_IN_CACHE = 2048  # what is between the layers of so many rays stays in the processor's cache


def names_of(*, occupancy: bool, motion: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Features and candidates of a selector that knows occupancy depths, that knows the past carried on, or both."""
    features: tuple[str, ...] = FEATURES
    candidates: tuple[str, ...] = CANDIDATES
    if occupancy:
        features, candidates = features + OCCUPANCY_FEATURES, candidates + OCCUPANCY_CANDIDATES
    if motion:
        features, candidates = features + MOTION_FEATURES, candidates + MOTION_CANDIDATES
    return features, candidates


KNOWN = {
    (occupancy, motion): names_of(occupancy=occupancy, motion=motion)
    for occupancy, motion in product((False, True), repeat=2)
}


@dataclass(frozen=True, kw_only=True)
class DepthSelectorConfig:
    """How wide the two hidden layers are, what rays know of their neighbours, and the names that the weights go by: a
    selector of other ones is refused.
    """

    widths: tuple[int, int] = (128, 64)
    view_channels: int = 0  # what is learned about each cell of the range view; 0: each ray by itself
    view_dilations: tuple[int, ...] = (1, 2, 4)  # of the layers that look at a cell's neighbours
    features: tuple[str, ...] = FEATURES
    candidates: tuple[str, ...] = CANDIDATES

    def __post_init__(self) -> None:
        if min(self.widths) < 1:
            raise UsageError(f"widths of a depth selector must be at least 1, got {self.widths}")
        if self.view_channels < 0 or min(self.view_dilations, default=1) < 1:
            raise UsageError(
                "a depth selector's view needs 0 channels or more, and dilations of 1 or more; got "
                f"{self.view_channels} and {self.view_dilations}"
            )
        check_range("widths of a depth selector", self.widths, 1, 1 << 14)
        check_range("channels of a depth selector's view", self.view_channels, 0, 1024)
        check_range("the number of a depth selector's dilations", len(self.view_dilations), 0, 32)
        check_range("dilations of a depth selector's view", self.view_dilations, 1, 64)
        if (self.features, self.candidates) not in KNOWN.values():
            raise UsageError(
                "this depth selector reads other features or chooses among other candidates than this version of "
                "copilot4d makes; train it again (copilot4d train depth-selector)"
            )

    @classmethod
    def knowing(cls, *, occupancy: bool, motion: bool, **settings: Any) -> DepthSelectorConfig:
        """Of a selector that chooses among occupancy depths, too, or among those of the past carried on."""
        features, candidates = names_of(occupancy=occupancy, motion=motion)
        return cls(features=features, candidates=candidates, **settings)

    @property
    def needs_occupancy_depths(self) -> bool:
        """Whether the selector needs an `OccupancyDepths` on every ray."""
        return set(OCCUPANCY_CANDIDATES) <= set(self.candidates)

    @property
    def needs_motion(self) -> bool:
        """Whether the selector needs the past carried on."""
        return set(MOTION_CANDIDATES) <= set(self.candidates)


class DepthSelector(nn.Module):
    """Features of rays (R, F), and of those around them, -> logits of their candidates (R, C)."""

    def __init__(self, config: DepthSelectorConfig | None = None) -> None:
        super().__init__()
        self.config = config or DepthSelectorConfig()
        channels, (first, second) = self.config.view_channels, self.config.widths
        features = len(self.config.features)
        self.around = ViewNetwork(features, channels, self.config.view_dilations) if channels else None
        self.layers = nn.Sequential(
            nn.Linear(features + channels, first), nn.ReLU(), nn.Linear(first, second), nn.ReLU(),
            nn.Linear(second, len(self.config.candidates)),
        )  # fmt: skip

    def forward(self, features: Tensor, views: Tensor, places: Tensor) -> Tensor:
        """(R, F) -> (R, C). views: (B, F + 1, E, A) of the frames; places: (R,) each ray's cell, counted through all of
        them.
        """
        return self._of_rays(features, None if self.around is None else self._around(views), places)

    def _around(self, views: Tensor) -> Tensor:
        """(B, F + 1, E, A) -> (B E A, V) what is around each cell."""
        assert self.around is not None
        seen: Tensor = self.around(views)
        return seen.movedim(1, -1).flatten(0, 2)

    def _of_rays(self, features: Tensor, around: Tensor | None, places: Tensor) -> Tensor:
        known = features if around is None else torch.cat([features, around[places]], dim=1)
        return self.layers(known)  # type: ignore[no-any-return]

    @torch.no_grad()
    def choose(self, candidates: Candidates) -> NDArray[np.int64]:
        """(R,) the candidate of each ray of a frame."""
        view = RangeView.of(candidates.features, candidates.cells).values[None]
        device = next(self.parameters()).device
        features, views, places = (
            torch.from_numpy(part).to(device) for part in (candidates.features, view, candidates.cells)
        )
        around = None if self.around is None else self._around(views)
        chosen = torch.empty(len(features), dtype=torch.int64)
        for first in range(0, len(features), RAYS_IN_CACHE):
            part = slice(first, first + RAYS_IN_CACHE)
            chosen[part] = self._of_rays(features[part], around, places[part]).argmax(dim=1)
        return chosen.numpy()

    @torch.no_grad()
    def absorb_scale(self, mean: Tensor, deviation: Tensor) -> None:
        """After training on (features - mean) / deviation: read plain features from now on."""
        layer = self.layers[0]
        assert isinstance(layer, nn.Linear)
        weight = layer.weight[:, : len(self.config.features)]
        weight.div_(deviation)
        layer.bias.sub_(weight @ mean)
        if self.around is not None:
            self.around.absorb_scale(mean, deviation)


class ViewNetwork(nn.Module):
    """A range view (B, F + 1, E, A) -> what is around each of its cells (B, V, E, A). Azimuths go round."""

    def __init__(self, features: int, channels: int, dilations: tuple[int, ...]) -> None:
        super().__init__()
        self.enter = nn.Conv2d(features + 1, channels, 1)
        self.layers = nn.ModuleList(nn.Conv2d(channels, channels, 3, dilation=dilation) for dilation in dilations)
        self.dilations = dilations

    def forward(self, views: Tensor) -> Tensor:
        """(B, F + 1, E, A) -> (B, V, E, A)."""
        x = functional.relu(self.enter(views))
        for layer, wide in zip(self.layers, self.dilations, strict=True):
            round_about = functional.pad(x, (wide, wide, 0, 0), mode="circular")
            x = x + functional.relu(layer(functional.pad(round_about, (0, 0, wide, wide))))
        return x

    @torch.no_grad()
    def absorb_scale(self, mean: Tensor, deviation: Tensor) -> None:
        """See `DepthSelector`. Cells without rays stay 0: the last channel, 1 where rays are, has the mean."""
        weight = self.enter.weight[:, :, 0, 0]
        weight[:, :-1].div_(deviation)
        weight[:, -1].sub_(weight[:, :-1] @ mean)
