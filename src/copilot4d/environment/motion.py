"""The ego's motion over one step: a constant velocity in its own frame (a twist), and the rigid motion it leads to.

A twist (6,) is vx, vy, vz in m/s and wx, wy, wz in rad/s, in the lidar's own frame (x forward, y left, z up), constant
over the step. Its motion is the exponential map of SE(3), so that speed and yaw rate give the exact arc of a circle:

    motion_of([10, 0, 0, 0, 0, pi / 2], 1.0)   a quarter circle of radius 20 / pi to the left: x = y = 6.366 m
"""

from __future__ import annotations

import numpy as np

from copilot4d.geometry import se3
from copilot4d.geometry.se3 import FloatArray

_SMALL_RAD = 1e-3  # below this the series are exact to rounding, and the formulas are not


def motion_of(twist: FloatArray, step_s: float) -> FloatArray:
    """previous_from_current (4, 4): where the ego is after `step_s` seconds of a twist (6,), seen from before."""
    shift, turn = np.split(np.asarray(twist, dtype=np.float64) * step_s, 2)
    angle = float(np.linalg.norm(turn))
    cross = _cross_matrix(turn)
    a = np.sinc(angle / np.pi)  # sin(t) / t
    b = 0.5 * np.sinc(angle / (2 * np.pi)) ** 2  # (1 - cos(t)) / t^2
    c = 1 / 6 - angle**2 / 120 if angle < _SMALL_RAD else (1 - a) / angle**2
    rotation = np.eye(3) + a * cross + b * cross @ cross
    return se3.from_rotation_translation(rotation, (np.eye(3) + b * cross + c * cross @ cross) @ shift)


def twist_of(previous_from_current: FloatArray, step_s: float) -> FloatArray:
    """(4, 4) -> (6,): the twist whose motion it is, with the smallest turn. The inverse of `motion_of`."""
    motion = np.asarray(previous_from_current, dtype=np.float64)
    w, *xyz = se3.quaternion_from_rotation(motion[:3, :3])
    half_sine = float(np.linalg.norm(xyz))
    angle = 2 * np.arctan2(half_sine, w)
    turn = np.asarray(xyz) * (2.0 if half_sine < 1e-12 else angle / half_sine)
    cross = _cross_matrix(turn)
    half = angle / 2
    d = 1 / 12 + angle**2 / 720 if angle < _SMALL_RAD else (1 - half / np.tan(half)) / angle**2
    shift = (np.eye(3) - cross / 2 + d * cross @ cross) @ motion[:3, 3]
    return np.concatenate([shift, turn]) / step_s


def _cross_matrix(v: FloatArray) -> FloatArray:
    """(3,) -> (3, 3): the matrix m with m @ u = v x u."""
    x, y, z = v
    return np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
