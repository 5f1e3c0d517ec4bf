"""What the poses alone say: rigid, steady, no jumps, and which way the vehicle drives in its own frame."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from copilot4d.doctor.finding import Finding, listed, problem
from copilot4d.geometry import se3
from copilot4d.geometry.se3 import FloatArray

_IMPOSSIBLE_M_S2 = 40.0  # four g
_FASTEST_TURN_DEG_S = 150.0
_SMALLEST_TURN_DEG = 15.0
_STEADY = 0.15
_ENOUGH_WAY_M = 3.0
_CLEARLY = 0.8  # of the way, along one axis


@dataclass(frozen=True, kw_only=True)
class TrajectoryFacts:
    """A drive's motion as its poses tell it."""

    way_m: float
    speed_max_m_s: float
    turn_max_deg_s: float
    forward: str | None  # "+x", "-y", ...: the axis of its own frame along which the vehicle drives; None: unclear


NO_MOTION = TrajectoryFacts(way_m=0.0, speed_max_m_s=0.0, turn_max_deg_s=0.0, forward=None)


def read_trajectory(poses: FloatArray, timestamps_ns: NDArray[np.int64]) -> TrajectoryFacts:
    """The facts of (N, 4, 4) poses."""
    if len(poses) < 2:
        return NO_MOTION
    motion = se3.relative_motion(poses[:-1], poses[1:])
    seconds = np.diff(timestamps_ns) * 1e-9
    steps = motion[:, :3, 3]
    lengths = np.linalg.norm(steps, axis=1)
    way = float(lengths.sum())
    forward = None
    if way > _ENOUGH_WAY_M:
        direction = steps.sum(axis=0) / way
        axis = int(np.argmax(np.abs(direction)))
        if abs(direction[axis]) > _CLEARLY:
            forward = f"{'+' if direction[axis] > 0 else '-'}{'xyz'[axis]}"
    return TrajectoryFacts(
        way_m=way,
        speed_max_m_s=float((lengths / seconds).max()),
        turn_max_deg_s=float(np.rad2deg(se3.rotation_angle(motion) / seconds).max()),
        forward=forward,
    )


def check_rigid(where: str, poses: FloatArray) -> list[Finding]:
    """Every pose must be a rotation and a translation."""
    error = se3.rigidity_error(poses)
    wrong = np.flatnonzero(~(error <= se3.RIGID_TOLERANCE))
    if not len(wrong):
        return []
    return [problem(
        "poses-not-rigid", where, "Poses are no rigid motions",
        f"{len(wrong)} of {len(poses)}, up to {error[wrong].max():.3g} from rigid: frames {listed(wrong.tolist())}",
        "write a rotation matrix and a translation for every sweep; look for scaled, sheared or mirrored rotations",
    )]  # fmt: skip


def check_jumps(where: str, poses: FloatArray, timestamps_ns: NDArray[np.int64]) -> list[Finding]:
    """Steps that no vehicle makes, and poses that repeat while it drives."""
    if len(poses) < 5:
        return []
    steps = np.linalg.norm(np.diff(poses[:, :3, 3], axis=0), axis=1)
    seconds = np.diff(timestamps_ns) * 1e-9
    speed = steps / seconds
    around = _median_of_neighbours(speed)
    excess = speed - around
    jumped = (excess / seconds > _IMPOSSIBLE_M_S2) & (excess > 0.5 * around)
    # A sweep that was lost although the clock was written anew: twice the step between two equal ones.
    before, after = speed[:-2], speed[2:]
    steady = np.abs(before - after) < _STEADY * np.maximum(before, after)
    doubled = steady & (speed[1:-1] > 1.8 * np.maximum(before, after)) & (steps[1:-1] > 0.4)
    jumped[1:-1] |= doubled
    repeated = (steps < 1e-6) & (around > 1.0)
    jumped[1:] &= ~repeated[:-1]  # after a pose that stood still comes one that catches up
    frames = np.flatnonzero(jumped)
    findings = []
    if len(frames) and len(frames) <= max(2, len(steps) // 4):  # more than that is another disease
        shown = listed([f"{steps[i]:.2f} m from frame {i} to {i + 1}, {around[i] * seconds[i]:.2f} m around it"
                        for i in frames], 4)  # fmt: skip
        findings.append(problem(
            "poses-jump", where, "The vehicle jumps", shown,
            "look for sweeps that were lost there (their times written anew), for poses of another log, or for a "
            "correction of the positioning system; cut the drive at the jump",
        ))  # fmt: skip
    if repeated.any():
        frames = np.flatnonzero(repeated) + 1
        findings.append(problem(
            "poses-repeated", where, "Poses repeat while the vehicle drives",
            f"the pose of the frame before, at {around[repeated].mean():.1f} m/s, in frames {listed(frames.tolist())}",
            "interpolate the poses to each sweep's own time instead of taking the latest one",
        ))  # fmt: skip
    return findings


def check_turns(where: str, poses: FloatArray, timestamps_ns: NDArray[np.int64]) -> list[Finding]:
    """Turns faster than any vehicle's. Ask only where the sweeps themselves did not explain the poses."""
    if len(poses) < 2:
        return []
    angle = np.rad2deg(se3.rotation_angle(se3.relative_motion(poses[:-1], poses[1:])))
    rate = angle / (np.diff(timestamps_ns) * 1e-9)
    wild = np.flatnonzero((rate > _FASTEST_TURN_DEG_S) & (angle > _SMALLEST_TURN_DEG))
    if not len(wild):
        return []
    return [problem(
        "poses-turn-wildly", where, "The poses turn faster than any vehicle",
        f"up to {rate.max():.0f} degrees a second, in {len(wild)} of {len(angle)} steps",
        "were angles in degrees taken for radians, or quaternions read in the wrong order? Convert with "
        "radians = degrees * pi / 180",
    )]  # fmt: skip


def _median_of_neighbours(values: FloatArray) -> FloatArray:
    """The median of up to three values on each side, without the value itself."""
    result = np.empty_like(values)
    for i in range(len(values)):
        result[i] = np.median(np.concatenate([values[max(0, i - 3) : i], values[i + 1 : i + 4]]))
    return result
