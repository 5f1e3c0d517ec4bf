"""`copilot4d train world-model`: learn how tokens of sweeps go on, given the past and the ego's motion."""

from __future__ import annotations

import dataclasses
import shlex
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from copilot4d.checkpoints.depth_parts import copy_depth_parts
from copilot4d.checkpoints.load_tokenizer import load_tokenizer
from copilot4d.checkpoints.load_world_model import load_world_model
from copilot4d.checkpoints.model_folder import note_tokenizer, run_of
from copilot4d.cli.console import console, next_step
from copilot4d.cli.options.train_world_model import Options
from copilot4d.cli.training_options import Shown, training_config, with_changes
from copilot4d.config import read_yaml
from copilot4d.errors import DataError, UsageError
from copilot4d.presets import preset
from copilot4d.tokens.token_cache import TokenCache, open_token_cache
from copilot4d.tokens.token_clips import TokenClips
from copilot4d.training import Recipe, paper_recipe, train
from copilot4d.training.setup import part_of
from copilot4d.training.tasks.world_model import WorldModelTask, WorldModelTraining
from copilot4d.world_model import WorldModelConfig

RECIPES = {
    "paper": paper_recipe("world_model"),
    "mini": Recipe(batch=8, learning_rate=1e-3, warmup_steps=200, cosine_steps=3800, clip_norm=5.0),
    "tiny": Recipe(batch=2, learning_rate=3e-3, warmup_steps=20, cosine_steps=180, clip_norm=5.0),
}


def run(options: Options) -> int:
    """Run the verb."""
    config = world_model_config(options)
    clips, held_out = choose_clips(options, config)
    code_vectors = None
    if options.tokenizer is not None:
        loaded = load_tokenizer(options.tokenizer)
        if loaded.sha256 != clips.tokenizer_sha256:
            raise UsageError(f"--tokenizer {options.tokenizer} is not the one that made --tokens")
        code_vectors = loaded.tokenizer.code_vectors
    task = WorldModelTask(
        WorldModelTraining(world_model=config),
        clips,
        held_out,
        held_out_clips=options.held_out_clips,
        grid=open_token_cache(options.tokens[0]).config.grid,
        tokenizer=options.tokenizer,
        code_vectors=code_vectors,
        source_rows=source_rows(options, code_vectors, clips.tokenizer_sha256),
    )
    console.print(
        f"{len(clips)} clips of {config.past_frames} + {config.frames - config.past_frames} frames in {clips.variants} "
        f"variants to learn from, {len(task.chosen)} to score on; tokens are {config.tokens[0]} x {config.tokens[1]} "
        f"of {config.vocabulary}, token_frame {config.token_frame}"
        f"{', the oldest frame of the gathered past' if config.gathered_past else ''}",
        highlight=False,
    )
    for remark in remarks(options, config, clips):
        console.print(remark, markup=False, highlight=False)
    result = train(task, training_config(options, RECIPES[options.preset]), Shown())
    if result.checkpoint is not None:
        if options.tokenizer is not None:
            note_tokenizer(options.run, options.tokenizer)
        _keep_depth_selection(options)
        console.print(f"\n{result.step} steps done; the newest checkpoint is {result.checkpoint}", highlight=False)
        next_step(next_command(options))
    return result.exit_code


def next_command(options: Options) -> str:
    """Share the model with its tokenizer: the given one, or the one that the tokens say they were made with."""
    run = shlex.quote(str(options.run))
    if options.tokenizer is None:
        made = tokenizer_of(open_token_cache(options.tokens[0]))
        if made is None:
            return "copilot4d export --help"
        return f"copilot4d export --tokenizer {shlex.quote(made)} --world-model {run} --out models/mine"
    return f"copilot4d export --tokenizer {shlex.quote(str(options.tokenizer))} --world-model {run} --out models/mine"


def tokenizer_of(cache: TokenCache) -> str | None:
    """The tokenizer that the command of a token cache names, if it is still there."""
    words = shlex.split(cache.command)
    place = next((value for flag, value in pairwise(words) if flag == "--tokenizer"), None)
    return place if place is not None and Path(place).is_dir() else None


def _keep_depth_selection(options: Options) -> None:
    """A fine-tuned run keeps what selected the depths of the model that it started from."""
    if options.init_from is None:
        return
    source = part_of(options.init_from, "world_model")
    home = source.resolve().parent if (source / "config.json").is_file() else run_of(source)
    if copy_depth_parts(home, options.run):
        console.print(
            f"kept the depth selector of {options.init_from}; `copilot4d train depth-selector --model {options.run}` "
            "fine-tunes it", markup=False, highlight=False,
        )  # fmt: skip


