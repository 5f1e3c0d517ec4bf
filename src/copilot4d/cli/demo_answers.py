"""What each model answers to a question, and how near that is to the truth of the plan."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from copilot4d.cli.demo_questions import PlannedFuture, Question
from copilot4d.errors import ForecastError
from copilot4d.evaluation import chamfer
from copilot4d.evaluation.frame_score import METRICS, FrameScore, score_frame
from copilot4d.evaluation.protocol import Protocol
from copilot4d.evaluation.true_rays import true_frame
from copilot4d.forecaster import Forecaster
from copilot4d.geometry import Clip, Sweep, inside_box, se3
from copilot4d.geometry.se3 import FloatArray
from copilot4d.progress import Track, silent

PROTOCOL = Protocol(roi_half_m=32.0)  # the region that the shipped model knows


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How a model draws; baselines draw nothing."""

    seed: int = 0
    guidance: float = 1.0
    steps: int = 10


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One model's forecast of one plan in one setting: free clouds to look at, and scores on the true rays."""

    setting: str
    plan: str
    model: str
    sweeps: tuple[Sweep, ...]  # F, each in its own lidar frame
    scores: tuple[FrameScore | None, ...] = field(default=())  # F, None where there is no truth

    @property
    def metrics(self) -> dict[str, float]:
        """The means over the scored frames; empty where none was."""
        scored = [score.as_dict() for score in self.scores if score is not None and score.scored]
        return {name: float(np.mean([s[name] for s in scored])) for name in METRICS} if scored else {}


def answer_all(
    questions: Sequence[Question], forecasters: Sequence[Forecaster], sampling: Sampling, track: Track = silent
) -> list[Answer]:
    """Every model's answer to every plan of every question."""
    todo = [(q, plan, f) for f in forecasters for q in questions for plan in q.plans]
    names = ", ".join(f.name for f in forecasters)
    return [answer(q, plan, f, sampling) for q, plan, f in track(todo, f"forecasting and scoring: {names}")]


def answer(question: Question, plan: PlannedFuture, forecaster: Forecaster, sampling: Sampling) -> Answer:
    """Forecast without any knowledge of the future sweeps; then once more on the true rays, for the scores."""
    kwargs = {"seed": sampling.seed, "guidance": sampling.guidance, "steps": sampling.steps}
    free = forecaster.forecast(question.past, plan.world_from_lidar, None, **kwargs)  # type: ignore[arg-type]
    return Answer(
        setting=question.setting, plan=plan.name, model=forecaster.name, sweeps=free.sweeps,
        scores=_scores(question, plan, forecaster, kwargs),
    )  # fmt: skip


def _scores(
    question: Question, plan: PlannedFuture, forecaster: Forecaster, kwargs: dict[str, float]
) -> tuple[FrameScore | None, ...]:
    known = next((k for k, sweep in enumerate(plan.truth) if sweep is None), len(plan.truth))  # up to the first gap
    future = tuple(sweep for sweep in plan.truth[:known] if sweep is not None)
    if not future:
        return (None,) * len(plan.world_from_lidar)
    clip = Clip(
        drive=question.drive, past=question.past, future=future, past_frames=question.past_frames,
        future_frames=tuple(range(len(future))),
    )  # fmt: skip
    frames = [true_frame(clip, k, PROTOCOL) for k in range(len(future))]
    forecast = forecaster.forecast(
        question.past, plan.world_from_lidar[:known], [frame.rays for frame in frames], **kwargs  # type: ignore[arg-type]
    )  # fmt: skip
    if forecast.depths is None:
        raise ForecastError(f"{forecaster.name} gave no depths on the rays that it was asked for")
    scores: list[FrameScore | None] = []
    for frame, sweep, depths in zip(frames, forecast.sweeps, forecast.depths, strict=True):
        if len(frame.rays) == 0:
            scores.append(None)
            continue
        seen_from = frame.scoring_from_future
        scores.append(
            score_frame(
                se3.transform_points(seen_from, sweep.points), se3.transform_points(seen_from, frame.points),
                frame.origin_in(seen_from), PROTOCOL.roi, predicted_depths=np.asarray(depths),
            )
        )  # fmt: skip
    return (*scores, *(None,) * (len(plan.world_from_lidar) - known))


def obedience(question: Question, answers: Sequence[Answer], model: str) -> dict[str, dict[str, float]]:
    """Chamfer (m²) of the last forecast frame under each plan against the truth of every plan: {forecast: {truth: d}}.

    Each sweep in its own lidar frame. A forecast that follows its plan is nearest to that plan's own truth.
    """
    last = {plan.name: plan.truth[-1] for plan in question.plans if plan.truth and plan.truth[-1] is not None}
    table: dict[str, dict[str, float]] = {}
    for one in answers:
        if one.model == model and one.setting == question.setting:
            table[one.plan] = {
                name: chamfer(_near(one.sweeps[-1]), _near(sweep)) for name, sweep in last.items() if sweep is not None
            }
    return table


def _near(sweep: Sweep) -> FloatArray:
    return sweep.points[inside_box(sweep.points, PROTOCOL.roi)]


def mean_metrics(answers: Sequence[Answer]) -> dict[str, float]:
    """The mean over several answers (say, all plans), NaN where none has a score."""
    scored = [one.metrics for one in answers if one.metrics]
    return {name: float(np.mean([m[name] for m in scored])) if scored else math.nan for name in METRICS}
