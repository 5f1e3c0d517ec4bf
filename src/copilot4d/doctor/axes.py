"""Whether x points forward, y left and z up, and how to turn a log that stands otherwise."""

from __future__ import annotations

import numpy as np

from copilot4d.datasets.folder_config import OUR_AXES
from copilot4d.doctor.explanations import change_in_words
from copilot4d.doctor.file_frame import FileFrame
from copilot4d.doctor.finding import Finding, problem, remark
from copilot4d.doctor.ground import Ground
from copilot4d.doctor.trajectory import TrajectoryFacts
from copilot4d.geometry.se3 import FloatArray

_LONG_WAY_M = 30.0  # farther than a vehicle reverses


def axis_vector(name: str) -> FloatArray:
    """ "+x" -> (1, 0, 0), "-z" -> (0, 0, -1)."""
    vector = np.zeros(3)
    vector["xyz".index(name[1])] = 1.0 if name[0] == "+" else -1.0
    return vector


def upright(ground: Ground | None) -> FloatArray:
    """(3, 3) a rotation that turns the ground's up to z; the identity where it is z already, or is unknown."""
    if ground is None or ground.up == "+z":
        return np.eye(3)
    up = axis_vector(ground.up)
    forward = np.eye(3)[1] if ground.axis == 0 else np.eye(3)[0]
    return np.stack([forward, np.cross(up, forward), up])


def turned_points(points: FloatArray, change: FloatArray) -> FloatArray:
    """(N, 3) points in other axes; a signed permutation moves columns, which is exact and needs no product."""
    columns = np.abs(change).argmax(axis=1)
    return np.stack([points[:, k] * points.dtype.type(change[i, k]) for i, k in enumerate(columns)], axis=1)


def check_axes(
    where: str, ground: Ground | None, motion: TrajectoryFacts, poses_z_up: float, frame: FileFrame
) -> list[Finding]:
    """Findings for points and poses that share one frame (they fit each other), which is not ours.

    Formulas and `axes:` lines are for the columns of the files.
    `poses_z_up` is how much of the lidar's z axis the poses turn to the world's z: 1 for all of it.
    """
    up, forward, way_m = ground.up if ground is not None else "+z", motion.forward, motion.way_m
    if up == "+z" and forward in (None, "+x"):
        return []
    if up == "+z" and forward == "-x" and way_m < _LONG_WAY_M:
        return [remark(
            "axes-backward", where, "The vehicle drives backward",
            f"all of its {way_m:.0f} m go along -x of its own frame",
            "nothing, if it truly reverses; otherwise " + _remedy(up, axis_vector("-x"), frame),
        )]  # fmt: skip
    evidence = []
    if up != "+z" and ground is not None:
        across = f"the ground is a sheet across {'xyz'[ground.axis]}, {ground.lead:.1f} times as wide as any other"
        evidence.append(f"{across}: up is {up}")
    if forward != "+x" and forward is not None:
        evidence.append(f"over {way_m:.0f} m the vehicle drives along {forward} of its own frame")
    title = "z does not point up" if up != "+z" else f"x does not point forward: the vehicle drives along {forward}"
    if up == "-z" and poses_z_up > 0.9 and forward in (None, "+x"):
        return [problem(
            "axes-mirrored", where, "The points stand on their head: z points down", "; ".join(evidence),
            "if z alone was negated, change the points (not the poses): "
            f"{change_in_words(frame.of_columns(np.diag([1.0, 1.0, -1.0])))}. If y points right as "
            "well (a lidar that hangs upside down): " + _remedy(up, axis_vector("+x"), frame),
        )]  # fmt: skip
    ahead = axis_vector(forward) if forward is not None and forward[1] != up[1] else None
    code = "axes-up" if up != "+z" else "axes-forward"
    return [problem(code, where, title, "; ".join(evidence), _remedy(up, ahead, frame))]


def _remedy(up: str, ahead: FloatArray | None, frame: FileFrame) -> str:
    z = axis_vector(up)
    if ahead is None:
        return f"turn points and poses so that x is forward, y left and z up (z = {up.lstrip('+')} of what it is now)"
    change = np.stack([ahead, np.cross(z, ahead), z])
    line = frame.axes_line(change)
    if frame.described:
        instead = "" if frame.axes_text == OUR_AXES else f" instead of `axes: {frame.axes_text}`"
        return f"write `{line}` in copilot4d.yaml{instead}: it turns points and poses together"
    return (
        f"turn the points, {change_in_words(change)}, and the poses with them (pose @ inverse of that turn); own data: "
        f"`{line}` in copilot4d.yaml does both"
    )
