"""Where a ray's depth is chosen: rendered, measured by the past, or an occupancy network's. A small network selects."""

from copilot4d.depth_selection.candidates import (
    CANDIDATES,
    FEATURES,
    OCCUPANCY_CANDIDATES,
    OCCUPANCY_FEATURES,
    Candidates,
    Measured,
    MeasuredPast,
    candidates,
)
from copilot4d.depth_selection.neighbours import RangeView
from copilot4d.depth_selection.occupancy_depths import OccupancyDepths
from copilot4d.depth_selection.selector import DepthSelector, DepthSelectorConfig

__all__ = [
    "CANDIDATES",
    "FEATURES",
    "OCCUPANCY_CANDIDATES",
    "OCCUPANCY_FEATURES",
    "Candidates",
    "DepthSelector",
    "DepthSelectorConfig",
    "Measured",
    "MeasuredPast",
    "OccupancyDepths",
    "RangeView",
    "candidates",
]
