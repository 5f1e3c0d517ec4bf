"""The ego's way: from sliders, presets or dragged waypoints to poses.

Everything here lies in the plane of the ego's own lidar frame at the moment of the forecast (x forward, y left): a way
is (T, 3) x, y, yaw at given times after that moment, and `poses_of` carries it into the world.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.interpolate import PchipInterpolator

from copilot4d.errors import UsageError
from copilot4d.geometry import se3
from copilot4d.geometry.se3 import FloatArray
from copilot4d.simulator.ego import EgoPlan, swerve_offset

WHEELBASE_M = 2.7
MAX_STEER_DEG, MAX_SPEED_M_S, MAX_BRAKE_M_S2 = 35.0, 40.0, 9.0
HARD_BRAKE_M_S2 = 5.0
SWERVE_M = 2.4  # to the left, and back
_SLOWEST_SWERVE_M_S = 1.0
_FINE_S = 0.01  # step of the integration and of the headings along a drawn way
_STANDS_M_S = 0.05  # slower than this, a drawn way has no direction of its own: the heading stays


@dataclass(frozen=True, kw_only=True)
class Controls:
    """What a driver does from now on: wheel angle (left positive), speed at first, and braking until the car stands."""

    speed_m_s: float = 0.0
    steer_deg: float = 0.0
    brake_m_s2: float = 0.0

    def __post_init__(self) -> None:
        for name, value, low, high in (
            ("speed", self.speed_m_s, 0.0, MAX_SPEED_M_S),
            ("steer", self.steer_deg, -MAX_STEER_DEG, MAX_STEER_DEG),
            ("brake", self.brake_m_s2, 0.0, MAX_BRAKE_M_S2),
        ):
            if not low <= value <= high:
                raise UsageError(f"{name} must lie between {low:g} and {high:g}, got {value}")


def controls_of(reference_from_before: FloatArray, seconds: float) -> Controls:
    """The speed and wheel angle that led from an earlier pose (seen from the newest one) to here, within limits.

    >>> controls_of(se3.from_yaw(0.0, (-5.0, 0.0, 0.0)), 0.5)
    Controls(speed_m_s=10.0, steer_deg=0.0, brake_m_s2=0.0)
    """
    back = se3.invert(reference_from_before)  # the step from then to now, seen from then
    distance = float(np.hypot(*back[:2, 3]))
    speed = min(distance / seconds, MAX_SPEED_M_S) if seconds > 0 else 0.0
    if speed < 0.2:  # a car that stands has no wheel angle to see
        return Controls(speed_m_s=speed)
    steer = float(np.rad2deg(np.arctan(WHEELBASE_M * se3.yaw_of(back) / distance)))
    return Controls(speed_m_s=speed, steer_deg=float(np.clip(steer, -MAX_STEER_DEG, MAX_STEER_DEG)))


def drive_way(controls: Controls, times_s: FloatArray) -> FloatArray:
    """(T,) increasing times >= 0 -> (T, 3): a car whose wheel is held, which brakes until it stands.

    Turns go by distance, not by time: yaw = distance tan(steer) / wheelbase, so the way is one arc.
    """
    times = np.asarray(times_s, dtype=np.float64)
    distance = _distance(controls, times)
    curvature = np.tan(np.deg2rad(controls.steer_deg)) / WHEELBASE_M
    yaw = distance * curvature
    # sin(yaw) / curvature and (1 - cos(yaw)) / curvature, written so that a straight way needs no exception
    x = distance * np.sinc(yaw / np.pi)
    y = distance * np.sin(yaw / 2) * np.sinc(yaw / 2 / np.pi)
    return np.stack([x, y, yaw], axis=-1)


def swerve_way(speed_m_s: float, offset_m: float, times_s: FloatArray) -> FloatArray:
    """(T, 3): straight on at one speed while moving aside by `offset_m` (left positive) and back, as the simulator's
    egos do: 1.4 s out, 1.2 s aside, 1.8 s back. A car that stands cannot move aside.
    """
    times = np.asarray(times_s, dtype=np.float64)
    plan = EgoPlan.swerve(offset_m if speed_m_s > _SLOWEST_SWERVE_M_S else 0.0)

    def aside(at_s: FloatArray) -> FloatArray:
        return np.array([swerve_offset(plan, float(t)) for t in at_s])

    slope_m_s = (aside(times + _FINE_S) - aside(times - _FINE_S)) / (2 * _FINE_S)
    yaw = np.arctan2(slope_m_s, speed_m_s) if speed_m_s > 0 else np.zeros_like(times)
    return np.stack([speed_m_s * times, aside(times), yaw], axis=-1)


def drawn_way(waypoints_m: FloatArray, waypoint_times_s: FloatArray, times_s: FloatArray) -> FloatArray:
    """(K, 2) places to be at (K,) times -> (T, 3) at `times_s`: a smooth curve from (0, 0) through all of them.

    The curve is monotone between waypoints in each coordinate: it never swings beyond them, and a car whose waypoints
    lie on each other stands there. Headings follow the curve without jumps; where the way leads back, the car reverses.
    """
    places = np.concatenate([np.zeros((1, 2)), np.asarray(waypoints_m, dtype=np.float64)])
    moments = np.concatenate([[0.0], np.asarray(waypoint_times_s, dtype=np.float64)])
    if places.shape != (len(moments), 2) or not np.isfinite(places).all() or not (np.diff(moments) > 0).all():
        raise UsageError("a drawn way needs finite waypoints (K, 2) and K increasing times after 0")
    curve = PchipInterpolator(moments, places, axis=0)
    times = np.clip(np.asarray(times_s, dtype=np.float64), 0.0, moments[-1])
    fine = np.unique(np.concatenate([np.arange(0.0, moments[-1], _FINE_S), times, [moments[-1]]]))
    headings = _headings(curve(fine, 1))
    return np.concatenate([curve(times), headings[np.searchsorted(fine, times)][:, None]], axis=1)


def poses_of(world_from_reference: FloatArray, way: FloatArray) -> FloatArray:
    """(T, 3) x, y, yaw in the reference frame's plane -> (T, 4, 4) world_from_lidar."""
    places = np.concatenate([way[:, :2], np.zeros((len(way), 1))], axis=1)
    return se3.compose(world_from_reference, se3.from_yaw(way[:, 2], places))


