"""What a results plan is made of: steps (a command, what it makes, what it needs, what it costs), rows and tables.

Commands are written with placeholders, so that a record of what was run does not depend on where: WORK (the working
folder), KITTI (the KITTI Odometry tree), BENCHMARKS (the repository's folder of that name).
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from copilot4d.errors import UsageError

BENCHMARKS = Path(__file__).resolve().parents[1]
Kind = Literal["run", "gate", "tokens", "scores", "tokenizer_scores", "whatif", "pictures"]
TableKind = Literal["forecasts", "sampling", "several", "tokenizers", "whatif", "token_frames", "pictures"]


@dataclass(frozen=True, kw_only=True)
class Step:
    """One command, and all that is known of it before it runs."""

    name: str
    words: tuple[str, ...]  # the command with placeholders: copilot4d ..., or BENCHMARKS/script.py ...
    kind: Kind
    makes: str  # a file or a folder below WORK
    core_minutes: float  # expected on one core of the reference machine
    needs: tuple[str, ...] = ()  # steps whose product is this one's input
    report: bool = False  # looks at drives that no choice may be made on
    files: Mapping[str, str] = field(default_factory=dict)  # small files that the command reads: below WORK -> text

    @property
    def updates(self) -> int | None:
        """After how many updates a training is done; None for anything else."""
        if self.kind != "run":
            return None
        given = {a: b for a, b in zip(self.words, self.words[1:], strict=False) if a in ("--updates", "--max-updates")}
        return min(map(int, given.values()))


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of a table: whose it is, and the step that makes its numbers. Rows of a group stand in one table."""

    label: str
    step: str
    group: str = ""
    ours: bool = False  # the row that ratios are of
    columns: Mapping[str, str] = field(default_factory=dict)  # more words for the line: K, schedule
    also: Mapping[str, str] = field(default_factory=dict)  # further steps whose numbers it shows, by their role

    @property
    def all_steps(self) -> tuple[str, ...]:
        """Every step whose product the line shows."""
        return (self.step, *self.also.values())


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of docs/results.md."""

    name: str
    title: str
    kind: TableKind
    rows: tuple[Row, ...]
    about: str = ""  # a sentence or two below the title


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where the placeholders are on this machine."""

    work: Path
    kitti: Path | None = None

    def resolve(self, word: str) -> str:
        """A word of a command with its placeholder filled in.

        >>> Places(work=Path("results")).resolve("WORK/runs/streets")
        'results/runs/streets'
        """
        head, _, rest = word.partition("/")
        if head == "KITTI" and self.kitti is None:
            raise UsageError("this step reads KITTI: give --kitti, the KITTI Odometry tree that holds train_0001, ...")
        known: dict[str, Path | None] = {"WORK": self.work, "KITTI": self.kitti, "BENCHMARKS": BENCHMARKS}
        place = known.get(head)
        return word if place is None else str(place / rest)

    def command(self, step: Step) -> list[str]:
        """What is executed: the package's command line or a script, by this Python."""
        words = [self.resolve(word) for word in step.words]
        if words[0] == "copilot4d":
            return [sys.executable, "-m", "copilot4d.cli.main", *words[1:]]
        return [sys.executable, *words]

    def shown(self, step: Step) -> str:
        """What a person would type; a KITTI tree that was not given stays a placeholder."""
        place = self if self.kitti is not None else Places(work=self.work, kitti=Path("KITTI"))
        words = [place.resolve(word) for word in step.words]
        return shlex.join(words if words[0] == "copilot4d" else ["python", *words])


@dataclass(frozen=True)
class Plan:
    """All steps by name, and the tables whose rows they make."""

    steps: Mapping[str, Step]
    tables: Mapping[str, Table]

    def __post_init__(self) -> None:
        for step in self.steps.values():
            for need in step.needs:
                if need not in self.steps:
                    raise UsageError(f"step {step.name} needs {need}, which the plan does not have")
        for table in self.tables.values():
            for name in (step for row in table.rows for step in row.all_steps):
                if name not in self.steps:
                    raise UsageError(f"a row of table {table.name} needs {name}, which the plan does not have")

    def chosen(self, names: Sequence[str]) -> list[str]:
        """The steps of these tables and steps (all tables where none is named), without what they need."""
        wanted: dict[str, None] = {}
        for name in names or list(self.tables):
            if name in self.tables:
                wanted |= dict.fromkeys(step for row in self.tables[name].rows for step in row.all_steps)
            elif name in self.steps:
                wanted[name] = None
            else:
                raise UsageError(
                    f"--only {name}: no such table or step. Tables: {', '.join(self.tables)}; --list shows all steps"
                )
        return list(wanted)

    def in_order(self, names: Iterable[str], *, there: Iterable[str] = ()) -> list[Step]:
        """These steps and all that they need, needs first. What is already there needs nothing."""
        order: dict[str, Step] = {}
        present = set(there)

        def visit(name: str) -> None:
            if name not in order:
                for need in self.steps[name].needs if name not in present else ():
                    visit(need)
                order[name] = self.steps[name]

        for name in names:
            visit(name)
        return list(order.values())
