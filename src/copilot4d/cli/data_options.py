"""A log, opened as the options say: at another rate, with topics of a bag chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from copilot4d.cli.options.data_options import DataOptions
from copilot4d.datasets import Dataset, open_dataset
from copilot4d.datasets.resample import picked, resample_dataset


def open_data(path: Path, options: DataOptions, *, require_poses: bool = True) -> Dataset:
    """The data set at a path, read as the options say."""
    return resample_dataset(_as_recorded(path, options, require_poses), options.resample)


def _as_recorded(path: Path, options: DataOptions, require_poses: bool = True) -> Dataset:
    return open_dataset(
        path, require_poses=require_poses, lidar_topics=options.lidar_topic, pose_topic=options.pose_topic,
        deskew=options.deskew,
    )  # fmt: skip


def how_read(path: Path, options: DataOptions, dataset: Dataset) -> dict[str, Any]:
    """What the options changed, for score files; empty where they changed nothing."""
    told: dict[str, Any] = {}
    if options.resample is not None:
        log = _as_recorded(path, options)
        drives = {name: picked(dataset[name], log[name]) for name in dataset}
        told["resample"] = {"hz": options.resample, "drives": drives}
    for name in ("lidar_topic", "pose_topic", "deskew"):
        if getattr(options, name) not in (None, ()):
            told[name] = getattr(options, name)
    return told


def given_flags(options: DataOptions) -> list[str]:
    """The options again, for the command that a verb ends with."""
    words = [] if options.resample is None else ["--resample", f"{options.resample:g}"]
    words += ["--lidar-topic", *options.lidar_topic] if options.lidar_topic else []
    words += ["--pose-topic", options.pose_topic] if options.pose_topic else []
    return words + (["--deskew", str(options.deskew)] if options.deskew is not None else [])
