"""A simulation seen by a lidar: a lazy `Drive` that also knows the truth about every point and agent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copilot4d.errors import UsageError
from copilot4d.geometry import Drive, Sweep, se3
from copilot4d.geometry.se3 import FloatArray
from copilot4d.simulator import random_numbers
from copilot4d.simulator.agents import EGO_SHAPE
from copilot4d.simulator.ground import Hills
from copilot4d.simulator.lidar import MOVING_BASE, LabelledSweep, scan
from copilot4d.simulator.roads import StreetOptions
from copilot4d.simulator.sensors import VARIED_MOUNT_M, LidarSensor, sensor_named
from copilot4d.simulator.simulation import Simulation, start
from copilot4d.simulator.street import moving_bodies

MOVING_M_S = 0.2  # slower than this, a thing counts as standing


@dataclass(frozen=True, kw_only=True)
class SweepTruth:
    """What is true of one sweep: per point, and per agent (agent 0 is the ego)."""

    object_ids: NDArray[np.int32]  # (N,) -1 the ground, below MOVING_BASE a static object, else MOVING_BASE + agent
    moving: NDArray[np.bool_]  # (N,) whether a point lies on something that moves (never the ego itself)
    agent_poses: FloatArray  # (A, 4) x, y, z, yaw in the world
    agent_speeds_m_s: FloatArray  # (A,)
    agent_sizes_m: FloatArray  # (A, 3) length, width, height
    agent_kinds: tuple[str, ...]
    times_ns: NDArray[np.int64] | None = None  # (N,) when each point was measured; None where it was not kept


@dataclass(frozen=True, kw_only=True)
class SimulatedDrive(Drive):
    """A drive that the simulator made; `truth(i)` belongs to sweep i of this drive, also after slicing."""

    read_truth: Callable[[int], SweepTruth] | None = field(default=None, repr=False)
    plan: str = "keep"
    moment_frame: int | None = None  # sweep of this drive where a plan began: up to it the same for every plan
    follower: int | None = None  # the agent that drove behind the ego at that moment

    def __getitem__(self, index: int | slice) -> Any:  # Sweep for an int, SimulatedDrive for a slice
        part = super().__getitem__(index)
        if not isinstance(index, slice) or self.moment_frame is None:
            return part
        kept = range(len(self))[index]  # the moment moves with its sweep, and goes with it
        moment = kept.index(self.moment_frame) if self.moment_frame in kept else None
        return replace(part, moment_frame=moment)

    def truth(self, index: int) -> SweepTruth:
        """The truth about one sweep."""
        i = range(len(self))[index]
        return self.truth_of(i if self.frames is None else int(self.frames[i]))

    def truth_of(self, frame: int) -> SweepTruth:
        """The truth by the frame's number in the original drive, as `read` takes it."""
        if self.read_truth is None:
            raise UsageError(f"drive {self.name} was read without its truth; simulate it again to have it")
        return self.read_truth(frame)


def simulate_drive(
    *, seed: int, sensor: str | LidarSensor = "mini32", seconds: float = 12.0, rate_hz: float | None = None,
    options: StreetOptions | None = None, name: str | None = None, motion_compensated: bool = True, threads: int = 1,
) -> SimulatedDrive:  # fmt: skip
    """A drive through the street of a seed: the ego drives with the traffic. Sweeps are cast when asked for."""
    if not seconds > 0:
        raise UsageError(f"a drive needs a positive duration, got seconds={seconds}")
    device = sensor_named(sensor)
    simulation = start(seed, options).run(seconds + 0.05)
    return drive_of(
        simulation, device, name=name or f"{seed:06d}", rate_hz=rate_hz, end_s=seconds,
        motion_compensated=motion_compensated, threads=threads,
    )  # fmt: skip


def drive_of(
    simulation: Simulation, sensor: str | LidarSensor = "mini32", *, name: str, rate_hz: float | None = None,
    start_s: float = 0.0, end_s: float | None = None, motion_compensated: bool = True, threads: int = 1,
    moment_s: float | None = None, **properties: Any,
) -> SimulatedDrive:  # fmt: skip
    """What a lidar saw between two times of a simulation's past: sweeps at start_s, start_s + 1 / rate_hz, ..."""
    device = sensor_named(sensor)
    rate = device.rate_hz if rate_hz is None else rate_hz
    if not 0 < rate <= device.rate_hz:
        raise UsageError(
            f"sensor {device.name} turns at {device.rate_hz} Hz; ask for a rate above 0 and up to that, got {rate}"
        )
    end = simulation.time_s if end_s is None else end_s
    count = int(np.floor((end - start_s) * rate + 1e-6))
    if count < 1:
        raise UsageError(f"no sweep fits between {start_s} s and {end} s at {rate} Hz")
    times = start_s + np.arange(count) / rate
    devices = [device.of_sweep(simulation.street.seed, round(t * 1e9)) for t in times]
    poses = np.stack([_world_from_lidar(simulation, d, t) for d, t in zip(devices, times, strict=True)])
    bodies = moving_bodies(list(simulation.people.shapes))
    noise_key = random_numbers.key(simulation.street.seed, random_numbers.NOISE)

    @lru_cache(maxsize=2)
    def labelled(i: int) -> LabelledSweep:
        half = 0.5 / device.rate_hz
        before, after = times[i] - half, times[i] + half
        scene = simulation.street.scene.with_moving(bodies, simulation.poses_at(before), simulation.poses_at(after))
        stamp = round(times[i] * 1e9)
        return scan(
            scene, simulation.street.objects, devices[i],
            world_from_lidar_start=_world_from_lidar(simulation, devices[i], before),
            world_from_lidar_middle=poses[i],
            world_from_lidar_end=_world_from_lidar(simulation, devices[i], after),
            timestamp_ns=stamp, key=random_numbers.key(noise_key, stamp), motion_compensated=motion_compensated,
            threads=threads,
        )  # fmt: skip

    def read(i: int) -> Sweep:
        return labelled(i).sweep

    def read_truth(i: int) -> SweepTruth:
        truth = _truth(simulation, labelled(i).object_ids, float(times[i]))
        turned = (labelled(i).fractions - 0.5) * (1e9 / device.rate_hz)  # a sweep's stamp is the time of its middle
        return replace(truth, times_ns=round(times[i] * 1e9) + np.rint(turned).astype(np.int64))

    moment = None if moment_s is None else round((moment_s - start_s) * rate)
    return SimulatedDrive(
        name=name, world_from_lidar=poses, timestamps_ns=np.round(times * 1e9).astype(np.int64), read=read,
        read_truth=read_truth, format="simulated", source=f"street of seed {simulation.street.seed}",
        ego_box=ego_box(device), plan=simulation.plan.kind, moment_frame=moment, **properties,
    )  # fmt: skip


