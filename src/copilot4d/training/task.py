"""`TrainingTask`: the few things that a model must say about itself to be trained by the loop.

The tokenizer, the world model and the learned baselines each implement it. A task holds data and configuration, never
the model: loader workers get a copy of the task.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from copilot4d.counter import SampleKey, StepCounter
from copilot4d.training.distributed import World
from copilot4d.training.ema import Ema


@dataclass(frozen=True, kw_only=True)
class StepContext:
    """What the hooks around an update see."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    counter: StepCounter
    world: World
    ema: Ema | None = None


class TrainingTask(ABC):
    """One kind of training: what to build, what to feed, what to minimise, what to show."""

    name: str = "task"
    score: str | None = None  # which of `evaluate`'s numbers chooses the best checkpoint; None: none is the best
    lower_is_better: bool = True
    may_skip_parameters: bool = False  # whether some step's loss may not depend on some parameter (DDP must know)

    @abstractmethod
    def build_model(self) -> nn.Module:
        """The model with fresh weights; called under a seed, so the same on every rank and run."""

    @abstractmethod
    def sample(self, key: SampleKey) -> Any:
        """One training sample. Which item, which augmentation: by the key alone (`key.item(n)`, `key.generator`)."""

    @abstractmethod
    def collate(self, samples: Sequence[Any]) -> Any:
        """Samples -> one batch: tensors, or lists, tuples, mappings or dataclasses of them."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Any, counter: StepCounter) -> Mapping[str, torch.Tensor]:
        """Named scalar losses; "total" is minimised, the others are logged.

        Each must be a mean over the batch's samples, so that it does not matter how a batch is split over ranks and
        accumulation steps. Any method of the model may be called. Noise comes from the counter.
        """

    def before_step(self, context: StepContext) -> None:
        """Called on every rank before the gradients of a step are computed."""
        return

    def after_step(self, context: StepContext) -> Mapping[str, float]:
        """Called on every rank after an update: the place for state that gradients do not change.

        Vector quantisation gathers its latest features (`context.world.all_gather_rows`), fills its bank, and
        re-initialises its codebook with `context.counter`'s randomness: every rank comes to the same result. State
        lives in the model's buffers, so checkpoints hold it. Returns numbers to log (usage, perplexity).
        """
        return {}

    def evaluate(self, model: nn.Module, world: World) -> Mapping[str, float]:
        """Scores on held-out data; called on every rank in eval mode without gradients, averaged over ranks."""
        return {}

    def pictures(self, model: nn.Module, world: World) -> Mapping[str, NDArray[np.uint8]]:
        """(H, W, 3) pictures by name; called on every rank like `evaluate`, written by the first."""
        return {}

    def config(self) -> Mapping[str, Any]:
        """The model's and data's configuration as plain values; a resumed run must have the same."""
        return {}

    def default_config(self) -> Mapping[str, Any]:
        """Values of `config` by default: what a checkpoint from before a setting existed meant."""
        return {}

    def conventions(self) -> Mapping[str, Any]:
        """Decisions that change the meaning of the weights (grid, action convention, vocabulary), as plain values."""
        return {}

    def data_fingerprint(self) -> str:
        """A text that changes when the training data does; a resumed run must have the same."""
        return ""

    def describe(self, key: SampleKey) -> Mapping[str, Any]:
        """Where a sample comes from (drive, frames), for the report on a batch that broke training."""
        return {}

    def shard_units(self, model: nn.Module) -> Sequence[nn.Module]:
        """Modules that `fully_shard` shards one by one (the blocks), innermost first."""
        return []

    def compile_targets(self, model: nn.Module) -> Sequence[nn.Module]:
        """Modules whose forward pass `torch.compile` compiles."""
        return [model]
