from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from copilot4d.errors import DataError
from copilot4d.evaluation import Protocol, ScoreFile
from copilot4d.evaluation.frame_score import METRICS
from copilot4d.evaluation.scores import HorizonScore, ReferenceScore, SkippedSweep


def scores(**changes: object) -> ScoreFile:
    metrics = {name: 0.1 * (i + 1) for i, name in enumerate(METRICS)}
    values: dict = {
        "protocol": Protocol().name, "protocol_hash": Protocol().hash, "model": "oracle", "data": "toy",
        "setting": "1s", "frames_scored": 5, "frames_not_scored": 1, "metrics": metrics, "seconds": 2.5,
        "drives": ["toy"],
        "per_horizon": [HorizonScore(horizon=1, seconds_ahead=0.2, frames_scored=5, metrics=metrics)],
        "by_reference": [
            ReferenceScore(drive="toy", reference_ns=7, frames=5, chamfer_roi=0.2, chamfer_roi_ahead=[0.1, 0.3])
        ],
        "skipped": [SkippedSweep(drive="toy", frame=3, message="broken", references=[1, 2])],
        "pooled": {"roi_l1_median": 0.1, "roi_absrel_median": 0.01}, "protocol_rules": Protocol().rules,
        "frames_hash": "abc", "not_scored_because": {"no future": 1}, "options": {"seed": 0},
    }  # fmt: skip
    return ScoreFile(**{**values, **changes})


def test_what_is_written_is_read(tmp_path):
    path = scores().write(tmp_path / "new" / "scores.json")
    assert ScoreFile.read(path) == scores()
    assert [p.name for p in path.parent.iterdir()] == ["scores.json"]


def test_the_file_has_the_documented_fields(tmp_path):
    content = json.loads(scores().write(tmp_path / "s.json").read_text())
    for name in ("protocol", "protocol_hash", "model", "data", "setting", "frames_scored", "frames_not_scored",
                 "metrics", "per_horizon", "seconds"):  # fmt: skip
        assert name in content
    assert set(content["metrics"]) == set(METRICS) == set(content["per_horizon"][0]["metrics"])


def test_a_file_of_version_0_1_knows_no_single_frames(tmp_path):
    path = scores().write(tmp_path / "s.json")
    content = json.loads(path.read_text())
    del content["by_reference"][0]["chamfer_roi_ahead"]
    path.write_text(json.dumps(content))
    assert ScoreFile.read(path).by_reference[0].chamfer_roi_ahead == []


def test_a_frame_without_a_score_is_null(tmp_path):
    reference = ReferenceScore(
        drive="toy", reference_ns=7, frames=1, chamfer_roi=0.3, chamfer_roi_ahead=[math.nan, 0.3]
    )
    path = scores(by_reference=[reference]).write(tmp_path / "s.json")
    assert json.loads(path.read_text())["by_reference"][0]["chamfer_roi_ahead"] == [None, 0.3]
    assert math.isnan(ScoreFile.read(path).by_reference[0].chamfer_roi_ahead[0])


