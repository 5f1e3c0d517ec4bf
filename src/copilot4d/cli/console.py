"""What every verb prints through: one console for results, one for messages, one progress bar."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

T = TypeVar("T")

console = Console(soft_wrap=True)
errors_console = Console(stderr=True, soft_wrap=True)


def track(items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
    """A `copilot4d.progress.Track` that draws a bar on stderr."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    # The time left by the speed of the last hour: what takes half a minute a piece has one sample in rich's own 30 s.
    with Progress(*columns, console=errors_console, transient=False, speed_estimate_period=3600.0) as progress:
        task = progress.add_task(description, total=total)
        for item in items:
            yield item
            progress.advance(task)


@contextlib.contextmanager
def working(description: str) -> Iterator[None]:
    """A clock that runs on stderr while one long call is under way; it goes away when the call is done."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=errors_console, transient=True) as progress:
        progress.add_task(description, total=None)
        yield


def next_step(command: str) -> None:
    """Every verb ends with the next command to try."""
    console.print(f"\nNext: {command}", markup=False, highlight=False)
