"""What each stage of the tokenizer costs, beside the matrix-multiply peak of the same run, and what skipping saves.

    python benchmarks/tokenizer.py [--preset paper --data PATH --drive NAME --frame N]

Without --data a street is simulated. Weights are random: skipping looks where points truly are, as a trained coarse
branch would say. Times depend on the machine and its load; the ratios are what to compare.
"""

from __future__ import annotations

import contextlib
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import tyro
from torch.utils.flop_counter import FlopCounterMode

from copilot4d import open_dataset
from copilot4d.geometry import Drive, Sweep
from copilot4d.presets import preset
from copilot4d.rendering import RayBatch
from copilot4d.tokenizer import PointBatch, Tokenizer, TokenizerBatch, training_pass
from copilot4d.tokenizer.skipping import true_mask
from copilot4d.tokenizer.voxels import voxelise
from copilot4d.training.malloc import keep_freed_memory
from copilot4d.training.optimizer import make_optimizer, paper_recipe


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to measure."""

    preset: Literal["paper", "mini", "tiny"] = "mini"
    data: Path | None = None
    drive: str | None = None
    frame: int = 0
    rays: int = 30_000
    batch: int = 1
    """Sweeps of the training step."""
    training_rays: int = 4096
    checkpointing: bool = False
    """Recompute the backbone in the backward pass: less memory."""
    flops: bool = True
    """Count multiplications, too; the counter doubles the memory of a training step: leave it out to measure that."""
    dense: bool = True
    """Also render without skipping, to compare."""
    repeats: int = 3
    """The fastest of so many runs counts; the first one also counts multiplications."""
    clock: Literal["wall", "cpu"] = "wall"
    """cpu counts the seconds of all threads: for a machine that does other work, too."""


def main(options: Options) -> None:
    keep_freed_memory()
    torch.manual_seed(0)
    config = replace(preset(options.preset).tokenizer, activation_checkpointing=options.checkpointing)
    tokenizer = Tokenizer(config)
    sweep = read(options)
    clock = {"wall": time.perf_counter, "cpu": time.process_time}[options.clock]
    stage = Stages(options.repeats, clock, flops=options.flops)
    batch = PointBatch.of([sweep])
    millions = sum(p.numel() for p in tokenizer.parameters()) / 1e6
    print(f"{options.preset}: {millions:.2f} M parameters, {len(sweep)} points; {torch.get_num_threads()} threads")
    print(f"peak {stage.peak / 1e9:.0f} GFLOP per {options.clock} second")
    with torch.inference_mode():
        voxels = stage("voxels", lambda: voxelise(batch, config.grid))
        stage("PointNet, pillars, patches", lambda: tokenizer.encoder.bev(voxels))
        features = stage("encoder, whole", lambda: tokenizer.encoder(voxels))
        tokens = stage("nearest codes", lambda: tokenizer.codebook.nearest(features))
        scene = stage("decoder and coarse branch", lambda: tokenizer.decode(tokens))
        stage("mask from the coarse branch", lambda: tokenizer.skipping_mask(scene))
        chosen = np.random.default_rng(0).permutation(len(sweep))[: options.rays]
        rays = RayBatch.of([sweep.select(chosen).rays()[0]])
        mask = true_mask(voxels, config.skipping.pool)
        skipped = stage(f"{len(rays)} rays, skipping", lambda: tokenizer.render(scene, rays, mask=mask))
    mask_s, skipping_s = list(stage.seconds.values())[-2:]
    if not options.dense:
        del features, scene, mask  # the step shall not pay for what nobody needs any more
    train(tokenizer, sweep, options, stage)
    print(f"most memory: {most_memory_gb():.2f} GB")
    if not options.dense:
        return
    with torch.inference_mode():
        dense = stage(f"{len(rays)} rays, dense", lambda: tokenizer.render(scene, rays, skipping=False))
    dense_s = list(stage.seconds.values())[-1]
    print(
        f"skipping is {dense_s / skipping_s:.1f} times as fast as dense sampling at equal step "
        f"({config.rendering.step_m} m), {dense_s / (mask_s + skipping_s):.1f} times with the cost of its mask: "
        f"{skipped.samples / len(rays):.0f} against {dense.samples / len(rays):.0f} samples per ray"
    )


def most_memory_gb() -> float:
    """Of this process, so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def train(tokenizer: Tokenizer, sweep: Sweep, options: Options, stage: Stages) -> None:
    """One real step: forward, backward, AdamW."""
    optimizer = make_optimizer(tokenizer, paper_recipe("tokenizer"))
    parts = []
    for seed in range(options.batch):
        chosen = np.random.default_rng(seed).permutation(len(sweep))[: options.training_rays]
        parts.append(sweep.select(chosen).rays())
    batch = TokenizerBatch(
        points=PointBatch.of([sweep] * options.batch),
        rays=RayBatch.of([p[0] for p in parts]),
        true_depths_m=torch.from_numpy(np.concatenate([p[1] for p in parts]).astype(np.float32)),
    )

    def step() -> None:
        losses = training_pass(tokenizer, batch, offsets=None, noise=torch.Generator().manual_seed(0)).losses
        losses["total"].backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    stage(f"training step, batch {options.batch}, {options.training_rays} rays each", step)


class Stages:
    """Times stages, counts their multiplications, prints a line for each."""

    def __init__(self, repeats: int, clock: Callable[[], float], *, flops: bool) -> None:
        self.repeats, self.clock, self.peak = repeats, clock, measured_peak(repeats, clock)
        self.flops = flops
        self.seconds: dict[str, float] = {}

    def __call__(self, name: str, work: Callable[[], Any]) -> Any:
        times = []
        counter = FlopCounterMode(display=False)
        with counter if self.flops else contextlib.nullcontext():
            start = self.clock()
            result = work()
            times.append(self.clock() - start)
        for _ in range(self.repeats - 1):
            start = self.clock()
            result = work()
            times.append(self.clock() - start)
        best = min(times)
        self.seconds[name] = best
        flops = counter.get_total_flops() if self.flops else 0
        print(
            f"  {name:<42} {best * 1e3:9.1f} ms  {flops / 1e9:8.2f} GFLOP  {flops / best / self.peak:6.1%} of peak, "
            f"{most_memory_gb():5.2f} GB so far"
        )
        return result


def measured_peak(repeats: int, clock: Callable[[], float], size: int = 2048) -> float:
    """FLOP/s of a large matrix product, now."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    torch.mm(a, b)
    best = float("inf")
    for _ in range(max(3, repeats)):
        start = clock()
        torch.mm(a, b)
        best = min(best, clock() - start)
    return 2 * size**3 / best


def read(options: Options) -> Sweep:
    if options.data is None:
        from copilot4d.simulator import simulate_drive

        drive: Drive = simulate_drive(seed=0, seconds=0.3)
    else:
        dataset = open_dataset(options.data)
        drive = dataset[options.drive or dataset.names[0]]
    sweep: Sweep = drive[options.frame]
    return sweep.without_box(drive.ego_box)


if __name__ == "__main__":
    main(tyro.cli(Options))
