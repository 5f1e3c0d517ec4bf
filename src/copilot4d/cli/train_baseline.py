"""`copilot4d train baseline NAME`: train one of the other systems of the paper's tables, by the same loop."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

from copilot4d.baselines.occupancy_4d import PublishedOccupancy4dConfig, published_preset
from copilot4d.baselines.range_view import RANGE_VIEW, RangeGeometry, RangeViewConfig, range_view_preset
from copilot4d.cli import train_occupancy
from copilot4d.cli.console import console, next_step
from copilot4d.cli.options.train_baseline import Options
from copilot4d.cli.train_occupancy import drives_of
from copilot4d.cli.training_options import Shown, training_config, with_changes
from copilot4d.config import read_yaml
from copilot4d.errors import ForecastError, UsageError
from copilot4d.geometry import Drive
from copilot4d.geometry.beam_pattern import estimate_beam_pattern
from copilot4d.training import Recipe, train
from copilot4d.training.tasks.clips import ClipTask
from copilot4d.training.tasks.occupancy_4d import OccupancyTraining
from copilot4d.training.tasks.occupancy_4d_published import PublishedOccupancyTask
from copilot4d.training.tasks.range_view import RangeViewTask, RangeViewTraining

RANGE_VIEW_RECIPES = {
    "paper": Recipe(batch=32, learning_rate=1e-3, warmup_steps=100, cosine_steps=30_000, clip_norm=10.0),
    "mini": Recipe(batch=4, learning_rate=3e-3, warmup_steps=50, cosine_steps=2950, clip_norm=10.0),
    "tiny": Recipe(batch=2, learning_rate=5e-3, warmup_steps=10, cosine_steps=90, clip_norm=10.0),
}
PUBLISHED_RECIPES = {
    "paper": Recipe(batch=8, learning_rate=5e-4, warmup_steps=0, cosine_steps=100_000, clip_norm=10.0),
    "mini": Recipe(batch=4, learning_rate=2e-3, warmup_steps=50, cosine_steps=2950, clip_norm=10.0),
    "tiny": Recipe(batch=2, learning_rate=5e-3, warmup_steps=10, cosine_steps=90, clip_norm=10.0),
}
ALL_RAYS = 1_000_000
RAYS_PER_FRAME = {"paper": ALL_RAYS, "mini": 2048, "tiny": 256}
LOOKED_AT = 3  # sweeps from which a sensor's beams are found


def run(options: Options) -> int:
    """Run the verb."""
    if options.name in RANGE_VIEW:
        return _train_range_view(options)
    if options.poses or options.chamfer_weight:
        raise UsageError(
            f"--poses and --chamfer-weight are of range images ({', '.join(RANGE_VIEW)}); {options.name} is always "
            "given the poses: leave them out"
        )
    if options.name == "4d_occ_ours":
        return train_occupancy.run(options)
    model = with_changes(published_preset(options.preset), options.config)
    assert isinstance(model, PublishedOccupancy4dConfig)
    training = OccupancyTraining(
        model=model, settings=options.settings, augmentation=options.augmentation,
        rays_per_frame=options.rays_per_frame or RAYS_PER_FRAME[options.preset],
    )  # fmt: skip
    drives, held_out = drives_of(options)
    task = PublishedOccupancyTask(training, drives, held_out, held_out_clips=options.held_out_clips)
    half_m = float(abs(model.grid.box[[0, 1, 3, 4]]).min())
    return _train(options, task, PUBLISHED_RECIPES[options.preset], roi_half_m=half_m)


def _train_range_view(options: Options) -> int:
    if options.rays_per_frame is not None:
        raise UsageError(f"--rays-per-frame is of 4d_occ; {options.name} learns whole range images: leave it out")
    drives, held_out = drives_of(options)
    preset = range_view_preset(options.name, options.preset)
    told = options.config is not None and "geometry" in read_yaml(options.config)
    if not told:
        preset = dataclasses.replace(preset, geometry=image_of(drives[0], preset))
    model = with_changes(preset, options.config)
    training = RangeViewTraining(
        model=dataclasses.replace(model, frame="reference") if options.poses else model,
        settings=options.settings, chamfer_weight=options.chamfer_weight,
        chamfer_from_step=options.chamfer_from_step, kl_weight=options.kl_weight,
        turns=options.augmentation.max_yaw_deg > 0, mirror_probability=options.augmentation.mirror_probability,
    )  # fmt: skip
    image = training.model.geometry
    console.print(
        f"range images of {image.rows} rows, {image.elevations_deg[0]:.1f} to {image.elevations_deg[-1]:.1f} degrees, "
        f"and {image.columns} columns",
        highlight=False,
    )
    task = RangeViewTask(training, drives, held_out, held_out_clips=options.held_out_clips)
    return _train(options, task, RANGE_VIEW_RECIPES[options.preset], roi_half_m=None)


def image_of(drive: Drive, preset: RangeViewConfig) -> RangeGeometry:
    """The preset's range image where the drive's sensor fits it, else one for that sensor."""
    sweeps = [sweep for sweep in (drive[i] for i in range(min(LOOKED_AT, len(drive)))) if len(sweep)]
    if not sweeps:
        raise UsageError(f"the first sweeps of drive {drive.name} are empty: give `geometry` in --config")
    try:
        for sweep in sweeps:
            preset.geometry.check(sweep)
    except ForecastError:
        found = RangeGeometry.of_pattern(estimate_beam_pattern(sweeps), columns=preset.geometry.columns)
        try:
            for sweep in sweeps:
                found.check(sweep)
        except ForecastError as error:
            raise UsageError(
                f"the beams of drive {drive.name} could not be told from its sweeps ({error}); give their "
                "`geometry: {elevations_deg: [...], columns: ...}` in --config"
            ) from error
        return found
    return preset.geometry


def _train(options: Options, task: ClipTask, recipe: Recipe, *, roi_half_m: float | None) -> int:
    console.print(
        f"{len(task.items)} clips of {len(task.drives)} drives to learn from, {len(task.held_out)} clips to score on",
        highlight=False,
    )
    result = train(task, training_config(options, recipe), Shown())
    if result.checkpoint is not None:
        console.print(f"\n{result.step} steps done; the newest checkpoint is {result.checkpoint}", highlight=False)
        data: Path = (*options.held_out_data, *options.data)[0]
        words = ["copilot4d", "evaluate", "--model", options.run, "--data", data, "--setting", options.settings[0]]
        words += ["--roi-half", f"{roi_half_m:g}"] if roi_half_m is not None else []
        next_step(shlex.join(map(str, [*words, "--every", 12, "--out", "scores.json"])))
    return result.exit_code
