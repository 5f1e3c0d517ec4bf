"""Spinning lidars: which way each beam looks, how fast the head turns, how far and how well it sees."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from copilot4d.errors import UsageError
from copilot4d.geometry.se3 import FloatArray
from copilot4d.simulator import random_numbers

SLOWEST_HZ = 10.0  # half of a sweep must fit into the one step of traffic that can be told beyond a simulation's ends

VARIED_RAYS = 20_480
VARIED_MOUNT_M = 0.8  # ahead or behind; half of it up or down


@dataclass(frozen=True, kw_only=True)
class SpinningHead:
    """One rotating head: a column of beams, fired `columns` times a turn."""

    elevations_deg: tuple[float, ...]
    columns: int
    position_m: tuple[float, float, float] = (0.0, 0.0, 0.0)  # in the lidar frame
    start_deg: float = 180.0  # azimuth at the start of a sweep; the head turns clockwise seen from above
    beam_azimuths_deg: tuple[float, ...] = (0.0,)  # offset of each beam, repeated over the beams


@dataclass(frozen=True, kw_only=True)
class LidarSensor:
    """A lidar on the ego's roof. The lidar frame is x forward, y left, z up at the mount."""

    name: str
    heads: tuple[SpinningHead, ...]
    rate_hz: float = 10.0  # turns of the head a second, SLOWEST_HZ or more
    max_range_m: float = 80.0
    min_range_m: float = 0.9  # nearer returns are discarded by the device
    range_noise_m: float = 0.02
    mount_x_m: float = 0.0  # ahead of the middle of the vehicle
    mount_z_m: float = 1.73  # above the road
    lost_share: float = 0.005  # returns lost for no visible reason
    weak_return: float = 0.004  # reflectivity x cosine below which half of the returns are lost at 30 m
    rotates: bool = True  # False: the whole sweep is taken at one moment
    varied: bool = False  # every sweep has beams and a mount of its own, see `of_sweep`

    def __post_init__(self) -> None:
        if not 0.0 <= self.min_range_m < self.max_range_m:
            raise UsageError(
                f"sensor {self.name}: ranges must satisfy 0 <= min_range_m < max_range_m, got {self.min_range_m} and "
                f"{self.max_range_m}"
            )
        if not SLOWEST_HZ <= self.rate_hz < np.inf:
            raise UsageError(
                f"sensor {self.name}: rate_hz must be at least {SLOWEST_HZ:g}, got {self.rate_hz}; for fewer sweeps of "
                "a faster head, give simulate_drive or drive_of a lower rate_hz"
            )
        if not 0.0 <= self.range_noise_m < np.inf:
            raise UsageError(f"sensor {self.name}: range_noise_m must be 0 or more, got {self.range_noise_m}")
        if not self.heads or any(h.columns < 1 or not h.elevations_deg for h in self.heads):
            raise UsageError(f"sensor {self.name}: every head needs at least one beam and one column")
        if not 0.0 <= self.lost_share < 1.0:
            raise UsageError(f"sensor {self.name}: lost_share is a share below 1, got {self.lost_share}")

    @property
    def rays(self) -> int:
        """Rays of one sweep."""
        return sum(h.columns * len(h.elevations_deg) for h in self.heads)

    def of_sweep(self, *key: int) -> LidarSensor:
        """The sensor that takes one sweep: itself, or where it is `varied` the one that belongs to the key.

        A varied sensor has one head of 16 to 64 beams, packed around the horizon or not, about VARIED_RAYS rays, and a
        mount up to VARIED_MOUNT_M away from its own.
        """
        if not self.varied:
            return self
        rng = random_numbers.generator(*key, random_numbers.SENSOR)
        beams = int(rng.integers(16, 65))
        top, bottom, bend = rng.uniform(2.0, 12.0), rng.uniform(-30.0, -18.0), rng.uniform(0.6, 1.6)
        elevations = top + (bottom - top) * np.linspace(0.0, 1.0, beams) ** bend
        head = SpinningHead(
            elevations_deg=tuple(float(e) for e in elevations), columns=VARIED_RAYS // beams,
            start_deg=float(rng.uniform(0.0, 360.0)),
        )  # fmt: skip
        ahead, above = rng.uniform(-VARIED_MOUNT_M, VARIED_MOUNT_M, size=2)
        return replace(
            self, heads=(head,), varied=False, mount_x_m=self.mount_x_m + float(ahead),
            mount_z_m=self.mount_z_m + 0.5 * float(above),
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class FiringTable:
    """The rays of one sweep in the moving lidar frame."""

    directions: FloatArray  # (N, 3)
    origins: FloatArray  # (N, 3)
    fractions: FloatArray  # (N,) of the sweep's duration, in [0, 1)
    columns: NDArray[np.int64]  # (N,) rays with one number are fired at one moment
    moments: FloatArray  # (C,) fraction of each column number


@lru_cache(maxsize=8)
def firing_table(sensor: LidarSensor) -> FiringTable:
    """Column by column, head by head."""
    directions, origins, fractions, numbers, moments = [], [], [], [], []
    first = 0
    for head in sensor.heads:
        elevation = np.deg2rad(np.array(head.elevations_deg))
        skew = np.deg2rad(np.resize(np.array(head.beam_azimuths_deg), len(elevation)))
        moment = np.arange(head.columns) / head.columns
        azimuth = np.deg2rad(head.start_deg) - 2 * np.pi * moment[:, None] + skew[None, :]
        x, y = np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth)
        direction = np.stack([x, y, np.broadcast_to(np.sin(elevation), x.shape)], axis=-1).reshape(-1, 3)
        directions.append(direction)
        origins.append(np.broadcast_to(np.array(head.position_m), direction.shape))
        fractions.append(np.repeat(moment if sensor.rotates else np.full(head.columns, 0.5), len(elevation)))
        numbers.append(np.repeat(first + np.arange(head.columns), len(elevation)))
        moments.append(moment if sensor.rotates else np.full(head.columns, 0.5))
        first += head.columns
    return FiringTable(
        directions=np.concatenate(directions),
        origins=np.concatenate(origins),
        fractions=np.concatenate(fractions),
        columns=np.concatenate(numbers),
        moments=np.concatenate(moments),
    )


