"""`copilot4d train tokenizer`: learn to turn sweeps into tokens and back."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

from copilot4d.cli.console import console, next_step
from copilot4d.cli.options.train_tokenizer import Options
from copilot4d.cli.training_drives import choose_drives
from copilot4d.cli.training_options import Shown, training_config, with_changes
from copilot4d.datasets import open_dataset
from copilot4d.geometry import Drive
from copilot4d.presets import preset
from copilot4d.tokenizer.config import TokenizerConfig
from copilot4d.training import Recipe, paper_recipe, train
from copilot4d.training.tasks.tokenizer import TokenizerTask, TokenizerTraining

RECIPES = {
    "paper": paper_recipe("tokenizer"),
    "mini": Recipe(batch=8, learning_rate=1e-3, warmup_steps=200, cosine_steps=5800, clip_norm=0.1),
    "tiny": Recipe(batch=2, learning_rate=3e-3, warmup_steps=20, cosine_steps=180, clip_norm=0.1),
}
RAYS_PER_SWEEP = {"paper": 16384, "mini": 2048, "tiny": 1024}


def run(options: Options) -> int:
    """Run the verb."""
    training = TokenizerTraining(
        tokenizer=tokenizer_config(options),
        rays_per_sweep=options.rays_per_sweep or RAYS_PER_SWEEP[options.preset],
        augmentation=options.augmentation,
        scan=options.scan,
        remake_codebook=options.remake_codebook,
        decoder_only=options.decoder_only,
    )
    drives, held_out = choose_drives(
        options.data, drives=options.drives, split=options.split, held_out=options.held_out
    )
    task = TokenizerTask(
        training, drives, held_out, held_out_sweeps=options.held_out_sweeps,
        other_scans=other_scans(options.other_scans, drives.names),
        held_out_others=other_scans(options.other_scans, [drive.name for drive in held_out]),
    )  # fmt: skip
    console.print(
        f"{len(task.items)} sweeps of {len(drives)} drives to learn from, {len(task.held_out)} sweeps of "
        f"{len(held_out)} drives to score on",
        highlight=False,
    )
    result = train(task, training_config(options, RECIPES[options.preset]), Shown())
    if result.checkpoint is not None:
        console.print(f"\n{result.step} steps done; the newest checkpoint is {result.checkpoint}", highlight=False)
        drive = shlex.quote((held_out or drives)[0].name)
        data = shlex.quote(str(options.data[0]))
        next_step(f"copilot4d evaluate-tokenizer --model {options.run} --data {data} --drives {drive} --out scores")
    return result.exit_code


def other_scans(paths: tuple[Path, ...], names: list[str]) -> dict[str, Drive] | None:
    """The drives of these names in other data sets; None where none was asked for."""
    if not paths:
        return None
    found: dict[str, Drive] = {}
    for path in paths:
        dataset = open_dataset(path)
        found |= {name: dataset[name] for name in names if name in dataset.names}
    return found


def tokenizer_config(options: Options) -> TokenizerConfig:
    """The preset's tokenizer with the changes that were asked for."""
    config = with_changes(preset(options.preset).tokenizer, options.config)
    return config if options.mode is None else dataclasses.replace(config, mode=options.mode)
