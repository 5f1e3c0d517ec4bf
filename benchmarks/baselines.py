"""How long the baselines take for one future frame of a full lidar, beside one Chamfer distance of the same clouds.

    python benchmarks/baselines.py [--data PATH --drive NAME --frame N]

Without --data, sweeps of about 120,000 points are made: a 64-beam lidar among boxes. Times depend on the machine; the
ratios, of the medians of interleaved runs, are what to compare.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import tyro

from copilot4d import load_forecaster, open_dataset
from copilot4d.baselines import BASELINES
from copilot4d.datasets.windows import read_clip, window_at
from copilot4d.evaluation import chamfer
from copilot4d.geometry import Clip, Rays, Sweep, intersect_box, se3

HEIGHT_M, MAX_RANGE_M = 1.73, 80.0


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to measure on."""

    data: Path | None = None
    """A data set; by default a street is made."""
    drive: str | None = None
    """Which drive of it."""
    frame: int = 20
    """The reference frame."""
    repeats: int = 5
    """The median of so many runs is taken."""


def main(options: Options) -> None:
    clip = made_clip() if options.data is None else read(options)
    rays = [sweep.rays()[0] for sweep in clip.future]
    frames = len(rays)
    gathered = sum(len(sweep) for sweep in clip.past)
    print(f"{frames} future frames of {len(rays[0])} rays; {len(clip.past)} past sweeps, {gathered} points together")

    carried = load_forecaster("copy_last").forecast(clip.past, clip.future_poses)
    clouds = list(zip(carried.sweeps, clip.future, strict=True))
    work: dict[str, Callable[[], object]] = {
        "one Chamfer": lambda: [chamfer(predicted.points, true.points) for predicted, true in clouds]
    }
    for name in BASELINES:
        forecaster = load_forecaster(name)
        work[f"{name}, given rays"] = lambda f=forecaster: f.forecast(clip.past, clip.future_poses, rays)  # type: ignore[misc]
        work[f"{name}, free"] = lambda f=forecaster: f.forecast(clip.past, clip.future_poses)  # type: ignore[misc]
    seconds = {name: [0.0] * options.repeats for name in work}
    for i in range(options.repeats):
        for name, run in work.items():
            before = time.perf_counter()
            run()
            seconds[name][i] = (time.perf_counter() - before) / frames
    unit = median(seconds["one Chamfer"])
    for name, taken in seconds.items():
        print(f"{name:<32} {median(taken):8.3f} s a frame   {median(taken) / unit:6.2f} x one Chamfer")


def read(options: Options) -> Clip:
    dataset = open_dataset(options.data)  # type: ignore[arg-type]
    drive = dataset[options.drive or dataset.names[0]]
    return read_clip(drive, window_at(drive, options.frame, "1s"))


def made_clip(sweeps: int = 10, in_past: int = 5) -> Clip:
    """An ego at 10 m/s among random boxes, 64 beams x 1900 azimuths, 0.2 s apart."""
    rng = np.random.default_rng(0)
    corner = np.column_stack([rng.uniform(-60, 80, 60), rng.choice([-1, 1], 60) * rng.uniform(6, 40, 60), np.zeros(60)])
    boxes = np.concatenate([corner, corner + rng.uniform([2, 2, 1.5], [12, 8, 9], (60, 3))], axis=1)
    elevation, azimuth = np.meshgrid(
        np.deg2rad(np.linspace(-24, 2, 64)), np.linspace(-np.pi, np.pi, 1900, endpoint=False), indexing="ij"
    )
    flat = np.cos(elevation)
    directions = np.stack([flat * np.cos(azimuth), flat * np.sin(azimuth), np.sin(elevation)], axis=-1).reshape(-1, 3)
    poses = [se3.from_yaw(0.01 * k, (2.0 * k, 0, HEIGHT_M)) for k in range(sweeps)]
    made = [
        Sweep(points=cast(pose, boxes, directions), world_from_lidar=pose, timestamp_ns=k * 200_000_000)
        for k, pose in enumerate(poses)
    ]
    return Clip(
        drive="made",
        past=tuple(made[:in_past]),
        future=tuple(made[in_past:]),
        past_frames=tuple(range(in_past)),
        future_frames=tuple(range(in_past, sweeps)),
    )


def cast(world_from_lidar: np.ndarray, boxes: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """(N, 3) float32: where the beams meet the ground or a box; beams that meet nothing end in the sky's place."""
    rays = Rays.from_origin(np.zeros(3), directions).transformed(world_from_lidar)
    down = rays.directions[:, 2] < 0
    depth = np.where(down, -HEIGHT_M / np.where(down, rays.directions[:, 2], 1), MAX_RANGE_M)
    for box in boxes:
        hit = intersect_box(rays, box)
        depth = np.where(hit.hits, np.fmin(hit.entry, depth), depth)
    return np.asarray(directions * np.minimum(depth, MAX_RANGE_M)[:, None], dtype=np.float32)


if __name__ == "__main__":
    main(tyro.cli(Options))
