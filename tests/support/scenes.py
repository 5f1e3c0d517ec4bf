"""Small drives with a known answer, made in milliseconds: a ground plane, boxes, an ego that drives through them."""

from __future__ import annotations

import numpy as np

from copilot4d.geometry import Drive, Rays, Sweep, intersect_box, se3

SENSOR_HEIGHT = 1.73
BOXES = np.array(
    [  # xmin, ymin, zmin, xmax, ymax, zmax in the world; nothing here is symmetric in x and y
        [12, 4, 0, 16, 5.8, 1.6],
        [25, -6, 0, 29.5, -4.2, 1.5],
        [5, 9, 0, 40, 20, 7],
        [-20, -25, 0, 18, -11, 5],
        [45, -20, 0, 52, 15, 6],
        [20, 6.5, 0, 20.4, 6.9, 6],
    ],
    dtype=np.float64,
)


def beam_directions(rings: int = 32, azimuths: int = 360) -> np.ndarray:
    """(rings * azimuths, 3) unit directions, -24 to +2 degrees of elevation."""
    elevation = np.deg2rad(np.linspace(-24, 2, rings))[:, None]
    azimuth = np.linspace(-np.pi, np.pi, azimuths, endpoint=False)[None, :]
    x, y = np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth)
    return np.stack([x, y, np.broadcast_to(np.sin(elevation), x.shape)], axis=-1).reshape(-1, 3)


def cast(
    world_from_lidar: np.ndarray, boxes: np.ndarray, directions: np.ndarray, max_range: float = 80.0
) -> np.ndarray:
    """(N, 3) float32 returns in the lidar frame."""
    rays = Rays.from_origin(np.zeros(3), directions).transformed(world_from_lidar)
    depth = np.full(len(rays), np.inf)
    down = rays.directions[:, 2] < 0
    depth[down] = -rays.origins[down, 2] / rays.directions[down, 2]
    for box in boxes:
        hit = intersect_box(rays, box)
        depth = np.where(hit.hits & (hit.entry < depth), hit.entry, depth)
    keep = depth < max_range
    return (directions[keep] * depth[keep, None]).astype(np.float32)


def make_drive(
    frames: int = 24, *, rate_hz: float = 10.0, speed: float = 6.0, yaw_rate: float = 0.05, mover: float = 3.0,
    name: str = "toy", rings: int = 32, azimuths: int = 360, **properties: object,
) -> Drive:  # fmt: skip
    """An ego that drives a gentle left bend at `speed` m/s while the first box moves along x at `mover` m/s."""
    directions, sweeps = beam_directions(rings, azimuths), []
    for i in range(frames):
        t = i / rate_hz
        heading = yaw_rate * t
        turned = heading if yaw_rate else 1.0  # arc of a circle, or a straight line
        x = speed * t * (np.sin(turned) / turned if yaw_rate and t else 1.0)
        y = speed * t * ((1 - np.cos(turned)) / turned if yaw_rate and t else 0.0)
        pose = se3.from_yaw(heading, (x, y, SENSOR_HEIGHT))
        boxes = BOXES.copy()
        boxes[0, [0, 3]] += mover * t
        points = cast(pose, boxes, directions)
        sweeps.append(Sweep(points=points, world_from_lidar=pose, timestamp_ns=round(t * 1e9)))
    return Drive.from_sweeps(name, sweeps, **properties)
