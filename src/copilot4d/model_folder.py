"""A model on disk: `tokenizer/` and `world_model/`, pretrained folders with model cards, and `copilot4d.json` beside.

The world model names the tokenizer that its tokens came from; another one is refused. A third folder, `copy_gate/`,
is there where the model copies what the past measured, and a fourth, `second_opinion/`, where that gate hears one; the
run of a world model keeps both in the same places.
"""

from __future__ import annotations

import copy
import importlib.resources
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import nn

from copilot4d.baselines.occupancy_4d import Occupancy4d
from copilot4d.config import from_mapping, to_mapping
from copilot4d.copy_path import CopyGate, CopyGateConfig
from copilot4d.errors import DataError, UsageError
from copilot4d.model_forecaster import ModelForecaster
from copilot4d.tokenizer import Tokenizer
from copilot4d.training.load_occupancy_4d import KIND as OCCUPANCY_4D
from copilot4d.training.load_occupancy_4d import load_occupancy_4d_network
from copilot4d.training.load_tokenizer import LoadedTokenizer, load_tokenizer, tokenizer_sha256
from copilot4d.training.load_world_model import LoadedWorldModel, load_world_model
from copilot4d.training.pretrained import ModelCard, load_pretrained, save_pretrained
from copilot4d.training.sealed_folder import new_folder
from copilot4d.version import __version__
from copilot4d.world_model import WorldModel

DESCRIPTION = "copilot4d.json"
FORMAT, FORMAT_VERSION = "copilot4d-model", 1
COPY_GATE = "copy_gate"  # in a model folder, and in the run of a world model
SECOND_OPINION = "second_opinion"  # beside a copy gate that hears one
TOKENIZER_NOTE = "tokenizer.json"  # in the run of a world model
SHIPPED = "weights"  # the package's folder of shipped models
SHIPPED_OCCUPANCY_4D = f"mini/{SECOND_OPINION}"  # in it; the baseline 4D-Occ is what `mini` hears
M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True, kw_only=True)
class ModelCards:
    """What a person must know about the parts of a model."""

    tokenizer: ModelCard
    world_model: ModelCard
    copy_gate: ModelCard | None = None
    second_opinion: ModelCard | None = None


class CopyParts(NamedTuple):
    """What lets a model copy: nothing, a gate, or a gate and the second opinion that it hears."""

    gate: CopyGate | None = None
    second_opinion: Occupancy4d | None = None


NOTHING_COPIED = CopyParts()


def save_model(
    folder: str | Path, tokenizer: Tokenizer, world_model: WorldModel, *, cards: ModelCards, name: str | None = None,
    dtype: torch.dtype = torch.float32, copying: CopyParts = NOTHING_COPIED,
) -> Path:  # fmt: skip
    """Write a model folder, whole or not at all. An existing model folder is replaced, anything else is refused.

    dtype: of the weights in the files; a copy gate, which is small, keeps its own. Buffers stay out: they follow from
    the configuration (positions), or only training needs them (the codebook's memory bank).
    """
    gate, second = copying
    ModelForecaster(tokenizer, world_model, copy_gate=gate, second_opinion=second)  # refuses what does not fit
    for part, its_card, words in (
        (gate, cards.copy_gate, "copy gate"), (second, cards.second_opinion, "second opinion"),
    ):  # fmt: skip
        if part is not None and its_card is None:
            raise UsageError(f"a model with a {words} needs a model card for it")
    folder = Path(folder)
    if folder.exists() and not (folder / DESCRIPTION).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists and is not a model folder; choose another name or remove it")
    tokenizer, world_model = _rounded(tokenizer, dtype), _rounded(world_model, dtype)
    sha256 = tokenizer_sha256(tokenizer)
    description = {
        "format": FORMAT, "format_version": FORMAT_VERSION, "name": name or folder.name, "tokenizer_sha256": sha256,
        "token_frame": world_model.config.token_frame, "trained_on": list(cards.world_model.trained_on),
        "written_by": f"copilot4d {__version__}",
    }  # fmt: skip
    with new_folder(folder) as writing:
        save_pretrained(
            writing / "tokenizer", tokenizer, kind="tokenizer", config=to_mapping(tokenizer.config),
            card=cards.tokenizer, dtype=dtype, without=_buffers(tokenizer),
        )  # fmt: skip
        save_pretrained(
            writing / "world_model", world_model, kind="world_model", config=to_mapping(world_model.config),
            card=cards.world_model, dtype=dtype, without=_buffers(world_model),
            conventions={"tokenizer_sha256": sha256},
        )  # fmt: skip
        if gate is not None and cards.copy_gate is not None:
            save_copy_gate(writing / COPY_GATE, gate, cards.copy_gate)
        if second is not None and cards.second_opinion is not None:
            save_second_opinion(writing / SECOND_OPINION, second, cards.second_opinion, dtype=dtype)
        (writing / DESCRIPTION).write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")
    return folder


