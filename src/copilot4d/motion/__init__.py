"""What moves in the past sweeps, found without labels, and where it will be if it goes on."""

from copilot4d.motion.depth_map import DepthMap
from copilot4d.motion.extrapolated_past import ExtrapolatedPast, extrapolate

__all__ = ["DepthMap", "ExtrapolatedPast", "extrapolate"]
