"""One evaluation at a time into one file, and SIGTERM answered as Ctrl-C is: what was scored is kept."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NoReturn

from copilot4d.errors import UsageError

try:
    import fcntl
except ImportError:  # Windows: nothing is held there
    fcntl = None  # type: ignore[assignment]


@contextlib.contextmanager
def held(out: Path) -> Iterator[None]:
    """Hold an output file, by a lock beside it that goes with the process; UsageError that names who holds it."""
    lock = out.with_name(f".{out.name}.lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    with _locked(lock, out) if fcntl is not None else contextlib.nullcontext():
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def _locked(lock: Path, out: Path) -> IO[str]:
    while True:
        file = lock.open("a+", encoding="utf-8")
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            file.seek(0)
            holder = file.read(40).strip() or "unknown"
            file.close()
            raise UsageError(
                f"--out {out}: another evaluation (process {holder}) writes this file; "
                "wait for it, or name another --out"
            ) from None
        except OSError:  # a file system without locks: better to score than to refuse
            return file
        if _same(lock, file):
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            return file
        file.close()  # its holder has just gone and taken the lock's name with it: once more


def _same(lock: Path, file: IO[str]) -> bool:
    try:
        return lock.stat().st_ino == os.fstat(file.fileno()).st_ino
    except FileNotFoundError:
        return False


class Terminated(KeyboardInterrupt):
    """SIGTERM: as Ctrl-C, but for the exit code."""

    exit_code = 128 + int(signal.SIGTERM)


@contextlib.contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """While it lasts, SIGTERM is a KeyboardInterrupt: open work is saved on the way out."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, frame: object) -> NoReturn:
    raise Terminated
