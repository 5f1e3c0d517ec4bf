"""`copilot4d train occupancy-4d`: train our variant of the learned baseline 4D-Occ."""

from __future__ import annotations

import shlex

from copilot4d.baselines.occupancy_4d import occupancy_4d_preset
from copilot4d.cli.console import console, next_step
from copilot4d.cli.options.train_occupancy import Options
from copilot4d.cli.training_drives import choose_drives
from copilot4d.cli.training_options import Shown, training_config, with_changes
from copilot4d.datasets import open_dataset
from copilot4d.datasets.drive_list import DriveList
from copilot4d.errors import UsageError
from copilot4d.geometry import Drive
from copilot4d.training import Recipe, train
from copilot4d.training.tasks.occupancy_4d import OccupancyTask, OccupancyTraining

RECIPES = {
    "paper": Recipe(batch=16, learning_rate=5e-4, warmup_steps=1000, cosine_steps=100_000, clip_norm=1.0),
    "mini": Recipe(batch=4, learning_rate=2e-3, warmup_steps=200, cosine_steps=7800, clip_norm=1.0),
    "tiny": Recipe(batch=2, learning_rate=3e-3, warmup_steps=10, cosine_steps=90, clip_norm=1.0),
}
RAYS_PER_FRAME = {"paper": 2048, "mini": 1024, "tiny": 256}


def run(options: Options) -> int:
    """Run the verb."""
    training = OccupancyTraining(
        model=with_changes(occupancy_4d_preset(options.preset), options.config),
        settings=options.settings,
        rays_per_frame=options.rays_per_frame or RAYS_PER_FRAME[options.preset],
        augmentation=options.augmentation,
    )
    drives, held_out = drives_of(options)
    task = OccupancyTask(training, drives, held_out, held_out_clips=options.held_out_clips)
    console.print(
        f"{len(task.items)} clips of {len(drives)} drives to learn from, {len(task.held_out)} clips of "
        f"{len(held_out)} drives to score on",
        highlight=False,
    )
    result = train(task, training_config(options, RECIPES[options.preset]), Shown())
    if result.checkpoint is not None:
        console.print(f"\n{result.step} steps done; the newest checkpoint is {result.checkpoint}", highlight=False)
        data = (*options.held_out_data, *options.data)[0]
        half = float(abs(training.model.grid.box[[0, 1, 3, 4]]).min())
        words = ["copilot4d", "evaluate", "--model", options.run, "--data", data, "--setting", options.settings[0],
                 "--roi-half", f"{half:g}", "--every", 12, "--out", "scores.json"]  # fmt: skip
        next_step(shlex.join(map(str, words)))
    return result.exit_code


def drives_of(options: Options) -> tuple[DriveList, list[Drive]]:
    """Drives to train on, and drives to score on."""
    drives, held_out = choose_drives(
        options.data, drives=options.drives, split=options.split, held_out=options.held_out
    )
    for path in options.held_out_data:
        dataset = open_dataset(path)
        held_out += [dataset[name] for name in dataset.names]
    both = {(d.source, d.name) for d in drives} & {(d.source, d.name) for d in held_out}
    if both:
        names = ", ".join(sorted(name for _, name in both)[:5])
        raise UsageError(f"--held-out-data holds drives that are trained on: {names}; leave them out by --drives")
    return drives, held_out
