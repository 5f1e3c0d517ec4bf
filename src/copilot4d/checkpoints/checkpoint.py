"""Checkpoints of a run: `checkpoints/step_000001000/`, each a sealed folder of safetensors and JSON.

    model.safetensors      parameters and buffers
    optimizer.safetensors  AdamW's moments, by parameter name
    ema.safetensors        the moving average, where there is one
    state.json             step, sample order, scores, time
    manifest.json          sha256 of all of them, format version, conventions, config, data fingerprint

The last few and the best are kept. Loading reads safetensors and JSON only, after every byte was checked.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from copilot4d.checkpoints.sealed_folder import (
    DamagedError,
    Sealed,
    new_folder,
    no_space_left,
    open_sealed,
    remove_unfinished,
    seal,
)
from copilot4d.errors import DataError, TrainingError
from copilot4d.version import __version__

KIND = "copilot4d.checkpoint"
VERSION = 1
CONVENTIONS = {
    "axes": "x forward, y left, z up, metres, at the lidar",
    "poses": "world_from_lidar, 4x4, float64",
}
STEP_FOLDER = re.compile(r"step_(\d{9,})")
TENSOR_FILES = ("model", "optimizer", "ema")

Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class RunIdentity:
    """What a checkpoint belongs to; resuming demands the same."""

    task: str
    config: Mapping[str, Any]  # plain values: the model's and the recipe's
    data_fingerprint: str
    conventions: Mapping[str, Any]  # what changes the meaning of the weights: grid, actions, vocabulary
    defaults: Mapping[str, Any] = field(default_factory=dict)  # of `config`, for checkpoints older than a setting

    def content(self) -> dict[str, Any]:
        """As the manifest holds it."""
        return {
            "task": self.task,
            "config": self.config,
            "data_fingerprint": self.data_fingerprint,
            "conventions": {**CONVENTIONS, **self.conventions},
            "written_by": f"copilot4d {__version__}",
        }


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A checkpoint whose bytes were checked."""

    sealed: Sealed
    state: Mapping[str, Any]

    @property
    def path(self) -> Path:
        """Its folder."""
        return self.sealed.path

    @property
    def step(self) -> int:
        """Updates done."""
        return int(self.state["step"])

    @property
    def content(self) -> Mapping[str, Any]:
        """The manifest's words: task, config, data_fingerprint, conventions."""
        return self.sealed.content

    @property
    def model_sha256(self) -> str:
        """The identity of the weights, which token caches name."""
        return self.sealed.files["model.safetensors"]

    def has(self, name: str) -> bool:
        """Whether there is a `name`.safetensors."""
        return f"{name}.safetensors" in self.sealed.files

    def tensors(self, name: str) -> dict[str, torch.Tensor]:
        """The tensors of `name`.safetensors ("model", "optimizer", "ema"), on the CPU."""
        path = self.path / f"{name}.safetensors"
        if not self.has(name):
            raise DataError(path, "file", expected="a file of the checkpoint", found="none",
                            remedy="use a checkpoint that has it")  # fmt: skip
        return read_tensors(path)


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """A safetensors file, with an error of our own where it is none."""
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise DamagedError(
            path, "tensors", expected="a safetensors file", found=str(error), remedy="copy the file again"
        ) from error


