"""What a training step of the world model costs, and how much of the machine it uses, measured in one run.

    python benchmarks/world_model.py                            # mini: a batch of 8 clips, one clip per pass
    python benchmarks/world_model.py --per-pass 8               # all clips in one pass: the same update, more memory
    python benchmarks/world_model.py --preset paper --batch 1 --checkpointing    # 20 GB, minutes
    python benchmarks/world_model.py --preset paper --batch 1 --frames 4 --checkpointing

A step is what the training loop does for one batch: Algorithm 1's noise, forward, backward, clipping, AdamW. The
objectives are measured one by one and weighed by their share (50/40/10). The peak is that of a large matrix product in
between, so that a busy machine slows both. With one thread the clock is the process's own CPU time.
"""

from __future__ import annotations

import argparse
import dataclasses
import resource
import statistics
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from copilot4d import presets
from copilot4d.geometry import se3
from copilot4d.training.malloc import keep_freed_memory
from copilot4d.training.optimizer import make_optimizer, paper_recipe
from copilot4d.world_model import (
    Actions,
    Objective,
    WorldModel,
    actions_of,
    denoising_loss,
    draw_noise,
    make_denoising,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=list(presets.PRESETS), default="mini")
    parser.add_argument("--batch", type=int, default=8, help="clips of an update")
    parser.add_argument("--per-pass", type=int, default=1, help="clips of one forward and backward pass")
    parser.add_argument("--frames", type=int, default=None, help="of a clip; by default the preset's")
    parser.add_argument("--repeats", type=int, default=None, help="of each measurement; the fastest counts")
    parser.add_argument("--checkpointing", action="store_true", help="activation checkpointing")
    parser.add_argument("--no-flops", dest="flops", action="store_false", help="do not count multiplications")
    parser.add_argument("--plain-malloc", action="store_true", help="give freed memory back: less memory, more time")
    parser.add_argument("--objectives", nargs="+", default=[o.value for o in Objective])
    options = parser.parse_args()
    if not options.plain_malloc:
        keep_freed_memory()
    measure(options)


def measure(options: argparse.Namespace) -> None:
    torch.manual_seed(0)
    config = presets.preset(options.preset).world_model
    frames = options.frames or config.frames
    past = min(config.past_frames, frames - 1)
    config = dataclasses.replace(
        config, frames=frames, past_frames=past, activation_checkpointing=options.checkpointing
    )  # fmt: skip
    model = WorldModel(config).train()
    optimizer = make_optimizer(model, paper_recipe("world_model"))
    tokens = torch.randint(config.vocabulary, (options.batch, frames, *config.tokens))
    poses = np.tile(
        np.stack([se3.from_yaw(0.02 * t, (1.0 * t, 0.0, 0.0)) for t in range(frames)]), (options.batch, 1, 1, 1)
    )
    actions = actions_of(poses, config.token_frame, world_from_reference=poses[:, past - 1])
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{options.preset}: {parameters / 1e6:.1f}M parameters, {options.batch} clips of {past} + {frames - past} "
          f"frames of {config.tokens[0]} x {config.tokens[1]} tokens, {options.per_pass} per pass, "
          f"{torch.get_num_threads()} threads{', checkpointing' if options.checkpointing else ''}")  # fmt: skip

    repeats = options.repeats or (1 if options.preset == "paper" else 3)
    times: dict[Objective, list[float]] = {}
    flops: dict[Objective, int] = {}
    peaks = [matrix_peak()]
    chosen = [Objective(name) for name in options.objectives]
    for objective in chosen:
        for repeat in range(repeats):
            start = clock()
            step(model, optimizer, tokens, actions, objective, repeat, options.per_pass)
            times.setdefault(objective, []).append(clock() - start)
            peaks.append(matrix_peak())
    memory_gb = peak_memory_gb()  # before the counter, which takes as much again
    for objective in chosen if options.flops else []:
        part = slice(0, options.per_pass)
        with FlopCounterMode(display=False) as counter:
            loss_of(model, tokens[part], actions_part(actions, part), objective, 0).backward()  # type: ignore[no-untyped-call]
        model.zero_grad()
        flops[objective] = counter.get_total_flops() * options.batch // options.per_pass
    total_share = sum(config.diffusion.share(o) for o in chosen)
    mean_s = sum(config.diffusion.share(o) * min(times[o]) for o in chosen) / total_share
    for objective in chosen:
        print(f"  step, objective {objective.value:<7} {min(times[objective]) * 1e3:10.0f} ms")
    print(f"  step, on average        {mean_s * 1e3:10.0f} ms: {3600 / mean_s * options.batch:.0f} clips an hour")
    if options.flops:
        mean_flops = sum(config.diffusion.share(o) * flops[o] for o in chosen) / total_share
        if options.checkpointing:
            mean_flops *= 3 / 4  # the second forward pass is no useful work
        peak = statistics.median(peaks)
        rate = mean_flops / mean_s
        print(f"  matrix products: {rate / 1e9:.0f} GFLOP/s, {rate / peak:.0%} of the peak of {peak / 1e9:.0f} "
              f"(median of {len(peaks)})")  # fmt: skip
    print(f"  memory: {memory_gb:.2f} GB at its peak, everything included")


def step(
    model: WorldModel, optimizer: torch.optim.Optimizer, tokens: torch.Tensor, actions: Actions,
    objective: Objective, number: int, per_pass: int,
) -> None:  # fmt: skip
    """One update, as the training loop makes it."""
    passes = range(0, len(tokens), per_pass)
    for start in passes:
        part = slice(start, start + per_pass)
        loss = loss_of(model, tokens[part], actions_part(actions, part), objective, 1000 * number + start)
        (loss / len(passes)).backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def loss_of(
    model: WorldModel, tokens: torch.Tensor, actions: Actions, objective: Objective, seed: int
) -> torch.Tensor:  # fmt: skip
    """Algorithm 1."""
    config = model.config
    generators = [torch.Generator().manual_seed(seed + i) for i in range(len(tokens))]
    noise = draw_noise(generators, tokens.shape[1], config.tokens[0] * config.tokens[1], config.vocabulary)
    task = make_denoising(
        tokens, objective, noise, config.diffusion, past_frames=config.past_frames, mask_token=config.mask_token
    )
    return denoising_loss(model, task, actions).loss


def actions_part(actions: Actions, part: slice) -> Actions:
    """Some clips' actions."""
    return Actions(actions.motion[part], actions.known[part])


def clock() -> float:
    """Seconds: the process's own with one thread, which others on the machine do not slow; the wall's with several."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def matrix_peak(size: int = 2048) -> float:
    """FLOP/s of a large fp32 matrix product, the faster of two."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    times = []
    for _ in range(2):
        start = clock()
        a @ b
        times.append(clock() - start)
    return 2 * size**3 / min(times)


def peak_memory_gb() -> float:
    """The process's largest resident memory; where the system keeps one, that of /proc."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


if __name__ == "__main__":
    main()
