"""The few numbers that README and the results page begin with, made from the score files in docs/scores.

    python benchmarks/results/headline.py                                        # print the table
    python benchmarks/results/headline.py --update README.md docs/results.md     # write it between its comments

A page holds the table between `<!-- headline -->` and `<!-- /headline -->`. A new model needs new score files and, if
their names changed, a changed line in ROWS; nothing else states these numbers.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ratios import Ratio, ratio

from copilot4d.errors import Copilot4dError, UsageError
from copilot4d.evaluation import ScoreFile

DOCS = Path(__file__).parents[2] / "docs"
FOLDERS = {"1s": "test_1s_every12", "3s": "test_3s_every12"}
PAGES = (DOCS.parent / "README.md", DOCS / "results.md")
MARK = re.compile(r"(<!-- headline -->\n).*?(<!-- /headline -->)", re.DOTALL)


class Model(NamedTuple):
    """A row: its name in tables and plots, the stem of its score files, and what it is."""

    name: str
    file: str
    about: str
    ours: bool = False


ROWS = (
    Model("`copy_last`", "copy_last", "repeats the newest sweep"),
    Model("`ray_tracing`", "ray_tracing", "casts rays into the past sweeps"),
    Model("`constant_velocity`", "constant_velocity", "ray tracing, with the moving objects of the past moved on"),
    Model("4D-Occ (ours)", "occupancy_4d", "learned occupancy, our variant of 4D-Occ"),
    Model("tokens", "world_model_k2_top1_maskgit_schedule_alone", "the world model alone: decoded tokens", True),
    Model("tokens + past + 4D-Occ", "world_model_k2_top1_maskgit_schedule", "`mini`, as shipped", True),
)
BASE = "ray_tracing"
MEDIAN = Model("4D-Occ (ours), medians", "occupancy_4d_median", "4D-Occ read as medians, as our model is")

Scores = Mapping[str, Mapping[str, ScoreFile]]  # setting -> file -> scores


def read_scores(folder: Path, models: Sequence[Model] = (*ROWS, MEDIAN)) -> Scores:
    """The score files that are there; UsageError where one setting's were not made on the same frames."""
    found: dict[str, dict[str, ScoreFile]] = {}
    for setting, name in FOLDERS.items():
        paths = {model.file: folder / name / f"{model.file}.json" for model in models}
        found[setting] = {file: ScoreFile.read(path) for file, path in paths.items() if path.is_file()}
        if len({(s.protocol_hash, s.frames_hash) for s in found[setting].values()}) > 1:
            raise UsageError(f"{folder / name}: these files were not scored on the same frames; score them again")
        if BASE not in found[setting]:
            raise UsageError(f"{folder / name}: no {BASE}.json, which the others are compared with")
    return found


def table(scores: Scores) -> str:
    """One line per model: error and ratio at both settings, and the sentences that a reader needs."""
    lines = [
        "| model | what it is | 1 s (m²) | vs ray tracing | moving | 3 s (m²) | vs ray tracing | moving |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for model in ROWS:
        if not any(model.file in scores[setting] for setting in FOLDERS):
            continue
        cells = [cell for setting in FOLDERS for cell in _cells(scores[setting], model)]
        name = f"**{model.name}**" if model.ours else model.name
        lines.append(f"| {name} | {model.about} | {' | '.join(cells)} |")
    one = next(iter(scores["1s"].values()))
    note = (
        f"ROI Chamfer distance within ±32 m, smaller is better; {len(one.drives)} held-out simulated drives, "
        f"{one.references} reference frames. In brackets: 95% interval over drives. 'Moving': the share of the rays on "
        "moving objects that are within 1 m of the truth, larger is better."
    )
    if any("| - |" in line for line in lines):
        note += " '-': not scored on these frames."
    medians = [_error(scores[setting], MEDIAN.file) for setting in FOLDERS if MEDIAN.file in scores[setting]]
    if len(medians) == len(FOLDERS):
        note += f" If 4D-Occ's depths are read as medians, as ours are, it reaches {' and '.join(medians)} m²."
    return "\n".join([*lines, "", note])


def _cells(scores: Mapping[str, ScoreFile], model: Model) -> tuple[str, str, str]:
    if model.file not in scores:
        return "-", "-", "-"
    found = scores[model.file]
    against = "1x" if model.file == BASE else times(ratio(found, scores[BASE]))
    moving = f"{100 * found.moving['within_1m']:.0f}%" if found.moving else "-"
    return _error(scores, model.file), against, moving


def _error(scores: Mapping[str, ScoreFile], file: str) -> str:
    return f"{scores[file].metrics['chamfer_roi']:.3f}"


def times(found: Ratio) -> str:
    """A ratio as text: '0.40x (0.33 to 0.50)'."""
    value, interval = found.cells()
    return f"{value}x" if interval == "-" else f"{value}x ({interval})"


def updated(page: str, text: str) -> str:
    """The page with the table between its comments."""
    new, count = MARK.subn(lambda mark: f"{mark[1]}{text}\n{mark[2]}", page)
    if count != 1:
        raise UsageError("a page needs one <!-- headline --> and one <!-- /headline -->")
    return new


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scores", type=Path, default=DOCS / "scores")
    parser.add_argument("--update", type=Path, nargs="*", metavar="PAGE", help="without a page: README and results")
    options = parser.parse_args(arguments)
    try:
        text = table(read_scores(options.scores))
        if options.update is None:
            print(text)
            return 0
        for page in options.update or PAGES:
            page.write_text(updated(page.read_text(encoding="utf-8"), text), encoding="utf-8")
            print(f"{page}: written")
    except Copilot4dError as error:
        print(f"headline.py: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
