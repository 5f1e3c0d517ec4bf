"""What training costs, counted and not measured: multiplications, memory, and from them GPU hours and money.

    python benchmarks/costs.py                                  # paper, on a GPU of 312 TFLOP/s at 2 a GPU hour
    python benchmarks/costs.py --preset mini --peak-tflops 0.13 --utilisation 0.32 --price 0.05
    python benchmarks/costs.py --peak-tflops 990 --utilisation 0.25 --price 3 --checkpointing

The networks are only sketched (torch's meta device): no weights, no data, seconds on any machine. Multiplications are
those of matrix products, forward and backward, as torch's FLOP counter has them; a multiplication with its addition
counts two. Memory is what autograd keeps for the backward pass, in fp32. The tokenizer's sparse parts are counted as
if every pillar and every column of the feature grid were in use, and every ray took all its samples.

    GPU hours = FLOP of a sample x batch x updates / (peak x utilisation) / 3600, times 4/3 with checkpointing

    python benchmarks/costs.py --ranks 8 64 512 --gbit-per-rank 25      # an update on so many GPUs: memory, bytes, time

An update takes the longer of the pass and the loader; of the exchange only what the backward pass (2/3) does not hide.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from copilot4d.cli.train_tokenizer import RAYS_PER_SWEEP
from copilot4d.cli.train_tokenizer import RECIPES as TOKENIZER_RECIPES
from copilot4d.cli.train_world_model import RECIPES as WORLD_MODEL_RECIPES
from copilot4d.layers.swin import SwinBlock
from copilot4d.layers.temporal import TemporalBlock
from copilot4d.presets import PRESETS, preset
from copilot4d.tokenizer import Tokenizer
from copilot4d.tokenizer.config import TokenizerConfig
from copilot4d.training.optimizer import Recipe
from copilot4d.world_model import WorldModel, WorldModelConfig

BYTES_PER_PARAMETER = 16  # weight, gradient and two moments in fp32


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Of one sample (a sweep, or a clip): multiplications of forward and backward, and what the backward pass needs."""

    parameters: int
    flop: int
    stored_bytes: int  # without checkpointing
    checkpointed_bytes: int  # every block's input, what lies outside of blocks, and one block at a time

    @property
    def state_bytes(self) -> int:
        """Weights, gradients, moments."""
        return BYTES_PER_PARAMETER * self.parameters


def tokenizer_cost(config: TokenizerConfig, rays: int) -> Cost:
    """Of a sweep with so many supervised rays. The gradient reaches everything, as in training."""
    with torch.device("meta"):
        model = Tokenizer(config).to("meta")
    assert model.feature_grid is not None
    assert model.coarse_branch is not None
    (height, width), (h, w) = config.map_size, config.tokens
    encoder, grid, coarse, code = model.encoder, model.feature_grid, model.coarse_branch, config.codebook
    patches = torch.empty(height * width, encoder.patches.linear.in_features, device="meta")
    samples = torch.empty(rays * config.rendering.max_samples, grid.config.channels, device="meta", requires_grad=True)

    def run() -> Tensor:
        x = encoder.patches.linear(patches).view(1, height, width, -1)
        x = encoder.coarse(encoder.merge(encoder.fine(encoder.position(x))))
        features = encoder.leave(nn.functional.gelu(encoder.norm(x)))  # (1, H, W, D)
        with torch.no_grad():  # the nearest codes
            torch.mm(features.view(h * w, code.dim), model.codebook.weight.T)
        seen = model.decoder(features)
        occupancy = nn.functional.softplus(coarse(seen)).sum()  # the cross entropy keeps its logits
        columns = grid.linear(grid.norm(seen)).square().sum()  # the interpolation keeps its table
        total: Tensor = occupancy + columns + grid.occupancy_logits(samples).sum()
        return total

    return counted(model, run)


