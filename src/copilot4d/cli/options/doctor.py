"""The options of `copilot4d doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from copilot4d.cli.options.data_options import DataOptions


@dataclass(frozen=True, kw_only=True)
class Options(DataOptions):
    """Check a data set: what is wrong with it, and how to fix it.

    It reads a sample of the sweeps, and the size of every file. Exit code 0: no problems; 1: problems found. Example:

        copilot4d doctor path/to/data --html report.html
    """

    path: tyro.conf.Positional[Path]
    """The data set; its format is recognised."""
    html: Path | None = None
    """Also write the report as a page with pictures."""
    drives: tuple[str, ...] = ()
    """Only these drives, by name."""
    most_drives: int = 20
    """Check at most this many drives, spread over all."""
    sweeps: int = 12
    """Sweeps to read per drive, besides a few pairs."""
    all: bool = False
    """Read every sweep of every drive."""
    estimate_poses: bool = False
    """First estimate poses from the sweeps with KISS-ICP (pip install 'copilot4d[poses]') for drives without poses. If
    all drives have poses, the estimates are written to poses_estimated.txt and compared, but not used. Files are
    never replaced."""
    poses_out: Path | None = None
    """With --estimate-poses: write the poses into this folder (DRIVE.txt, TUM format) instead of the data set."""