def load_model_folder(folder: str | Path, *, copy_path: bool = True) -> ModelForecaster:
    """Check and open a model folder; its copy gate, where it has one, unless copy_path says otherwise."""
    folder = Path(folder)
    description = _description(folder / DESCRIPTION)
    name = str(description.get("name", folder.name))
    trained_on = description.get("trained_on", [])
    if not isinstance(trained_on, list) or not all(isinstance(data, str) for data in trained_on):
        raise DataError(
            folder / DESCRIPTION, "trained_on", expected="a list of words", found=repr(trained_on)[:60],
            remedy="pass a folder that `copilot4d export` wrote",
        )  # fmt: skip
    tokenizer, world_model = load_tokenizer(folder / "tokenizer"), load_world_model(folder / "world_model")
    copying = copy_parts_in(folder) if copy_path else NOTHING_COPIED
    return join(tokenizer, world_model, name=name, trained_on=trained_on, copying=copying)


def load_run(folder: str | Path, *, tokenizer: str | Path | None = None, copy_path: bool = True) -> ModelForecaster:
    """A world model from its run or checkpoint, with its tokenizer: the given one, or the one that the run names; and
    with the run's copy gate, where it has one, unless copy_path says otherwise.
    """
    folder = Path(folder)
    world_model = load_world_model(folder)
    place = tokenizer if tokenizer is not None else tokenizer_of_run(folder)
    if place is None:
        raise UsageError(f"{folder} does not say where its tokenizer is: name its run or folder (--tokenizer)")
    copying = copy_parts_in(run_of(folder)) if copy_path else NOTHING_COPIED
    return join(load_tokenizer(place), world_model, name=folder.resolve().name, copying=copying)


def save_copy_gate(folder: str | Path, gate: CopyGate, card: ModelCard) -> None:
    """Write a copy gate, as a pretrained folder; how it was trained is kept for the cards of other folders."""
    trained = {"steps": card.steps, "samples": card.samples, "training_s": card.training_s}
    save_pretrained(folder, gate, kind="copy_gate", config=to_mapping(gate.config), card=card, conventions=trained)


def copy_gate_in(folder: Path) -> CopyGate | None:
    """The copy gate that a model folder or a run has; None where it has none."""
    place = folder / COPY_GATE
    if not place.is_dir():
        return None
    shared = load_pretrained(place, kind="copy_gate")
    gate = CopyGate(from_mapping(CopyGateConfig, shared.config, source=place / "config.json"))
    shared.fill(gate)
    return gate.eval()


def save_second_opinion(
    folder: str | Path, network: Occupancy4d, card: ModelCard, *, dtype: torch.dtype = torch.float32
) -> None:
    """Write the second opinion of a copy gate: an occupancy network, as `copilot4d export --occupancy-4d` does."""
    save_pretrained(
        folder, network, kind=OCCUPANCY_4D, config=to_mapping(network.config), card=card, dtype=dtype
    )  # fmt: skip


def second_opinion_in(folder: Path) -> Occupancy4d | None:
    """The second opinion that a model folder or a run has; None where it has none."""
    place = folder / SECOND_OPINION
    return load_occupancy_4d_network(place).model if place.is_dir() else None


def copy_parts_in(folder: Path) -> CopyParts:
    """What a model folder or a run copies with; a second opinion that its gate does not hear is left where it is."""
    gate = copy_gate_in(folder)
    if gate is None or not gate.config.hears_second_opinion:
        return CopyParts(gate)
    second = second_opinion_in(folder)
    if second is None:
        raise DataError(
            folder / SECOND_OPINION, "folder", expected="the second opinion that the copy gate was learned with",
            found="none", remedy="copy the whole folder, or learn the gate again (copilot4d train copy-gate)",
        )  # fmt: skip
    return CopyParts(gate, second)


