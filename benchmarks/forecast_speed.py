"""How long a forecast takes, and where the time goes: 5 frames, 20,000 and 121,000 rays each, sampled as stored.

    python benchmarks/forecast_speed.py                       # the mini preset with random weights, or the shipped ones
    python benchmarks/forecast_speed.py --model runs/world --threads 2 --futures 8 --rays 20000

The share of the peak is that of a stage's matrix products, counted by torch, against a large matrix product in the same
run; what compiled loops do (rays, neighbours, visibility) is not counted, so that it is low where they are at work.

Random weights cost what trained ones do, except in rendering: a tokenizer that has not learned looks everywhere. With
them, rays look only where the newest past sweep has points.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from copilot4d import load_forecaster, open_dataset, presets
from copilot4d.baselines.occupancy_4d import FutureOccupancy
from copilot4d.datasets.windows import read_clip, window_at
from copilot4d.depth_selection import OccupancyDepths
from copilot4d.forecaster import sampling_of
from copilot4d.forecasting.copilot4d import Copilot4D
from copilot4d.geometry import BeamPattern, Clip, Rays, Sweep
from copilot4d.tokenizer import PointBatch, Tokenizer
from copilot4d.tokenizer.skipping import true_mask
from copilot4d.tokenizer.voxels import voxelise
from copilot4d.training.malloc import keep_freed_memory
from copilot4d.world_model import WorldModel


class Stages:
    """Seconds by stage: methods are wrapped while it is open."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.seconds: dict[str, float] = defaultdict(float)
        self._undo: list[Any] = []

    def watch(self, owner: Any, method: str, stage: str) -> None:
        original = getattr(owner, method)

        def timed(*arguments: Any, **named: Any) -> Any:
            before = self.clock()
            try:
                return original(*arguments, **named)
            finally:
                self.seconds[stage] += self.clock() - before

        setattr(owner, method, timed)
        self._undo.append(partial(setattr, owner, method, original))

    def close(self) -> None:
        for undo in self._undo:
            undo()


def main() -> None:
    arguments = parse()
    torch.set_num_threads(arguments.threads)
    keep_freed_memory()
    clock = time.process_time if arguments.clock == "cpu" else time.perf_counter
    drive = open_dataset(arguments.data)[arguments.drive]
    clip = read_clip(drive, window_at(drive, 40, arguments.setting))
    forecaster = random_model(clip.past[-1]) if arguments.model is None else load_forecaster(arguments.model)
    assert isinstance(forecaster, Copilot4D)
    peak = matrix_peak(clock)
    for count in arguments.rays:
        measure(forecaster, clip, count, arguments, clock, peak)


def matrix_peak(clock: Callable[[], float]) -> float:
    """FLOP a second of a large matrix product."""
    matrix, best = torch.randn(2048, 2048), 0.0
    for _ in range(4):
        before = clock()
        matrix @ matrix
        best = max(best, 2 * 2048**3 / (clock() - before))
    return best


def measure(
    forecaster: Copilot4D, clip: Clip, count: int, arguments: argparse.Namespace, clock: Callable[[], float],
    peak: float,
) -> None:  # fmt: skip
    """Print the stages of a forecast with so many rays a frame."""
    rays = [some_rays(sweep, count) for sweep in clip.future]
    used = sampling_of(forecaster, guidance=arguments.guidance, steps=arguments.sampling_steps)
    best: dict[str, float] = {}
    flop: dict[str, float] = {}
    for repeat in range(arguments.repeats + 1):  # the first compiles, warms up, and counts
        counter = FlopCounterMode(display=False) if repeat == 0 else None
        stages = Stages(clock if counter is None else lambda c=counter: float(c.get_total_flops()))  # type: ignore[misc]
        stages.watch(forecaster.tokenizer, "encode", "encode")
        stages.watch(forecaster.tokenizer, "decode", "decode")
        stages.watch(forecaster.tokenizer, "render", "render")
        stages.watch(importlib.import_module("copilot4d.world_model.rollout"), "sample_frame", "sample")
        stages.watch(forecaster.world_model, "remember", "remember the past")
        stages.watch(
            importlib.import_module("copilot4d.forecasting.session").ForecastSession, "_select", "select depths"
        )
        stages.watch(importlib.import_module("copilot4d.forecasting.session"), "extrapolate", "find motion")
        for part in (FutureOccupancy, OccupancyDepths):
            stages.watch(part, "of", "occupancy depths")
        before = clock()
        with counter or contextlib.nullcontext():
            forecaster.forecast(
                clip.past, clip.future_poses, rays, guidance=used.guidance, steps=used.steps,
                futures=arguments.futures,
            )  # fmt: skip
        total = clock() - before
        stages.close()
        if counter is not None:
            flop = {**stages.seconds, "total": float(counter.get_total_flops())}
        elif not best or total < best["total"]:
            best = {**stages.seconds, "total": total}
    best["other"] = 2 * best["total"] - sum(best.values())
    model = arguments.model or "mini, random weights"
    print(
        f"{model}: {len(rays)} frames, {count} rays each, K = {used.steps}, guidance "
        f"{used.guidance:g}, {arguments.futures} futures, {arguments.threads} threads, {arguments.clock} clock, "
        f"best of {arguments.repeats}; peak {peak / 1e9:.0f} GFLOP/s"
    )
    print("| stage | seconds | share | of the peak |\n|---|---|---|---|")
    for stage, seconds in best.items():
        share = flop.get(stage, 0.0) / max(seconds, 1e-9) / peak
        print(f"| {stage} | {seconds:.2f} | {100 * seconds / best['total']:.0f}% | {100 * share:.0f}% |")


def random_model(newest: Sweep) -> Copilot4D:
    """The mini preset, fresh; rays are sampled where the newest past sweep has points, as those of a trained model."""
    config = presets.mini()
    torch.manual_seed(0)
    tokenizer = Tokenizer(config.tokenizer).eval()
    mask = true_mask(voxelise(PointBatch.of([newest]), tokenizer.config.grid), tokenizer.config.skipping.pool)
    tokenizer.mask_of = lambda scene, *_: mask.expand(len(scene), -1, -1, -1)  # type: ignore[method-assign]
    return Copilot4D(tokenizer, WorldModel(config.world_model))


def some_rays(sweep: Sweep, count: int) -> Rays:
    """`count` of the sweep's own rays, in the sensor's order; some of them twice where it has fewer."""
    rng = np.random.default_rng(0)
    directions = sweep.rays()[0].directions.astype(np.float64)
    chosen = directions[np.sort(rng.choice(len(directions), count, replace=count > len(directions)))]
    return BeamPattern(chosen, 80.0).rays()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a model's name, folder or run; by default mini with random weights")
    parser.add_argument("--data", default="street-v1/val")
    parser.add_argument("--drive", default="val_000")
    parser.add_argument("--setting", default="1s", choices=["1s", "3s"])
    parser.add_argument("--rays", type=int, nargs="+", default=[20_000, 121_000])
    parser.add_argument("--sampling-steps", type=int, default=None, help="by default as stored with the model")
    parser.add_argument("--guidance", type=float, default=None, help="by default as stored with the model")
    parser.add_argument("--futures", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument(
        "--clock", default="wall", choices=["wall", "cpu"], help="cpu: where the machine has other work"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
