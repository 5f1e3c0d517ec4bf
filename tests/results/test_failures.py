"""Which references are the worst, and their pictures with captions."""

from __future__ import annotations

import json
from dataclasses import replace

import failures
import numpy as np
import pytest

from copilot4d.baselines import BASELINES
from copilot4d.datasets import write_folder
from copilot4d.errors import ProtocolError
from copilot4d.evaluation import Protocol, evaluate_dataset
from copilot4d.evaluation.scores import ReferenceScore
from copilot4d.forecaster import PlainForecaster
from tests.results.test_render import scores
from tests.support.scenes import make_drive


def references(*chamfers: tuple[str, int, float]) -> list[ReferenceScore]:
    return [ReferenceScore(drive=d, reference_ns=t, frames=5, chamfer_roi=c) for d, t, c in chamfers]


def test_the_worst_are_those_that_exceed_the_baseline_most_one_of_each_drive_first():
    ours = scores(
        1.0, by_reference=references(("a", 1, 9.0), ("a", 2, 5.0), ("a", 3, 4.0), ("b", 1, 2.0), ("c", 1, 9.9))
    )
    base = scores(1.0, by_reference=references(("a", 1, 8.5), ("a", 2, 1.0), ("a", 3, 1.0), ("b", 1, 1.0)))
    found = [(bad.drive, bad.reference_ns) for bad, _ in failures.worst(ours, base, 3)]
    assert found == [("a", 2), ("b", 1), ("a", 3)]  # c was not scored by both
    assert failures.worst(ours, base, 1)[0][1].chamfer_roi == 1.0


def test_files_that_cannot_be_compared_are_refused():
    ours = scores(1.0)
    with pytest.raises(ProtocolError, match="different rules"):
        failures.worst(ours, scores(1.0, setting="3s"), 1)
    with pytest.raises(ProtocolError, match="score again"):
        failures.worst(ours, scores(1.0, by_reference=[]), 1)


def test_pictures_and_captions_of_what_was_scored(tmp_path, capsys):
    """copy_last stands for a model: the caption tells the scores that the files hold."""
    drive = make_drive(24, rings=10, azimuths=90, name="toy")
    write_folder(drive, tmp_path / "data" / "toy")
    protocol = Protocol(roi_half_m=32, every=6)
    for model in ("copy_last", "ray_tracing"):
        made = evaluate_dataset(BASELINES[model](), {"toy": drive}, setting="1s", protocol=protocol)
        made.write(tmp_path / f"{model}.json")
        if model == "copy_last":
            of_model = made.by_reference
    files = ["--scores", tmp_path / "copy_last.json", "--baseline-scores", tmp_path / "ray_tracing.json"]
    words = ["--model", "copy_last", *files, "--data", tmp_path / "data", "--count", 2, "--out", tmp_path / "out"]
    assert failures.main([str(word) for word in words]) == 0
    entries = json.loads((tmp_path / "out" / "failures.json").read_text())["pictures"]
    assert [entry["file"] for entry in entries] == ["1.png", "2.png"]
    assert all((tmp_path / "out" / entry["file"]).stat().st_size > 10_000 for entry in entries)
    told = {entry["reference_ns"]: entry["caption"] for entry in entries}
    for reference in of_model:
        if reference.reference_ns in told:
            assert f"the whole forecast {reference.chamfer_roi:.2f} against" in told[reference.reference_ns]
    assert all("on places that no past sweep saw" in caption for caption in told.values())
    assert all("things that move" not in caption for caption in told.values())  # nobody knows here


def test_the_scored_frames_are_forecast_again_with_their_options():
    drive = make_drive(20, rings=6, azimuths=40)
    seen = {}

    class Model(PlainForecaster):
        name = "model"

        def forecast(self, past, future_poses, rays=None, **options):
            seen.update(options, rays=len(rays[0]))
            return BASELINES["ray_tracing"]().forecast(past, future_poses, rays)

    ours = replace(scores(1.0), options={"seed": 7, "guidance": 2.0, "steps": 3, "every": 12})
    protocol = Protocol(roi_half_m=10)
    case = failures.Case(drive, int(drive.timestamps_ns[4]), ours, protocol)
    found = case.predicted(Model())
    assert {name: seen[name] for name in ("seed", "guidance", "steps")} == {"seed": 7, "guidance": 2.0, "steps": 3}
    assert seen["rays"] == len(case.truth[0].rays)
    direct = evaluate_dataset(BASELINES["ray_tracing"](), {"toy": drive}, setting="1s", protocol=protocol)
    at = next(r for r in direct.by_reference if r.reference_ns == int(drive.timestamps_ns[4]))
    assert np.mean([one.chamfer_roi for one in found]) == pytest.approx(at.chamfer_roi, rel=1e-6)
