"""`copilot4d evaluate --submission evalai`: the answers to a challenge's queries, where the truth is not known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from copilot4d.cli.console import console, next_step, track
from copilot4d.cli.outputs import check_output_file
from copilot4d.datasets import Dataset
from copilot4d.datasets.windows import window_at
from copilot4d.errors import UsageError
from copilot4d.evaluation.evalai import answer_queries, write_submission
from copilot4d.forecaster import Forecaster
from copilot4d.geometry import Drive, Sweep
from copilot4d.geometry.se3 import FloatArray


def check_submission(kind: str | None, queries: Path | None, out: Path) -> None:
    """UsageError where the two options do not come together."""
    if (kind is None) != (queries is None):
        raise UsageError("--submission evalai and --queries FILE go together: the challenge's rays, and their answers")
    if kind is not None:
        check_output_file("--out", out, "submission.json")


def submit(forecaster: Forecaster, dataset: Dataset, queries: Path, out: Path, **sampling: Any) -> int:
    """Answer every query and write the file to upload."""
    if dataset.format != "argoverse2":
        raise UsageError(f"--submission evalai is the Argoverse 2 challenge's, and --data is {dataset.format}")
    submission = answer_queries(forecaster, dataset, queries, _clip, track=track, **sampling)
    rays = sum(
        len(row) for query in submission["queries"] for frames in query["rays"].values() for rows in frames.values()
        for row in rows
    )  # fmt: skip
    write_submission(out, submission)
    console.print(f"Wrote {out}: {rays} depths", markup=False, highlight=False)
    next_step(f"upload {out} to the challenge's page on EvalAI")
    return 0


def _clip(drive: Drive, reference: int, horizon: str) -> tuple[tuple[Sweep, ...], FloatArray]:
    """The past sweeps and the ego's future poses. The future sweeps themselves are never read."""
    window = window_at(drive, reference, horizon)
    past = tuple(drive[i].without_box(drive.ego_box) for i in window.past)
    return past, drive.world_from_lidar[list(window.future)]
