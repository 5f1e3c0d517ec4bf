"""Where the time of a tokenizer's training step goes: forward and backward of each part, beside the multiply peak.

    python benchmarks/tokenizer_step.py --data path/to/kitti --drive train_0011 [--model runs/tokenizer]

Each part is run on its own, from the outputs of the one before it; the fastest of some runs counts, in seconds of CPU
time. Without --model the preset's weights are random, and rays look where points truly are.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import tyro
from torch import Tensor
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from copilot4d import open_dataset
from copilot4d.checkpoints.load_tokenizer import load_tokenizer
from copilot4d.geometry import Sweep
from copilot4d.presets import preset
from copilot4d.rendering import RayBatch
from copilot4d.tokenizer import PointBatch, Scene, Tokenizer, TokenizerBatch, training_pass
from copilot4d.tokenizer.losses import occupancy_loss
from copilot4d.tokenizer.skipping import network_position
from copilot4d.tokenizer.training_loss import rendering_losses
from copilot4d.tokenizer.voxels import voxelise
from copilot4d.training.malloc import keep_freed_memory
from copilot4d.training.optimizer import make_optimizer, paper_recipe


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to measure."""

    data: Path
    drive: str | None = None
    frames: tuple[int, ...] = (50, 60)
    """The batch's sweeps."""
    rays: int = 1024
    """Of each sweep."""
    preset: Literal["paper", "mini", "tiny"] = "mini"
    model: Path | None = None
    """A trained tokenizer instead of the preset."""
    repeats: int = 5


def main(options: Options) -> None:
    keep_freed_memory()
    torch.manual_seed(0)
    tokenizer = (
        Tokenizer(preset(options.preset).tokenizer)
        if options.model is None
        else load_tokenizer(options.model).tokenizer
    ).train()
    dataset = open_dataset(options.data)
    drive = dataset[options.drive or dataset.names[0]]
    batch = batch_of([drive[frame].without_box(drive.ego_box) for frame in options.frames], options.rays)
    parts = Parts(options.repeats)
    measure(tokenizer, batch, parts)
    parts("all of it", lambda: training_pass(tokenizer, batch, offsets=None).losses["total"])
    optimizer = make_optimizer(tokenizer, paper_recipe("tokenizer"))
    parts("AdamW", optimizer.step, backward=False)


def batch_of(sweeps: list[Sweep], rays: int) -> TokenizerBatch:
    chosen = [s.select(np.random.default_rng(i).permutation(len(s))[:rays]).rays() for i, s in enumerate(sweeps)]
    return TokenizerBatch(
        points=PointBatch.of(sweeps),
        rays=RayBatch.of([rays for rays, _ in chosen]),
        true_depths_m=torch.from_numpy(np.concatenate([depths for _, depths in chosen]).astype(np.float32)),
    )


def measure(tokenizer: Tokenizer, batch: TokenizerBatch, parts: Parts) -> None:
    """Each part of `training_pass`, in its order."""
    config, encoder = tokenizer.config, tokenizer.encoder
    parts("voxels", lambda: voxelise(batch.points, config.grid).offsets, backward=False)
    voxels = voxelise(batch.points, config.grid)
    of_voxels = parts("PointNet", lambda: encoder.point_net(voxels))

    def bev() -> Tensor:
        pillars, positions = encoder.pillars(leaf(of_voxels), voxels)
        return encoder.patches(pillars, positions, voxels.count, config.grid.shape[:2])  # type: ignore[no-any-return]

    def swin() -> Tensor:
        x = encoder.coarse(encoder.merge(encoder.fine(encoder.position(leaf(map_)))))
        return encoder.leave(functional.gelu(encoder.norm(x)))  # type: ignore[no-any-return]

    def quantise() -> Tensor:
        made = tokenizer.codebook(leaf(features))
        return made.values.sum() + made.codebook_loss + made.commitment_loss  # type: ignore[no-any-return]

    def coarse() -> Tensor:
        position = network_position(voxels, config.backbone.patch, config.skipping)
        return occupancy_loss(tokenizer.coarse_branch(leaf(decoded)), position)  # type: ignore[misc]

    def render() -> Tensor:
        scene = Scene(features=leaf(decoded), coarse_logits=logits)
        losses = rendering_losses(tokenizer, scene, [voxels], batch, None, None)
        return torch.stack(list(losses.values())).sum()

    map_ = parts("pillars and patches", bev)
    features = parts("encoder's Swin layers", swin)
    parts("codes", quantise)
    codes = tokenizer.codebook(features).values
    decoded = parts("decoder's Swin layers", lambda: tokenizer.decoder(leaf(codes)))
    logits = None
    if tokenizer.coarse_branch is not None:
        parts("coarse branch and its loss", coarse)
        logits = tokenizer.coarse_branch(decoded).detach()
    if tokenizer.feature_grid is not None:
        parts("rendering and its losses", render)


def leaf(tensor: Tensor) -> Tensor:
    """The same values, at which gradients end."""
    return tensor.detach().requires_grad_()


class Parts:
    """Times parts forward and backward, counts their multiplications, prints a line for each."""

    def __init__(self, repeats: int) -> None:
        self.repeats, self.peak = repeats, 0.0
        square = torch.randn(2048, 2048)
        for _ in range(max(3, repeats)):
            start = time.process_time()
            torch.mm(square, square)
            self.peak = max(self.peak, 2 * len(square) ** 3 / (time.process_time() - start))
        print(f"peak {self.peak / 1e9:.0f} GFLOP per CPU second, {torch.get_num_threads()} threads")

    def __call__(self, name: str, forward: Callable[[], Tensor], *, backward: bool = True) -> Tensor:
        counter = FlopCounterMode(display=False)
        with counter:
            result = forward()
            if backward:
                result.backward(torch.ones_like(result))  # type: ignore[no-untyped-call]
        forth, back = [], []
        for _ in range(self.repeats):
            start = time.process_time()
            result = forward()
            forth.append(time.process_time() - start)
            if backward:
                upstream, start = torch.ones_like(result), time.process_time()
                result.backward(upstream)  # type: ignore[no-untyped-call]
                back.append(time.process_time() - start)
        ahead_s, back_s = min(forth), min(back, default=0.0)
        flops = counter.get_total_flops()
        print(
            f"  {name:<28} forward {ahead_s * 1e3:7.1f} ms, backward {back_s * 1e3:7.1f} ms, {flops / 1e9:7.2f} GFLOP, "
            f"{flops / (ahead_s + back_s) / self.peak:6.1%} of the peak"
        )
        return result.detach() if isinstance(result, Tensor) else torch.zeros(())


if __name__ == "__main__":
    main(tyro.cli(Options))
