"""`copilot4d export`: a trained tokenizer and world model as one model folder; or a trained 4D-Occ."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from copilot4d.checkpoints.depth_parts import depth_parts_in
from copilot4d.checkpoints.load_occupancy_4d import KIND as OCCUPANCY_4D
from copilot4d.checkpoints.load_occupancy_4d import load_occupancy_4d_network
from copilot4d.checkpoints.load_tokenizer import load_tokenizer
from copilot4d.checkpoints.load_world_model import load_world_model
from copilot4d.checkpoints.model_folder import (
    DESCRIPTION,
    ModelCards,
    read_description,
    run_of,
    save_model,
    stated_intervals,
)
from copilot4d.checkpoints.pretrained import save_pretrained
from copilot4d.checkpoints.stored_sampling import StoredSampling
from copilot4d.cli.card_words import (
    card,
    model_name,
    occupancy_summary,
    selector_card,
    tokenizer_summary,
    world_model_limits,
    world_model_summary,
)
from copilot4d.cli.console import console, next_step
from copilot4d.cli.options.export import Options
from copilot4d.cli.outputs import check_output_folder
from copilot4d.config import to_mapping
from copilot4d.errors import UsageError
from copilot4d.forecasting.hub import parse_hub_name, push
from copilot4d.forecasting.load_model import join

DTYPES = {"fp32": torch.float32, "fp16": torch.float16}


def run(options: Options) -> int:
    """Run the verb."""
    check_output_folder("--out", options.out)
    if options.push is not None:
        parse_hub_name(options.push)
    if options.occupancy_4d is not None:
        if options.tokenizer is not None or options.world_model is not None:
            raise UsageError("give either --tokenizer and --world-model, or --occupancy-4d")
        write_occupancy_4d(options, options.occupancy_4d)
    elif options.tokenizer is None:
        raise UsageError("a model needs --tokenizer and --world-model; the baseline 4D-Occ needs --occupancy-4d alone")
    elif options.world_model is None:
        write_tokenizer(options, options.tokenizer)
    else:
        write_model(options, options.tokenizer, options.world_model)
    total = sum(path.stat().st_size for path in options.out.rglob("*") if path.is_file())
    console.print(f"Wrote {options.out}: {total / 1e6:.1f} MB in {options.precision}", markup=False, highlight=False)
    if options.push is not None:
        commit = push(options.out, options.push)
        console.print(f"Pushed to {options.push}, revision {commit}", markup=False, highlight=False)
    place = str(options.out)
    model = shlex.quote(place if "/" in place else f"./{place}")  # a bare word could be the name of a shipped model
    if options.tokenizer is not None and options.world_model is None:
        next_step("copilot4d tokenize --help")
    else:
        next_step(f"copilot4d demo --model {model} --out demo_{shlex.quote(model_name(options))}")
    return 0


def write_tokenizer(options: Options, place: Path) -> None:
    """A tokenizer alone, as a pretrained folder: to tokenise with, to train a world model on, to start from."""
    loaded = load_tokenizer(place)
    tokenizer = loaded.tokenizer
    save_pretrained(
        options.out, tokenizer, kind="tokenizer", config=to_mapping(tokenizer.config), dtype=DTYPES[options.precision],
        card=card(options, "tokenizer", loaded.checkpoint, tokenizer_summary(tokenizer.config)),
        without=[name for name, _ in tokenizer.named_buffers()],
    )  # fmt: skip


def write_model(options: Options, tokenizer_place: Path, world_model_place: Path) -> None:
    """Tokenizer and world model, with the depth selector where there is one."""
    tokenizer, world_model = load_tokenizer(tokenizer_place), load_world_model(world_model_place)
    name = model_name(options)
    joined = join(tokenizer, world_model, name=name)  # refuses a tokenizer that the world model was not trained with
    home = _home_of_selector(world_model_place)
    depth_parts = depth_parts_in(home)
    cards = ModelCards(
        tokenizer=card(
            options, "tokenizer", tokenizer.checkpoint, tokenizer_summary(joined.tokenizer.config),
        ),
        world_model=card(
            options, "world model", world_model.checkpoint,
            world_model_summary(joined.world_model.config), limits=world_model_limits(joined.tokenizer.config.grid),
        ),
        depth_selector=None if depth_parts.depth_selector is None else selector_card(options, home),
        occupancy=None
        if depth_parts.occupancy is None
        else card(
            options, "occupancy network", None,
            f"An occupancy network. {occupancy_summary(depth_parts.occupancy.config)}",
        ),
    )  # fmt: skip
    save_model(
        options.out, joined.tokenizer, joined.world_model, cards=cards, name=name, dtype=DTYPES[options.precision],
        depth_parts=depth_parts, sampling=sampling_to_store(options, home),
        intervals_s=world_model.intervals_s or stated_intervals(home),
    )  # fmt: skip


def sampling_to_store(options: Options, home: Path) -> StoredSampling | None:
    """What the flags say; for the rest what the model folder says that is exported again; None where neither does."""
    kept = read_description(home).sampling if (home / DESCRIPTION).is_file() else None
    if not options.stores_sampling:
        return kept
    given: dict[str, Any] = {
        "guidance": options.guidance, "steps": options.sampling_steps, "schedule": options.schedule,
    }  # fmt: skip
    changes = {name: value for name, value in given.items() if value is not None}
    if options.top_k is not None:
        changes["top_k"] = options.top_k or None
    return replace(kept or StoredSampling(), **changes)


def write_occupancy_4d(options: Options, place: Path) -> None:
    """The baseline, as a pretrained folder."""
    loaded = load_occupancy_4d_network(place)
    config = loaded.model.config
    summary = f"The baseline 4D-Occ (our variant). {occupancy_summary(config)}"
    save_pretrained(
        options.out, loaded.model, kind=OCCUPANCY_4D, config=to_mapping(config), dtype=DTYPES[options.precision],
        card=card(options, "4D-Occ", loaded.checkpoint, summary),
    )  # fmt: skip


def _home_of_selector(world_model: Path) -> Path:
    """Where the depth selector of a world model lies: in its run, or in the model folder whose world model is named."""
    return run_of(world_model) if not (world_model / "config.json").is_file() else world_model.resolve().parent
