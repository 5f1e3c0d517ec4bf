"""A model on disk: `tokenizer/` and `world_model/`, pretrained folders with model cards, and `copilot4d.json` beside.

The world model names the tokenizer that its tokens came from; another one is refused. A model that selects depths has
`depth_selector/`, too, and perhaps `occupancy/` (see `depth_parts`); so has the run of a world model.
"""

from __future__ import annotations

import copy
import importlib.resources
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from copilot4d.checkpoints.depth_parts import (
    DEPTH_SELECTOR,
    OCCUPANCY,
    RENDERED_ALONE,
    DepthParts,
    place_in,
    save_depth_selector,
    save_occupancy,
)
from copilot4d.checkpoints.load_tokenizer import tokenizer_sha256
from copilot4d.checkpoints.load_world_model import checked_intervals
from copilot4d.checkpoints.parts import check_fit
from copilot4d.checkpoints.pretrained import ModelCard, save_pretrained
from copilot4d.checkpoints.sealed_folder import new_folder, sealed_part
from copilot4d.checkpoints.stored_sampling import BLOCK, StoredSampling, stated_sampling
from copilot4d.config import to_mapping
from copilot4d.errors import DataError, UsageError
from copilot4d.tokenizer import Tokenizer
from copilot4d.version import __version__
from copilot4d.world_model import WorldModel

DESCRIPTION = "copilot4d.json"
FORMAT, FORMAT_VERSION = "copilot4d-model", 1
TOKENIZER_NOTE = "tokenizer.json"  # in the run of a world model
SHIPPED = "weights"  # the package's folder of shipped models
M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True, kw_only=True)
class ModelCards:
    """What a person must know about the parts of a model."""

    tokenizer: ModelCard
    world_model: ModelCard
    depth_selector: ModelCard | None = None
    occupancy: ModelCard | None = None


@dataclass(frozen=True, kw_only=True)
class Description:
    """What copilot4d.json of a model folder says: the model's name, its training data in words, how it is sampled, and
    the seconds between the frames that it was trained on (empty: not known).
    """

    name: str
    trained_on: tuple[str, ...]
    sampling: StoredSampling | None = None  # None: nothing was chosen, and the sampler's defaults hold
    intervals_s: tuple[float, ...] = ()


def save_model(
    folder: str | Path, tokenizer: Tokenizer, world_model: WorldModel, *, cards: ModelCards, name: str | None = None,
    dtype: torch.dtype = torch.float32, depth_parts: DepthParts = RENDERED_ALONE,
    sampling: StoredSampling | None = None, intervals_s: Sequence[float] = (),
) -> Path:  # fmt: skip
    """Write a model folder, whole or not at all. An existing model folder is replaced, anything else is refused.

    dtype: of the weights in the files; a depth selector, which is small, keeps its own. Buffers stay out: they follow
    from the configuration (positions), or only training needs them (the codebook's memory bank). sampling: how the
    model is sampled where a forecast does not say; None: the sampler's defaults. intervals_s: seconds between the
    frames that it was trained on; empty where they are not known.
    """
    selector, occupancy = depth_parts.depth_selector, depth_parts.occupancy
    check_fit(tokenizer, world_model, selector, occupancy)
    for part, its_card, words in (
        (selector, cards.depth_selector, "a depth selector"), (occupancy, cards.occupancy, "an occupancy network"),
    ):  # fmt: skip
        if part is not None and its_card is None:
            raise UsageError(f"a model with {words} needs a model card for it")
    folder = Path(folder)
    if folder.exists() and not (folder / DESCRIPTION).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists and is not a model folder; choose another name or remove it")
    tokenizer, world_model = _rounded(tokenizer, dtype), _rounded(world_model, dtype)
    sha256 = tokenizer_sha256(tokenizer)
    description = {
        "format": FORMAT, "format_version": FORMAT_VERSION, "name": name or folder.name, "tokenizer_sha256": sha256,
        "token_frame": world_model.config.token_frame, "trained_on": list(cards.world_model.trained_on),
        **({"intervals_s": list(intervals_s)} if intervals_s else {}), "written_by": f"copilot4d {__version__}",
    }  # fmt: skip
    if sampling is not None:
        description[BLOCK] = to_mapping(sampling)
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
        if selector is not None and cards.depth_selector is not None:
            save_depth_selector(writing / DEPTH_SELECTOR, selector, cards.depth_selector)
        if occupancy is not None and cards.occupancy is not None:
            save_occupancy(writing / OCCUPANCY, occupancy, cards.occupancy, dtype=dtype)
        (writing / DESCRIPTION).write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")
    return folder


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
        raise DataError(note, "tokenizer", expected="a path", found=str(error), remedy="give `tokenizer`") from error


def run_of(folder: Path) -> Path:
    """The run itself, of a run or of one of its checkpoints."""
    return folder if (folder / "checkpoints").is_dir() else folder.resolve().parent.parent


def shipped_model(name: str) -> Path:
    """The folder of a model that comes with the package; UsageError where this installation has none."""
    return shipped_folder(name, DESCRIPTION)


def shipped_occupancy_4d() -> Path:
    """The weights of the baseline 4D-Occ that come with the package: `mini` has its occupancy depths from them."""
    place = place_in(shipped_model("mini"), OCCUPANCY)
    return shipped_folder(f"mini/{OCCUPANCY if place is None else place.name}")


def shipped_folder(name: str, holds: str = "config.json") -> Path:
    """The folder of weights that come with the package, in which the file `holds` must be; UsageError without."""
    folder = importlib.resources.files("copilot4d") / SHIPPED / name
    if not (folder / holds).is_file():
        raise UsageError(
            f"this installation of copilot4d {__version__} brings no weights {name!r}; train a model and pass its "
            "folder, or use a baseline without weights (copy_last, ray_tracing)"
        )
    if holds == "config.json":
        sealed_part(Path(str(folder)).parent, folder.name)
    return Path(str(folder))


def read_description(folder: Path) -> Description:
    """What a model folder says of itself."""
    path = folder / DESCRIPTION
    stated = _description(path)
    trained_on = stated.get("trained_on", [])
    if not isinstance(trained_on, list) or not all(isinstance(data, str) for data in trained_on):
        raise DataError(
            path, "trained_on", expected="a list of words", found=repr(trained_on)[:60],
            remedy="pass a folder that `copilot4d export` wrote",
        )  # fmt: skip
    return Description(
        name=str(stated.get("name", folder.name)), trained_on=tuple(trained_on), sampling=stated_sampling(path, stated),
        intervals_s=checked_intervals(stated.get("intervals_s", []), path),
    )  # fmt: skip


def stated_intervals(folder: Path) -> tuple[float, ...]:
    """The intervals that a model folder states by itself; none where it is no model folder."""
    return read_description(folder).intervals_s if (folder / DESCRIPTION).is_file() else ()


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
    """All but those that the model says it cannot do without."""
    kept = getattr(model, "kept_buffers", ())
    return [name for name, _ in model.named_buffers() if name not in kept]


def _rounded(model: M, dtype: torch.dtype) -> M:
    """A copy whose weights are those that the file will hold: the identity is taken of them."""
    model = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.to(dtype))
    return model
