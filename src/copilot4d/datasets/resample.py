"""A log at another rate: the sweeps nearest to evenly spaced times. Nothing is made up: what is lost is missing."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from copilot4d.datasets.dataset import Dataset
from copilot4d.errors import ProtocolError, UsageError, check_range
from copilot4d.geometry import Drive

TOLERANCE = 0.25  # of the new interval: how far from its even time a sweep may lie
_LEAST = 0.8  # of the wanted times where the log has no gap; fewer are no log at that rate


def resampled(drive: Drive, hz: float) -> Drive:
    """The drive with only the sweeps nearest to times 1 / hz apart, counted from its first sweep; reads nothing.

    A time without a sweep within a quarter of the new interval has none: the drive then has a gap there, as where a
    sweep was lost. The drive's clock is the even one; each sweep keeps its own time. ProtocolError where the log is
    slower than `hz`, or where too few of its sweeps lie near the even times.
    """
    check_range("`resample`", hz, 0.1, 100.0)
    times = drive.timestamps_ns
    if len(times) < 2:
        return drive
    if drive.interval_s > (1 + TOLERANCE) / hz:
        raise ProtocolError(
            f"drive {drive.name} runs at {1 / drive.interval_s:.3g} Hz, and `resample` {hz:g} asks for more: sweeps "
            "are picked, never made; ask for a lower rate"
        )
    wanted = times[0] + np.rint(np.arange(int((times[-1] - times[0]) * 1e-9 * hz + TOLERANCE) + 1) * (1e9 / hz))
    after = np.clip(np.searchsorted(times, wanted), 1, len(times) - 1)
    nearest = np.where(wanted - times[after - 1] <= times[after] - wanted, after - 1, after)
    near = np.abs(times[nearest] - wanted) <= TOLERANCE * 1e9 / hz
    covered = times[after] - times[after - 1] < 1.5e9 * drive.interval_s  # no sweep was lost there
    met = float(near[covered].mean()) if covered.any() else 0.0
    if met < _LEAST:
        raise ProtocolError(
            f"drive {drive.name} runs at {1 / drive.interval_s:.3g} Hz: only {met:.0%} of the times of "
            f"`resample` {hz:g} have a sweep within {TOLERANCE:.0%} of their spacing; ask for a rate that divides the "
            "log's own more evenly, or for a lower one (1.6667 is enough for the 3s setting)"
        )
    taken, first = np.unique(nearest[near], return_index=True)
    frames = np.arange(len(drive)) if drive.frames is None else drive.frames
    return replace(
        drive, world_from_lidar=drive.world_from_lidar[taken], frames=frames[taken],
        timestamps_ns=wanted[near][first].astype(np.int64),
    )  # fmt: skip


def resample_dataset(dataset: Dataset, hz: float | None) -> Dataset:
    """Every drive of a data set at another rate; as it is where `hz` is None."""
    if hz is None:
        return dataset
    if dataset.format == "nuscenes":
        raise UsageError(
            "`resample` is for logs with even sweeps; nuScenes is scored at its own keyframes: leave it out"
        )
    check_range("`resample`", hz, 0.1, 100.0)
    # Sent to another process as what it is made from: the data set, which is sent as its path, and the rate.
    return replace(dataset, open_drive=partial(_resampled_drive, dataset=dataset, hz=hz), indexed=None, origin=None)


def _resampled_drive(name: str, *, dataset: Dataset, hz: float) -> Drive:
    return resampled(dataset[name], hz)


def picked(drive: Drive, log: Drive) -> dict[str, Any]:
    """What was picked of a log, for score files: how many sweeps, the first of them, and how far from even times."""
    frames = np.arange(len(drive)) if drive.frames is None else drive.frames
    off_s = np.abs(log.timestamps_ns[frames] - drive.timestamps_ns) * 1e-9
    return {
        "sweeps": len(drive),
        "of": len(log),
        "first_frames": [int(frame) for frame in frames[:20]],
        "mean_offset_s": round(float(off_s.mean()), 6),
        "largest_offset_s": round(float(off_s.max()), 6),
    }