def world_model_cost(config: WorldModelConfig) -> Cost:
    """Of a clip of the longest length, under the objective that counts all frames."""
    with torch.device("meta"):
        model = WorldModel(config).to("meta")
    dims, frames = config.unet.dims, config.frames
    x = torch.empty(1, frames, *config.tokens, dims[0], device="meta", requires_grad=True)
    conditions = [torch.empty(1, frames, 1, 1, dim, device="meta") for dim in dims]

    def run() -> Tensor:
        features = model.norm(model.unet(x, conditions))
        return linear_without_memory(features, model.tokens.output_table)

    return counted(model, run)


def linear_without_memory(features: Tensor, table: Tensor) -> Tensor:
    """Logits whose products are counted and which are not stored: the loss makes its gradients at once."""
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (t,), lambda kept: kept[0]):
        return nn.functional.linear(features, table).sum()


def counted(model: nn.Module, run: Callable[[], Tensor]) -> Cost:
    """Forward and backward once, with an eye on every block."""
    kept: dict[int, Tensor] = {}  # storages, each once; alive, so that no address is used twice
    known = {t.untyped_storage()._cdata for t in (*model.parameters(), *model.buffers())}
    total, outside, inputs, largest, began, in_block = 0, 0, 0, 0, 0, False

    def pack(tensor: Tensor) -> Tensor:
        nonlocal total, outside
        storage = tensor.untyped_storage()
        if storage._cdata not in known and storage._cdata not in kept:
            kept[storage._cdata] = tensor.detach()
            total += storage.nbytes()
            outside += 0 if in_block else storage.nbytes()
        return tensor

    def enter(_: nn.Module, given: tuple[Tensor, ...]) -> None:
        nonlocal in_block, inputs, began
        in_block, began = True, total
        inputs += given[0].numel() * given[0].element_size()

    def leave(*_: object) -> None:
        nonlocal in_block, largest
        in_block, largest = False, max(largest, total - began)

    for block in model.modules():
        if isinstance(block, SwinBlock | TemporalBlock):
            block.register_forward_pre_hook(enter)
            block.register_forward_hook(leave)
    with FlopCounterMode(display=False) as counter:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            result = run()
        result.backward()  # type: ignore[no-untyped-call]
    return Cost(
        parameters=sum(p.numel() for p in model.parameters()), flop=counter.get_total_flops(), stored_bytes=total,
        checkpointed_bytes=outside + inputs + largest,
    )  # fmt: skip


def hours(cost: Cost, recipe: Recipe, peak_flops: float, utilisation: float, checkpointing: bool) -> float:
    """Of one GPU, for the whole recipe; several GPUs share them."""
    again = 4 / 3 if checkpointing else 1.0  # the forward pass a second time
    return cost.flop * again * recipe.batch * recipe.steps / (peak_flops * utilisation) / 3600


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """What a rank has; every number is an assumption of the caller."""

    flops: float  # that training reaches, a second
    bytes_per_s: float  # that a rank sends
    loader_s: float  # of one core, for one sample
    workers: int  # cores that load, a rank


@dataclass(frozen=True, kw_only=True)
class RankCost:
    """Of one rank, for one update."""

    samples: float
    state_bytes: float
    sent_bytes: float
    compute_s: float
    exchange_s: float
    loader_s: float

    @property
    def update_s(self) -> float:
        """The exchange runs beside the backward pass, the loader beside everything."""
        return max(self.loader_s, self.compute_s + max(0.0, self.exchange_s - self.compute_s * 2 / 3))


def rank_cost(cost: Cost, batch: int, ranks: int, parallel: str, cluster: Cluster, largest_unit: int = 0) -> RankCost:
    """An update of `batch` samples on so many ranks. parallel: "ddp" or "fully_shard".

    A ring sends (n - 1)/n of the gradient twice; sharded weights are gathered for both passes, gradients scattered.
    largest_unit: parameters of the largest module that fully_shard gathers at once (weights and gradients of two).
    """
    bytes_of_weights, around = 4 * cost.parameters, (ranks - 1) / ranks
    sharded = parallel == "fully_shard"
    state = cost.state_bytes / ranks + 2 * 2 * 4 * largest_unit if sharded else cost.state_bytes
    sent = (3 if sharded else 2) * around * bytes_of_weights
    samples = batch / ranks
    return RankCost(
        samples=samples, state_bytes=state, sent_bytes=sent, compute_s=samples * cost.flop / cluster.flops,
        exchange_s=sent / cluster.bytes_per_s, loader_s=samples * cluster.loader_s / cluster.workers,
    )  # fmt: skip


