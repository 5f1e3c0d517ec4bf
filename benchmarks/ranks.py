"""The time model of benchmarks/costs.py beside real ranks: gloo processes on this machine, one thread each.

    python benchmarks/ranks.py --ranks 1 2 4 --preset tiny --batch 4 --updates 10

Each rank makes updates of the world model as a rank of a training does: its share of the batch forward and backward,
the gradients exchanged (DDP, or fully_shard), AdamW. Measured are the CPU time of a rank's update, its wall time, and
the bytes that a rank sends. The first number of ranks says how fast this machine computes; the rest is predicted from
that by `costs.rank_cost`. Bytes are those of the loopback device, so give the program a network of its own:

    unshare -n sh -c 'ip link set lo up && python benchmarks/ranks.py'

Wall times mean something only where no other work has the cores, and there are as many cores as ranks.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from copilot4d.presets import PRESETS, preset
from copilot4d.world_model import Actions, WorldModel
from copilot4d.world_model.unet import Group
from costs import Cluster, rank_cost, world_model_cost

WARM_UP = 2


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Of one rank, for one update."""

    cpu_s: float
    wall_s: float
    sent_bytes: float


def sent_bytes() -> int:
    """What this machine (or this network namespace) has sent to itself so far."""
    lines = Path("/proc/self/net/dev").read_text().splitlines()
    (loopback,) = (line for line in lines if line.strip().startswith("lo:"))
    return int(loopback.split(":")[1].split()[8])


def work(rank: int, ranks: int, parallel: str, options: argparse.Namespace, meeting: str, results: Any) -> None:
    """One rank: warm up, then the updates that count."""
    torch.set_num_threads(1)
    if ranks > 1:
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    torch.manual_seed(0)
    config = preset(options.preset).world_model
    model: torch.nn.Module = WorldModel(config)
    if ranks > 1 and parallel == "ddp":
        model = DistributedDataParallel(model)
    elif ranks > 1:
        for module in list(model.modules()):
            if isinstance(module, Group):
                fully_shard(module)
        fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    clips = options.batch // ranks
    tokens = torch.randint(config.vocabulary, (clips, config.frames, *config.tokens))
    actions = Actions.null(clips, config.frames)
    cpu, wall, before = [], [], 0
    for update in range(WARM_UP + options.updates):
        if update == WARM_UP:
            if ranks > 1:
                dist.barrier()
            before = sent_bytes()
        start = time.process_time(), time.perf_counter()
        model(tokens, actions).float().logsumexp(-1).mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if update >= WARM_UP:
            cpu.append(time.process_time() - start[0])
            wall.append(time.perf_counter() - start[1])
    if ranks > 1:
        dist.barrier()
    sent = (sent_bytes() - before) / options.updates / ranks
    results.put(Measured(cpu_s=statistics.median(cpu), wall_s=statistics.median(wall), sent_bytes=sent))
    if ranks > 1:
        dist.destroy_process_group()


def measure(ranks: int, parallel: str, options: argparse.Namespace) -> Measured:
    """The mean over so many ranks, which run side by side."""
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        meeting = f"{folder}/meeting"
        processes = [
            context.Process(target=work, args=(rank, ranks, parallel, options, meeting, results))
            for rank in range(ranks)
        ]
        for process in processes:
            process.start()
        found = [results.get() for _ in processes]
        for process in processes:
            process.join()
    return Measured(
        cpu_s=statistics.mean(m.cpu_s for m in found), wall_s=statistics.mean(m.wall_s for m in found),
        sent_bytes=statistics.mean(m.sent_bytes for m in found),
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=list(PRESETS), default="tiny")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--parallel", nargs="+", default=["ddp", "fully_shard"], choices=["ddp", "fully_shard"])
    parser.add_argument("--batch", type=int, default=4, help="clips of an update, over all ranks")
    parser.add_argument("--updates", type=int, default=10)
    options = parser.parse_args()
    cost = world_model_cost(preset(options.preset).world_model)
    print(f"{options.preset}: {cost.parameters / 1e6:.2f} M parameters, {cost.flop / 1e9:.2f} GFLOP a clip")
    first: Measured | None = None
    for ranks in options.ranks:
        for parallel in options.parallel if ranks > 1 else ["alone"]:
            found = measure(ranks, parallel, options)
            first = first or found
            speed = options.batch / options.ranks[0] * cost.flop / first.cpu_s
            cluster = Cluster(flops=speed, bytes_per_s=float("inf"), loader_s=0.0, workers=1)
            told = rank_cost(cost, options.batch, ranks, parallel, cluster)
            print(f"{ranks} ranks, {parallel:11s}: CPU {found.cpu_s * 1e3:7.1f} ms an update (model "
                  f"{told.compute_s * 1e3:7.1f}), sent {found.sent_bytes / 1e6:6.2f} MB a rank (model "
                  f"{told.sent_bytes / 1e6:6.2f}), wall {found.wall_s * 1e3:7.1f} ms", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
