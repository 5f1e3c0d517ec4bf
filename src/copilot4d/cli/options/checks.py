"""What can be checked of options before anything heavy is loaded: whether the folders that they name are there."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from copilot4d.errors import UsageError


def check_data(paths: Iterable[Path]) -> None:
    """Raises what `open_dataset` would for paths that are no data sets; reads no tables and no sweeps."""
    from copilot4d.datasets.open import check_recognised

    for path in paths:
        check_recognised(path)


def check_sampling(*, steps: int | None, guidance: float | None, top_k: int | None) -> None:
    """UsageError for flags of the sampler that cannot be; None: not given."""
    if steps is not None and steps < 1:
        raise UsageError(f"--sampling-steps must be at least 1, got {steps}")
    if guidance is not None and not math.isfinite(guidance):
        raise UsageError(f"--guidance must be a finite number, got {guidance}")
    if top_k is not None and top_k < 0:
        raise UsageError(f"--top-k must be at least 0, got {top_k}")


def check_folders(**folders: Path | None) -> None:
    """UsageError for folders that are not there, by their options' names: check_folders(tokenizer=path)."""
    for option, path in folders.items():
        if path is not None and not path.is_dir():
            found = "is a file" if path.exists() else "is not there"
            raise UsageError(f"--{option.replace('_', '-')} {path}: expected a folder, but it {found}; check the path")
