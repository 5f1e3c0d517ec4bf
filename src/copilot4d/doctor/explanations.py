"""What a log's poses may be instead of `world_from_lidar`: each explanation turns the poses as given into those that
would be right if it were true. The registration of the sweeps then says which one is.

Explanations of poses work on the poses as the file has them; those of axes on the points as they were loaded, because
it is these that are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import permutations, product

import numpy as np

from copilot4d.doctor.file_frame import FileFrame
from copilot4d.geometry import se3
from copilot4d.geometry.se3 import FloatArray

DEGREES = 180 / np.pi
Corrected = Callable[[FloatArray], FloatArray]  # (N, 4, 4) as given -> (N, 4, 4) as they should be; NaN where unknown


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """One way in which poses go wrong."""

    code: str
    title: str
    remedy: str
    correct: Corrected
    label: str = ""  # a short name, for tables
    small: bool = False  # changes the motion of a pair only slightly, so that a small margin must do
    of_points: bool = False  # `correct` takes poses as loaded, not as the file has them

    def corrected(self, poses: FloatArray, frame: FileFrame) -> FloatArray:
        """(N, 4, 4) poses as loaded -> as they would be loaded if the files were corrected."""
        return self.correct(poses) if self.of_points else frame.loaded(self.correct(frame.in_file(poses)))


def usual_explanations() -> list[Explanation]:
    """The ones to try on every log, beside the poses as given."""
    return [
        Explanation(
            code="poses-none",
            title="The sweeps fit better without the poses than with them",
            remedy="find out what the poses describe (another sensor, another log, another order?) and write "
            "world_from_lidar of each sweep; `copilot4d.doctor.write_estimated_poses` makes poses from the sweeps",
            correct=lambda poses: se3.identity((len(poses),)),
            label="none",
        ),
        Explanation(
            code="poses-inverted",
            title="The poses are inverted: they map world to lidar",
            remedy="invert every pose (world_from_lidar = inv(pose)) and write them again",
            correct=se3.invert,
            label="inverted",
        ),
        _shifted(1), _shifted(-1),
    ]  # fmt: skip


def unusual_explanations(up: FloatArray, frame: FileFrame | None = None) -> list[Explanation]:
    """More to try where the poses as given do not fit: what people do to rotations, scales and axes.

    `up` (3,) is the up axis of the points as loaded. On flat ground the fit of two sweeps cannot show that z was
    mirrored, so only axes that turn it to z are tried.
    """
    frame = frame or FileFrame()
    ahead = float(np.arctan2(frame.forward_in_file[1], frame.forward_in_file[0]))
    rotations = [
        Explanation(
            code="poses-degrees-for-radians",
            title="The rotations were made from angles in degrees as if they were radians",
            remedy="convert the angles with radians = degrees * pi / 180 before making the rotations",
            correct=lambda poses: _degrees_taken_for_radians(poses, ahead),
        ),
        Explanation(
            code="poses-radians-for-degrees",
            title="The rotations were made from angles in radians as if they were degrees",
            remedy="do not convert the angles: they are radians already (the rotations are 57.3 times too small)",
            correct=_radians_taken_for_degrees,
        ),
        Explanation(
            code="poses-rotation-transposed",
            title="The rotations are transposed, the positions are right",
            remedy="transpose the 3x3 rotation (or conjugate the quaternion) of every pose",
            correct=lambda poses: se3.from_rotation_translation(np.swapaxes(poses[:, :3, :3], 1, 2), poses[:, :3, 3]),
        ),
        Explanation(
            code="poses-quaternion-order",
            title="The quaternions were read in the wrong order",
            remedy="the quaternions hold x y z w, with w last, where the format wants w x y z: move the last number to "
            "the front",
            correct=lambda poses: _reordered_quaternions(poses, 1),
        ),
        Explanation(
            code="poses-quaternion-order",
            title="The quaternions were read in the wrong order",
            remedy="the quaternions hold w x y z, where a TUM file wants x y z w, with w last: move column 5 behind "
            "column 8",
            correct=lambda poses: _reordered_quaternions(poses, -1),
        ),
    ]
    return [*rotations, *_scales(), *_axes(up, frame)]


def course_of(poses: FloatArray) -> FloatArray:
    """(N,) the direction of travel in the world's xy plane at each pose, radians; NaN where the vehicle stands."""
    position = poses[:, :3, 3]
    ahead, behind = np.minimum(np.arange(len(poses)) + 1, len(poses) - 1), np.maximum(np.arange(len(poses)) - 1, 0)
    step = position[ahead] - position[behind]
    course = np.arctan2(step[:, 1], step[:, 0])
    return np.where(np.linalg.norm(step[:, :2], axis=1) > 0.2, course, np.nan)


