"""A street simulator whose traffic reacts: streets from a seed, traffic, a spinning lidar, branches of one moment."""

from copilot4d.simulator.drive import SimulatedDrive, SweepTruth, drive_of, simulate_drive
from copilot4d.simulator.ego import EgoPlan
from copilot4d.simulator.lidar import MOVING_BASE
from copilot4d.simulator.roads import StreetOptions
from copilot4d.simulator.sensors import SENSORS, LidarSensor, SpinningHead
from copilot4d.simulator.simulation import Simulation, branch, start
from copilot4d.simulator.street import Street, draw_street

__all__ = [
    "MOVING_BASE", "SENSORS", "EgoPlan", "LidarSensor", "SimulatedDrive", "Simulation", "SpinningHead", "Street",
    "StreetOptions", "SweepTruth", "branch", "draw_street", "drive_of", "simulate_drive", "start",
]  # fmt: skip
