"""`copilot4d tokenize`: put drives through a tokenizer once, before a world model trains on them."""

from __future__ import annotations

import dataclasses
import shlex
from datetime import timedelta

import torch

from copilot4d.checkpoints.load_tokenizer import LoadedTokenizer, load_tokenizer
from copilot4d.cli.console import console, next_step, track
from copilot4d.cli.options.tokenize import Options
from copilot4d.datasets import Dataset, open_dataset
from copilot4d.datasets.drive_list import DriveList
from copilot4d.errors import UsageError
from copilot4d.progress import silent
from copilot4d.tokens.augmentation import AugmentationConfig
from copilot4d.tokens.token_cache import TokenCache, TokenCacheConfig, open_token_cache
from copilot4d.tokens.tokenize_drives import ClipEncoder
from copilot4d.tokens.write_token_cache import WrittenCache, write_token_cache
from copilot4d.training.distributed import open_world
from copilot4d.training.malloc import keep_freed_memory

PATIENCE = timedelta(days=7)  # ranks meet only when all drives are done, and some take hours longer than others


def run(options: Options) -> int:
    """Run the verb."""
    if options.batch < 1 or (options.max_drives is not None and options.max_drives < 1):
        raise UsageError("--batch and --max-drives must be at least 1")
    if options.out.exists() and not options.out.is_dir():
        raise UsageError(f"--out {options.out} is a file; name a folder")
    with open_world(options.device, patience=PATIENCE) as world:
        loaded = load_tokenizer(options.tokenizer)
        if world.device.type == "cpu":
            keep_freed_memory()
        tokenizer = loaded.tokenizer.to(world.device)
        config = cache_config(options, loaded)
        drives = choose_drives(options)
        command = command_of(options)
        with torch.inference_mode():
            written = write_token_cache(
                options.out,
                drives,
                ClipEncoder(tokenizer.encode, config, batch=options.batch),
                config,
                world,
                held_out=options.held_out,
                command=command,
                overwrite=options.overwrite,
                track=track if world.is_first else silent,
            )
        if world.is_first:
            cache = open_token_cache(options.out)
            show(written, cache)
            words = ["--tokens", options.out, "--tokenizer", options.tokenizer, "--run", "runs/world_model"]
            next_step(shlex.join(["copilot4d", "train", "world-model", *map(str, words)]))
    return 0


def cache_config(options: Options, loaded: LoadedTokenizer) -> TokenCacheConfig:
    """What the cache's manifest will say."""
    model = loaded.tokenizer.config
    passed = ("token_frame", "intervals", "past_frames", "future_frames", "reference_every", "gathered_past",
              "expected", "columns", "variants", "augmentation", "seed")  # fmt: skip
    return TokenCacheConfig(
        tokenizer_sha256=loaded.sha256,
        vocabulary=model.vocabulary,
        token_shape=model.tokens,
        grid=model.grid,
        **{name: getattr(options, name) for name in passed},
    )


def choose_drives(options: Options) -> DriveList:
    """The drives to tokenise, held-out ones among them; no more are opened than are asked for."""
    parts: list[Dataset] = []
    known: set[str] = set()
    left = options.max_drives
    wanted, marked = set(options.drives), set(options.held_out)
    for path in options.data:
        dataset = open_dataset(path)
        known |= set(dataset.names)
        members = set(dataset.names if options.split is None else dataset.split(options.split).names)
        chosen: list[str] = []
        for name in dataset.names:
            if name in marked:
                chosen.append(name)
            elif name in members and (not wanted or name in wanted) and left != 0:
                chosen.append(name)
                left = None if left is None else left - 1
        if chosen:
            parts.append(dataset.select(chosen))
            parts[-1].prepare(track)
    for flag, names in (("--held-out", options.held_out), ("--drives", options.drives)):
        missing = [name for name in names if name not in known]
        if missing:
            raise UsageError(f"{flag} {' '.join(missing)}: no such drive; there are {', '.join(sorted(known)[:12])}")
    if not parts:
        raise UsageError("no drive is left to tokenise; look at --drives and --split")
    return DriveList(parts)


def command_of(options: Options) -> str:
    """What to type for the same cache."""
    words = ["copilot4d", "tokenize"]
    for option in dataclasses.fields(options):
        value = getattr(options, option.name)
        if option.name in ("overwrite", "augmentation") or value == option.default or value is None:
            continue
        if isinstance(value, bool):
            words.append(f"--{'' if value else 'no-'}{option.name.replace('_', '-')}")
            continue
        words += [
            f"--{option.name.replace('_', '-')}",
            *(map(str, value) if isinstance(value, tuple) else [str(value)]),
        ]
    for name, value in dataclasses.asdict(options.augmentation).items():
        if value != getattr(AugmentationConfig(), name):
            words += [f"--augmentation.{name.replace('_', '-')}", str(value)]
    return shlex.join(words)


def show(written: WrittenCache, cache: TokenCache) -> None:
    """Say what was made, and how large it is."""
    config, drives = cache.config, cache.drives.values()
    size = sum((cache.folder / drive.file).stat().st_size for drive in drives) / 1e6
    what = (
        f"{sum(d.frames for d in drives)} sweeps"
        if config.token_frame == "own"
        else f"{sum(d.clips for d in drives)} clips"
    )
    if config.token_frame == "reference":
        what += f" of {config.past_frames} + {config.future_frames} frames"
        what += ", the oldest of the gathered past" if config.gathered_past else ""
    times = f" in {config.variants} variants" if config.variants > 1 else ""
    marked = sum(drive.held_out for drive in drives)
    lines = [
        f"{cache.folder}: {what}{times}, of {len(drives)} drives ({marked} held out), {size:.1f} MB",
        f"tokens of {config.token_shape[0]} x {config.token_shape[1]} in the frame: {config.token_frame}; "
        f"vocabulary {config.vocabulary}, tokenizer {config.tokenizer_sha256[:12]}",
        f"{written.sweeps} sweeps were encoded for {len(written.made)} drives; {len(written.kept)} were there already",
    ]
    if config.token_frame == "reference":
        short = [drive.name for drive in drives if not drive.clips]
        if short:
            lines.append(f"too short for a clip: {', '.join(short[:12])}")
    console.print("\n".join(lines), markup=False, highlight=False)
