"""How library code reports progress without printing: it iterates through a `Track` that the caller supplies; and how
long a time is, in words.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

T = TypeVar("T")


class Track(Protocol):
    """Wraps an iterable and shows how far it has come; the command line passes one that draws a bar."""

    def __call__(self, items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
        """Yield the items, one by one."""
        ...


def silent(items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
    """Show nothing: the default of every library function."""
    return iter(items)


def duration(seconds: float) -> str:
    """59 s, 12 min, 3 h 05 min, 2 d 04 h.

    >>> duration(11100)
    '3 h 05 min'
    """
    if not math.isfinite(seconds):
        return "?"
    minutes, hours, days = seconds / 60, seconds / 3600, seconds / 86400
    if seconds < 60:
        return f"{seconds:.0f} s"
    if minutes < 60:
        return f"{minutes:.0f} min"
    if hours < 24:
        return f"{int(hours)} h {int(minutes) % 60:02d} min"
    return f"{int(days)} d {int(hours) % 24:02d} h"
