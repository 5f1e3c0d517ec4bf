"""The copy path: rays that see what the past measured take its depth; a small learned gate says which do."""

from copilot4d.copy_path.candidates import CANDIDATES, FEATURES, Candidates, Measured, MeasuredPast, candidates
from copilot4d.copy_path.gate import CopyGate, CopyGateConfig
from copilot4d.copy_path.range_view import RangeView

__all__ = [
    "CANDIDATES",
    "FEATURES",
    "Candidates",
    "CopyGate",
    "CopyGateConfig",
    "Measured",
    "MeasuredPast",
    "RangeView",
    "candidates",
]
