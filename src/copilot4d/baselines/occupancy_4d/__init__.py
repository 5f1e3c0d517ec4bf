"""4D-Occ (Khurana et al., CVPR 2023): past sweeps -> occupancy of space and time -> rendered depths."""

from copilot4d.baselines.occupancy_4d.config import Occupancy4dConfig, occupancy_4d_preset
from copilot4d.baselines.occupancy_4d.forecaster import Occupancy4dForecaster
from copilot4d.baselines.occupancy_4d.future_occupancy import FutureOccupancy
from copilot4d.baselines.occupancy_4d.model import Occupancy4d
from copilot4d.baselines.occupancy_4d.past import PastVoxels, past_voxels

__all__ = [
    "FutureOccupancy", "Occupancy4d", "Occupancy4dConfig", "Occupancy4dForecaster", "PastVoxels", "occupancy_4d_preset",
    "past_voxels",
]  # fmt: skip
