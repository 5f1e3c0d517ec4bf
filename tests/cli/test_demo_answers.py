"""Answers to the demo's questions: the right cloud scores zero, a wrong one by hand, unknown truth not at all."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from copilot4d.cli.demo_answers import Sampling, answer, answer_all, mean_metrics, obedience
from copilot4d.cli.demo_files import write_scores
from copilot4d.cli.demo_page import viewer_of
from copilot4d.cli.demo_questions import PlannedFuture, Question, log_questions
from copilot4d.datasets import open_dataset
from copilot4d.datasets.folder_writer import write_folder
from copilot4d.forecaster import Forecast, PlainForecaster
from copilot4d.geometry import Sweep, se3
from tests.support.scenes import make_drive


class Oracle(PlainForecaster):
    """Knows the truth of every pose, times a factor on each range; remembers how it was asked."""

    def __init__(self, truth: dict[bytes, Sweep], factor: float = 1.0) -> None:
        self.name, self.truth, self.factor, self.asked = "oracle", truth, factor, []

    def forecast(self, past, future_poses, rays=None, **sampling):
        self.asked.append((len(past), len(future_poses), rays is not None, sampling))
        points = [self.truth[pose.tobytes()].points * np.float32(self.factor) for pose in future_poses]
        sweeps = tuple(
            Sweep(points=p, world_from_lidar=pose, timestamp_ns=k)
            for k, (p, pose) in enumerate(zip(points, future_poses, strict=True))
        )
        depths = None if rays is None else tuple(np.linalg.norm(p, axis=1) for p in points)
        return Forecast(sweeps=sweeps, depths=depths)


def sweep(pose: np.ndarray, *, shift: float, k: int = 1) -> Sweep:
    wall = np.stack(np.meshgrid([10.0 + shift], np.linspace(-5, 5, 21), np.linspace(-1, 1, 5)), -1).reshape(-1, 3)
    return Sweep(points=wall.astype(np.float32), world_from_lidar=pose, timestamp_ns=k * 100_000_000)


def question() -> Question:
    now = se3.identity()
    plans, shift = [], 0.0
    for name in ("keep", "brake", "swerve"):
        pose = se3.from_yaw(0.0, (1.0 + shift, 0, 0))
        truth = () if name == "swerve" else (sweep(pose, shift=shift),)
        plans.append(PlannedFuture(name=name, caption=name, world_from_lidar=pose[None], truth=truth))
        shift += 2.0
    return Question(
        setting="1s", drive="d", past=(sweep(now, shift=0, k=0),), past_frames=(4,), past_s=(0.0,), future_s=(0.2,),
        plans=tuple(plans),
    )  # fmt: skip


def oracle(asked: Question, factor: float = 1.0) -> Oracle:
    known = {}
    for k, plan in enumerate(asked.plans):
        known[plan.world_from_lidar[0].tobytes()] = sweep(plan.world_from_lidar[0], shift=2.0 * k)
    return Oracle(known, factor)


def test_the_truth_scores_zero_and_a_range_factor_its_share():
    asked = question()
    right = answer(asked, asked.plans[0], oracle(asked), Sampling())
    assert right.metrics["chamfer_roi"] == pytest.approx(0, abs=1e-9)
    assert right.metrics["l1_mean"] == pytest.approx(0, abs=1e-5)
    far = answer(asked, asked.plans[1], oracle(asked, 1.1), Sampling())
    assert far.metrics["absrel_mean"] == pytest.approx(0.1, abs=1e-5)
    true = asked.plans[1].truth[0].points
    assert far.metrics["l1_mean"] == pytest.approx(0.1 * np.linalg.norm(true, axis=1).mean(), rel=1e-5)


def test_the_shown_forecast_is_made_without_the_true_rays_and_with_the_same_draws():
    asked, model = question(), None
    model = oracle(asked)
    answer(asked, asked.plans[0], model, Sampling(seed=5, guidance=2.0, steps=3))
    sampling = {"seed": 5, "guidance": 2.0, "steps": 3}
    assert model.asked == [(1, 1, False, sampling), (1, 1, True, sampling)]


def test_a_plan_without_truth_has_no_score_and_is_asked_once():
    asked = question()
    model = oracle(asked)
    one = answer(asked, asked.plans[2], model, Sampling())
    assert one.scores == (None,)
    assert one.metrics == {}
    assert [with_rays for _, _, with_rays, _ in model.asked] == [False]
    assert math.isnan(mean_metrics([one])["chamfer"])


def test_obedience_is_smallest_on_the_diagonal_for_who_knows():
    asked = question()
    answers = answer_all([asked], [oracle(asked)], Sampling())
    table = obedience(asked, answers, "oracle")
    assert set(table) == {"keep", "brake", "swerve"}
    assert table["keep"]["keep"] == pytest.approx(0)
    assert table["brake"]["brake"] == pytest.approx(0)
    assert table["keep"]["brake"] == pytest.approx(4.0, rel=1e-4)  # walls 2 m apart: 2^2, the mean of both ways
    assert table["swerve"] == pytest.approx({"keep": 16.0, "brake": 4.0}, rel=1e-4)


def test_scores_json_has_every_answer_and_no_nan(tmp_path):
    asked = question()
    answers = answer_all([asked], [oracle(asked)], Sampling(seed=2))
    path = write_scores(tmp_path, [asked], answers, "oracle", Sampling(seed=2), data="here")
    found = json.loads(path.read_text())
    assert [(row["plan"], row["frames_scored"]) for row in found["scores"]] == [
        ("keep", 1),
        ("brake", 1),
        ("swerve", 0),
    ]
    assert found["scores"][2]["metrics"] is None
    assert found["scores"][0]["per_frame"][0]["seconds_ahead"] == 0.2
    assert (found["reference_frame"], found["sampling"]["seed"], found["protocol"]) == (4, 2, "4docc-roi32")
    assert found["obedience"]["1s"]["brake"]["keep"] == pytest.approx(4.0, rel=1e-4)


def test_a_forecast_without_points_is_shown_as_such_and_breaks_nothing(tmp_path):
    asked = question()
    empty = {key: Sweep(points=np.zeros((0, 3), np.float32), world_from_lidar=s.world_from_lidar, timestamp_ns=1)
             for key, s in oracle(asked).truth.items()}  # fmt: skip
    plan = asked.plans[2]  # no truth: nothing is scored
    only = replace(asked, plans=(plan,))
    one = answer(only, plan, Oracle(empty), Sampling())
    shown = viewer_of([only], [one]).html()
    assert '"clouds":[[105,0],[0,0]]' in shown
    assert obedience(asked, [one], "oracle")["swerve"]["keep"] != 0
    found = json.loads(write_scores(tmp_path, [asked], [one], "oracle", Sampling()).read_text())
    assert found["obedience"]["1s"]["swerve"] == {"keep": None, "brake": None}


def test_questions_to_a_log_take_its_own_future_as_the_truth_of_keep_alone(tmp_path):
    drive = make_drive(60, rings=4, azimuths=60, name="own")
    dataset = open_dataset(write_folder(drive, tmp_path / "log"))
    both = log_questions(dataset, None)
    assert [q.setting for q in both] == ["1s", "3s"]
    assert both[0].past_frames[-1] == both[1].past_frames[-1]
    first = both[0]
    at = first.past_frames[-1]
    assert first.past_frames == (at - 8, at - 6, at - 4, at - 2, at)
    assert first.future_s == pytest.approx((0.2, 0.4, 0.6, 0.8, 1.0))
    keep, brake, swerve = first.plans
    np.testing.assert_allclose(keep.world_from_lidar, drive.world_from_lidar[at + 2 : at + 11 : 2], atol=1e-6)
    assert [len(sweep) for sweep in keep.truth] == [len(drive[at + k]) for k in (2, 4, 6, 8, 10)]
    assert brake.truth == swerve.truth == ()
    moved = np.linalg.norm(brake.world_from_lidar[-1, :3, 3] - drive.world_from_lidar[at, :3, 3])
    assert moved == pytest.approx(6.0 - 2.5, abs=0.1)  # 6 m/s, braking with 5 m/s^2 for a second
    offset = se3.relative_motion(keep.world_from_lidar[-1], swerve.world_from_lidar[-1])[1, 3]
    assert 0.4 < offset < 2.0


def test_at_the_end_of_a_log_truth_is_unknown_where_it_ends(tmp_path):
    dataset = open_dataset(write_folder(make_drive(30, rings=4, azimuths=60, name="own"), tmp_path / "log"))
    (only,) = log_questions(dataset, 24)
    assert only.setting == "1s"  # 30 sweeps have no complete 3s window
    known = [sweep is not None for sweep in only.plans[0].truth]
    assert known == [True, True, False, False, False]
    assert only.future_s == pytest.approx((0.2, 0.4, 0.6, 0.8, 1.0))
