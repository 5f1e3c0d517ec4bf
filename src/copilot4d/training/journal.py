"""What a person sees of a run: a progress line, `log.jsonl`, TensorBoard, pictures."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from copilot4d.progress import duration


@dataclass(frozen=True, kw_only=True)
class LogRecord:
    """One line of the log."""

    step: int  # updates done
    steps: int
    losses: Mapping[str, float]
    numbers: Mapping[str, float] = field(default_factory=dict)  # of the task: codebook usage, perplexity
    learning_rate: float
    gradient_norm: float
    samples_per_s: float
    waiting: float  # share of time spent waiting for data
    eta_s: float

    def line(self) -> str:
        """The progress line: step, losses, rate, time left."""
        width = len(str(self.steps))
        parts = [f"total {self.losses['total']:.4g}"] if "total" in self.losses else []
        parts += [f"{n} {v:.4g}" for n, v in self.losses.items() if n != "total"]
        numbers = "".join(f"  {n} {v:.4g}" for n, v in self.numbers.items())
        return (
            f"step {self.step:>{width}}/{self.steps}  {'  '.join(parts)}{numbers}  lr {self.learning_rate:.2e}  "
            f"{self.samples_per_s:.3g} samples/s  waiting {self.waiting:.0%}  left {duration(self.eta_s)}"
        )


class Observer(Protocol):
    """Is told what happens in a run; the command line prints it."""

    def on_log(self, record: LogRecord) -> None:
        """A line of the log is due."""
        ...

    def on_message(self, message: str) -> None:
        """Something to know: the estimate, a checkpoint, a damaged file."""
        ...


class Silent:
    """Shows nothing."""

    def on_log(self, record: LogRecord) -> None:
        """Ignore."""

    def on_message(self, message: str) -> None:
        """Ignore."""


class Stopwatch:
    """Time spent training since the last log; pauses for evaluation and saving."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """From zero, running."""
        self._elapsed = 0.0
        self._since: float | None = time.perf_counter()

    def pause(self) -> None:
        """Stop counting."""
        self._elapsed, self._since = self.seconds, None

    def resume(self) -> None:
        """Count on."""
        self._since = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Counted so far."""
        return self._elapsed + (0.0 if self._since is None else time.perf_counter() - self._since)


class Journal:
    """`log.jsonl`, TensorBoard events and pictures of a run; the first rank alone has one."""

    def __init__(self, run: Path, *, first_step: int, tensorboard: bool) -> None:
        run.mkdir(parents=True, exist_ok=True)
        self.run = run
        self._writer: Any = None
        path = run / "log.jsonl"
        forget_after(path, first_step)
        self._file = path.open("a", encoding="utf-8")
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(run / "events"), purge_step=first_step + 1)

    def log(self, record: LogRecord) -> None:
        """Write a record."""
        self._line({"kind": "train", **asdict(record)})
        scalars = {f"loss/{n}": v for n, v in record.losses.items()}
        scalars |= {f"task/{n}": v for n, v in record.numbers.items()}
        for name in ("learning_rate", "gradient_norm", "samples_per_s", "waiting"):
            scalars[f"run/{name}"] = getattr(record, name)
        self._scalars(scalars, record.step)

    def scores(self, step: int, scores: Mapping[str, float], *, best: bool) -> None:
        """Write an evaluation."""
        self._line({"kind": "evaluation", "step": step, "scores": dict(scores), "best": best})
        self._scalars({f"score/{n}": v for n, v in scores.items()}, step)

    def pictures(self, step: int, pictures: Mapping[str, NDArray[np.uint8]]) -> list[Path]:
        """Write pictures as PNG files."""
        from PIL import Image

        folder = self.run / "pictures"
        folder.mkdir(exist_ok=True)
        paths = []
        for name, image in pictures.items():
            paths.append(folder / f"step_{step:09d}_{name}.png")
            Image.fromarray(image).save(paths[-1])
            if self._writer is not None:
                self._writer.add_image(name, image, step, dataformats="HWC")
        return paths

    def close(self) -> None:
        """Write out what is pending."""
        self._file.close()
        if self._writer is not None:
            self._writer.close()

    def _scalars(self, scalars: Mapping[str, float], step: int) -> None:
        if self._writer is not None:
            for name, value in scalars.items():
                self._writer.add_scalar(name, value, step)

    def _line(self, record: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(_finite(record), allow_nan=False) + "\n")
        self._file.flush()


def _finite(value: Any) -> Any:
    """JSON has no NaN: null stands for it."""
    if isinstance(value, Mapping):
        return {k: _finite(v) for k, v in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def forget_after(path: Path, step: int) -> None:
    """Drop the lines of steps that a resumed run will do again, and a line that a kill cut short."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            if int(json.loads(line)["step"]) <= step:
                kept.append(line + "\n")
        except (ValueError, KeyError, TypeError):
            continue
    temporary = path.with_suffix(".new")
    temporary.write_text("".join(kept), encoding="utf-8")
    temporary.replace(path)