def _shifted(frames: int) -> Explanation:
    """The pose of sweep i stands at i + frames in the file."""
    which, other = ("previous", "next") if frames > 0 else ("next", "previous")

    def correct(poses: FloatArray) -> FloatArray:
        corrected = np.full_like(poses, np.nan)
        index = np.arange(len(poses)) + frames
        inside = (index >= 0) & (index < len(poses))
        corrected[inside] = poses[index[inside]]
        return corrected

    return Explanation(
        code="poses-off-by-one",
        title=f"The poses are off by one frame: each sweep has the pose of the {which} one",
        remedy=f"give each sweep the pose that now stands at the {other} one: "
        + ("drop the first pose" if frames > 0 else "put the missing first pose in front of the others")
        + ", or look for a sweep that was dropped or doubled at the start",
        correct=correct,
        label="one frame later" if frames > 0 else "one frame earlier",
        small=True,
    )


def _degrees_taken_for_radians(poses: FloatArray, ahead: float = 0.0) -> FloatArray:
    """The heading as given is the true one in degrees, less full turns of 2 pi of them, from an unknown start. The
    direction of travel says which start (all frames agree on it, up to such a turn) and how many turns. `ahead` is
    the angle of the vehicle's forward axis in the poses' own axes.
    """
    given, course = se3.yaw_of(poses), course_of(poses)
    known = np.flatnonzero(np.isfinite(course))
    if not len(known):
        return np.full_like(poses, np.nan)
    course = np.interp(np.arange(len(poses)), known, np.unwrap(course[known]))
    start = np.angle(np.exp(1j * (course * DEGREES - given))[known].mean())
    turns = np.round((course * DEGREES - given - start) / (2 * np.pi))
    return se3.from_yaw((given + start + 2 * np.pi * turns) / DEGREES - ahead, poses[:, :3, 3])


def _radians_taken_for_degrees(poses: FloatArray) -> FloatArray:
    r = poses[:, :3, :3]
    yaw = np.arctan2(r[:, 1, 0], r[:, 0, 0]) * DEGREES
    pitch = -np.arcsin(np.clip(r[:, 2, 0], -1, 1)) * DEGREES
    roll = np.arctan2(r[:, 2, 1], r[:, 2, 2]) * DEGREES
    zero = np.zeros_like(yaw)
    about_y = np.stack([np.cos(pitch / 2), zero, np.sin(pitch / 2), zero], axis=-1)
    about_x = np.stack([np.cos(roll / 2), np.sin(roll / 2), zero, zero], axis=-1)
    nowhere = np.zeros_like(poses[:, :3, 3])
    turned = se3.compose(
        se3.from_yaw(yaw), se3.from_quaternion(about_y, nowhere), se3.from_quaternion(about_x, nowhere)
    )
    return se3.from_rotation_translation(turned[:, :3, :3], poses[:, :3, 3])


def _reordered_quaternions(poses: FloatArray, places: int) -> FloatArray:
    quaternion = np.roll(se3.quaternion_from_rotation(poses[:, :3, :3]), places, axis=-1)
    return se3.from_quaternion(quaternion, poses[:, :3, 3])


def _scales() -> Iterator[Explanation]:
    units = {"millimetres": 1e-3, "centimetres": 1e-2, "feet": 0.3048, "kilometres": 1e3}
    for name, factor in units.items():

        def correct(poses: FloatArray, factor: float = factor) -> FloatArray:
            return se3.from_rotation_translation(poses[:, :3, :3], poses[:, :3, 3] * factor)

        yield Explanation(
            code=f"poses-{name}",
            title=f"The positions of the poses are in {name}, not in metres",
            remedy=f"multiply the translations of the poses by {factor:g}",
            correct=correct,
        )


def _axes(up: FloatArray, frame: FileFrame) -> Iterator[Explanation]:
    """The points stand in other axes than the poses: all ways to swap and mirror axes, proper turns first."""
    for change in sorted(axis_changes(), key=lambda change: np.linalg.det(change) < 0):
        if (change == np.eye(3)).all() or (change @ up)[2] != 1:
            continue

        def correct(poses: FloatArray, change: FloatArray = change) -> FloatArray:
            # A point p as given is change @ p in the poses' axes. In the axes of the points as given, the motion is
            # change^-1 pose change: proper even where the change mirrors.
            matrix = np.eye(4)
            matrix[:3, :3] = change
            return matrix.T @ poses @ matrix

        mirrored = np.linalg.det(change) < 0
        yield Explanation(
            code="axes-mirrored" if mirrored else "axes-turned",
            title="The points' axes are swapped or mirrored against the poses'"
            if mirrored
            else "The points' axes are turned against the poses'",
            remedy=f"change the points (not the poses): {change_in_words(frame.of_columns(change))}; or, if the poses "
            "are another sensor's (a camera's, say), apply its calibration to them",
            correct=correct,
            of_points=True,
        )


def axis_changes() -> list[FloatArray]:
    """All 48 signed permutation matrices."""
    changes: list[FloatArray] = []
    for order, signs in product(permutations(range(3)), product((1.0, -1.0), repeat=3)):
        change = np.zeros((3, 3))
        change[range(3), order] = signs
        changes.append(change)
    return changes


def change_in_words(change: FloatArray) -> str:
    """ "x = y, y = -x, z = z": the right side holds the old coordinates."""
    terms = []
    for row, name in zip(change, "xyz", strict=True):
        old = int(np.argmax(np.abs(row)))
        terms.append(f"{name} = {'-' if row[old] < 0 else ''}{'xyz'[old]}")
    return ", ".join(terms)
