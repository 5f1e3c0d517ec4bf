"""A moment of a drive: what was seen, what came, where the ego went, and what a driver did just then."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from copilot4d.datasets import Dataset
from copilot4d.datasets.windows import SECONDS, Window, frame_rule, window_at
from copilot4d.errors import DataError
from copilot4d.geometry import Drive, Sweep, se3
from copilot4d.geometry.motion import continue_motion
from copilot4d.geometry.se3 import FloatArray
from copilot4d.studio.paths import Controls, controls_of, drive_way, poses_of


@dataclass(frozen=True, kw_only=True)
class StudioMoment:
    """All that is known of one moment. Times are seconds after it; the past has times <= 0, oldest first."""

    drive: Drive
    frame: int
    setting: str
    past: tuple[Sweep, ...]  # without the ego's own body
    past_times_s: FloatArray  # (P,)
    truth: tuple[Sweep, ...]  # up to F; fewer where the log ends or a sweep cannot be read
    log_poses: FloatArray  # (F, 4, 4) world_from_lidar; where the log ends, its motion goes on
    times_s: FloatArray  # (F,)
    controls: Controls  # of the ego just before
    ground_m: float  # height of the road below the lidar, negative
    notes: tuple[str, ...]  # what the user should know: too little past, no truth

    @property
    def world_from_reference(self) -> FloatArray:
        """(4, 4) of the newest sweep, in whose frame everything is shown."""
        return self.past[-1].world_from_lidar

    @property
    def newest_with_points(self) -> Sweep:
        """The newest sweep, or the newest that is not empty: its points tell the sensor's beams."""
        return next((sweep for sweep in reversed(self.past) if len(sweep)), self.past[-1])

    @property
    def reference_from_world(self) -> FloatArray:
        """(4, 4)."""
        return se3.invert(self.world_from_reference)


def read_moment(dataset: Dataset, drive_name: str, frame: int, setting: str) -> StudioMoment:
    """Read a moment; DataError, UsageError or ProtocolError where it cannot be one."""
    drive = dataset[drive_name]
    if not dataset.has_poses(drive_name):
        raise DataError(
            drive.source or dataset.root, "poses", expected=f"poses of drive {drive_name}", found="none",
            remedy="estimate them: `copilot4d.doctor.write_estimated_poses`",
        )  # fmt: skip
    window, rule = window_at(drive, frame, setting), frame_rule(drive, setting)
    notes: list[str] = []
    past = _readable([*reversed(window.past)], drive, notes)[::-1]
    if not past:
        raise DataError(
            drive.source or dataset.root, f"sweep {frame}", expected="a sweep that can be read", found=notes[-1],
            remedy="choose another moment, or look at the data with copilot4d doctor",
        )  # fmt: skip
    if len(past) < rule.n_in:
        notes.append(f"Only {len(past)} of {rule.n_in} past sweeps are there at frame {frame}: choose a later moment")
    truth = _readable([*window.future], drive, notes)
    if len(truth) < rule.n_out:
        notes.append(f"The log has {len(truth)} of {rule.n_out} future sweeps here")
    reference_ns = int(drive.timestamps_ns[frame])
    spacing_s = rule.step * drive.interval_s if len(drive) > 1 else SECONDS[setting] / rule.n_out
    known = [(int(drive.timestamps_ns[i]) - reference_ns) * 1e-9 for i in window.future]
    last_s = known[-1] if known else 0.0
    times = known + [last_s + spacing_s * (k + 1) for k in range(rule.n_out - len(known))]
    controls = _controls(drive, frame)
    return StudioMoment(
        drive=drive,
        frame=frame,
        setting=setting,
        past=tuple(past),
        past_times_s=np.array([(sweep.timestamp_ns - past[-1].timestamp_ns) * 1e-9 for sweep in past]),
        truth=tuple(truth),
        log_poses=_log_poses(drive, window, np.array(times), controls),
        times_s=np.array(times),
        controls=controls,
        ground_m=_ground_m(past[-1]),
        notes=tuple(notes),
    )


def _readable(frames: list[int], drive: Drive, notes: list[str]) -> list[Sweep]:
    """The sweeps up to the first that cannot be read, which is noted: what is left stays evenly spaced."""
    sweeps: list[Sweep] = []
    for i in frames:
        try:
            sweeps.append(drive[i].without_box(drive.ego_box))
        except DataError as error:
            notes.append(str(error))
            break
    return sweeps


def _log_poses(drive: Drive, window: Window, times_s: FloatArray, controls: Controls) -> FloatArray:
    """(F, 4, 4): the log's own; where it ends, its last step is repeated, and without one the driver's controls."""
    missing = len(times_s) - len(window.future)
    seen = drive.world_from_lidar[[*window.past, *window.future]]
    if len(seen) > 1:
        return np.concatenate([drive.world_from_lidar[list(window.future)], continue_motion(seen, missing)])
    return poses_of(seen[0], drive_way(controls, times_s))


def _controls(drive: Drive, frame: int) -> Controls:
    """From the sweep before; at the first sweep from the one after; a single sweep tells nothing."""
    if len(drive) < 2:
        return Controls()
    before, after = (frame - 1, frame) if frame > 0 else (0, 1)
    seconds = float(drive.timestamps_ns[after] - drive.timestamps_ns[before]) * 1e-9
    return controls_of(se3.relative_motion(drive.world_from_lidar[after], drive.world_from_lidar[before]), seconds)


def _ground_m(sweep: Sweep) -> float:
    """The height around the ego below which a tenth of the near points lie."""
    near = sweep.points[np.hypot(sweep.points[:, 0], sweep.points[:, 1]) < 12.0]
    height = float(np.percentile(near[:, 2], 10)) if len(near) > 20 else math.nan
    return height if -4.0 < height < 0.0 else -1.7
