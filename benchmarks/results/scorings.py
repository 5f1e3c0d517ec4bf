"""The steps that score, named by what they score, so that two tables that want the same number share one step."""

from __future__ import annotations

from collections.abc import Iterable

from budgets import Budget, Data, scoring_minutes
from steps import Step

SELECTING = ("world_model", "kitti_world_model")  # models with a depth selector
GEOMETRY = ("copy_last", "ray_tracing", "ray_tracing_recent")  # baselines without weights
FLOOR = "BENCHMARKS/results/floor.py"


class Scorings:
    """Steps by name, and those that score as they are asked for. Each method returns its step's name."""

    def __init__(self, budget: Budget, steps: Iterable[Step] = ()) -> None:
        self.budget = budget
        self.steps = {step.name: step for step in steps}

    def every(self, data: Data) -> int:
        """Which reference frames are scored: a KITTI drive has few."""
        if data.path == self.budget.kitti_report.path:
            return self.budget.every
        return self.budget.test_every if data.report else self.budget.ablation_every

    def add(self, step: Step) -> str:
        """Take a step into the plan; the same one may be asked for twice."""
        assert self.steps.setdefault(step.name, step) == step, f"two steps are called {step.name}"
        return step.name

    def score(
        self, model: str, data: Data, setting: str, every: int | None = None, *, guidance: float = 1.0, steps: int = 10,
        schedule: str | None = None, futures: int = 1, top_k: int = 3, roi_half_m: float | None = None,
        alone: bool = False, depth: str | None = None,
    ) -> str:  # fmt: skip
        """A step of `copilot4d evaluate`; options at their defaults are not in its name.

        schedule: None is the one that belongs to the model's training. alone: without the model's depth selection.
        depth: how a 4D-Occ is read, where it is not as published.
        """
        schedule = schedule or ("few_first" if "maskgit" in model else "paper")
        every, half_m = every or self.every(data), roi_half_m or self.budget.roi_half_m
        trained = model not in GEOMETRY
        extra: list[str] = []
        parts = [model]
        if half_m != self.budget.roi_half_m:
            parts.append(f"roi{half_m:g}")
        changes = (
            ("guidance", "w", guidance, 1.0), ("sampling-steps", "k", steps, 10), ("futures", "s", futures, 1),
            ("top-k", "top", top_k, 3),
        )  # fmt: skip
        for option, letter, value, usual in changes:
            if value != usual:
                parts.append(f"{letter}{value:g}")
                extra += [f"--{option}", f"{value:g}"]
        if schedule != "paper":
            parts.append("maskgit_schedule")  # as the score files of docs/scores are called
            extra += ["--schedule", schedule]
        if depth is not None:
            parts.append(depth)
            extra += ["--depth", depth]
        if alone:
            parts.append("alone")
            extra.append("--no-depth-selection")
        name = f"scores/{data.name}_{setting}_every{every}/{'_'.join(parts)}"
        words = (
            "copilot4d", "evaluate", "--model", f"WORK/runs/{model}" if trained else model, *data_words(data),
            "--setting", setting, "--roi-half", f"{half_m:g}", "--every", str(every), *extra,
            "--out", f"WORK/{name}.json",
        )  # fmt: skip
        kind = model.removeprefix("kitti_")
        minutes = scoring_minutes(kind, data, every, steps=steps, guidance=guidance, futures=futures)
        needs = self.weights(model, alone=alone) if trained else ()
        return self.add(
            Step(
                name=name, words=words, kind="scores", makes=f"{name}.json", core_minutes=minutes, needs=needs,
                report=data.report,
            )
        )  # fmt: skip

    def best_score(self, model: str, data: Data, setting: str, every: int | None = None) -> str:
        """The score of a model as it forecasts best by the choices made on val."""
        if model not in SELECTING:
            return self.score(model, data, setting, every)
        budget = self.budget
        return self.score(
            model, data, setting, every, top_k=budget.top_k, steps=budget.main_steps, schedule=budget.main_schedule
        )

    def weights(self, model: str, *, alone: bool = False) -> tuple[str, ...]:
        """The steps that make a model's weights."""
        return (f"runs/{model}", *((f"gates/{model}",) if model in SELECTING and not alone else ()))

    def floor(self, tokenizer: str, data: Data, setting: str) -> str:
        """A step of floor.py: what the tokenizer alone makes of the true future frames."""
        every = self.every(data)
        name = f"scores/{data.name}_{setting}_every{every}/floor_{tokenizer}"
        words = (
            FLOOR, "--tokenizer", f"WORK/runs/{tokenizer}", *data_words(data), "--setting", setting,
            "--roi-half", f"{self.budget.roi_half_m:g}", "--every", str(every), "--out", f"WORK/{name}.json",
        )  # fmt: skip
        return self.add(
            Step(
                name=name, words=words, kind="scores", makes=f"{name}.json",
                core_minutes=scoring_minutes("floor", data, every), needs=(f"runs/{tokenizer}",), report=data.report,
            )
        )  # fmt: skip

    def reconstruct(self, run: str, data: Data, every: int) -> str:
        """A step of `copilot4d evaluate-tokenizer`."""
        name = f"tokenizer_scores/{data.name}_every{every}/{run}"
        words = (
            "copilot4d", "evaluate-tokenizer", "--model", f"WORK/runs/{run}", *data_words(data), "--every", str(every),
            "--out", f"WORK/{name}",
        )  # fmt: skip
        minutes = data.references / every * 0.5 * data.slower / 60
        return self.add(
            Step(
                name=name, words=words, kind="tokenizer_scores", makes=f"{name}/scores.json", core_minutes=minutes,
                needs=(f"runs/{run}",), report=data.report,
            )
        )  # fmt: skip


def data_words(data: Data) -> tuple[str, ...]:
    """The options that name a data set."""
    return ("--data", data.path, *(("--drives", *data.drives) if data.drives else ()))
