"""What was run, and whether it still holds: one JSON file per step below WORK/records.

A step is done when its product is there, its record says that the same command finished, and the inputs of that command
(the weights of the runs that it read, by their hash) are still what they were. The record is begun before the command,
so that a run that goes on after an interrupt is known to have the inputs that it began with.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

from steps import Places, Plan, Step

from copilot4d.checkpoints.checkpoint import CheckpointStore
from copilot4d.errors import DataError, UsageError

try:
    import fcntl
except ImportError:  # Windows: nothing is held there
    fcntl = None  # type: ignore[assignment]

State = Literal["done", "given", "to do", "begun", "outdated"]
THERE = ("done", "given")


@dataclass(frozen=True, kw_only=True)
class Record:
    """What is remembered of a step."""

    words: list[str]  # with placeholders
    inputs: dict[str, str]  # need -> fingerprint of its product
    files: dict[str, str] = field(default_factory=dict)  # the small files that the command reads
    finished: bool = False
    given: str = ""  # where a product that was made elsewhere is
    seconds: float = 0.0  # of wall clock, over all attempts
    looks: list[dict[str, str]] = field(default_factory=list)  # inputs of each finished look, for steps that report


class Book:
    """The records of a working folder."""

    def __init__(self, plan: Plan, places: Places) -> None:
        self.plan, self.places = plan, places

    def product(self, step: Step) -> Path:
        """What the step makes."""
        return self.places.work / step.makes

    def record(self, step: Step) -> Record | None:
        """What is known of a step; None where it was never begun."""
        path = self._path(step)
        if not path.exists():
            return None
        try:
            return Record(**json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise DataError(path, "record", expected="what make.py wrote", found=str(error),
                            remedy="remove it; its step is then made again") from error  # fmt: skip

    def state(self, step: Step) -> State:
        """Whether a step is done. A product made elsewhere (`given`) is taken as it is."""
        record = self.record(step)
        if record is None:
            return "to do"
        if record.given:
            return "given" if self.product(step).exists() else "to do"
        if (record.words, record.files) != (list(step.words), dict(step.files)) or record.inputs != self.inputs(step):
            return "outdated"
        if not record.finished:
            return "begun"
        return "done" if self._whole(step) else "to do"

    def inputs(self, step: Step) -> dict[str, str]:
        """need -> the fingerprint of its product as it is now; empty where there is none yet."""
        return {need: fingerprint(self.product(self.plan.steps[need])) for need in step.needs}

    def begin(self, step: Step) -> None:
        """Before its command runs: small files are written, and what it is about to read is remembered."""
        for place, text in step.files.items():
            file = self.places.work / place
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        self.product(step).parent.mkdir(parents=True, exist_ok=True)
        old = self.record(step) or Record(words=[], inputs={})
        # A single look at drives for reporting stays remembered whatever is made again.
        words, files = list(step.words), dict(step.files)
        new = replace(old, words=words, files=files, inputs=self.inputs(step), finished=False, given="")
        self._write(step, new)

    def finish(self, step: Step, seconds: float, *, success: bool) -> None:
        """After its command."""
        record = self.record(step)
        assert record is not None, "begin comes before finish"
        looks = [*record.looks, record.inputs] if success and step.report else record.looks
        self._write(step, replace(record, finished=success, seconds=record.seconds + seconds, looks=looks))

    def give(self, step: Step, place: Path) -> None:
        """Take a product that was made elsewhere, through a link; the step is never run then."""
        if not place.exists():
            raise UsageError(f"--use {step.name}={place}: there is nothing there")
        product = self.product(step)
        if product.is_symlink():
            product.unlink()
        if product.exists() and product.resolve() != place.resolve():
            raise UsageError(f"--use {step.name}={place}: {product} is already there; move it away first")
        if not product.exists():
            product.parent.mkdir(parents=True, exist_ok=True)
            product.symlink_to(place.resolve())
        old = self.record(step) or Record(words=[], inputs={})
        self._write(step, replace(old, words=list(step.words), inputs={}, finished=True, given=str(place)))

    @contextlib.contextmanager
    def held(self, step: Step) -> Iterator[bool]:
        """Hold a step against other processes on the same folder; yields whether it was free at once."""
        path = self._path(step).with_suffix(".lock")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            free = True
            if fcntl is not None:
                try:
                    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except (BlockingIOError, PermissionError):
                    free = False
                    fcntl.lockf(file, fcntl.LOCK_EX)
            yield free

    def _whole(self, step: Step) -> bool:
        """Whether the product is there; of a training, whether it came to its end."""
        product = self.product(step)
        if step.updates is None:
            return product.exists()
        made = CheckpointStore(folder=product / "checkpoints").steps()
        return bool(made) and made[-1] >= step.updates

    def _path(self, step: Step) -> Path:
        return self.places.work / "records" / f"{step.name}.json"

    def _write(self, step: Step, record: Record) -> None:
        path = self._path(step)
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        new.write_text(json.dumps(asdict(record), indent=1) + "\n", encoding="utf-8")
        new.replace(path)


def fingerprint(product: Path) -> str:
    """Tells a product from another one at the same place; empty where there is none.

    Of a run, its checkpoint in use (the best, else the newest); of another folder, its manifests, which hold the hashes
    of all files beside them; of a file, its bytes.
    """
    if not product.exists():
        return ""
    if product.is_file():
        return hashlib.sha256(product.read_bytes()).hexdigest()[:16]
    files = sorted(product.rglob("manifest.json"))
    if (product / "checkpoints").is_dir():
        store = CheckpointStore(folder=product / "checkpoints")
        steps = store.steps()
        if not steps:
            return ""
        best = store.best_step()
        files = [store.path(steps[-1] if best is None else best) / "manifest.json"]
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.relative_to(product).as_posix().encode() + file.read_bytes())
    return digest.hexdigest()[:16] if files else "folder"
