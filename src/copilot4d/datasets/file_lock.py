"""A lock by a file, waited for: it goes with the process that holds it, however that ends."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: nothing is held there
    fcntl = None  # type: ignore[assignment]


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold a lock file while inside; a file system without locks holds no process up."""
    with path.open("a") as file:
        if fcntl is not None:
            with contextlib.suppress(OSError):
                fcntl.lockf(file, fcntl.LOCK_EX)
        yield
