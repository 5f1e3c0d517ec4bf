"""Depth selectors that always choose the same."""

from __future__ import annotations

import torch

from copilot4d.depth_selection import CANDIDATES, DepthSelector, DepthSelectorConfig


def always(candidate: str, *, occupancy: bool = False) -> DepthSelector:
    """A selector that chooses this candidate for every ray. occupancy: one that knows occupancy depths."""
    needs_occupancy = occupancy or candidate not in CANDIDATES
    selector = DepthSelector(DepthSelectorConfig.knowing(occupancy=needs_occupancy, motion=False))
    with torch.no_grad():
        for parameter in selector.parameters():
            parameter.zero_()
        selector.layers[-1].bias[selector.config.candidates.index(candidate)] = 1.0
    return selector
