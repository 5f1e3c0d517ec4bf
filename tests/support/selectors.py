"""Depth selectors that always choose the same."""

from __future__ import annotations

import torch

from copilot4d.depth_selection import OCCUPANCY_CANDIDATES, DepthSelector, DepthSelectorConfig
from copilot4d.depth_selection.candidates import MOTION_CANDIDATES


def always(candidate: str, *, occupancy: bool = False) -> DepthSelector:
    """A selector that chooses this candidate for every ray. occupancy: one that knows occupancy depths."""
    occupancy = occupancy or candidate in OCCUPANCY_CANDIDATES
    selector = DepthSelector(DepthSelectorConfig.knowing(occupancy=occupancy, motion=candidate in MOTION_CANDIDATES))
    with torch.no_grad():
        for parameter in selector.parameters():
            parameter.zero_()
        selector.layers[-1].bias[selector.config.candidates.index(candidate)] = 1.0
    return selector
