"""Writing many simulated drives, in any number of processes, resuming where it was interrupted."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

from copilot4d.datasets.simulated_files import WrittenFormat, place_of, write_simulated
from copilot4d.errors import DataError, UsageError
from copilot4d.progress import Track, silent
from copilot4d.simulator.benchmark import SIMULATOR_VERSION
from copilot4d.simulator.drive import simulate_drive
from copilot4d.simulator.sensors import sensor_named

SETTINGS = "simulation.json"
MOST_DRIVES = 1_000_000
LONGEST_S = 86_400.0


@dataclass(frozen=True, kw_only=True)
class Generation:
    """A reproducible set of drives: the i-th is the street of seed * 1,000,000 + i."""

    count: int
    sensor: str = "mini32"
    seed: int = 0
    seconds: float = 12.0
    rate_hz: float | None = None
    format: WrittenFormat = "folder"

    def __post_init__(self) -> None:
        sensor = sensor_named(self.sensor)
        if not 1 <= self.count <= MOST_DRIVES:
            raise UsageError(f"`count` must lie between 1 and {MOST_DRIVES}, got {self.count}")
        if not 0 <= self.seed < 1_000_000:
            raise UsageError(f"`seed` must lie between 0 and 999,999, got {self.seed}")
        if not 0 < self.seconds <= LONGEST_S:
            raise UsageError(f"`seconds` must be positive and at most {LONGEST_S:g}, got {self.seconds}")
        if self.rate_hz is not None and not 0 < self.rate_hz <= sensor.rate_hz:
            raise UsageError(f"`rate_hz` must lie above 0 and up to the {sensor.rate_hz:g} Hz of {self.sensor}")
        rate_hz = sensor.rate_hz if self.rate_hz is None else self.rate_hz
        if math.floor(self.seconds * rate_hz + 1e-6) < 1:
            raise UsageError(
                f"`seconds` {self.seconds:g} holds no sweep at {rate_hz:g} Hz: ask for {1 / rate_hz:g} or more"
            )
        if self.format == "kitti" and len(sensor.heads) > 1:
            raise UsageError(f"`format` kitti cannot hold the two lidars of {self.sensor}; use folder")

    def names(self) -> list[str]:
        """Of all drives, in order."""
        return [f"{self.drive_seed(i):012d}" for i in range(self.count)]

    def drive_seed(self, index: int) -> int:
        """The street of a drive."""
        return self.seed * MOST_DRIVES + index


def unfinished(generation: Generation, out: Path) -> list[int]:
    """The drives that are still to be written."""
    names = generation.names()
    try:
        return [i for i, name in enumerate(names) if not place_of(out, name, generation.format).exists()]
    except OSError as error:  # a name that is too long, a folder that may not be looked into
        raise _unusable(out, error) from error


def generate(generation: Generation, out: Path, *, workers: int = 1, track: Track = silent) -> list[Path]:
    """Write every drive that is not there yet; returns the folders of all. The result does not depend on `workers`."""
    if workers < 1:
        raise UsageError(f"`workers` must be at least 1, got {workers}")
    _check_settings(generation, out)
    missing = unfinished(generation, out)
    for _ in track(_written(generation, out, missing, workers), "simulating drives", len(missing)):
        pass
    return [place_of(out, name, generation.format) for name in generation.names()]


def _written(generation: Generation, out: Path, missing: list[int], workers: int) -> Iterator[int]:
    if workers == 1 or len(missing) < 2:
        for index in missing:
            yield _write_one(generation, out, index)
        return
    # Spawned, not forked: a fork would copy the locks of whatever threads run here.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(workers, len(missing)), mp_context=context, initializer=_start_worker)
    try:
        jobs = [pool.submit(_write_one, generation, out, index) for index in missing]
        for job in as_completed(jobs):
            yield job.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _start_worker() -> None:
    """Ctrl-C reaches every process of a terminal: workers finish the drive at hand, and the parent stops.

    A parent that was killed does not stop its workers: so each watches it, and ends with it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()


def _end_with_the_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # at once: the result has no taker


def _write_one(generation: Generation, out: Path, index: int) -> int:
    drive = simulate_drive(
        seed=generation.drive_seed(index), sensor=generation.sensor, seconds=generation.seconds,
        rate_hz=generation.rate_hz, name=generation.names()[index],
    )  # fmt: skip
    write_simulated(drive, out, generation.format)
    return index


def _check_settings(generation: Generation, out: Path) -> None:
    """A folder holds drives of one kind: what a run leaves behind, another may add to but not mix with."""
    wanted = {"simulator_version": SIMULATOR_VERSION, **asdict(generation)}
    wanted.pop("count")
    try:
        found = _read_settings(out / SETTINGS)
        if found is None:
            _write_settings(out, wanted)
            return
    except OSError as error:
        raise _unusable(out, error) from error
    if found != wanted:
        differing = sorted(key for key in {*wanted, *found} if found.get(key) != wanted.get(key))
        theirs = ", ".join(f"{key}={found.get(key)}" for key in differing)
        raise UsageError(
            f"{out} holds drives made with other settings ({', '.join(differing)}): {theirs}. "
            "Choose another `out`, or the same settings"
        )


def _read_settings(path: Path) -> dict[str, object] | None:
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError(f"a {type(found).__name__}")
    except ValueError as error:
        raise DataError(
            path, "settings", expected="the settings that `copilot4d simulate` wrote", found=f"damage ({error})",
            remedy=f"remove {path.parent} and simulate its drives again, or choose another `out`",
        ) from error  # fmt: skip
    return found


def _write_settings(out: Path, settings: dict[str, object]) -> None:
    """Written beside its place and renamed: whatever is called SETTINGS is whole."""
    if out.exists() and not out.is_dir():
        raise UsageError(f"`out` {out} is a file: name a folder")
    beside = f".{SETTINGS}-"
    if out.exists() and not all(p.name == SETTINGS or p.name.startswith(beside) for p in out.iterdir()):
        raise UsageError(f"{out} exists and holds something else: choose another `out`, or remove it first")
    out.mkdir(parents=True, exist_ok=True)
    part = out / f"{beside}{os.getpid()}"
    part.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    part.replace(out / SETTINGS)


def _unusable(out: Path, error: OSError) -> UsageError:
    return UsageError(f"`out` {out} cannot be used ({error.strerror or error}): name a folder that you may write to")
