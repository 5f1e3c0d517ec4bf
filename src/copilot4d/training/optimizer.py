"""AdamW with the paper's parameter groups, its learning-rate schedule, and its recipe as numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from copilot4d.errors import UsageError

NORMS = (
    nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.LocalResponseNorm,
    nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm,
)  # fmt: skip
EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The numbers of one optimisation. Steps are optimizer updates; `batch` counts samples over all ranks."""

    batch: int
    learning_rate: float = 1e-3
    warmup_steps: int
    cosine_steps: int  # after the warm-up
    final_fraction: float = 0.1  # of the learning rate, at the end of the cosine and after it
    clip_norm: float
    weight_decay: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-8
    ema_decay: float | None = None  # None: no moving average of the weights

    def __post_init__(self) -> None:
        for name in ("batch", "learning_rate", "cosine_steps", "clip_norm", "epsilon"):
            if not getattr(self, name) > 0:
                raise UsageError(f"training.recipe.{name} must be positive, got {getattr(self, name)}")
        for name in ("warmup_steps", "weight_decay"):
            if not getattr(self, name) >= 0:
                raise UsageError(f"training.recipe.{name} must not be negative, got {getattr(self, name)}")
        for name in ("beta1", "beta2", "ema_decay"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise UsageError(f"training.recipe.{name} must lie in [0, 1), got {value}")
        if not 0 <= self.final_fraction <= 1:
            raise UsageError(f"training.recipe.final_fraction must lie in [0, 1], got {self.final_fraction}")

    @property
    def steps(self) -> int:
        """Updates until the learning rate has reached its floor."""
        return self.warmup_steps + self.cosine_steps


def paper_recipe(model: Literal["tokenizer", "world_model"]) -> Recipe:
    """The paper's numbers ('Training Transformers', Optimization)."""
    if model == "tokenizer":
        return Recipe(batch=16, learning_rate=1e-3, warmup_steps=4000, cosine_steps=400_000, clip_norm=0.1)
    if model == "world_model":
        return Recipe(batch=8, learning_rate=1e-3, warmup_steps=2000, cosine_steps=750_000, clip_norm=5.0)
    raise UsageError(f"the paper has a recipe for 'tokenizer' and for 'world_model', not for {model!r}")


def learning_rate(recipe: Recipe, step: int) -> float:
    """The rate of update `step` (from 0): linear warm-up, then half a cosine down to `final_fraction`, then constant.

    With 4 warm-up steps the first rates are 1/4, 2/4, 3/4, 4/4 of the peak.
    """
    if step < recipe.warmup_steps:
        return recipe.learning_rate * (step + 1) / recipe.warmup_steps
    progress = min(1.0, (step + 1 - recipe.warmup_steps) / recipe.cosine_steps)
    cosine = 0.5 * (1 + math.cos(math.pi * progress))
    return recipe.learning_rate * (recipe.final_fraction + (1 - recipe.final_fraction) * cosine)


def undecayed_names(model: nn.Module) -> set[str]:
    """Names of parameters without weight decay: biases, norms, embeddings, and every scalar or vector.

    A module declares its other embeddings (position tables, codebooks, un-embeddings) by an attribute
    `undecayed_parameters`, a tuple of its own parameters' names. A tied weight is left undecayed if any of the modules
    that share it says so.
    """
    undecayed: set[int] = set()
    for module in model.modules():
        declared = set(getattr(module, "undecayed_parameters", ()))
        own = dict(module.named_parameters(recurse=False, remove_duplicate=False))
        unknown = declared - set(own)
        if unknown:
            raise UsageError(f"{type(module).__name__}.undecayed_parameters names {sorted(unknown)}: no such parameter")
        for name, parameter in own.items():
            spared = isinstance(module, (*NORMS, *EMBEDDINGS)) or "bias" in name or parameter.ndim < 2
            if spared or name in declared:
                undecayed.add(id(parameter))
    return {name for name, parameter in model.named_parameters() if id(parameter) in undecayed}


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two groups, "decay" and "no_decay", which together hold every trainable parameter exactly once."""
    spared = undecayed_names(model)
    trainable = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    return [
        {"name": "decay", "params": [p for n, p in trainable if n not in spared], "weight_decay": weight_decay},
        {"name": "no_decay", "params": [p for n, p in trainable if n in spared], "weight_decay": 0.0},
    ]


def make_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.AdamW:
    """AdamW over the two groups; the loop sets the learning rate before each update."""
    groups = [g for g in parameter_groups(model, recipe.weight_decay) if g["params"]]
    if not groups:
        raise UsageError(f"{type(model).__name__} has no trainable parameter")
    device = next(iter(groups[0]["params"])).device.type
    return torch.optim.AdamW(
        groups,
        lr=recipe.learning_rate,
        betas=(recipe.beta1, recipe.beta2),
        eps=recipe.epsilon,
        fused=device in ("cpu", "cuda"),
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, value: float) -> None:
    """Give all groups one rate."""
    for group in optimizer.param_groups:
        group["lr"] = value


def reset_optimizer_state(optimizer: torch.optim.Optimizer, parameters: Iterable[nn.Parameter]) -> None:
    """Forget the moments of parameters whose values were replaced (a re-initialised codebook)."""
    for parameter in parameters:
        optimizer.state.pop(parameter, None)