def copy_gate_training(folder: Path) -> Mapping[str, float]:
    """How the gate of a model folder or a run was trained: steps, samples, training_s; 0 where nobody knows."""
    stated = load_pretrained(folder / COPY_GATE, kind="copy_gate").conventions
    return {name: float(stated.get(name, 0)) for name in ("steps", "samples", "training_s")}


def join(
    tokenizer: LoadedTokenizer, world_model: LoadedWorldModel, *, name: str, trained_on: Sequence[str] = (),
    copying: CopyParts = NOTHING_COPIED,
) -> ModelForecaster:  # fmt: skip
    """The parts of a model; DataError where the world model was trained on another tokenizer's tokens."""
    trained_with = world_model.tokenizer_sha256
    if trained_with != tokenizer.sha256:
        raise DataError(
            world_model.path, "tokenizer", expected=f"the one it was trained with, {str(trained_with)[:12]}",
            found=f"{tokenizer.path}, which is {tokenizer.sha256[:12]}",
            remedy="use the tokenizer that the world model was trained with",
        )  # fmt: skip
    return ModelForecaster(
        tokenizer.tokenizer, world_model.world_model, name=name, trained_on=trained_on, copy_gate=copying.gate,
        second_opinion=copying.second_opinion,
    )  # fmt: skip


def note_tokenizer(run: str | Path, tokenizer: str | Path) -> None:
    """Write down beside a world model's run where its tokenizer is, so that the run alone is enough to load both."""
    path = os.path.relpath(Path(tokenizer).resolve(), Path(run).resolve())
    (Path(run) / TOKENIZER_NOTE).write_text(json.dumps({"tokenizer": path}) + "\n", encoding="utf-8")


def tokenizer_of_run(folder: Path) -> Path | None:
    """Where the tokenizer of a world model's run (or of one of its checkpoints) is, if the run says so."""
    run = run_of(folder)
    note = run / TOKENIZER_NOTE
    if not note.is_file():
        return None
    try:
        path = json.loads(note.read_text(encoding="utf-8"))["tokenizer"]
        return run / str(path)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(note, "tokenizer", expected="a path", found=str(error), remedy="give --tokenizer") from error


def run_of(folder: Path) -> Path:
    """The run itself, of a run or of one of its checkpoints."""
    return folder if (folder / "checkpoints").is_dir() else folder.resolve().parent.parent


def shipped_model(name: str) -> Path:
    """The folder of a model that comes with the package; UsageError where this installation has none."""
    return shipped_folder(name, DESCRIPTION)


def shipped_folder(name: str, holds: str = "config.json") -> Path:
    """The folder of weights that come with the package, in which the file `holds` must be; UsageError without."""
    folder = importlib.resources.files("copilot4d") / SHIPPED / name
    if not (folder / holds).is_file():
        raise UsageError(
            f"this installation of copilot4d {__version__} brings no weights {name!r}; train a model and pass its "
            "folder, or use a baseline without weights (copy_last, ray_tracing)"
        )
    return Path(str(folder))


def _description(path: Path) -> dict[str, Any]:
    remedy = "pass a folder that `copilot4d export` wrote"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(path, "file", expected="the description of a model", found="none", remedy=remedy) from None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(path, "JSON", expected="the description of a model", found=str(error), remedy=remedy) from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise DataError(path, "format", expected=repr(FORMAT), found=repr(found)[:60], remedy=remedy)
    if found.get("format_version") != FORMAT_VERSION:
        version = repr(found.get("format_version"))
        raise DataError(
            path, "format_version", expected=str(FORMAT_VERSION), found=version,
            remedy="read it with the version of copilot4d that wrote it",
        )  # fmt: skip
    return found


def _buffers(model: nn.Module) -> list[str]:
    return [name for name, _ in model.named_buffers()]


def _rounded(model: M, dtype: torch.dtype) -> M:
    """A copy whose weights are those that the file will hold: the identity is taken of them."""
    model = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.to(dtype))
    return model