def ego_box(sensor: LidarSensor) -> FloatArray:
    """(6,) in the lidar frame: the ego's body with a margin; returns inside it come from the ego."""
    body = EGO_SHAPE.primitives
    half_x = max(abs(p.x) + p.half_x for p in body) + 0.6  # it drives on while the head turns
    half_y = max(abs(p.y) + p.half_y for p in body) + 0.15
    x, z, moved = sensor.mount_x_m, sensor.mount_z_m, VARIED_MOUNT_M if sensor.varied else 0.0
    return np.array([-half_x - x - moved, -half_y, -z - moved / 2 - 0.2, half_x - x + moved, half_y, 0.2])


def _truth(simulation: Simulation, object_ids: NDArray[np.int32], time_s: float) -> SweepTruth:
    step = int(np.clip(round(time_s / 0.05), 0, len(simulation.speeds_m_s) - 1))
    speeds = simulation.speeds_m_s[step]
    people = simulation.people
    agent = object_ids - MOVING_BASE
    moves = np.append(speeds > MOVING_M_S, False)  # the spare entry answers for everything that is no agent
    moves[0] = False
    return SweepTruth(
        object_ids=object_ids,
        moving=moves[np.where(agent >= 0, agent, -1)],
        agent_poses=simulation.poses_at(time_s),
        agent_speeds_m_s=speeds,
        agent_sizes_m=np.array([[s.length_m, s.width_m, s.height_m] for s in people.shapes]),
        agent_kinds=people.kinds,
    )


def _world_from_lidar(simulation: Simulation, sensor: LidarSensor, time_s: float) -> FloatArray:
    x, y, z, yaw = simulation.poses_at(time_s)[0]
    sway = _sway(simulation.street.seed, time_s)
    return lidar_pose(simulation.street.ground.hills, sensor, np.array([x, y, z]), yaw, pitch=sway[0], roll=sway[1])


def lidar_pose(
    hills: Hills, sensor: LidarSensor, base: FloatArray, yaw: float, *, pitch: float = 0.0, roll: float = 0.0
) -> FloatArray:
    """world_from_lidar of an ego whose middle stands at `base` (3,) on the slope there and looks along `yaw`."""
    rise_x, rise_y = hills.slope(base[:2])
    up = np.array([-rise_x, -rise_y, 1.0])
    up /= np.linalg.norm(up)
    forward = np.array([np.cos(yaw), np.sin(yaw), 0.0])
    forward -= up * (forward @ up)
    forward /= np.linalg.norm(forward)
    rotation = np.stack([forward, np.cross(up, forward), up], axis=-1)
    nod = np.array([[np.cos(pitch), 0.0, np.sin(pitch)], [0.0, 1.0, 0.0], [-np.sin(pitch), 0.0, np.cos(pitch)]])
    lean = np.array([[1.0, 0.0, 0.0], [0.0, np.cos(roll), -np.sin(roll)], [0.0, np.sin(roll), np.cos(roll)]])
    rotation = rotation @ nod @ lean
    mount = rotation @ np.array([sensor.mount_x_m, 0.0, sensor.mount_z_m])
    return se3.from_rotation_translation(rotation, base + mount)


def _sway(seed: int, time_s: float) -> FloatArray:
    """(2,) pitch and roll of the body on its springs, radians: a mount a little off level, and a slow rocking."""
    rng = random_numbers.uniform(random_numbers.key(seed, random_numbers.EGO), np.arange(10)).reshape(2, 5)
    level = np.deg2rad(0.5) * (2 * rng[:, 0] - 1)
    rocking = np.sin(2 * np.pi * ((0.5 + rng[:, 1:3]) * time_s + rng[:, 3:5])).sum(axis=1)
    return np.asarray(level + np.deg2rad(0.15) * rocking)