def way_of(world_from_reference: FloatArray, world_from_lidar: FloatArray) -> FloatArray:
    """(T, 4, 4) poses -> (T, 3): the inverse of `poses_of`, but for height, pitch and roll, which a way has not."""
    reference_from_lidar = se3.relative_motion(world_from_reference, world_from_lidar)
    return np.concatenate([reference_from_lidar[:, :2, 3], se3.yaw_of(reference_from_lidar)[:, None]], axis=1)


def _distance(controls: Controls, times: FloatArray) -> FloatArray:
    """(T,) metres driven: v t - b t^2 / 2, until the car stands."""
    if controls.brake_m_s2 == 0:
        return controls.speed_m_s * times
    moving = np.minimum(times, controls.speed_m_s / controls.brake_m_s2)
    return np.asarray(controls.speed_m_s * moving - 0.5 * controls.brake_m_s2 * moving**2)


def _headings(velocities: FloatArray) -> FloatArray:
    """(M, 2) along a way -> (M,) yaw, unwrapped from 0: forwards or in reverse, whichever is nearer to the one before.

    The first direction is taken as it comes, up to a right angle from straight ahead.
    """
    headings = np.empty(len(velocities))
    before = 0.0
    directions = np.arctan2(velocities[:, 1], velocities[:, 0])
    speeds = np.hypot(velocities[:, 0], velocities[:, 1])
    for i, (direction, speed) in enumerate(zip(directions, speeds, strict=True)):
        if speed > _STANDS_M_S:
            before = before + (direction - before + np.pi / 2) % np.pi - np.pi / 2
        headings[i] = before
    return headings
