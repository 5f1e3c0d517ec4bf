"""The truth of another plan: a simulated street goes on from the same moment, with the ego on the planned way."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from copilot4d.datasets import Dataset
from copilot4d.errors import UsageError
from copilot4d.geometry import Drive, Sweep, se3
from copilot4d.geometry.se3 import FloatArray
from copilot4d.simulator import EgoPlan, LidarSensor, SimulatedDrive, Simulation, branch, drive_of, start
from copilot4d.simulator.agents import STEP_S
from copilot4d.simulator.benchmark import split_seed, whatif_moment
from copilot4d.simulator.sensors import sensor_named
from copilot4d.studio.moment import StudioMoment

_STREET = re.compile(r"(?P<split>train|val|test)_(?P<index>\d+)")
_WHATIF = re.compile(r"whatif_(?P<number>\d+)_\w+")
_FINE_S = 0.05


def can_simulate(dataset: Dataset, drive: Drive) -> bool:
    """Whether the drive comes from a street that can be simulated again: street-v1 and street-v1-whatif."""
    named = _STREET.fullmatch(drive.name) or _WHATIF.fullmatch(drive.name)
    return dataset.format == "simulated" and drive.format == "simulated" and named is not None


def simulated_truth(dataset: Dataset, moment: StudioMoment, poses: FloatArray) -> Iterator[Sweep]:
    """One sweep per pose (F, 4, 4) of the plan. The traffic reacts to the ego; everybody draws the numbers they drew.

    The ego stands on the simulated road, so its height, pitch and roll are the street's, not the plan's.
    """
    drive, sensor = moment.drive, sensor_named(dataset.root.name)
    now_s = float(drive.timestamps_ns[moment.frame]) * 1e-9
    begin_s = now_s + 0.5 / sensor.rate_hz  # the newest sweep ends here
    simulation = _at(drive, begin_s, sensor)
    known_s = np.concatenate([[0.0], moment.times_s])
    known = np.concatenate([moment.world_from_reference[None], poses])
    times_s = np.arange(0.0, known_s[-1] + _FINE_S, _FINE_S)
    places = _ego_places(se3.interpolate_trajectory(known_s, known, times_s + (begin_s - now_s)), sensor)
    plan = EgoPlan.path(times_s, places)
    future = branch(simulation, plan).run(float(known_s[-1]) + 2 * STEP_S)
    for time_s in moment.times_s:
        at_s = now_s + float(time_s)
        (sweep,) = drive_of(
            future, sensor, name=f"{drive.name}_plan", rate_hz=sensor.rate_hz, start_s=at_s,
            end_s=at_s + 1.0 / sensor.rate_hz,
        )  # fmt: skip
        yield sweep.without_box(drive.ego_box)


def _ego_places(world_from_lidar: FloatArray, sensor: LidarSensor) -> FloatArray:
    """(T, 2): where the middle of the ego's body is when its lidar has these poses."""
    mount = np.array([[sensor.mount_x_m, 0.0, sensor.mount_z_m]])
    return world_from_lidar[:, :2, 3] - se3.rotate_vectors(world_from_lidar, mount)[:, 0, :2]


@lru_cache(maxsize=4)
def _seed(name: str) -> int:
    if match := _STREET.fullmatch(name):
        return split_seed(match["split"], int(match["index"]))
    if match := _WHATIF.fullmatch(name):
        return whatif_moment(int(match["number"])).simulation.street.seed
    raise UsageError(f"drive {name} is not one of street-v1: only those can be simulated again")


@lru_cache(maxsize=2)
def _begun(seed: int) -> Simulation:
    return start(seed)


def _at(drive: Drive, time_s: float, sensor: LidarSensor) -> Simulation:
    """The street at a time of its drive, under the plan that the drive itself followed until then."""
    simulation = _begun(_seed(drive.name))
    if isinstance(drive, SimulatedDrive) and drive.moment_frame is not None and drive.plan != "keep":
        parted_s = float(drive.timestamps_ns[drive.moment_frame]) * 1e-9 + 0.5 / sensor.rate_hz
        if time_s > parted_s + STEP_S / 2:
            return branch(simulation.run(parted_s), EgoPlan(kind=drive.plan)).run(time_s - parted_s)
    return simulation.run(time_s)