def _steps(*stretches: tuple[float, float, int]) -> tuple[float, ...]:
    return tuple(float(e) for first, last, n in stretches for e in np.linspace(first, last, n))


_VLP32C = (
    -25.0, -15.639, -11.31, -8.843, -7.254, -6.148, -5.333, -4.667, -4.0, -3.667, -3.333, -3.0, -2.667, -2.333, -2.0,
    -1.667, -1.333, -1.0, -0.667, -0.333, 0.0, 0.333, 0.667, 1.0, 1.333, 1.667, 2.333, 3.333, 4.667, 7.0, 10.333, 15.0,
)  # fmt: skip

SENSORS: dict[str, LidarSensor] = {
    "hdl64": LidarSensor(
        name="hdl64", heads=(SpinningHead(elevations_deg=_steps((2.0, -8.33, 32), (-8.83, -24.33, 32)), columns=2083),)
    ),
    "hdl32": LidarSensor(
        name="hdl32", heads=(SpinningHead(elevations_deg=_steps((10.67, -30.67, 32)), columns=1084),), rate_hz=20.0,
        max_range_m=100.0, mount_x_m=0.3, mount_z_m=1.84,
    ),
    "vls_pair": LidarSensor(
        name="vls_pair",
        heads=(
            SpinningHead(elevations_deg=_VLP32C, columns=1800),
            SpinningHead(elevations_deg=tuple(-e for e in _VLP32C[::-1]), columns=1800, position_m=(0.0, 0.0, -0.22),
                         start_deg=0.0),
        ),
        max_range_m=200.0, mount_x_m=0.1, mount_z_m=1.9,
    ),
    "mini32": LidarSensor(
        name="mini32", heads=(SpinningHead(elevations_deg=_steps((4.0, -9.5, 22), (-10.5, -24.0, 10)), columns=640),)
    ),
    "varied": LidarSensor(
        name="varied", heads=(SpinningHead(elevations_deg=_steps((4.0, -24.0, 32)), columns=640),), mount_z_m=1.9,
        varied=True,
    ),
}  # fmt: skip


def sensor_named(name: str | LidarSensor) -> LidarSensor:
    """A preset by its name, or your own sensor, unchanged."""
    if isinstance(name, LidarSensor):
        return name
    if name not in SENSORS:
        raise UsageError(f"there is no sensor {name!r}; the sensors are: {', '.join(SENSORS)}")
    return SENSORS[name]
