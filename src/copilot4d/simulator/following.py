"""Car following: the intelligent driver model, and the speed that is safe whatever the leader does (after Gipps).

All arrays are (A,), one entry per agent, or broadcast with it; gaps are from bumper to bumper.
"""

from __future__ import annotations

import numpy as np

from copilot4d.geometry.se3 import FloatArray

HARDEST_BRAKING = 8.0  # m/s^2 that tyres give
PLANNED_BRAKING = 5.5  # m/s^2 that an agent counts on for itself ...
LEADER_BRAKING = 7.0  # ... and fears of its leader
CREEP_GAP_M = 0.8


def idm(
    speed: FloatArray, desired_speed: FloatArray, gap: FloatArray, leader_speed: FloatArray, *,
    acceleration: FloatArray, braking: FloatArray, headway_s: FloatArray, standstill_m: FloatArray,
) -> FloatArray:  # fmt: skip
    """The model's acceleration, m/s^2 (Treiber et al. 2000).

    >>> one = np.ones(1)
    >>> idm(10 * one, 10 * one, 1e9 * one, 10 * one, acceleration=1.5 * one, braking=2 * one, headway_s=one,
    ...     standstill_m=2 * one).round(6)
    array([-0.])
    """
    closing = speed * (speed - leader_speed) / (2 * np.sqrt(acceleration * braking))
    wanted_gap = standstill_m + np.maximum(0.0, speed * headway_s + closing)
    ratio = speed / np.maximum(desired_speed, 0.1)
    free = np.maximum(acceleration * (1 - ratio**4), -3.0)
    return np.asarray(free - acceleration * (wanted_gap / np.maximum(gap, 0.1)) ** 2)


def safe_speed(speed: FloatArray, gap: FloatArray, leader_speed: FloatArray, reaction_s: FloatArray) -> FloatArray:
    """The speed to have after the reaction time so that a leader who brakes hard is never touched (Gipps 1981)."""
    b = PLANNED_BRAKING
    free = 2 * (gap - CREEP_GAP_M) - speed * reaction_s + leader_speed**2 / LEADER_BRAKING
    return np.asarray(np.maximum(0.0, -b * reaction_s + np.sqrt(np.maximum(0.0, (b * reaction_s) ** 2 + b * free))))


def command(
    speed: FloatArray, desired_speed: FloatArray, gap: FloatArray, leader_speed: FloatArray, *,
    acceleration: FloatArray, braking: FloatArray, headway_s: FloatArray, standstill_m: FloatArray,
    reaction_s: FloatArray,
) -> FloatArray:  # fmt: skip
    """What an agent decides to do: the driver model, held back by the safe speed."""
    comfortable = idm(
        speed, desired_speed, gap, leader_speed, acceleration=acceleration, braking=braking, headway_s=headway_s,
        standstill_m=standstill_m,
    )  # fmt: skip
    horizon = reaction_s + 0.1
    needed = (safe_speed(speed, gap, leader_speed, horizon) - speed) / horizon
    return np.clip(np.minimum(comfortable, needed), -HARDEST_BRAKING, acceleration)