def open_checkpoint(folder: str | Path) -> Checkpoint:
    """Check and open one checkpoint folder."""
    sealed = open_sealed(folder, kind=KIND, version=VERSION)
    if "state.json" not in sealed.files or "model.safetensors" not in sealed.files:
        found = ", ".join(sealed.files) or "nothing"
        raise DataError(sealed.path, "files", expected="state.json and model.safetensors", found=found,
                        remedy="pass a checkpoint folder")  # fmt: skip
    try:
        state = json.loads((sealed.path / "state.json").read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        state = None
    if not isinstance(state, dict) or not isinstance(state.get("step"), int):
        raise DataError(sealed.path / "state.json", "step", expected="an object with a whole number", found="none",
                        remedy="pass a checkpoint folder")  # fmt: skip
    return Checkpoint(sealed=sealed, state=state)


@dataclass(frozen=True, kw_only=True)
class CheckpointStore:
    """The checkpoints of one run. `report` is told of damaged ones."""

    folder: Path
    keep_last: int = 3
    report: Callable[[str], None] = lambda message: None

    def path(self, step: int) -> Path:
        """The folder of a step."""
        return self.folder / f"step_{step:09d}"

    def steps(self) -> list[int]:
        """Steps that have a folder, oldest first."""
        if not self.folder.is_dir():
            return []
        matches = (STEP_FOLDER.fullmatch(p.name) for p in self.folder.iterdir() if p.is_dir() and not p.is_symlink())
        return sorted(int(m[1]) for m in matches if m)

    def save(self, identity: RunIdentity, state: Mapping[str, Any], tensors: Mapping[str, Tensors]) -> Path:
        """Write a checkpoint, then delete those that are neither among the last nor the best.

        state: plain values with "step", and "score" (lower is better) or None.
        tensors: by file name without suffix: "model", "optimizer", "ema".
        """
        final = self.path(int(state["step"]))
        self.folder.mkdir(parents=True, exist_ok=True)
        remove_unfinished(self.folder)
        try:
            with new_folder(final) as folder:
                for name, values in tensors.items():
                    save_file({k: v.contiguous() for k, v in values.items()}, folder / f"{name}.safetensors")
                (folder / "state.json").write_text(json.dumps(state, indent=1), encoding="utf-8")
                seal(folder, kind=KIND, version=VERSION, content=identity.content())
        except (OSError, SafetensorError) as error:
            raise self._cannot_save(final, error, tensors) from error
        self.prune()
        return final

    def newest(self) -> Checkpoint | None:
        """The newest intact checkpoint. Damaged ones are reported, set aside as `damaged_step_...`, and passed over."""
        for step in reversed(self.steps()):
            try:
                return open_checkpoint(self.path(step))
            except DamagedError as error:
                self.report(f"checkpoint of step {step} is damaged and not used, trying the one before: {error}")
                self._set_aside(self.path(step))
        return None

    def best_step(self) -> int | None:
        """The step with the lowest score."""
        scored = self._scored()
        return min(scored)[1] if scored else None

    def best_score(self) -> float | None:
        """The lowest score of a checkpoint that is there."""
        scored = self._scored()
        return min(scored)[0] if scored else None

    def prune(self) -> None:
        """Keep the last `keep_last` and the best."""
        steps = self.steps()
        kept = {*steps[-max(1, self.keep_last) :], self.best_step()}
        for step in steps:
            if step not in kept:
                doomed = self.folder / f".writing-deleted-{step:09d}"  # gone at once, even if the deletion is killed
                self.path(step).rename(doomed)
                shutil.rmtree(doomed, ignore_errors=True)

    def _scored(self) -> list[tuple[float, int]]:
        return [(score, step) for step in self.steps() if (score := self._score(step)) is not None]

    def _score(self, step: int) -> float | None:
        try:
            score = json.loads((self.path(step) / "state.json").read_text(encoding="utf-8"))["score"]
        except (OSError, ValueError, KeyError, TypeError):
            return None  # damaged: `newest` tells about it
        return float(score) if isinstance(score, (int, float)) and math.isfinite(score) else None

    def _set_aside(self, path: Path) -> None:
        aside = path.with_name(f"damaged_{path.name}")
        if aside.exists():
            shutil.rmtree(aside, ignore_errors=True)
        try:
            path.rename(aside)
        except OSError as error:
            self.report(f"{path} could not be renamed ({error}); it stays where it is")

    def _cannot_save(self, final: Path, error: Exception, tensors: Mapping[str, Tensors]) -> TrainingError:
        kept = self.steps()
        last = f"the last one, {self.path(kept[-1])}, is intact" if kept else "there is no earlier one"
        if no_space_left(error):
            needed = sum(t.numel() * t.element_size() for group in tensors.values() for t in group.values())
            free = shutil.disk_usage(self.folder).free
            return TrainingError(
                f"{final}: the disk is full: a checkpoint needs {needed / 1e6:.0f} MB, {free / 1e6:.0f} MB are free; "
                f"{last}. Make room (or lower training.keep_last) and start the same command again to go on from there"
            )
        return TrainingError(f"{final}: the checkpoint could not be written ({error}); {last}")
