"""Writing many simulated drives, in any number of processes, resuming where it was interrupted."""

from __future__ import annotations

import json
import multiprocessing
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

from copilot4d.datasets.simulated_files import WrittenFormat, place_of, write_simulated
from copilot4d.errors import UsageError
from copilot4d.progress import Track, silent
from copilot4d.simulator.benchmark import SIMULATOR_VERSION
from copilot4d.simulator.drive import simulate_drive
from copilot4d.simulator.sensors import sensor_named

SETTINGS = "simulation.json"
MOST_DRIVES = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Generation:
    """A reproducible set of drives: the i-th is the street of seed * 1,000,000 + i."""

    drives: int
    sensor: str = "mini32"
    seed: int = 0
    seconds: float = 12.0
    rate_hz: float | None = None
    format: WrittenFormat = "folder"

    def __post_init__(self) -> None:
        sensor = sensor_named(self.sensor)
        if not 1 <= self.drives <= MOST_DRIVES:
            raise UsageError(f"--drives must lie between 1 and {MOST_DRIVES}, got {self.drives}")
        if not 0 <= self.seed < 1_000_000:
            raise UsageError(f"--seed must lie between 0 and 999,999, got {self.seed}")
        if not self.seconds > 0:
            raise UsageError(f"--seconds must be positive, got {self.seconds}")
        if self.rate_hz is not None and not 0 < self.rate_hz <= sensor.rate_hz:
            raise UsageError(f"--rate-hz must lie above 0 and up to the {sensor.rate_hz:g} Hz of {self.sensor}")
        if self.format == "kitti" and len(sensor.heads) > 1:
            raise UsageError(f"--format kitti cannot hold the two lidars of {self.sensor}; use --format folder")

    def names(self) -> list[str]:
        """Of all drives, in order."""
        return [f"{self.drive_seed(i):012d}" for i in range(self.drives)]

    def drive_seed(self, index: int) -> int:
        """The street of a drive."""
        return self.seed * MOST_DRIVES + index


def unfinished(generation: Generation, out: Path) -> list[int]:
    """The drives that are still to be written."""
    names = generation.names()
    return [i for i, name in enumerate(names) if not place_of(out, name, generation.format).exists()]


def generate(generation: Generation, out: Path, *, workers: int = 1, track: Track = silent) -> list[Path]:
    """Write every drive that is not there yet; returns the folders of all. The result does not depend on `workers`."""
    if workers < 1:
        raise UsageError(f"--workers must be at least 1, got {workers}")
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
    pool = ProcessPoolExecutor(min(workers, len(missing)), mp_context=context, initializer=_leave_interrupts_alone)
    try:
        jobs = [pool.submit(_write_one, generation, out, index) for index in missing]
        for job in as_completed(jobs):
            yield job.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _leave_interrupts_alone() -> None:
    """Ctrl-C reaches every process of a terminal: workers finish the drive at hand, and the parent stops."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _write_one(generation: Generation, out: Path, index: int) -> int:
    drive = simulate_drive(
        seed=generation.drive_seed(index), sensor=generation.sensor, seconds=generation.seconds,
        rate_hz=generation.rate_hz, name=generation.names()[index],
    )  # fmt: skip
    write_simulated(drive, out, generation.format)
    return index


def _check_settings(generation: Generation, out: Path) -> None:
    """A folder holds drives of one kind: what a run leaves behind, another may add to but not mix with."""
    path = out / SETTINGS
    wanted = {"simulator_version": SIMULATOR_VERSION, **asdict(generation)}
    wanted.pop("drives")
    if path.exists():
        found = json.loads(path.read_text(encoding="utf-8"))
        if found != wanted:
            differing = sorted(key for key in wanted if found.get(key) != wanted[key])
            theirs = ", ".join(f"{key}={found.get(key)}" for key in differing)
            raise UsageError(
                f"{out} holds drives made with other settings ({', '.join(differing)}): {theirs}. "
                "Choose another --out, or the same settings"
            )
        return
    if out.exists() and any(out.iterdir()):
        raise UsageError(f"{out} exists and holds something else: choose another --out, or remove it first")
    out.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(wanted, indent=2) + "\n", encoding="utf-8")
