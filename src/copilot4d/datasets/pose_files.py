"""Poses in text files: KITTI (12 numbers a line) and TUM (timestamp tx ty tz qx qy qz qw), read and written.

The two carry no frame names: what a pose maps from and to is for the caller to say.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from copilot4d.datasets.text_files import (
    check_increasing,
    check_seconds,
    numbered_lines,
    parse_floats,
    parse_nanoseconds,
)
from copilot4d.errors import DataError, UsageError
from copilot4d.geometry import se3
from copilot4d.geometry.se3 import FloatArray

_QUATERNION_TOLERANCE = 1e-2  # |q| of a quaternion written with few digits
_FARTHEST_M = 1e8  # farther than any map frame: UTM and earth-centred coordinates stay below 1e7


@dataclass(frozen=True, kw_only=True)
class TimedPoses:
    """A trajectory: (N,) strictly increasing times and (N, 4, 4) poses, exactly rigid."""

    timestamps_ns: NDArray[np.int64]
    poses: FloatArray


def read_kitti_poses(path: str | Path) -> FloatArray:
    """(N, 4, 4) float64 from lines of 12 numbers: 3x4 matrices in row-major order. Made exactly rigid."""
    path = Path(path)
    lines = numbered_lines(path, "poses", gapless=True)
    rows = [parse_floats(path, "poses", number, line.split(), 12) for number, line in lines]
    poses = se3.identity((len(rows),))
    if rows:
        poses[:, :3, :] = np.array(rows).reshape(-1, 3, 4)
    return rigid_poses(path, poses, [f"line {number}" for number, _ in lines])


def read_tum_poses(path: str | Path, unit: str = "s") -> TimedPoses:
    """A trajectory from lines `timestamp tx ty tz qx qy qz qw` (metres; the quaternion's w is last).

    The times are in `unit`. Seconds that lie thousands of years ahead are an error that says which unit they look like.
    """
    path = Path(path)
    times, translations, quaternions, labels = [], [], [], []
    for number, line in numbered_lines(path, "poses"):
        words = line.replace(",", " ").split()
        values = parse_floats(path, "poses", number, words, 8)
        if unit == "s":
            check_seconds(path, "timestamp", number, words[0], "pose_time_unit: {}".format)
        times.append(parse_nanoseconds(path, "timestamp", number, words[0], unit))
        translations.append(values[1:4])
        quaternions.append([values[7], *values[4:7]])
        labels.append(f"line {number}")
    timestamps_ns = np.array(times, dtype=np.int64)
    check_increasing(path, timestamps_ns, labels)
    quaternion = np.array(quaternions, dtype=np.float64).reshape(-1, 4)
    with np.errstate(over="ignore"):
        norms = np.linalg.norm(quaternion, axis=-1)
    wrong = np.abs(norms - 1) > _QUATERNION_TOLERANCE
    if wrong.any():
        at = int(np.argmax(wrong))
        raise DataError(
            path, f"quaternion, {labels[at]}", expected="a unit quaternion qx qy qz qw",
            found=f"one of length {norms[at]:.6g}", remedy="write rotations as unit quaternions with w last",
        )  # fmt: skip
    poses = se3.from_quaternion(quaternion, np.array(translations, dtype=np.float64).reshape(-1, 3))
    return TimedPoses(timestamps_ns=timestamps_ns, poses=rigid_poses(path, poses, labels))


def rigid_poses(path: Path, poses: FloatArray, labels: list[str]) -> FloatArray:
    """Poses that are rigid up to text rounding, made exactly so; a DataError that names the first that is not."""
    if not len(poses):
        return poses
    with np.errstate(over="ignore", invalid="ignore"):  # absurd numbers become inf, which is reported
        errors = se3.rigidity_error(poses)
    if not (errors <= se3.RIGID_TOLERANCE).all():
        at = int(np.argmax(~(errors <= se3.RIGID_TOLERANCE)))
        raise DataError(
            path, f"pose, {labels[at]}", expected="a rotation matrix and a translation (a rigid motion)",
            found=f"a matrix that is {errors[at]:.3g} away from rigid (tolerance {se3.RIGID_TOLERANCE:g})",
            remedy="write the poses again; look for scaled, sheared or mirrored rotations and shifted columns",
        )  # fmt: skip
    far = np.abs(poses[:, :3, 3]).max(axis=-1)
    if far.max() > _FARTHEST_M:
        at = int(np.argmax(far))
        raise DataError(
            path, f"pose, {labels[at]}", expected="a translation in metres", found=f"{far[at]:.3g} m",
            remedy="write the poses in metres",
        )  # fmt: skip
    return se3.nearest_rigid(poses)


def write_kitti_poses(path: str | Path, poses: FloatArray) -> None:
    """(N, 4, 4) -> one line of 12 numbers each, exact to float64."""
    _check_shape(poses)
    lines = (" ".join(f"{value:.17g}" for value in pose[:3].ravel()) for pose in np.asarray(poses, dtype=np.float64))
    Path(path).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def write_tum_poses(path: str | Path, timestamps_ns: NDArray[np.int64], poses: FloatArray) -> None:
    """(N,) and (N, 4, 4) -> lines `timestamp tx ty tz qx qy qz qw`; the times are exact to the nanosecond."""
    _check_shape(poses)
    if len(timestamps_ns) != len(poses):
        raise UsageError(f"write_tum_poses: {len(timestamps_ns)} timestamps for {len(poses)} poses")
    quaternions = se3.quaternion_from_rotation(poses[:, :3, :3])
    lines = []
    for time_ns, pose, (w, x, y, z) in zip(timestamps_ns, poses, quaternions, strict=True):
        numbers = " ".join(f"{value:.17g}" for value in (*pose[:3, 3], x, y, z, w))
        lines.append(f"{seconds_text(int(time_ns))} {numbers}\n")
    Path(path).write_text("".join(lines), encoding="utf-8")


def seconds_text(time_ns: int) -> str:
    """Nanoseconds as decimal seconds, exact: -1_500_000_000 -> "-1.500000000"."""
    sign, whole = ("-" if time_ns < 0 else ""), abs(time_ns)
    return f"{sign}{whole // 10**9}.{whole % 10**9:09d}"


def _check_shape(poses: FloatArray) -> None:
    if poses.ndim != 3 or poses.shape[1:] != (4, 4):
        raise UsageError(f"poses must be (N, 4, 4), got {poses.shape}")