def test_what_does_not_exist_is_null_and_infinity_survives(tmp_path):
    odd = dict.fromkeys(METRICS, math.nan) | {"chamfer": math.inf}
    path = scores(metrics=odd).write(tmp_path / "s.json")
    assert json.loads(path.read_text())["metrics"]["l1_mean"] is None
    back = ScoreFile.read(path).metrics
    assert math.isnan(back["l1_mean"])
    assert back["chamfer"] == math.inf


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = scores().write(tmp_path / "s.json")
    before = path.read_bytes()
    with pytest.raises(TypeError):
        scores(options={"seed": object()}).write(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["s.json"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "format: expected 'copilot4d-scores'"),
        ({"format_version": 9}, "format_version"),
        ({"protocol_hash": None}, "protocol_hash"),
        ({"frames_scored": "five"}, "frames_scored"),
        ({"frames_scored": True}, "frames_scored"),
        ({"metrics": {"chamfer": 1.0}}, "metrics: expected the metrics"),
        ({"per_horizon": [{"horizon": 1}]}, r"per_horizon\[0\]"),
        ({"by_reference": [{"drive": "toy"}]}, r"by_reference\[0\]"),
        ({"by_reference": [{"drive": "toy", "reference_ns": 1, "frames": 1, "chamfer_roi": "x"}]}, "chamfer_roi"),
        (
            {
                "by_reference": [
                    {"drive": "toy", "reference_ns": 1, "frames": 1, "chamfer_roi": 1.0, "chamfer_roi_ahead": ["x"]}
                ]
            },
            "chamfer_roi_ahead",
        ),
        ({"skipped": ["x"]}, r"skipped\[0\]"),
        ({"pooled": {"roi_l1_median": "much"}}, r"pooled\.roi_l1_median"),
    ],
)
def test_foreign_and_damaged_content_is_refused(tmp_path, change, message):
    path = scores().write(tmp_path / "s.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(DataError, match=message):
        ScoreFile.read(path)


DIGITS = "1" * 400


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("drives", "[null]"), ("drives", "[1]"), ("seconds", DIGITS), ("frames_scored", DIGITS),
        ("seconds", "1" * 5000),
        ("pooled", f'{{"roi_l1_median": {DIGITS}}}'), ("metrics", f'{{"chamfer": {DIGITS}}}'),
    ],
)  # fmt: skip
def test_numbers_of_hundreds_of_digits_and_drives_without_names_are_refused(tmp_path, field, value):
    path = scores().write(tmp_path / "s.json")
    content = json.loads(path.read_text())
    content[field] = "PLACE"
    path.write_text(json.dumps(content).replace('"PLACE"', value))
    with pytest.raises(DataError):
        ScoreFile.read(path)


def test_a_metric_of_400_digits_is_refused(tmp_path):
    path = scores().write(tmp_path / "s.json")
    content = json.loads(path.read_text())
    content["metrics"]["chamfer"] = int(DIGITS)
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"metrics\.chamfer.*1e300"):
        ScoreFile.read(path)


def test_missing_fields_files_and_folders(tmp_path):
    path = scores().write(tmp_path / "s.json")
    content = json.loads(path.read_text())
    del content["metrics"]
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match="metrics"):
        ScoreFile.read(path)
    with pytest.raises(DataError, match="no such file"):
        ScoreFile.read(tmp_path / "none.json")
    with pytest.raises(DataError, match="a folder"):
        ScoreFile.read(tmp_path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="damaged"):
        ScoreFile.read(path)
    path.write_text("[1, 2]")
    with pytest.raises(DataError, match="list"):
        ScoreFile.read(path)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_gives_a_data_error_or_is_still_whole(tmp_path: Path, data: st.DataObject):
    path = scores().write(tmp_path / "s.json")
    raw = bytearray(path.read_bytes())
    kind = data.draw(st.sampled_from(["cut", "flip", "value"]))
    if kind == "cut":
        raw = raw[: data.draw(st.integers(0, len(raw) - 1))]
    elif kind == "flip":
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    else:
        content = json.loads(raw)
        key = data.draw(st.sampled_from(sorted(content)))
        content[key] = data.draw(
            st.none() | st.integers() | st.text(max_size=3) | st.lists(st.none() | st.integers(), max_size=2)
        )
        raw = bytearray(json.dumps(content).encode())
    path.write_bytes(bytes(raw))
    with contextlib.suppress(DataError):  # nothing else may escape
        assert set(ScoreFile.read(path).metrics) == set(METRICS)


def test_a_score_file_shows_its_headline_not_its_frames():
    shown = repr(scores())
    assert shown.startswith("ScoreFile('oracle', 1s, 4docc-")
    assert shown.endswith(f"ROI Chamfer {scores().metrics['chamfer_roi']:.3f} m²)")
    assert len(shown) < 120
