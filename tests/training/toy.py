"""A small real model and its task: a Transformer that regresses a number from tokens, with a codebook in its middle.

It has all that the recipe treats differently (embedding, LayerNorm, biases, plain weights, a tied un-embedding), state
that gradients do not change (bank, usage), augmentation and noise.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from torch import nn

from copilot4d.training import Recipe, SampleKey, StepContext, StepCounter, TrainingConfig, TrainingTask, World
from copilot4d.training.optimizer import reset_optimizer_state

VOCABULARY, LENGTH, CODES = 11, 6, 8


class ToyModel(nn.Module):
    undecayed_parameters = ("position", "codebook")

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.position = nn.Parameter(torch.randn(1, LENGTH, width) * 0.1)
        self.norm = nn.LayerNorm(width)
        self.hidden = nn.Linear(width, 2 * width)
        self.out = nn.Linear(2 * width, width, bias=False)
        self.codebook = nn.Parameter(torch.randn(CODES, width))
        self.head = nn.Linear(width, 1)
        self.unembed = nn.Linear(width, VOCABULARY, bias=False)
        self.unembed.weight = self.embedding.weight
        self.register_buffer("bank", torch.zeros(4 * CODES, width))
        self.register_buffer("usage", torch.zeros(CODES, dtype=torch.int64))
        self.features: torch.Tensor | None = None

    def forward(self, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.embedding(tokens) + self.position
        x = x + self.out(torch.nn.functional.gelu(self.hidden(self.norm(x))))
        pooled = x.mean(dim=1)  # (B, C)
        codes = torch.cdist(pooled.detach(), self.codebook.detach()).argmin(dim=1)
        quantised = self.codebook[codes]
        self.features = pooled.detach()
        vq = (quantised - pooled.detach()).square().mean() + 0.25 * (quantised.detach() - pooled).square().mean()
        straight = pooled + (quantised - pooled).detach()
        return {"y": self.head(straight)[:, 0], "logits": self.unembed(x), "vq": vq, "codes": codes}


class ToyTask(TrainingTask):
    name = "toy"
    score = "error"

    def __init__(self, items: int = 37, *, reinitialise_every: int = 4, order_file: Path | None = None,
                 poison: int | None = None, die: int | None = None, width: int = 16) -> None:  # fmt: skip
        self.items, self.reinitialise_every, self.order_file = items, reinitialise_every, order_file
        self.poison, self.die, self.width = poison, die, width
        self.seen: list[tuple[int, ...]] = []

    def build_model(self) -> nn.Module:
        return ToyModel(self.width)

    def sample(self, key: SampleKey) -> dict[str, np.ndarray]:
        item = key.item(self.items)
        if key.step == self.die:
            import os
            import signal

            os.kill(os.getpid(), signal.SIGKILL)
        tokens = np.random.default_rng(item).integers(0, VOCABULARY, LENGTH)
        shift = int(key.generator("augmentation").integers(0, LENGTH))
        y = np.float32(np.sin(tokens.sum()) if item != self.poison else np.nan)
        return {"tokens": np.roll(tokens, shift), "y": y, "item": np.int64(item)}

    def collate(self, samples):
        return {name: torch.from_numpy(np.stack([s[name] for s in samples])) for name in samples[0]}

    def loss(self, model, batch, counter: StepCounter):
        self.seen.append(tuple(batch["item"].tolist()))
        noise = np.array([g.normal(scale=0.01) for g in counter.sample_generators("noise")], dtype=np.float32)
        objective = float(counter.step_generator("objective").random() < 0.5)
        out = model(batch["tokens"])
        regression = (out["y"] - batch["y"] - torch.from_numpy(noise)).square().mean()
        language = nn.functional.cross_entropy(out["logits"].flatten(0, 1), batch["tokens"].flatten())
        return {"total": regression + 0.1 * objective * language + out["vq"], "regression": regression, "vq": out["vq"]}

    def after_step(self, context: StepContext):
        model, world, step = context.model, context.world, context.counter.step
        features = world.all_gather_rows(model.features)
        with torch.no_grad():
            model.bank.copy_(torch.cat([features, model.bank])[: len(model.bank)])
            codes = torch.cdist(features, model.codebook).argmin(dim=1)
            model.usage += torch.bincount(codes, minlength=CODES)
            if (step + 1) % self.reinitialise_every == 0:
                chosen = context.counter.step_generator("reinitialise").permutation(len(model.bank))[:CODES]
                model.codebook.copy_(model.bank[torch.from_numpy(chosen)])
                model.usage.zero_()
                reset_optimizer_state(context.optimizer, [model.codebook])
        if self.order_file is not None and world.is_first:
            with self.order_file.open("a") as file:
                file.write(json.dumps({"step": step, "items": self.seen[-1]}) + "\n")
        return {"used": float((model.usage > 0).float().mean())}

    def evaluate(self, model, world: World):
        keys = [SampleKey(seed=999, step=0, index=i, batch=16) for i in range(16)]
        batch = self.collate([self.sample(key) for key in keys])
        error = (model(batch["tokens"])["y"] - batch["y"]).abs().mean()
        return {"error": float(error)}

    def pictures(self, model, world: World):
        return {"codebook": (model.codebook.detach().sigmoid() * 255).to(torch.uint8).numpy()[..., None].repeat(3, -1)}

    def config(self):
        return {"items": self.items, "width": self.width}

    def data_fingerprint(self) -> str:
        return f"toy-{self.items}"

    def conventions(self):
        return {"vocabulary": VOCABULARY}

    def describe(self, key: SampleKey):
        return {"item": key.item(self.items)}


def toy_recipe(**changes) -> Recipe:
    return Recipe(
        **{"batch": 8, "warmup_steps": 3, "cosine_steps": 17, "clip_norm": 1.0, "learning_rate": 1e-2} | changes
    )


def toy_config(run: Path, **changes) -> TrainingConfig:
    recipe = changes.pop("recipe", None) or toy_recipe()
    defaults = {"workers": 0, "precision": "fp32", "device": "cpu", "tensorboard": False, "save_every": 5,
                "log_every": 1, "evaluate_every": None, "seed": 7}  # fmt: skip
    return TrainingConfig(recipe=recipe, run=run, **(defaults | changes))


class Heard:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.records, self.messages = [], []

    def on_log(self, record) -> None:
        self.records.append(record)

    def on_message(self, message: str) -> None:
        self.messages.append(message)

    @property
    def losses(self) -> list[float]:
        return [r.losses["total"] for r in self.records]
