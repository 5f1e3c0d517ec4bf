"""The whole examination: opens a data set, looks at a bounded sample of it, and gathers facts and findings."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from copilot4d.datasets import Dataset, open_dataset
from copilot4d.datasets.folder_timing import time_source
from copilot4d.datasets.numpy_files import KITTI_COLUMNS, NUSCENES_COLUMNS
from copilot4d.datasets.point_files import suffix_of
from copilot4d.doctor.drive import DriveReport, Source, examine_drive
from copilot4d.doctor.file_frame import FileFrame, description_of
from copilot4d.doctor.files import sweep_paths
from copilot4d.doctor.finding import Finding, from_data_error, remark
from copilot4d.errors import Copilot4dWarning, DataError
from copilot4d.geometry import Drive
from copilot4d.progress import Track, silent


@dataclass(frozen=True, kw_only=True)
class Report:
    """What the doctor saw of a data set, and what it found."""

    path: str
    format: str | None  # None where the data set cannot be opened
    names: tuple[str, ...] = ()  # all drives
    splits: dict[str, int] = field(default_factory=dict)  # drives in each
    drives: tuple[DriveReport, ...] = ()  # those that were examined and could be opened
    every_sweep: bool = False
    findings: tuple[Finding, ...] = ()

    @property
    def problems(self) -> tuple[Finding, ...]:
        """The findings that need fixing."""
        return tuple(finding for finding in self.findings if finding.severity == "problem")

    @property
    def healthy(self) -> bool:
        """Nothing needs fixing."""
        return not self.problems


def examine(
    path: str | Path, *, drives: Sequence[str] = (), most_drives: int = 20, sweeps: int = 12, every_sweep: bool = False,
    track: Track = silent, open_data: Callable[[Path], Dataset] | None = None,
) -> Report:  # fmt: skip
    """Examine the data set at a path.

    Looks at the drives named, or at up to `most_drives` spread evenly over all, and in each at up to `sweeps` sweeps
    and a few pairs; file sizes are checked for every sweep. `every_sweep` reads every sweep of every drive. What is
    broken becomes a finding; the examination goes on with the rest. `open_data` opens the path otherwise than
    `open_dataset` does by itself, say with topics chosen or at another rate.
    """
    findings: list[Finding] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", Copilot4dWarning)
        try:
            dataset = open_dataset(path, require_poses=False) if open_data is None else open_data(Path(path))
        except DataError as error:
            return Report(path=str(path), format=None, findings=(from_data_error(error, "data set"),))
        if drives:
            chosen = dataset.select(drives).names
        else:
            chosen = dataset.names if every_sweep else spread(dataset.names, most_drives)
        reports = []
        for name in track(chosen, "examining drives", len(chosen)):
            try:
                drive = dataset[name]
            except DataError as error:
                findings.append(from_data_error(error, "drive"))
                continue
            report = examine_drive(
                drive,
                has_poses=dataset.has_poses(name),
                sweeps=sweeps,
                every_sweep=every_sweep,
                source=source_of(dataset.root, drive),
            )
            reports.append(report)
            findings += report.findings
    told = {str(w.message): w for w in caught if issubclass(w.category, Copilot4dWarning)}
    findings += [remark("loader", "", "The loader remarked", message, "see its message") for message in told]
    return Report(
        path=str(path),
        format=dataset.format,
        names=dataset.names,
        splits={split: len(names) for split, names in dataset.splits.items()},
        drives=tuple(reports),
        every_sweep=every_sweep,
        findings=tuple(findings),
    )


def source_of(root: Path, drive: Drive) -> Source:
    """How the files of a drive became it; only own data has a description that says so."""
    if drive.format != "folder":
        return Source()
    config = description_of(root, drive)
    paths = sweep_paths(drive)
    times = time_source(Path(drive.source), config, paths) if paths else None
    bare = bool(paths) and suffix_of(paths[0]) in (".bin", ".pcd.bin")
    usual = NUSCENES_COLUMNS if bare and suffix_of(paths[0]) == ".pcd.bin" else KITTI_COLUMNS
    columns = len(config.columns or usual) if bare else None
    return Source(frame=FileFrame.of(config), times=times, columns=columns)


def spread(names: Sequence[str], most: int) -> tuple[str, ...]:
    """At most so many names, evenly spread, with the first and the last."""
    if len(names) <= most:
        return tuple(names)
    return tuple(names[int(i)] for i in np.linspace(0, len(names) - 1, most).round())
