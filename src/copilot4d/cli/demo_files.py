"""What the demo leaves beside its page: bird's-eye panels, a film of all plans, scores.json."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from copilot4d.cli.demo_answers import PROTOCOL, Answer, Sampling, obedience
from copilot4d.cli.demo_questions import PlannedFuture, Question
from copilot4d.evaluation.frame_score import FrameScore
from copilot4d.geometry import Sweep, se3
from copilot4d.geometry.se3 import FloatArray
from copilot4d.pictures import Frame, Look, Story, forecast_strip, write_gif, write_mp4, write_png
from copilot4d.pictures.ink import Image
from copilot4d.pictures.storyboard import NO_TRUTH
from copilot4d.progress import Track
from copilot4d.version import __version__

SCORES_FORMAT, SCORES_VERSION = "copilot4d-demo-scores", 1
HALF_M = 32.0  # of the pictures, as of the scores
UNKNOWN_TRUTH = "no truth for this plan:\nthe log has only\nwhat happened"
FILM_HOLD = 3  # the last frame stays a little, so that a repeating film can be read


def find(answers: Sequence[Answer], setting: str, plan: str, model: str) -> Answer:
    """The answer of one model to one plan in one setting."""
    return next(a for a in answers if (a.setting, a.plan, a.model) == (setting, plan, model))


def write_panels(
    out: Path, questions: Sequence[Question], answers: Sequence[Answer], model: str, track: Track
) -> list[Path]:
    """bev_PLAN_SETTING.png: past over truth over forecast, time to the right; and plans.png: the plans side by side."""
    paths = []
    todo = [(question, plan) for question in questions for plan in question.plans]
    for question, plan in track(todo, "drawing panels"):
        story = _story(question, plan, find(answers, question.setting, plan.name, model))
        paths.append(write_png(out / f"bev_{plan.name}_{question.setting}.png", forecast_strip(story, _look(300))))
    longest = questions[-1]
    last = len(longest.past) + len(longest.future_s) - 1
    return [write_png(out / "plans.png", _all_plans(longest, answers, model, last, _look(420))), *paths]


def write_films(out: Path, question: Question, answers: Sequence[Answer], model: str, track: Track) -> list[Path]:
    """forecast.mp4 and forecast.gif: truth over forecast, the plans side by side, as fast as the world."""
    count = len(question.past) + len(question.future_s)
    film = list(track(_film(question, answers, model), "drawing the film", count))
    film += [film[-1]] * FILM_HOLD
    fps = 1.0 / max(0.05, question.future_s[0])
    return [write_mp4(out / "forecast.mp4", film, fps=fps), write_gif(out / "forecast.gif", film, fps=fps)]


def write_scores(
    out: Path, questions: Sequence[Question], answers: Sequence[Answer], model: str, sampling: Sampling, **named: Any
) -> Path:
    """scores.json: every model, plan and setting, frame by frame, with the rules."""
    rows = []
    for one in answers:
        question = next(q for q in questions if q.setting == one.setting)
        per_frame = [
            {"seconds_ahead": round(seconds, 3), "metrics": None if score is None else _finite(score.as_dict())}
            for seconds, score in zip(question.future_s, one.scores, strict=True)
        ]
        rows.append(
            {
                "setting": one.setting,
                "plan": one.plan,
                "model": one.model,
                "frames_scored": sum(score is not None and score.scored for score in one.scores),
                "metrics": _finite(one.metrics) or None,
                "per_frame": per_frame,
            }
        )
    content = {
        "format": SCORES_FORMAT,
        "format_version": SCORES_VERSION,
        "version": __version__,
        **named,
        "model": model,
        "drive": questions[0].drive,
        "reference_frame": questions[0].past_frames[-1],
        "sampling": {"seed": sampling.seed, "guidance": sampling.guidance, "steps": sampling.steps},
        "protocol": PROTOCOL.name,
        "protocol_hash": PROTOCOL.hash,
        "units": "Chamfer in m^2, L1 in metres, AbsRel as a fraction; means over the frames of one moment",
        "scores": rows,
        "obedience": {
            q.setting: {name: _finite(row) for name, row in obedience(q, answers, model).items()} for q in questions
        },
    }
    path = out / "scores.json"
    path.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return path


def _finite(values: dict[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def _look(size: int) -> Look:
    return Look(half=HALF_M, size=size)


def _way(question: Question, plan: PlannedFuture) -> FloatArray:
    """(F + 1, 3): the ego's way, seen from the moment."""
    now = se3.invert(question.past[-1].world_from_lidar)
    poses = se3.compose(now, plan.world_from_lidar)
    return np.concatenate([np.zeros((1, 3)), poses[:, :3, 3]])


def _story(question: Question, plan: PlannedFuture, one: Answer) -> Story:
    way = _way(question, plan)
    truths = [
        Frame(points=sweep.points, time_s=seconds)
        for sweep, seconds in zip(_until_gap(plan), question.future_s, strict=False)
    ]
    return Story(
        past=[
            Frame(points=sweep.points, time_s=seconds, path=way if seconds == 0 else None)
            for sweep, seconds in zip(question.past, question.past_s, strict=True)
        ],
        truth=truths,
        forecast=[
            Frame(points=sweep.points, time_s=seconds, note=_note(score))
            for sweep, seconds, score in zip(one.sweeps, question.future_s, one.scores, strict=True)
        ],
        model=one.model,
        heading=f"drive {question.drive}, frame {question.past_frames[-1]}, plan {plan.name}",
    )  # fmt: skip


def _note(score: FrameScore | None) -> str:
    return "" if score is None or math.isnan(score.chamfer_roi) else f"Chamfer {score.chamfer_roi:.2f} m²"


def _until_gap(plan: PlannedFuture) -> Iterator[Sweep]:
    for sweep in plan.truth:
        if sweep is None:
            return
        yield sweep


def _film(question: Question, answers: Sequence[Answer], model: str) -> Iterator[Image]:
    for index in range(len(question.past) + len(question.future_s)):
        yield _all_plans(question, answers, model, index, _look(400))


def _all_plans(question: Question, answers: Sequence[Answer], model: str, index: int, look: Look) -> Image:
    """One time: truth over forecast, a column per plan. Before the moment every plan shows the same past."""
    heading = f"drive {question.drive}, frame {question.past_frames[-1]} · forecast by {model}"
    if index < len(question.past):
        row = [
            look.cell(
                "past",
                Frame(
                    points=question.past[index].points,
                    time_s=question.past_s[index],
                    note=plan.name,
                    path=_way(question, plan) if index == len(question.past) - 1 else None,
                ),
            )
            for plan in question.plans
        ]
        waiting = [look.cell(f"forecast: {plan.name}", None, "follows the past") for plan in question.plans]
        return look.panel([row, waiting], heading)
    k = index - len(question.past)
    above, below = [], []
    for plan in question.plans:
        truth = plan.truth[k] if plan.truth else None
        shown = None if truth is None else Frame(points=truth.points, time_s=question.future_s[k])
        why = NO_TRUTH if plan.truth else UNKNOWN_TRUTH
        above.append(look.cell(f"truth: {plan.name}", shown, why))
        one = find(answers, question.setting, plan.name, model)
        predicted = Frame(points=one.sweeps[k].points, time_s=question.future_s[k], note=_note(one.scores[k]))
        below.append(look.cell(f"forecast: {plan.name}", predicted))
    return look.panel([above, below], heading)
