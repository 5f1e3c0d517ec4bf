"""What the steps made, read for the tables: score files, reports of tokenizers, what-if lines, logs of runs, pictures.

A product that is not there is None, and shown as '-': nothing is ever filled in.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from records import THERE, Book
from steps import Step

from copilot4d.errors import DataError
from copilot4d.evaluation import ScoreFile
from copilot4d.evaluation.whatif_summary import WhatIfSummary, summarise


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What a run, with those that it started from, cost."""

    updates: int
    minutes: float  # of training, without scoring and pictures


class Products:
    """The products of a working folder, by step."""

    def __init__(self, book: Book) -> None:
        self.book = book

    def there(self, name: str) -> bool:
        """Whether a step has made anything."""
        return self.book.product(self._step(name)).exists()

    def stale(self, name: str) -> bool:
        """Whether a product is there that the plan's present command and weights did not make."""
        step = self._step(name)
        return self.book.product(step).exists() and self.book.state(step) not in THERE

    def looks(self, name: str) -> int:
        """How often the drives for reporting were looked at by this step."""
        record = self.book.record(self._step(name))
        return 0 if record is None else len(record.looks)

    def scores(self, name: str) -> ScoreFile | None:
        """Of `copilot4d evaluate` or floor.py."""
        path = self.book.product(self._step(name))
        return ScoreFile.read(path) if path.is_file() else None

    def tokenizer(self, name: str) -> Mapping[str, Any] | None:
        """The report of `copilot4d evaluate-tokenizer`."""
        path = self.book.product(self._step(name))
        return _json(path) if path.is_file() else None

    def whatif(self, name: str) -> WhatIfSummary | None:
        """The summary of benchmarks/counterfactual.py's lines."""
        path = self.book.product(self._step(name))
        if not path.is_file():
            return None
        lines = [_json(path, line) for line in path.read_text(encoding="utf-8").splitlines()]
        return summarise(lines) if lines else None

    def evaluation(self, name: str) -> Mapping[str, float] | None:
        """The last scores in a run's log."""
        log = self.book.product(self._step(name)) / "log.jsonl"
        if not log.is_file():
            return None
        found = [e for e in _lines(log) if e["kind"] == "evaluation"]
        return found[-1]["scores"] if found else None

    def pictures(self, name: str) -> list[tuple[Path, str]] | None:
        """(file, caption) of each picture."""
        folder = self.book.product(self._step(name))
        path = folder / "failures.json"
        if not path.is_file():
            return None
        return [(folder / entry["file"], entry["caption"]) for entry in _json(path)["pictures"]]

    def spent(self, name: str) -> Spent | None:
        """What the training cost whose weights a step uses: the step itself, or the first run that it needs."""
        step = self._step(name)
        runs = [step.name] if step.kind == "run" else [need for need in step.needs if need.startswith("runs/")]
        return run_cost(self.book.product(self._step(runs[0]))) if runs else None

    def _step(self, name: str) -> Step:
        return self.book.plan.steps[name]


def run_cost(run: Path) -> Spent | None:
    """From a run's log and configuration; a run that started from another one counts that too, where it is."""
    log, config = run / "log.jsonl", run / "config.yaml"
    if not log.is_file() or not config.is_file():
        return None
    settings = yaml.safe_load(config.read_text(encoding="utf-8"))
    minutes, done = 0.0, 0
    for entry in _lines(log):
        if entry["kind"] == "train":
            samples = (entry["step"] - done) * settings["recipe"]["batch"]
            minutes += samples / entry["samples_per_s"] / 60
            done = entry["step"]
    start = settings.get("init_from")
    before = run_cost(Path(start)) if start else None
    if before is None:
        return Spent(updates=done, minutes=minutes)
    return Spent(updates=done + before.updates, minutes=minutes + before.minutes)


def _lines(path: Path) -> list[Any]:
    return [_json(path, line) for line in path.read_text(encoding="utf-8").splitlines()]


def _json(path: Path, text: str | None = None) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8") if text is None else text)
    except (OSError, ValueError) as error:
        raise DataError(path, "JSON", expected="what its step wrote", found=str(error),
                        remedy="remove it and make it again") from error  # fmt: skip
