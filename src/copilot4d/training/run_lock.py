"""One training at a time in a run's folder: a second one would overwrite the first one's checkpoints."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from copilot4d.errors import TrainingError
from copilot4d.training.distributed import World

try:
    import fcntl
except ImportError:  # Windows: nothing is held there
    fcntl = None  # type: ignore[assignment]

LOCK = "training.lock"


@contextlib.contextmanager
def run_held(run: Path, world: World) -> Iterator[None]:
    """Hold a run's folder on behalf of all ranks; TrainingError on every rank where another process holds it.

    The lock belongs to the process and not to the file: it goes when the process does, however it ends, and loader
    workers do not inherit it.
    """
    trouble = ""
    with contextlib.ExitStack() as stack:
        if world.is_first and fcntl is not None:
            run.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context((run / LOCK).open("a"))
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                trouble = (
                    f"{run}: another process trains in this folder; wait for it or stop it (it saves first), or give "
                    "this run another folder as training.run"
                )
            except OSError:  # a file system without locks: better to train than to refuse
                pass
        if trouble := world.broadcast_json(trouble):
            raise TrainingError(trouble)
        yield
