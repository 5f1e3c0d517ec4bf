"""The demo's page: the clouds in 3D, the scores in plain words, the pictures, what lies beside it."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from copilot4d.cli.demo_answers import PROTOCOL, Answer, mean_metrics, obedience
from copilot4d.cli.demo_files import find
from copilot4d.cli.demo_questions import PlannedFuture, Question
from copilot4d.cli.demo_words import COLUMNS, WHY_BASELINES_ARE_STRONG, obeys, ratios, verdict
from copilot4d.cli.score_table import shown
from copilot4d.geometry import se3
from copilot4d.pictures import Cloud, Horizon, Page, Plan, Viewer, compared
from copilot4d.pictures.viewer import MAX_POINTS

WORDS = {
    "copy_last": "the newest sweep, carried along by the ego's motion: the world stands still",
    "ray_tracing": "all past sweeps as one cloud, and each ray of the lidar takes the nearest point it passes",
    "ray_tracing_recent": "all past sweeps as one cloud in which newer ones outweigh older ones, seen along each ray",
}
UNLIKE_ITS_OWN = " Where your sensor and streets are unlike those that it learned from, expect less of it."
SETTING_WORDS = {"1s": "1 second ahead, a frame every 0.2 s", "3s": "3 seconds ahead, a frame every 0.6 s"}


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What the page is about."""

    model: str  # its own name
    model_option: str  # what --model takes for it: a name or a folder
    trained: bool  # a trained model, not a baseline
    limits: str = ""  # how far a trained model sees, and what it learned from
    missing_weights: bool  # the shipped weights were wanted and are not there
    simulated: bool
    data: str


def demo_page(
    subject: Subject, questions: Sequence[Question], answers: Sequence[Answer], files: Sequence[tuple[Path, str]]
) -> Page:
    """The whole page; `files` lie beside it, the .png and .gif among them are also shown."""
    page = Page("What comes next on this street?")
    _introduce(page, subject, questions)
    page.viewer(viewer_of(questions, answers))
    _plans(page, subject, questions[-1])
    _scores(page, subject, questions, answers)
    _obedience(page, subject, questions[-1], answers)
    page.heading("Seen from above")
    by_name = {path.name: path for path, _ in files}
    page.image(by_name["forecast.gif"], f"Truth above, the forecast of {subject.model} below; forward is up.")
    keep = f"bev_keep_{questions[-1].setting}.png"
    page.image(by_name[keep], "The plan keep, step by step: past, truth, forecast; time runs to the right.")
    page.heading("Files beside this page")
    page.links([(path.name, words) for path, words in files])
    page.heading("Try next")
    page.code("\n".join(next_commands(subject)))
    return page


def viewer_of(questions: Sequence[Question], answers: Sequence[Answer], max_points: int = MAX_POINTS) -> Viewer:
    """All questions and answers in 3D."""
    horizons = [
        Horizon(
            name=SETTING_WORDS[question.setting].split(",")[0],
            past_s=question.past_s,
            future_s=question.future_s,
            past=[Cloud(points=sweep.points) for sweep in question.past],
            plans=[_viewed(question, plan, answers) for plan in question.plans],
        )
        for question in questions
    ]
    return Viewer(horizons=horizons, models=_models(answers), max_points=max_points)


def _models(answers: Sequence[Answer]) -> list[str]:
    """Their names, the one that the page is about first."""
    return list(dict.fromkeys(one.model for one in answers))


def _viewed(question: Question, plan: PlannedFuture, answers: Sequence[Answer]) -> Plan:
    now = se3.invert(question.past[-1].world_from_lidar)
    poses = np.concatenate([np.stack([s.world_from_lidar for s in question.past]), plan.world_from_lidar])
    truth = list(plan.truth) or [None] * len(plan.world_from_lidar)
    forecasts = {
        model: [
            Cloud(points=sweep.points) if true is None else compared(sweep.points, true.points)
            for sweep, true in zip(find(answers, question.setting, plan.name, model).sweeps, truth, strict=True)
        ]
        for model in _models(answers)
    }
    return Plan(
        name=plan.name,
        caption=plan.caption,
        reference_from_lidar=se3.compose(now, poses),
        forecasts=forecasts,
        truth=[None if sweep is None else Cloud(points=sweep.points) for sweep in plan.truth],
    )


def _introduce(page: Page, subject: Subject, questions: Sequence[Question]) -> None:
    question = questions[-1]
    if subject.simulated:
        place = (
            f"a simulated street ({question.drive} of street-v1, which no training of this project has seen): its "
            "buildings, cars and people come from a seed, and a light 32-beam lidar drives through"
        )
    else:
        place = f"your log {subject.data}, drive {question.drive}"
    page.text(
        f"This is {place}. At one moment, frame {question.past_frames[-1]}, the forecast is given the past sweeps and "
        "where the ego vehicle will go, never the future sweeps; it predicts the point clouds that the lidar will "
        "measure. Three plans for the ego make three futures of the same moment."
    )
    if subject.missing_weights:
        page.note(
            f"This installation has no trained weights (mini). What you see is the baseline {subject.model}: "
            f"{WORDS[subject.model]}. It knows geometry, but not how traffic moves: cars that move stay behind as they "
            "were last seen, whatever the ego does.",
            "warning",
        )
    elif subject.trained:
        page.note(
            f"The forecast is made by the trained model {subject.model}, which has learned from unlabelled drives how "
            f"streets go on. {subject.limits}{'' if subject.simulated else UNLIKE_ITS_OWN} A model that samples has "
            "many futures: one is shown, another --seed draws another one. Whether it is better than baselines that "
            "know geometry alone, the scores below tell.",
        )
    else:
        words = WORDS.get(subject.model, "a baseline")
        page.note(f"The forecast is made by the baseline {subject.model}: {words}. Nothing in it was learned.")


