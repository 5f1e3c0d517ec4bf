"""A tokenizer and its world model, with what selects depths, read from a model folder or a run and joined."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from copilot4d.checkpoints.depth_parts import RENDERED_ALONE, DepthParts, depth_parts_in
from copilot4d.checkpoints.load_tokenizer import LoadedTokenizer, load_tokenizer
from copilot4d.checkpoints.load_world_model import LoadedWorldModel, load_world_model
from copilot4d.checkpoints.model_folder import (
    read_description,
    run_of,
    tokenizer_of_run,
)
from copilot4d.checkpoints.sealed_folder import sealed_part
from copilot4d.checkpoints.stored_sampling import StoredSampling
from copilot4d.errors import DataError, UsageError
from copilot4d.forecasting.copilot4d import Copilot4D


def load_model_folder(folder: str | Path, *, depth_selection: bool = True) -> Copilot4D:
    """Check and open a model folder; its depth selector, where it has one, unless depth_selection says otherwise."""
    folder = Path(folder)
    said = read_description(folder)
    for part in ("tokenizer", "world_model"):
        sealed_part(folder, part)
    tokenizer, world_model = load_tokenizer(folder / "tokenizer"), load_world_model(folder / "world_model")
    depth_parts = depth_parts_in(folder) if depth_selection else RENDERED_ALONE
    return join(
        tokenizer, world_model, name=said.name, trained_on=said.trained_on, depth_parts=depth_parts,
        sampling=said.sampling, intervals_s=said.intervals_s,
    )  # fmt: skip


def load_run(folder: str | Path, *, tokenizer: str | Path | None = None, depth_selection: bool = True) -> Copilot4D:
    """A world model from its run or checkpoint, with its tokenizer: the given one, or the one that the run names; and
    with the run's depth selector, where it has one, unless depth_selection says otherwise.
    """
    folder = Path(folder)
    world_model = load_world_model(folder)
    place = tokenizer if tokenizer is not None else tokenizer_of_run(folder)
    if place is None:
        raise UsageError(f"{folder} does not say where its tokenizer is: name its run or folder as `tokenizer`")
    depth_parts = depth_parts_in(run_of(folder)) if depth_selection else RENDERED_ALONE
    return join(load_tokenizer(place), world_model, name=folder.resolve().name, depth_parts=depth_parts)


def join(
    tokenizer: LoadedTokenizer, world_model: LoadedWorldModel, *, name: str, trained_on: Sequence[str] = (),
    depth_parts: DepthParts = RENDERED_ALONE, sampling: StoredSampling | None = None, intervals_s: Sequence[float] = (),
) -> Copilot4D:  # fmt: skip
    """The parts of a model; DataError where the world model was trained on another tokenizer's tokens.

    intervals_s: seconds between the frames that it was trained on; by default those that the world model states.
    """
    trained_with = world_model.tokenizer_sha256
    if trained_with != tokenizer.sha256:
        raise DataError(
            world_model.path, "tokenizer", expected=f"the one it was trained with, {str(trained_with)[:12]}",
            found=f"{tokenizer.path}, which is {tokenizer.sha256[:12]}",
            remedy="use the tokenizer that the world model was trained with",
        )  # fmt: skip
    if world_model.world_model.lacks_code_vectors:
        raise DataError(
            world_model.path, "code vectors", expected="the tokenizer's, which this world model reads",
            found="none in the file", remedy="export the world model again from its run",
        )  # fmt: skip
    return Copilot4D(
        tokenizer.tokenizer, world_model.world_model, name=name, trained_on=tuple(trained_on),
        depth_selector=depth_parts.depth_selector, occupancy=depth_parts.occupancy,
        sampler=(sampling or StoredSampling()).sampler(), intervals_s=tuple(intervals_s) or world_model.intervals_s,
    )  # fmt: skip
