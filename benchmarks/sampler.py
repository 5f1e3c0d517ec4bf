"""How much faster the sampler is than the naive way, measured in one run.

    python benchmarks/sampler.py                              # mini preset
    python benchmarks/sampler.py --preset paper               # minutes, 10 GB (the naive passes over all frames)
    python benchmarks/sampler.py --preset paper --tokens 64   # the paper's network on a quarter of its map

The task: 5 frames after 5, K diffusion steps each, with guidance. The sampler caches the past and carries the
unconditional frame in the same pass; the naive way makes two passes over all frames at every step, one causal, one with
the identity mask. One diffusion step of a frame stands for all K of them: every step does the same work. The middle
frame stands for all frames: the work grows by the same amount with every frame. With one thread the clock is the
process's own CPU time, which others on the machine slow less than the wall's.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from copilot4d import presets
from copilot4d.layers.temporal import AttentionMask
from copilot4d.training.malloc import keep_freed_memory
from copilot4d.world_model import Actions, Draws, SamplerConfig, WorldModel, actions_of, sample_frame
from copilot4d.world_model.reverse import confidence, guide, keep_most_confident, sample_tokens
from copilot4d.world_model.sampler import denoise
from copilot4d.world_model.unet import UNetCache

Result = TypeVar("Result")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=list(presets.PRESETS), default="mini")
    parser.add_argument("--tokens", type=int, default=None, help="of a side of the map; by default the preset's")
    parser.add_argument("--sampling-steps", type=int, default=10, help="K, diffusion steps of a frame")
    parser.add_argument("--repeats", type=int, default=None, help="of each measurement; the fastest counts")
    options = parser.parse_args()
    repeats = options.repeats or (1 if options.preset == "paper" else 5)
    keep_freed_memory()  # else every large tensor is paged in anew, which hides what is measured
    with torch.no_grad():
        measure(options.preset, options.tokens, options.sampling_steps, repeats)


def measure(preset: str, side: int | None, steps: int, repeats: int) -> None:
    torch.manual_seed(0)
    config = presets.preset(preset).world_model
    if side is not None:
        config = dataclasses.replace(config, tokens=(side, side))
    model = WorldModel(config).eval()
    past, frames = config.past_frames, config.frames
    count = frames - past
    t = past + (count - 1) // 2  # the middle frame
    tokens = torch.randint(config.vocabulary, (1, frames, *config.tokens))
    poses = np.tile(np.eye(4), (frames, 1, 1))
    poses[:, 0, 3] = np.arange(frames)
    actions = actions_of(poses, config.token_frame, world_from_reference=poses[past - 1])
    one_step = SamplerConfig(steps=1)
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{preset}: {parameters / 1e6:.1f}M parameters, {config.tokens[0]} x {config.tokens[1]} tokens, "
          f"{past} + {count} frames, K = {steps}, {torch.get_num_threads()} threads", flush=True)  # fmt: skip

    def fill() -> UNetCache:
        new = model.new_cache()
        model.remember(tokens[:, :past], actions.frames(0, past), new)
        return new

    prefill, cache = fastest(fill, repeats)
    print(f"  the past ({past} frames)           {prefill * 1e3:10.1f} ms", flush=True)
    model.remember(tokens[:, past:t], actions.frames(past, t), cache)
    current = actions.frames(t, t + 1)
    first = partial(sample_frame, model, cache, current, Draws(0, [0], t), one_step)
    half_known = tokens[:, t].clone()
    half_known[:, ::2] = config.vocabulary
    fast = partial(guided_step, model, cache, current, half_known)
    keep = partial(model.features, tokens[:, t : t + 1], current, cache=cache)  # `remember` that keeps nothing
    with FlopCounterMode(display=False) as counter:
        fast()
    peaks = [matrix_peak()]
    step, _ = fastest(fast, repeats)
    peaks.append(matrix_peak())
    peak, rate = sum(peaks) / 2, counter.get_total_flops() / step
    print(f"  a diffusion step, cached      {step * 1e3:10.1f} ms   (guided, one pass of 2 frames)")
    print(f"    its matrix products: {rate / 1e9:.0f} GFLOP/s, {rate / peak:.0%} of the peak of {peak / 1e9:.0f}")
    opening, _ = fastest(first, repeats)
    print(f"  the first, from all MASK      {opening * 1e3:10.1f} ms   (what is alone is known from an earlier frame)")
    append, _ = fastest(keep, repeats)
    print(f"  a finished frame to the cache {append * 1e3:10.1f} ms", flush=True)
    del cache, fast, first, keep  # at the paper's size the past takes 2 GB
    naive, _ = fastest(partial(naive_step, model, tokens[:, : t + 1], actions.frames(0, t + 1), one_step), repeats)
    print(f"  a diffusion step, naive       {naive * 1e3:10.1f} ms   (two passes over all {t + 1} frames)")
    fast_total = prefill + count * ((steps - 1) * step + opening) + (count - 1) * append
    naive_total = count * steps * naive
    print(f"  {count} frames: {fast_total:.2f} s against {naive_total:.2f} s naive: {naive_total / fast_total:.1f}x")


def guided_step(model: WorldModel, cache: UNetCache, actions: Actions, tokens: torch.Tensor) -> torch.Tensor:
    """One diffusion step of a frame that is partly known: one pass over it and its unconditional copy."""
    seen = model.predict_features(tokens, actions, cache, guidance=True)
    assert seen.unconditional is not None
    logits = model.logits(guide(seen.conditional, seen.unconditional, 1.0)).flatten(1, 2)
    sampled = sample_tokens(logits, torch.rand(logits.shape[:2]), 3)
    level = confidence(logits, sampled, torch.rand(logits.shape[:2]), 0.5)
    return keep_most_confident(tokens.flatten(1), sampled, level, logits.shape[1] // 2, model.config.vocabulary)


def naive_step(model: WorldModel, tokens: torch.Tensor, actions: Actions, config: SamplerConfig) -> None:
    """One diffusion step of the last frame by two passes over all frames."""
    height, width = model.config.tokens

    def logits_of(x: torch.Tensor) -> torch.Tensor:
        whole = torch.cat([tokens[:, :-1], x.view(1, 1, height, width)], dim=1)
        conditional = model.logits(model.features(whole, actions)[:, -1])
        unconditional = model.logits(model.features(whole, actions, mask=AttentionMask.IDENTITY)[:, -1])
        return guide(conditional, unconditional, config.guidance).flatten(1, 2)

    vocabulary, eta = model.config.vocabulary, model.config.diffusion.noise
    list(denoise(logits_of, Draws(0, [0], 0), config, tokens=height * width, vocabulary=vocabulary, eta=eta))


def fastest(work: Callable[[], Result], repeats: int) -> tuple[float, Result]:
    """Seconds of the fastest run, and what the last one made; with more than one, the first only warms up."""
    times = []
    for _ in range(repeats + (repeats > 1)):
        start = clock()
        result = work()
        times.append(clock() - start)
    return min(times), result


def clock() -> float:
    """Seconds: the process's own with one thread, the wall's with several."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def matrix_peak(size: int = 2048) -> float:
    """FLOP/s of a large fp32 matrix product, the fastest of three."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    return 2 * size**3 / fastest(lambda: a @ b, 3)[0]


if __name__ == "__main__":
    main()
