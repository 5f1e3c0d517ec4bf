"""The paper's optimisation: groups, schedule, numbers."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from copilot4d.errors import UsageError
from copilot4d.training import Recipe, paper_recipe
from copilot4d.training.optimizer import learning_rate, make_optimizer, parameter_groups, reset_optimizer_state
from tests.training.toy import ToyModel, toy_recipe


@pytest.mark.parametrize(
    "model",
    [ToyModel(), nn.TransformerEncoderLayer(8, 2, 16), nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))],
)
def test_the_groups_partition_all_parameters(model):
    groups = parameter_groups(model, 1e-4)
    grouped = [id(p) for group in groups for p in group["params"]]
    assert len(grouped) == len(set(grouped))
    assert set(grouped) == {id(p) for p in model.parameters()}


def test_who_decays():
    """By hand: only the weight matrices of layers decay."""
    model = ToyModel()
    names = {id(p): n for n, p in model.named_parameters()}
    decay, spared = ({names[id(p)] for p in g["params"]} for g in parameter_groups(model, 1e-4))
    assert decay == {"hidden.weight", "out.weight", "head.weight"}
    assert spared == {
        "embedding.weight",
        "position",
        "codebook",
        "norm.weight",
        "norm.bias",
        "hidden.bias",
        "head.bias",
    }


def test_a_tied_unembedding_and_declared_tables_are_spared():
    class Tied(nn.Module):
        undecayed_parameters = ("table",)

        def __init__(self, first):
            super().__init__()
            self.table = nn.Parameter(torch.zeros(3, 4))
            self.relative_bias_table = nn.Parameter(torch.zeros(3, 4))
            one, two = nn.Linear(4, 9, bias=False), nn.Embedding(9, 4)
            one.weight = two.weight
            self.a, self.b = (one, two) if first == "linear" else (two, one)

    for first in ("linear", "embedding"):
        decay, spared = parameter_groups(Tied(first), 1e-4)
        assert decay["params"] == []
        assert len(spared["params"]) == 3


def test_declaring_what_is_not_there_is_an_error():
    class Wrong(nn.Linear):
        undecayed_parameters = ("wieght",)

    with pytest.raises(UsageError, match="wieght"):
        parameter_groups(Wrong(2, 2), 1e-4)


def test_frozen_parameters_are_left_out():
    model = ToyModel()
    model.embedding.requires_grad_(False)
    count = sum(len(g["params"]) for g in parameter_groups(model, 1e-4))
    assert count == len(list(model.parameters())) - 1
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    with pytest.raises(UsageError, match="no trainable"):
        make_optimizer(model, toy_recipe())


def test_the_papers_numbers():
    tokenizer, world_model = paper_recipe("tokenizer"), paper_recipe("world_model")
    assert (tokenizer.learning_rate, world_model.learning_rate) == (1e-3, 1e-3)
    assert (tokenizer.warmup_steps, world_model.warmup_steps) == (4000, 2000)
    assert (tokenizer.clip_norm, world_model.clip_norm) == (0.1, 5.0)
    assert (tokenizer.batch, world_model.batch) == (16, 8)
    assert (tokenizer.cosine_steps, world_model.cosine_steps) == (400_000, 750_000)
    for recipe in (tokenizer, world_model):
        assert (recipe.weight_decay, recipe.beta1, recipe.beta2) == (1e-4, 0.9, 0.95)
        assert recipe.final_fraction == 0.1
    with pytest.raises(UsageError, match="worldmodel"):
        paper_recipe("worldmodel")


def test_adamw_gets_the_numbers():
    optimizer = make_optimizer(ToyModel(), paper_recipe("tokenizer"))
    assert isinstance(optimizer, torch.optim.AdamW)
    assert [g["weight_decay"] for g in optimizer.param_groups] == [1e-4, 0.0]
    assert all(g["betas"] == (0.9, 0.95) for g in optimizer.param_groups)


def test_warm_up_then_cosine_to_a_tenth():
    recipe = Recipe(batch=1, learning_rate=2.0, warmup_steps=4, cosine_steps=100, clip_norm=1.0)
    assert [learning_rate(recipe, s) for s in range(4)] == [0.5, 1.0, 1.5, 2.0]
    assert learning_rate(recipe, 53) == pytest.approx(2 * (0.1 + 0.9 * 0.5))  # half of the cosine
    assert learning_rate(recipe, 28) == pytest.approx(2 * (0.1 + 0.45 * (1 + math.cos(math.pi / 4))))
    assert learning_rate(recipe, 103) == pytest.approx(0.2)
    assert learning_rate(recipe, 10**6) == pytest.approx(0.2)
    rates = [learning_rate(recipe, s) for s in range(3, 104)]
    assert rates == sorted(rates, reverse=True)
    assert recipe.steps == 104


def test_no_warm_up_starts_at_the_top():
    recipe = Recipe(batch=1, learning_rate=1.0, warmup_steps=0, cosine_steps=10, clip_norm=1.0)
    assert learning_rate(recipe, 0) == pytest.approx(0.1 + 0.45 * (1 + math.cos(math.pi / 10)))


@pytest.mark.parametrize(
    "change", [{"batch": 0}, {"clip_norm": 0.0}, {"warmup_steps": -1}, {"beta2": 1.0}, {"ema_decay": 1.5},
               {"learning_rate": float("nan")}, {"final_fraction": 2.0}],
)  # fmt: skip
def test_impossible_recipes_name_the_key(change):
    with pytest.raises(UsageError, match=rf"training\.recipe\.{next(iter(change))} must"):
        toy_recipe(**change)


def test_reset_forgets_only_what_it_should():
    model = ToyModel()
    optimizer = make_optimizer(model, toy_recipe())
    sum(p.sum() for p in model.parameters()).backward()
    optimizer.step()
    reset_optimizer_state(optimizer, [model.codebook])
    assert model.codebook not in optimizer.state
    assert model.head.weight in optimizer.state
    optimizer.step()
    assert float(optimizer.state[model.codebook]["step"]) == 1
    assert float(optimizer.state[model.head.weight]["step"]) == 2
