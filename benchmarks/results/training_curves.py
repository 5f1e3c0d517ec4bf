"""Scores of models against the compute of their training, as one CSV file; plots.py draws it.

    python benchmarks/results/training_curves.py mini runs/stage1 runs/stage2 --test 1s=docs/scores/test_1s/mini.json
    python benchmarks/results/plots.py

Each call replaces the rows of one model. Runs are given in the order of training: the second begins with the weights of
the first. Columns of docs/results/data/training.csv:

    model       the name in the plots
    update      updates so far, over all runs
    samples     samples so far (updates times batch)
    core_hours  training time so far, times --cores
    score       chamfer_roi, nll_next_moving, ...: a score of the held-out data in log.jsonl; or test_1s, test_3s: the
                ROI Chamfer distance of a score file, at the end of the training
    value       in the score's unit
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from headline import DOCS

from copilot4d.errors import Copilot4dError, DataError, UsageError
from copilot4d.evaluation import ScoreFile

FILE = DOCS / "results" / "data" / "training.csv"
KEPT = ("chamfer_roi", "loss", "nll_", "arrival_")  # beginnings of the scores that are kept
SETTINGS = ("1s", "3s")


class Row(NamedTuple):
    """One score of one model after some training."""

    model: str
    update: int
    samples: int
    core_hours: float
    score: str
    value: float


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--cores", type=float, default=1.0, help="CPU cores that the training used")
    parser.add_argument(
        "--test", nargs="*", default=[], metavar="SETTING=FILE", help="score files of the trained model"
    )
    parser.add_argument("--out", type=Path, default=FILE)
    options = parser.parse_args(arguments)
    try:
        rows = list(rows_of(options.model, options.runs, options.cores))
        rows += tested(options.model, rows, options.test)
        others = [row for row in read_rows(options.out) if row.model != options.model]
        write_rows(options.out, [*others, *rows])
    except Copilot4dError as error:
        print(f"training_curves.py: {error}", file=sys.stderr)
        return 1
    print(f"{options.out}: {len(rows)} rows of {options.model}")
    return 0


def rows_of(model: str, runs: Sequence[Path], cores: float = 1.0) -> Iterator[Row]:
    """The held-out scores of runs, each of which continues the one before."""
    updates = samples = 0
    hours = 0.0
    for number, run in enumerate(runs):
        batch, last_step, run_hours = _batch(run), 0, 0.0
        for line in _log(run):
            step = int(line["step"])
            if line["kind"] == "train":
                run_hours += cores * (step - last_step) * batch / float(line["samples_per_s"]) / 3600
                last_step = step
            elif line["kind"] == "evaluation" and (step or not number):  # a later run repeats the score before it
                done = (updates + step, samples + step * batch, round(hours + run_hours, 4))
                yield from (
                    Row(model, *done, name, float(value))
                    for name, value in line["scores"].items()
                    if name.startswith(KEPT)
                )
        updates, samples, hours = updates + last_step, samples + last_step * batch, hours + run_hours


def tested(model: str, rows: Sequence[Row], files: Sequence[str]) -> list[Row]:
    """A row for each SETTING=FILE, at the end of the training."""
    found = []
    for text in files:
        setting, _, file = text.partition("=")
        if setting not in SETTINGS or not file:
            raise UsageError(f"--test expects SETTING=FILE with a setting of {', '.join(SETTINGS)}; got {text!r}")
        end = max(rows, key=lambda row: row.update)
        value = ScoreFile.read(Path(file)).metrics["chamfer_roi"]
        found.append(Row(model, end.update, end.samples, end.core_hours, f"test_{setting}", value))
    return found


def read_rows(path: Path) -> list[Row]:
    """The rows of a file; none where there is no file."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != Row._fields:
            raise DataError(
                path, "columns", expected=",".join(Row._fields), found=",".join(reader.fieldnames or ()) or "nothing",
                remedy="write it with benchmarks/results/training_curves.py",
            )  # fmt: skip
        try:
            return [
                Row(
                    r["model"], int(r["update"]), int(r["samples"]), float(r["core_hours"]), r["score"],
                    float(r["value"]),
                )
                for r in reader
            ]  # fmt: skip
        except (TypeError, ValueError) as error:
            raise DataError(path, f"line {reader.line_num}", expected="numbers", found=str(error),
                            remedy="write it with benchmarks/results/training_curves.py") from error  # fmt: skip


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Write the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Row._fields)
        writer.writerows([*row[:-1], f"{row.value:.5g}"] for row in rows)


def _batch(run: Path) -> int:
    path = run / "config.yaml"
    try:
        return int(yaml.safe_load(path.read_text(encoding="utf-8"))["recipe"]["batch"])
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError) as error:
        raise DataError(path, "recipe.batch", expected="a number", found=str(error),
                        remedy="give the folder of a run") from error  # fmt: skip


def _log(run: Path) -> list[dict[str, Any]]:
    path = run / "log.jsonl"
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise DataError(path, "log", expected="lines of JSON", found=str(error),
                        remedy="give the folder of a run") from error  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