def world_model_config(options: Options) -> WorldModelConfig:
    """The preset's world model, with the changes that were asked for; the tokens decide what was not."""
    given = set() if options.config is None else set(read_yaml(options.config))
    config = with_changes(preset(options.preset).world_model, options.config)
    if options.process is not None:
        config = dataclasses.replace(
            config, diffusion=dataclasses.replace(config.diffusion, process=options.process)
        )  # fmt: skip
    if not options.tokens:
        raise UsageError("--tokens needs at least one folder that `copilot4d tokenize` made")
    made = open_token_cache(options.tokens[0]).config
    found = {
        "vocabulary": made.vocabulary, "tokens": made.token_shape, "token_frame": made.token_frame,
        "gathered_past": made.gathered_past,
    }  # fmt: skip
    return dataclasses.replace(config, **{name: value for name, value in found.items() if name not in given})  # type: ignore[arg-type]


def remarks(options: Options, config: WorldModelConfig, clips: TokenClips) -> list[str]:
    """What the weights to start from learned otherwise. Nothing forbids it, but it may not be meant."""
    if options.init_from is None:
        return []
    try:
        begun = load_world_model(part_of(options.init_from, "world_model"))
    except DataError:
        return []  # weights that say nothing of themselves; if they are none at all, training tells
    found = [
        f"{name} was {getattr(begun.world_model.config, name)} and is {getattr(config, name)} now"
        for name in ("token_frame", "gathered_past")
        if getattr(begun.world_model.config, name) != getattr(config, name)
    ]
    if begun.tokenizer_sha256 not in (None, clips.tokenizer_sha256):
        found.append("its tokens came from another tokenizer")
    return [f"note: {options.init_from} learned from other clips: {'; '.join(found)}"] if found else []


def source_rows(options: Options, code_vectors: Tensor | None, tokenizer_sha256: str) -> Tensor | None:
    """Which codes of the first weights' own tokenizer ours begin as: those that mean nearly the same.

    None where the first weights know these codes, or where a tokenizer is not known.
    """
    if options.init_from is None or code_vectors is None or not (options.init_from / "tokenizer").is_dir():
        return None
    before = load_tokenizer(options.init_from / "tokenizer")
    vectors = before.tokenizer.code_vectors
    if before.sha256 == tokenizer_sha256 or vectors.shape[1] != code_vectors.shape[1]:
        return None
    return torch.cdist(code_vectors, vectors).argmin(-1)


def choose_clips(options: Options, config: WorldModelConfig) -> tuple[TokenClips, TokenClips | None]:
    """Clips to train on, and clips to score on; no drive of a folder is both."""
    past, future = config.past_frames, config.frames - config.past_frames
    intervals = options.intervals or None

    def clips_of(folders: tuple[Path, ...], drives: list[str] | None) -> TokenClips:
        return TokenClips.open(folders, past_frames=past, future_frames=future, drives=drives, intervals=intervals)

    marked = [
        name for folder in options.tokens for name, drive in open_token_cache(folder).drives.items() if drive.held_out
    ]
    if options.held_out_tokens:
        if options.held_out:
            raise UsageError("give either --held-out or --held-out-tokens")
        both = {f.resolve() for f in options.held_out_tokens} & {f.resolve() for f in options.tokens}
        if both:
            raise UsageError(f"{sorted(both)[0]} is in --tokens and in --held-out-tokens; use --held-out DRIVE")
        names = [name for folder in options.held_out_tokens for name in open_token_cache(folder).drives]
        held_out: TokenClips | None = clips_of(options.held_out_tokens, names)
    else:
        kept_back = list(options.held_out) or marked
        held_out = clips_of(options.tokens, kept_back) if kept_back else None
    known = [name for folder in options.tokens for name in open_token_cache(folder).drives]
    missing = [name for name in options.drives if name not in known]
    if missing:
        raise UsageError(f"--drives {' '.join(missing)}: no such drive; there are {', '.join(known[:12])}")
    wanted = options.drives or known
    chosen = [name for name in dict.fromkeys(wanted) if name not in {*marked, *options.held_out}]
    if not chosen:
        raise UsageError("no drive is left to train on; look at --drives and --held-out")
    return clips_of(options.tokens, chosen), held_out
