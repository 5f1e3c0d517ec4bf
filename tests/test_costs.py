"""benchmarks/costs.py counts what training costs: multiplications by hand, memory by hand, the formula by hand."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from copilot4d import presets
from copilot4d.layers.temporal import AttentionMask, TemporalBlock
from copilot4d.world_model import Actions, WorldModel
from tests.support.real_data import REPOSITORY


@pytest.fixture(scope="module")
def costs():
    spec = importlib.util.spec_from_file_location("costs", REPOSITORY / "benchmarks" / "costs.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_two_layers_by_hand(costs):
    model = nn.Sequential(nn.Linear(8, 16, bias=False), nn.Linear(16, 4, bias=False)).to("meta")
    x = torch.empty(10, 8, device="meta")
    cost = costs.counted(model, lambda: model(x).sum())
    first, second = 2 * 10 * 8 * 16, 2 * 10 * 16 * 4
    assert cost.flop == 2 * first + 3 * second, "the data needs no gradient, what lies between does"
    assert cost.parameters == 8 * 16 + 16 * 4
    assert cost.stored_bytes == 4 * (10 * 8 + 10 * 16), "the inputs of both layers, in fp32"


def test_checkpointing_keeps_the_inputs_of_blocks_and_one_block(costs):
    blocks = nn.ModuleList(TemporalBlock(16, 2, 4.0) for _ in range(3)).to("meta")

    def run(count: int):
        x = torch.empty(1, 2, 5, 16, device="meta", requires_grad=True)
        model = blocks[:count]

        def forward() -> torch.Tensor:
            y = x
            for block in model:
                y = block(y, mask=AttentionMask.CAUSAL, cache=None)
            return y.sum()

        return costs.counted(model, forward)

    one, three = run(1), run(3)
    map_bytes = 4 * 1 * 2 * 5 * 16
    assert one.checkpointed_bytes >= one.stored_bytes
    assert three.checkpointed_bytes - one.checkpointed_bytes == pytest.approx(2 * map_bytes, abs=map_bytes)
    assert three.stored_bytes > 2.5 * (one.stored_bytes - map_bytes)
    assert three.checkpointed_bytes < three.stored_bytes


def test_the_world_model_is_counted_as_it_runs(costs):
    """Sketched and real agree but for the embedding of tokens and actions, which is small."""
    config = presets.tiny().world_model
    model = WorldModel(config)
    tokens = torch.zeros(1, config.frames, *config.tokens, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter:
        model(tokens, Actions.null(1, config.frames)).sum().backward()
    counted = costs.world_model_cost(config)
    assert counted.parameters == sum(p.numel() for p in model.parameters())
    assert counted.flop == pytest.approx(counter.get_total_flops(), rel=0.03)
    halved = costs.world_model_cost(replace(config, frames=2, past_frames=1))
    assert counted.flop == pytest.approx(2 * halved.flop, rel=0.05), "frames cost alike"


def test_hours_follow_the_formula(costs):
    recipe = costs.TOKENIZER_RECIPES["tiny"]
    cost = costs.Cost(parameters=1, flop=3_600_000_000, stored_bytes=0, checkpointed_bytes=0)
    plain = costs.hours(cost, recipe, peak_flops=1e9, utilisation=0.5, checkpointing=False)
    assert plain == pytest.approx(2 * recipe.batch * recipe.steps / 1000)
    again = costs.hours(cost, recipe, peak_flops=1e9, utilisation=0.5, checkpointing=True)
    assert again == pytest.approx(4 / 3 * plain)


def test_the_tokenizers_rays_and_samples_count(costs):
    config = presets.tiny().tokenizer
    few, many = costs.tokenizer_cost(config, rays=10), costs.tokenizer_cost(config, rays=110)
    per_sample = 2 * (config.feature_grid.channels * config.feature_grid.hidden + config.feature_grid.hidden)
    assert many.flop - few.flop == 3 * 100 * config.rendering.max_samples * per_sample


@pytest.mark.slow
def test_the_page_has_the_counted_numbers(costs):
    """docs/costs.md: what a sample takes, and the row of the A100, are what the script says today."""
    page = (REPOSITORY / "docs" / "costs.md").read_text()
    config = presets.paper()
    counted = (
        costs.tokenizer_cost(config.tokenizer, costs.RAYS_PER_SWEEP["paper"]),
        costs.world_model_cost(config.world_model),
    )
    recipes = (costs.TOKENIZER_RECIPES["paper"], costs.WORLD_MODEL_RECIPES["paper"])
    rows = {
        "parameters": [cost.parameters / 1e6 for cost in counted],
        "forward and backward": [cost.flop / 1e12 for cost in counted],
        "weights, gradients, moments": [cost.state_bytes / 1e9 for cost in counted],
        "activations of one sample, fp32": [cost.stored_bytes / 1e9 for cost in counted],
        "the same with `activation_checkpointing: true`": [cost.checkpointed_bytes / 1e9 for cost in counted],
        "the whole training": [c.flop * r.batch * r.steps / 1e18 for c, r in zip(counted, recipes, strict=True)],
    }
    for name, values in rows.items():
        line = next(line for line in page.splitlines() if line.startswith(f"| {name} |"))
        printed = [float(number) for number in re.findall(r"\| ([\d.]+)", line)]
        assert printed == pytest.approx(values, rel=0.05, abs=0.05), name
    line = next(line for line in page.splitlines() if line.startswith("| A100"))
    hours = [costs.hours(c, r, 312e12, 0.25, False) for c, r in zip(counted, recipes, strict=True)]
    assert [float(number) for number in re.findall(r"\| (\d+) h", line)] == pytest.approx(hours, rel=0.02)


def test_an_update_on_many_ranks_by_hand(costs):
    """16 samples of 3 TFLOP on 4 ranks of 1 TFLOP/s; a million weights, 1 MB/s; 1 s a sample to load."""
    cost = costs.Cost(parameters=1_000_000, flop=3 * 10**12, stored_bytes=0, checkpointed_bytes=0)
    cluster = costs.Cluster(flops=1e12, bytes_per_s=1e6, loader_s=1.0, workers=2)
    ddp = costs.rank_cost(cost, 16, 4, "ddp", cluster)
    assert (ddp.samples, ddp.state_bytes, ddp.compute_s, ddp.loader_s) == (4, 16e6, 12.0, 2.0)
    assert ddp.sent_bytes == 2 * 0.75 * 4e6
    assert ddp.update_s == 12.0, "6 s of exchange are hidden behind 8 s of backward pass"
    sharded = costs.rank_cost(cost, 16, 4, "fully_shard", cluster, largest_unit=1000)
    assert sharded.state_bytes == 4e6 + 16_000
    assert sharded.sent_bytes == 3 * 0.75 * 4e6
    assert sharded.update_s == 12.0 + (9.0 - 8.0)
    slow = replace(cluster, loader_s=7.0, workers=1)
    assert costs.rank_cost(cost, 16, 4, "ddp", slow).update_s == 28.0, "the loader is slower than everything"


@pytest.mark.slow
def test_real_ranks_stand_beside_the_model():
    """benchmarks/ranks.py: two gloo processes make updates, and the model says what they send."""
    words = [sys.executable, "benchmarks/ranks.py", "--ranks", "1", "2", "--parallel", "ddp", "--batch", "2",
             "--updates", "1"]  # fmt: skip
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    told = re.search(r"2 ranks, ddp .*sent +([\d.]+) MB a rank \(model +([\d.]+)\)", done.stdout)
    parameters = float(re.search(r"tiny: ([\d.]+) M parameters", done.stdout)[1])
    assert float(told[2]) == pytest.approx(2 * 1 / 2 * 4 * parameters, abs=0.03)
    assert float(told[1]) > 0.8 * float(told[2]), "more where other programs use the loopback device, too"


@pytest.mark.parametrize("ranks", [8, 64, 512])
def test_a_rank_of_many_holds_its_share_of_the_papers_world_model(ranks):
    """A fake group of so many ranks: what `fully_shard` leaves on the first one is what the cost model says."""
    from torch import distributed
    from torch.distributed.fsdp import fully_shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    with torch.device("meta"):
        model = WorldModel(presets.paper().world_model).to("meta")
    whole = sum(p.numel() for p in model.parameters())
    shapes = [p.shape for p in model.parameters()]
    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    try:
        for block in model.modules():
            if isinstance(block, TemporalBlock):
                fully_shard(block)
        fully_shard(model)
        mine = sum(p.to_local().numel() for p in model.parameters())
    finally:
        distributed.destroy_process_group()
    assert mine == sum(-(-shape[0] // ranks) * shape[1:].numel() for shape in shapes), "rows, rounded up"
    assert whole / ranks <= mine < whole / ranks * (1.5 if ranks < 512 else 3)
