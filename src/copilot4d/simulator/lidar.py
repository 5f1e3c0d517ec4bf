"""One sweep of a spinning lidar: beams turn while everything moves; some returns are noisy and some are lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copilot4d.compiled import compiled
from copilot4d.geometry import Sweep, se3
from copilot4d.geometry.se3 import FloatArray
from copilot4d.simulator import random_numbers
from copilot4d.simulator.casting import CastScene, Hits, cast
from copilot4d.simulator.materials import FACADE, column
from copilot4d.simulator.placing import PlacedObject
from copilot4d.simulator.sensors import FiringTable, LidarSensor, firing_table

MOVING_BASE = 1_000_000  # object ids: below it static objects, from it on agents


@dataclass(frozen=True, kw_only=True)
class LabelledSweep:
    """A sweep and, for each of its points, what it lies on: -1 the ground, below MOVING_BASE a static object, from
    MOVING_BASE on the agent with that number (0 is the ego's own body).
    """

    sweep: Sweep
    object_ids: NDArray[np.int32]  # (N,)
    fractions: FloatArray  # (N,) when each point was measured: 0 at the start of the sweep, 1 at its end


def scan(
    scene: CastScene, objects: tuple[PlacedObject, ...], sensor: LidarSensor, *, world_from_lidar_start: FloatArray,
    world_from_lidar_middle: FloatArray, world_from_lidar_end: FloatArray, timestamp_ns: int, key: int,
    motion_compensated: bool = True, threads: int = 1,
) -> LabelledSweep:  # fmt: skip
    """The sweep whose middle is at `timestamp_ns`; `scene` holds moving things at its start and end.

    Motion-compensated points are in the lidar frame of the sweep's middle. Otherwise each point is in the frame of
    its own moment, as a device without pose knowledge gives it.
    """
    table = firing_table(sensor)
    poses = _poses_of_columns(table, world_from_lidar_start, world_from_lidar_middle, world_from_lidar_end)
    origins, directions = _aim(poses, table.columns, table.origins, table.directions)
    hits = cast(
        scene, origins, directions, table.fractions, max_range_m=sensor.max_range_m, key=key, moving_base=MOVING_BASE,
        threads=threads,
    )  # fmt: skip
    kept, intensity = _returns(hits, origins, directions, objects, sensor, key)
    noise = sensor.range_noise_m * _normal(key, kept)
    depth = np.maximum(hits.depth[kept] + noise, 0.01)
    several = len(sensor.heads) > 1
    starts = table.origins[kept]
    if motion_compensated:
        lidar_from_world = se3.invert(world_from_lidar_middle)
        points = se3.transform_points(lidar_from_world, origins[kept] + depth[:, None] * directions[kept])
        starts = se3.transform_points(lidar_from_world, origins[kept]) if several else starts
    else:
        points = starts + depth[:, None] * table.directions[kept]
    sweep = Sweep(
        points=points.astype(np.float32),
        world_from_lidar=world_from_lidar_middle,
        timestamp_ns=timestamp_ns,
        intensity=intensity.astype(np.float32),
        origins=starts.astype(np.float32) if several else None,
    )
    return LabelledSweep(sweep=sweep, object_ids=hits.owner[kept].astype(np.int32), fractions=table.fractions[kept])


def _poses_of_columns(table: FiringTable, start: FloatArray, middle: FloatArray, end: FloatArray) -> FloatArray:
    return se3.interpolate_trajectory(np.array([0.0, 0.5, 1.0]), np.stack([start, middle, end]), table.moments)


@compiled
def _aim(poses: Any, columns: Any, origins: Any, directions: Any) -> Any:
    """Rays of the moving lidar frame in the world: ray r is fired from pose columns[r]."""
    world_origins, world_directions = np.empty_like(directions), np.empty_like(directions)
    for r in range(len(directions)):
        pose = poses[columns[r]]
        for i in range(3):
            across = pose[i, 0] * directions[r, 0] + pose[i, 1] * directions[r, 1] + pose[i, 2] * directions[r, 2]
            offset = pose[i, 0] * origins[r, 0] + pose[i, 1] * origins[r, 1] + pose[i, 2] * origins[r, 2]
            world_directions[r, i], world_origins[r, i] = across, offset + pose[i, 3]
    return world_origins, world_directions


def _returns(
    hits: Hits, origins: FloatArray, directions: FloatArray, objects: tuple[PlacedObject, ...], sensor: LidarSensor,
    key: int,
) -> tuple[NDArray[np.int64], FloatArray]:  # fmt: skip
    """The rays that come back, and how bright: glass mirrors light away, grazing and far returns fade."""
    met = np.flatnonzero(np.isfinite(hits.depth) & (hits.depth >= sensor.min_range_m))
    depth, material = hits.depth[met], hits.material[met]
    glass = column("glass")[material]
    facade = np.flatnonzero(material == FACADE)
    points = origins[met[facade]] + depth[facade, None] * directions[met[facade]]
    glass[facade] = np.where(_on_window(points, hits.owner[met[facade]], objects), 0.6, 0.0)
    strength = column("reflectivity")[material] * np.clip(hits.cosine[met], 0.0, 1.0)
    # The share that is seen falls with the square of the distance, up to a half where the return is `weak_return`.
    weak = sensor.weak_return * (depth / 30.0) ** 2
    seen = (1 - sensor.lost_share) * (1 - glass) * strength / (strength + weak + 1e-9)
    kept = random_numbers.uniform(key, 2, met) < seen
    return met[kept], strength[kept]


def _on_window(points: FloatArray, owner: NDArray[np.int64], objects: tuple[PlacedObject, ...]) -> NDArray[np.bool_]:
    """(N, 3) points on facades -> whether they lie on a window: rows of panes, storey by storey."""
    if not len(points):
        return np.zeros(0, dtype=bool)
    used, which = np.unique(owner, return_inverse=True)
    frame = np.array([[objects[o].x, objects[o].y, objects[o].z, objects[o].yaw] for o in used])[which]
    cos, sin = np.cos(frame[:, 3]), np.sin(frame[:, 3])
    dx, dy = points[:, 0] - frame[:, 0], points[:, 1] - frame[:, 1]
    along, across = cos * dx + sin * dy, cos * dy - sin * dx
    half_y = np.array([objects[o].shape.width_m / 2 for o in used])[which]
    on_long_side = np.abs(np.abs(across) - half_y) < 0.05
    u = np.where(on_long_side, along, across)
    pane = np.mod(u + 0.4 * np.mod(owner, 5), 2.7) < 1.2
    storey = np.mod(points[:, 2] - frame[:, 2] - 0.9, 2.9)
    return np.asarray(pane & (storey < 1.35))


def _normal(key: int, rays: NDArray[np.int64]) -> FloatArray:
    """(N,) normal deviates that belong to (key, ray)."""
    u, v = random_numbers.uniform(key, 3, rays), random_numbers.uniform(key, 4, rays)
    return np.sqrt(-2 * np.log(1 - u)) * np.cos(2 * np.pi * v)  # type: ignore[no-any-return]
