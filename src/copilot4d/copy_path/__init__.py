"""The copy path: rays that see what the past measured take its depth; a small learned gate says which do."""

from copilot4d.copy_path.candidates import (
    CANDIDATES,
    FEATURES,
    SECOND_CANDIDATES,
    SECOND_FEATURES,
    Candidates,
    Measured,
    MeasuredPast,
    candidates,
)
from copilot4d.copy_path.gate import CopyGate, CopyGateConfig
from copilot4d.copy_path.range_view import RangeView
from copilot4d.copy_path.second_opinion import Opinion

__all__ = [
    "CANDIDATES",
    "FEATURES",
    "SECOND_CANDIDATES",
    "SECOND_FEATURES",
    "Candidates",
    "CopyGate",
    "CopyGateConfig",
    "Measured",
    "MeasuredPast",
    "Opinion",
    "RangeView",
    "candidates",
]