def _plans(page: Page, subject: Subject, question: Question) -> None:
    page.items(f"{plan.name}: {plan.caption}" for plan in question.plans)
    if subject.simulated:
        page.text(
            "A simulator can do what no log can: go back to the moment and drive on otherwise. The truth of each plan "
            "is its own branch of the simulation, in which the other traffic reacts to what the ego does."
        )
    else:
        page.note(
            "A log knows only what really happened. The plans brake and swerve have no truth and no score here: what "
            "is shown for them is imagined, and whether there was room to swerve the log does not say."
        )


def _scores(page: Page, subject: Subject, questions: Sequence[Question], answers: Sequence[Answer]) -> None:
    page.heading("Scores")
    page.text(
        "Smaller is better everywhere. Chamfer: how far, squared and on average, a predicted point lies from the "
        "nearest true one and the other way round. The error of a ray: how much too short or too long the lidar's beam "
        "was predicted; half of all rays are better than the median. All within "
        f"{PROTOCOL.half_m:.0f} m of the ego, by the field's rules ({PROTOCOL.name}), each plan against its own truth."
    )
    for question in questions:
        rows = []
        for plan in question.plans:
            scored = [a for a in answers if (a.setting, a.plan) == (question.setting, plan.name) and a.metrics]
            rows += [_row(plan.name, a.model, a.metrics) for a in scored]
        if len({row[0] for row in rows}) > 1:
            rows += [_row("all plans", model, _mean(model, question.setting, answers)) for model in _models(answers)]
        caption = f"{SETTING_WORDS[question.setting]}; means over {len(question.future_s)} frames of this one moment."
        page.table(["plan", "model", *(column.title for column in COLUMNS)], rows, caption)
    means = {q.setting: {name: _mean(name, q.setting, answers) for name in _models(answers)} for q in questions}
    verdicts = {setting: verdict(subject.model, found) for setting, found in means.items()}
    page.items(f"{setting}: {words}" for setting, words in verdicts.items() if words)
    if subject.trained and any(ratio > 1 for found in means.values() for _, ratio, _ in ratios(subject.model, found)):
        page.text(WHY_BASELINES_ARE_STRONG)
    page.text("One moment is a first look, not a result: copilot4d evaluate scores whole data sets.")


def _row(plan: str, model: str, metrics: dict[str, float]) -> list[str | float | None]:
    return [plan, model, *(_rounded(shown(metrics, column)) for column in COLUMNS)]


def _rounded(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 3)


def _mean(model: str, setting: str, answers: Sequence[Answer]) -> dict[str, float]:
    return mean_metrics([a for a in answers if a.setting == setting and a.model == model])


def _obedience(page: Page, subject: Subject, question: Question, answers: Sequence[Answer]) -> None:
    table = obedience(question, answers, subject.model)
    names = [plan.name for plan in question.plans]
    if any(len(table.get(name, {})) < len(names) for name in names):
        return
    page.heading("Does the forecast follow the plan?", level=3)
    rows = [[name, *(_rounded(table[name][other]) for other in names)] for name in names]
    page.table(
        ["forecast under", *(f"truth of {name}" for name in names)],
        rows,
        f"Chamfer (m²) of the last frame, {question.future_s[-1]:.1f} s ahead. A forecast that follows its plan has "
        f"the smallest number of its row on the diagonal. {obeys(table)}",
    )


def next_commands(subject: Subject) -> list[str]:
    """What to try after the demo."""
    model, data = ["--model", subject.model_option], ["--data", subject.data]
    evaluate = ["copilot4d", "evaluate", *model]
    # A trained model takes seconds for each reference frame: enough of them for some minutes.
    every = "60" if subject.simulated and subject.trained else "12"
    rest = ["--roi-half", f"{PROTOCOL.half_m:g}", "--every", every, "--out", "scores.json"]
    if subject.simulated:
        return [
            shlex.join(["copilot4d", "view", *model, *data]),
            shlex.join(["copilot4d", "doctor", subject.data]),
            "copilot4d demo --street 3 --out demo3",
            shlex.join([*evaluate, "--data", "street-v1/val", "--setting", "3s", *rest]),
            "copilot4d demo --data PATH/TO/YOUR/LOG --out demo_mine",
        ]
    return [
        shlex.join(["copilot4d", "view", *model, *data]),
        shlex.join(["copilot4d", "doctor", subject.data]),
        shlex.join([*evaluate, *data, "--setting", "1s", *rest]),
    ]
