"""Moving rays: how well forecasts answer the rays whose truth is something that moves.

Most of a street stands still, so scores over all rays hardly tell whether anything moves. Where the data knows what
moves (simulated drives), these rays alone are asked: the share within 1 m of the truth, and the median error, by frame.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from copilot4d.datasets.windows import Window, read_clip
from copilot4d.errors import UsageError
from copilot4d.evaluation.moving_tally import MovingTally
from copilot4d.forecaster import Forecaster, sampling_of
from copilot4d.geometry import Drive, Rays, Sweep, inside_box, se3
from copilot4d.geometry.rays import intersect_box
from copilot4d.geometry.se3 import FloatArray
from copilot4d.progress import Track, silent
from copilot4d.simulator.drive import SimulatedDrive, SweepTruth
from copilot4d.simulator.lidar import MOVING_BASE

LEAST_RANGE_M = 0.1


def moving_ray_errors(
    forecaster: Forecaster, drives: Mapping[str, SimulatedDrive], windows: Sequence[Window], *,
    roi_half_m: float = 32.0, guidance: float | None = None, steps: int | None = None, seed: int = 0,
    track: Track = silent,
) -> MovingTally:  # fmt: skip
    """Forecast the windows; compare on the rays that truly meet something moving within the ROI of the reference.

    guidance, steps: None: as stored with the model.
    """
    found, used = MovingTally(), sampling_of(forecaster, guidance=guidance, steps=steps)
    for window in track(windows, f"moving rays: {forecaster.name}", total=len(windows)):
        drive = drives[window.drive]
        clip = read_clip(drive, window)
        asked = [_moving_rays(drive, frame, clip.past[-1], roi_half_m) for frame in window.future]
        if not any(len(rays) for rays, _ in asked):
            continue
        poses = np.stack([drive.world_from_lidar[frame] for frame in window.future])
        made = forecaster.forecast(
            clip.past, poses, [rays for rays, _ in asked], guidance=used.guidance, steps=used.steps, seed=seed
        )  # fmt: skip
        assert made.depths is not None
        for i, (depths_m, (_, true_m)) in enumerate(zip(made.depths, asked, strict=True)):
            found.add(i + 1, np.abs(np.asarray(depths_m, dtype=np.float64) - true_m))
    return found


def constant_velocity_errors(
    drives: Mapping[str, SimulatedDrive], windows: Sequence[Window], *, roi_half_m: float = 32.0
) -> MovingTally:
    """The row to beat: the true boxes of all agents moved on as between the two newest past sweeps; a ray that misses
    its agent's box is off by 10 m.
    """
    found = MovingTally()
    for window in windows:
        drive = drives[window.drive]
        if len(window.past) < 2:
            continue
        before, now = (drive.truth(frame) for frame in window.past[-2:])
        newest = drive[window.reference]
        for i, frame in enumerate(window.future):
            rays, true_m, agents = _moving(drive, frame, newest, roi_half_m)
            boxes = _moved_on(before, now, i + 1)
            known = agents < len(boxes)
            depths_m = np.full(len(true_m), np.inf)
            for agent in np.unique(agents[known]):
                these = agents == agent
                world = rays[these].transformed(drive.world_from_lidar[frame])
                depths_m[these] = _box_depths(world, boxes[agent], now.agent_sizes_m[agent])
            errors = np.abs(depths_m - true_m)
            found.add(i + 1, np.where(np.isfinite(errors), errors, 10.0))
    return found


def moving_points(drive: Drive, frame: int) -> NDArray[np.bool_] | None:
    """(N,) which points of a sweep, as `read_clip` gives it, lie on something moving; None where nobody knows."""
    if not isinstance(drive, SimulatedDrive) or drive.read_truth is None:
        return None
    moving = drive.truth(frame).moving
    return moving if drive.ego_box is None else moving[~inside_box(drive[frame].points, drive.ego_box)]


def _moving_rays(drive: SimulatedDrive, frame: int, newest: Sweep, roi_half_m: float) -> tuple[Rays, FloatArray]:
    rays, true_m, _ = _moving(drive, frame, newest, roi_half_m)
    return rays, true_m


def _moving(
    drive: SimulatedDrive, frame: int, newest: Sweep, roi_half_m: float
) -> tuple[Rays, FloatArray, NDArray[np.int32]]:
    """Rays of a sweep that meet something moving within the ROI around the newest past sweep: in the sweep's own frame,
    with their true depths and the agents that they meet.
    """
    if drive.read_truth is None:
        raise UsageError(f"drive {drive.name} does not know what moves; moving rays need simulated drives")
    sweep, truth = drive[frame], drive.truth(frame)
    in_reference = se3.transform_points(
        se3.relative_motion(newest.world_from_lidar, sweep.world_from_lidar), np.asarray(sweep.points, np.float64)
    )
    box = np.array([-roi_half_m, -roi_half_m, -10.0, roi_half_m, roi_half_m, 10.0])
    rays, depths_m = sweep.rays()
    kept = truth.moving & inside_box(in_reference, box) & (depths_m > LEAST_RANGE_M)
    return rays[kept], np.asarray(depths_m, dtype=np.float64)[kept], truth.object_ids[kept] - MOVING_BASE


def _moved_on(before: SweepTruth, now: SweepTruth, steps: int) -> FloatArray:
    """(A, 4) x, y, z, yaw of agents after so many steps of the same motion."""
    count = min(len(before.agent_poses), len(now.agent_poses))
    motion = now.agent_poses[:count] - before.agent_poses[:count]
    motion[:, 3] = (motion[:, 3] + np.pi) % (2 * np.pi) - np.pi
    return now.agent_poses[:count] + steps * motion


def _box_depths(rays: Rays, pose: FloatArray, size_m: FloatArray) -> FloatArray:
    """Where rays enter a box that stands on its pose's z; infinite where they miss it."""
    box_from_world = se3.invert(se3.from_yaw(float(pose[3]), (pose[0], pose[1], pose[2] + size_m[2] / 2)))
    half = np.asarray(size_m, dtype=np.float64) / 2
    met = intersect_box(rays.transformed(box_from_world), np.concatenate([-half, half]))
    return np.where(met.hits, met.entry, np.inf)
