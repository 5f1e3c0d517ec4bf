"""The depths that a ray may have: rendered in the decoded scene, and measured by the past along the ray.

The past sweeps, gathered and held still, are sharp where nothing moves; the decoded scene knows what moves and what
was hidden, but only as sharply as tokens say it, and only within its region. And where a ray enters what no beam has
passed yet, a surface may begin that neither knows. An occupancy network, where there is one, was trained on that.
`candidates` lays them side by side, with what tells which of them to believe. Depths in metres along unit rays.

    R rays, C candidates, F features, N gathered points, K neighbours in angle
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copilot4d.baselines.angular import nearest_in_angle
from copilot4d.baselines.ray_tracing import gather
from copilot4d.compiled import compiled
from copilot4d.depth_selection.extrapolated_depths import ExtrapolatedDepths
from copilot4d.depth_selection.neighbours import cells_of
from copilot4d.depth_selection.occupancy_depths import OccupancyDepths
from copilot4d.depth_selection.visibility import ObservedSpace
from copilot4d.geometry import Rays, Sweep, se3
from copilot4d.geometry.se3 import FloatArray
from copilot4d.motion import ExtrapolatedPast

CANDIDATES = ("rendered", "snapped", "unobserved", "recent", "nearest", "farthest")
FEATURES = (
    "rendered_log", "opacity", "is_faint", "recent_log", "nearest_log", "farthest_log", "recent_angle_log",
    "nearest_angle_log", "outer_angle_log", "recent_age", "exit_log", "is_beyond", "ahead_s", "slope",
    "recent_against_rendered", "farthest_against_rendered", "spread_log", "is_near", "recent_height", "unobserved_log",
    "recent_against_unobserved", "rendered_against_unobserved", "unobserved_length_log", "unobserved_before_recent_log",
    "unobserved_before_rendered_log", "past_sweeps",
)  # fmt: skip
# With occupancy depths: where it says that a ray stops, the measured point there, and the mean of where it may stop.
OCCUPANCY_CANDIDATES = ("occupancy", "occupancy_snapped", "occupancy_mean")
OCCUPANCY_FEATURES = (
    "occupancy_log", "occupancy_opacity", "occupancy_against_rendered", "occupancy_against_recent",
    "occupancy_against_unobserved", "occupancy_mean_against_occupancy",
)  # fmt: skip
# With the past carried on: what stands still, and what moves.
MOTION_CANDIDATES = ("still", "moving")
MOTION_FEATURES = (
    "still_log", "still_angle_log", "still_against_recent", "moving_log", "moving_angle_log", "moving_against_rendered",
    "moving_against_still", "moving_age", "moving_speed",
)  # fmt: skip
MEASURED = CANDIDATES.index("recent")  # from here on, candidates are not rendered
NEIGHBOURS = 8
AGE_RAD = float(np.deg2rad(0.25))  # how much further off a point counts for each sweep that it is older than the newest
SAME_RAD = 0.02  # how far off a point may lie to be taken for what the ray hits
RETURN_RAD = 0.01  # and how far, for a beam that is sent there to come back
SAME_M, SAME_SHARE = 0.5, 0.05  # and how far from the rendered depth, to be the same surface
FAINT = 0.5  # opacity below which the scene as good as lets a ray pass
BEHIND_M = 0.1  # a surface that begins in unobserved space lies so far behind the edge of the cells there
MOST_AHEAD_S = 3.0  # the selector was trained up to here; later frames are as uncertain at least


@dataclass(frozen=True)
class MeasuredPast:
    """The past sweeps gathered: points (N, 3) in the newest one's lidar frame, how many sweeps old each is (N,), where
    their beams have been, and how many there are.
    """

    points: NDArray[np.float32]
    ages: NDArray[np.float32]
    space: ObservedSpace
    world_from_reference: FloatArray
    timestamp_ns: int
    sweeps: int
    carried_on: ExtrapolatedPast | None = None

    @classmethod
    def of(cls, past: Sequence[Sweep], carried_on: ExtrapolatedPast | None = None) -> MeasuredPast:
        """Sweeps, oldest first. carried_on: the same sweeps, for selectors that choose among extrapolated depths."""
        newest = past[-1]
        points = gather(past, newest.world_from_lidar).astype(np.float32)
        ages = np.repeat(np.arange(len(past), dtype=np.float32)[::-1], [len(sweep) for sweep in past])
        space = ObservedSpace.of(past)
        return cls(points, ages, space, newest.world_from_lidar, newest.timestamp_ns, len(past), carried_on)

    def along(self, rays: Rays, world_from_lidar: FloatArray, timestamp_ns: int) -> Measured:
        """What was measured near the rays of a sensor at this pose and time."""
        lidar_from_reference = se3.relative_motion(world_from_lidar, self.world_from_reference)
        points = se3.transform_points(lidar_from_reference, self.points)
        found = nearest_in_angle(points, rays, NEIGHBOURS)
        recent_angle = np.empty(len(rays))
        recent_m, recent_age, recent_height_m = (np.empty(len(rays), dtype=np.float32) for _ in range(3))
        _find_recent(*found, self.ages, points, recent_m, recent_angle, recent_age, recent_height_m)
        ahead_s = (timestamp_ns - self.timestamp_ns) / 1e9
        extrapolated = None
        if self.carried_on is not None:
            extrapolated = ExtrapolatedDepths.of(self.carried_on, found, rays, lidar_from_reference, ahead_s, AGE_RAD)
        return Measured(
            ranges_m=found.ranges_m,
            angles=found.chords,
            recent_m=recent_m,
            recent_angle=recent_angle,
            recent_age=recent_age,
            recent_height_m=recent_height_m,
            ahead_s=ahead_s,
            past_sweeps=self.sweeps,
            space=self.space,
            in_space=rays.transformed(se3.relative_motion(self.world_from_reference, world_from_lidar)),
            extrapolated=extrapolated,
        )


@compiled
def _find_recent(
    indices: Any, chords: Any, ranges_m: Any, ages: Any, points: Any, recent_m: Any, recent_angle: Any,
    recent_age: Any, recent_height_m: Any,
) -> None:  # fmt: skip
    """Of each ray's neighbours the nearest where age counts as further off; the first is sure to be there. Where there
    are fewer points than neighbours, the nearest one's chord and range stand for what is missing.
    """
    for r in range(len(indices)):
        recent_angle[r] = np.inf
        for k in range(indices.shape[1]):
            point = indices[r, k]
            if point < 0:
                chords[r, k], ranges_m[r, k] = chords[r, 0], ranges_m[r, 0]
                continue
            angle = np.hypot(float(chords[r, k]), AGE_RAD * float(ages[point]))
            if angle < recent_angle[r]:
                recent_m[r], recent_angle[r], recent_age[r] = ranges_m[r, k], angle, ages[point]
                recent_height_m[r] = points[point, 2]


def find_recent_plain(
    indices: NDArray[np.int64], chords: NDArray[np.float32], ages: NDArray[np.float32]
) -> tuple[NDArray[np.int64], FloatArray]:
    """(R,) which of its K neighbours `_find_recent` takes for a ray, and the angle that it counts for."""
    angles = np.where(
        indices < 0, np.inf, np.hypot(chords.astype(np.float64), AGE_RAD * ages[indices].astype(np.float64))
    )
    return angles.argmin(axis=1), angles.min(axis=1)


@dataclass(frozen=True)
class Measured:
    """Along R rays: the K measured points nearest in angle, nearest first, and the nearest that is also recent."""

    ranges_m: NDArray[np.float32]  # (R, K)
    angles: NDArray[np.float32]  # (R, K) chords of unit vectors, near enough to radians
    recent_m: NDArray[np.float32]  # (R,)
    recent_angle: FloatArray  # (R,) its age counts as further off
    recent_age: NDArray[np.float32]  # (R,) in sweeps
    recent_height_m: NDArray[np.float32]  # (R,) above the sensor
    ahead_s: float  # how long after the newest past sweep the rays are sent
    past_sweeps: int  # that all this was measured with
    space: ObservedSpace  # where the past's beams have been
    in_space: Rays  # the rays in its frame
    extrapolated: ExtrapolatedDepths | None = None  # where the past is carried on

    def snapped(self, depths_m: FloatArray) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Depths (R,) -> those of measured points near the rays that may be the same surface, and where there are any;
        elsewhere the depths themselves.
        """
        reach = np.maximum(SAME_M, SAME_SHARE * depths_m)[:, None]
        is_same = (self.angles < SAME_RAD) & (np.abs(self.ranges_m - depths_m[:, None]) < reach)
        is_near = is_same.any(axis=1)
        first_same = self.ranges_m[np.arange(len(depths_m)), is_same.argmax(axis=1)]
        return np.where(is_near, first_same, depths_m), is_near


