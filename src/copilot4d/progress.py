"""How library code reports progress without printing: it iterates through a `Track` that the caller supplies."""

from __future__ import annotations

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
