"""4D-Occ (Khurana et al., CVPR 2023): past sweeps -> occupancy of space and time -> rendered depths.

`PublishedOccupancy4d` is the authors' network, `Occupancy4d` our variant of it.
"""

from copilot4d.baselines.occupancy_4d.config import Occupancy4dConfig, OccupancyConfig, occupancy_4d_preset
from copilot4d.baselines.occupancy_4d.forecaster import Occupancy4dForecaster
from copilot4d.baselines.occupancy_4d.future_occupancy import FutureOccupancy
from copilot4d.baselines.occupancy_4d.model import Occupancy4d
from copilot4d.baselines.occupancy_4d.network import OccupancyNetwork
from copilot4d.baselines.occupancy_4d.past import PastVoxels, past_voxels
from copilot4d.baselines.occupancy_4d.published import (
    PublishedOccupancy4d,
    PublishedOccupancy4dConfig,
    published_preset,
)

__all__ = [
    "FutureOccupancy", "Occupancy4d", "Occupancy4dConfig", "Occupancy4dForecaster", "OccupancyConfig",
    "OccupancyNetwork", "PastVoxels", "PublishedOccupancy4d", "PublishedOccupancy4dConfig", "occupancy_4d_preset",
    "past_voxels", "published_preset",
]  # fmt: skip