@dataclass(frozen=True)
class Candidates:
    """Depths to choose from and what tells them apart: (R, C) in the order of `CANDIDATES`, (R, F) of `FEATURES`, both
    followed by those of the occupancy depths and of the past carried on, where there are any.
    """

    depths_m: NDArray[np.float32]
    features: NDArray[np.float32]
    returns: NDArray[np.bool_]  # (R, C) whether a beam comes back: on it, as nearly as beams repeat, lies a past point
    cells: NDArray[np.int64]  # (R,) where rays lie in a `RangeView`

    def __getitem__(self, selection: slice) -> Candidates:
        """Of some of the rays."""
        return Candidates(
            self.depths_m[selection], self.features[selection], self.returns[selection], self.cells[selection]
        )


def candidates(
    measured: Measured, rays: Rays, rendered_m: FloatArray, opacity: FloatArray, exit_m: FloatArray,
    occupancy: OccupancyDepths | None = None,
) -> Candidates:  # fmt: skip
    """What R rays may be answered. All (R,): depth and opacity of the scene, and where a ray leaves its region."""
    ranges, angles = measured.ranges_m, measured.angles
    snapped, is_near = measured.snapped(rendered_m)
    nearest, recent = ranges[:, 0], measured.recent_m
    farthest = np.maximum(np.where(angles < SAME_RAD, ranges, 0).max(axis=1), nearest)
    unobserved = measured.space.along(measured.in_space, np.column_stack([recent, rendered_m]))
    edge = np.where(unobserved.lengths_m > 0, unobserved.starts_m + BEHIND_M, rendered_m)
    depths = [rendered_m, snapped, edge, recent, nearest, farthest]
    features = [
        _log(rendered_m), opacity, opacity < FAINT, _log(recent), _log(nearest), _log(farthest),
        np.log(measured.recent_angle + 1e-4), np.log(angles[:, 0] + 1e-4), np.log(angles[:, -1] + 1e-4),
        measured.recent_age, _log(exit_m), recent > exit_m,
        np.full(len(rays), min(measured.ahead_s, MOST_AHEAD_S)), rays.directions[:, 2],
        _signed_log(recent - rendered_m), _signed_log(farthest - rendered_m),
        np.log(ranges.std(axis=1) + 0.02), is_near, measured.recent_height_m, _log(unobserved.starts_m),
        _signed_log(recent - unobserved.starts_m), _signed_log(rendered_m - unobserved.starts_m),
        np.log(unobserved.lengths_m + 0.1), *np.log(unobserved.before_m + 0.1).T,
        np.full(len(rays), measured.past_sweeps),
    ]  # fmt: skip
    is_hit, is_recent_hit = angles[:, 0] < RETURN_RAD, measured.recent_angle < SAME_RAD
    rendered_only = np.zeros_like(is_hit)  # the scene knows
    # A beam into unobserved space comes back if something was measured on it: from there, if from nothing nearer.
    returns = [rendered_only, is_near & is_hit, is_hit, is_recent_hit & is_hit, is_hit, is_hit]
    if occupancy is not None:
        stop, mean = occupancy.depths_m, occupancy.means_m
        at_point, _ = measured.snapped(stop)
        is_stopped = occupancy.opacity >= FAINT
        depths += [stop, at_point, mean]
        features += [
            _log(stop), occupancy.opacity, _signed_log(stop - rendered_m), _signed_log(stop - recent),
            _signed_log(stop - unobserved.starts_m), _signed_log(mean - stop),
        ]  # fmt: skip
        returns += [is_stopped] * len(OCCUPANCY_CANDIDATES)
    if (motion := measured.extrapolated) is not None:
        depths += [motion.still_m, motion.moving_m]
        features += [
            _log(motion.still_m), np.log(motion.still_angle + 1e-4), _signed_log(motion.still_m - recent),
            _log(motion.moving_m), np.log(motion.moving_angle + 1e-4), _signed_log(motion.moving_m - rendered_m),
            _signed_log(motion.moving_m - motion.still_m), motion.moving_age, motion.speed_m_s,
        ]  # fmt: skip
        returns += [(motion.still_angle < SAME_RAD) & is_hit, motion.moving_angle < SAME_RAD]
    return Candidates(
        _columns(depths, np.float32), _columns(features, np.float32), _columns(returns, np.bool_),
        cells_of(rays.directions),
    )  # fmt: skip


def _columns(values: Sequence[NDArray[Any]], dtype: type) -> NDArray[Any]:
    """Some (R,) -> (R, columns). In memory a column is in one piece: so it is made, and so a `RangeView` reads it."""
    rows: NDArray[Any] = np.empty((len(values), len(values[0])), dtype=dtype)
    for row, value in zip(rows, values, strict=True):
        row[:] = value
    return rows.T


def _log(depths_m: FloatArray) -> FloatArray:
    return np.log(np.clip(depths_m, 0.1, 1e3))


def _signed_log(difference_m: FloatArray) -> FloatArray:
    """Grows with the difference, finely near 0."""
    return np.sign(difference_m) * np.log1p(np.abs(difference_m) / 0.05)