def print_ranks(name: str, cost: Cost, recipe: Recipe, ranks: list[int], cluster: Cluster, unit: int) -> None:
    """One line per number of ranks and way to share; the batch grows once every rank has one sample."""
    for parallel in ("ddp", "fully_shard"):
        for size in ranks:
            batch = max(recipe.batch, size)
            found = rank_cost(cost, batch, size, parallel, cluster, unit)
            alone_s = batch * cost.flop / cluster.flops
            grown = "" if batch == recipe.batch else f" (the paper's {recipe.batch} is too small)"
            print(f"  {parallel:11s} {size:4d} ranks: state {found.state_bytes / 1e9:.2f} GB, sent "
                  f"{found.sent_bytes / 1e6:.0f} MB, update {found.update_s * 1e3:.0f} ms: pass "
                  f"{found.compute_s * 1e3:.0f}, exchange {found.exchange_s * 1e3:.0f}, loader "
                  f"{found.loader_s * 1e3:.0f}; "
                  f"{alone_s / size / found.update_s:.0%} of {size} GPUs, batch {batch}{grown}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=list(PRESETS), default="paper")
    parser.add_argument("--peak-tflops", type=float, default=312.0, help="of the GPU, in the precision of training")
    parser.add_argument("--utilisation", type=float, default=0.25, help="the share of it that training reaches")
    parser.add_argument("--price", type=float, default=2.0, help="of a GPU hour, in your currency")
    parser.add_argument("--checkpointing", action="store_true", help="compute the forward pass a second time")
    parser.add_argument("--ranks", type=int, nargs="+", default=[], help="GPUs that share an update")
    parser.add_argument("--gbit-per-rank", type=float, default=25.0, help="that a GPU sends to the next one")
    parser.add_argument("--loader-ms", type=float, default=4.0, help="of one core, for one sweep (tokenizer)")
    parser.add_argument("--workers", type=int, default=4, help="loader processes of a GPU")
    options = parser.parse_args()
    config = preset(options.preset)
    rows = {
        "tokenizer": (
            tokenizer_cost(config.tokenizer, RAYS_PER_SWEEP[options.preset]), TOKENIZER_RECIPES[options.preset],
        ),
        "world model": (world_model_cost(config.world_model), WORLD_MODEL_RECIPES[options.preset]),
    }  # fmt: skip
    print(f"{options.preset}, {options.peak_tflops:g} TFLOP/s at {options.utilisation:.0%}, {options.price:g} an hour"
          f"{', checkpointing' if options.checkpointing else ''}")  # fmt: skip
    for name, (cost, recipe) in rows.items():
        needed = hours(cost, recipe, options.peak_tflops * 1e12, options.utilisation, options.checkpointing)
        print(f"{name}: {cost.parameters / 1e6:.1f} M parameters")
        print(f"  a sample            {cost.flop / 1e12:10.3f} TFLOP forward and backward")
        print(f"  batch x updates     {recipe.batch} x {recipe.steps}: "
              f"{cost.flop * recipe.batch * recipe.steps / 1e18:.3g} EFLOP")  # fmt: skip
        print(f"  memory, fp32        {cost.state_bytes / 1e9:.2f} GB weights, gradients, moments; a sample "
              f"{cost.stored_bytes / 1e9:.1f} GB, checkpointed {cost.checkpointed_bytes / 1e9:.1f} GB")  # fmt: skip
        print(f"  GPU hours           {needed:10.1f}   money {needed * options.price:.0f}")
        cluster = Cluster(
            flops=options.peak_tflops * 1e12 * options.utilisation, bytes_per_s=options.gbit_per_rank * 1e9 / 8,
            loader_s=options.loader_ms / 1e3 if name == "tokenizer" else 0.0, workers=options.workers,
        )  # fmt: skip
        print_ranks(name, cost, recipe, options.ranks, cluster, cost.parameters // 20)


if __name__ == "__main__":
    main()
