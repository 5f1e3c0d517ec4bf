"""4D-Occ's own values for known clouds (tests/golden/README.md), in parity mode."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from copilot4d.evaluation import FrameScore, score_frame

GOLDEN = Path(__file__).parents[1] / "golden"
EXPECTED = json.loads((GOLDEN / "golden.json").read_text())
FRAMES = [name for name in EXPECTED if "multiframe" not in name]
ROI70 = np.array([-70, -70, -4.5, 70, 70, 4.5])


def load(name: str) -> dict[str, np.ndarray]:
    with np.load(GOLDEN / f"{name}.npz", allow_pickle=False) as arrays:
        return {key: arrays[key] for key in arrays.files}


def agrees(value: float, expected: float | str) -> bool:
    if isinstance(expected, str) and expected.startswith("raises"):
        return bool(np.isnan(value))  # no value exists; NaN stands for it
    return bool(np.isclose(value, float(expected), rtol=1e-4, atol=1e-6, equal_nan=True))


def check(score: FrameScore, expected: dict, names: dict[str, str]) -> None:
    wrong = {
        field: (getattr(score, field), expected[key])
        for field, key in names.items()
        if not agrees(getattr(score, field), expected[key])
    }
    assert not wrong, f"(ours, 4D-Occ's): {wrong}"


@pytest.mark.parametrize("name", FRAMES)
def test_all_rays(name):
    case = load(name)
    score = score_frame(case["pred_points"], case["gt_points"], case["origin"], case["roi"], "nearest", True)
    names = {"chamfer": "chamfer_full", "chamfer_roi": "chamfer_roi"}
    names |= {key: key for key in ("l1_mean", "absrel_mean", "l1_median", "absrel_median")}
    check(score, EXPECTED[name]["all_rays"], names)


@pytest.mark.parametrize("name", FRAMES)
def test_within_grid(name):
    expected = EXPECTED[name].get("within_grid")
    case = load(name)
    score = score_frame(case["pred_points"], case["gt_points"], case["origin"], case["roi"], "nearest", True)
    names = {f"roi_{key}": key for key in ("l1_mean", "absrel_mean", "l1_median", "absrel_median")}
    if not isinstance(expected, dict):  # no prediction, or no true point inside: there is no such value
        assert all(np.isnan(getattr(score, field)) for field in names)
        return
    check(score, expected, names)
    keep = ((case["ray_points"] >= case["roi"][:3]) & (case["ray_points"] <= case["roi"][3:])).all(axis=1)
    cropped = score_frame(
        case["pred_points"][keep], case["gt_points"][keep], case["origin"], case["roi"], "nearest", True
    )
    check(cropped, expected, {"chamfer": "chamfer_full", "chamfer_roi": "chamfer_roi", "l1_mean": "l1_mean"})


@pytest.mark.parametrize("name", [name for name in FRAMES if isinstance(EXPECTED[name].get("evalkit"), dict)])
def test_evalkit(name):
    case, expected = load(name), EXPECTED[name]["evalkit"]
    score = score_frame(
        case["pred_points"], case["gt_points"], case["origin"], case["roi"], "ray", True,
        predicted_depths=case["pred_depth"], clamp=False,
    )  # fmt: skip
    check(score, expected, {"l1_mean": "L1", "absrel_mean": "AbsRel", "chamfer_roi": "NFCD", "chamfer": "CD"})


@pytest.mark.parametrize("name", ["case_00", "case_01", "case_03", "case_07"])
def test_the_default_mode_agrees_where_nothing_is_odd(name):
    case, expected = load(name), EXPECTED[name]["all_rays"]
    score = score_frame(case["pred_points"], case["gt_points"], case["origin"], case["roi"])
    names = {"chamfer": "chamfer_full"} | {k: k for k in ("l1_mean", "absrel_mean", "l1_median", "absrel_median")}
    for field, key in names.items():
        assert getattr(score, field) == pytest.approx(expected[key], rel=1e-4, abs=1e-5)


def test_multiframe_average():
    case, expected = load("case_15_multiframe"), EXPECTED["case_15_multiframe"]
    scores = []
    for j in (0, 1):
        origins, points, frame = case[f"ref{j}_origin"], case[f"ref{j}_ray_points"], case[f"ref{j}_tindex"]
        for t, origin in enumerate(origins):
            rows = (frame == t) & (case[f"ref{j}_gt_depth"] > 0)
            if not rows.any():
                continue
            offset = points[rows] - origin
            unit = offset / np.linalg.norm(offset, axis=1, keepdims=True)
            true = origin + unit * case[f"ref{j}_gt_depth"][rows, None]
            predicted = origin + unit * case[f"ref{j}_pred_depth"][rows, None]
            scores.append(score_frame(predicted, true, origin, ROI70, "nearest", True))
    assert len(scores) == expected["count"]
    for field, key in {
        "chamfer": "chamfer_distance",
        "chamfer_roi": "chamfer_distance_inner",
        "l1_mean": "l1_error",
        "absrel_mean": "absrel_error",
    }.items():
        assert agrees(float(np.mean([getattr(s, field) for s in scores])), expected[key]), field
