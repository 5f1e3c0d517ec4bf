"""What the training loop costs over the bare forward + backward + step of the same model.

    python benchmarks/loop_overhead.py

Alternates pairs of bare steps and steps of the loop (data from worker processes, clipping, finite checks, logs) on
two copies of one Transformer and prints the median ratio. Each pair is measured back to back, so that what else the
machine does falls on both.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from copilot4d.training import Recipe, SampleKey, StepCounter, TrainingConfig, TrainingTask, open_world
from copilot4d.training.journal import Silent
from copilot4d.training.loop import make_trainer
from copilot4d.training.optimizer import make_optimizer

WIDTH, LAYERS, TOKENS, VOCABULARY = 192, 4, 256, 512


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        block = nn.TransformerEncoderLayer(WIDTH, 6, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, LAYERS, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.norm(self.blocks(self.embedding(tokens))) @ self.embedding.weight.T  # type: ignore[no-any-return]


def language_loss(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    logits = model(tokens)
    return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


class Task(TrainingTask):
    name = "overhead"

    def build_model(self) -> nn.Module:
        return Model()

    def sample(self, key: SampleKey) -> torch.Tensor:
        item = key.item(1000)
        return torch.from_numpy(np.random.default_rng(item).integers(0, VOCABULARY, TOKENS))

    def collate(self, samples: Sequence[Any]) -> torch.Tensor:
        return torch.stack(list(samples))

    def loss(self, model: nn.Module, batch: Any, counter: StepCounter) -> Mapping[str, torch.Tensor]:
        return {"total": language_loss(model, batch)}


def measure(pairs: int, batch: int, workers: int, steps_per_pair: int) -> dict[str, Any]:
    task = Task()
    recipe = Recipe(batch=batch, warmup_steps=10, cosine_steps=(pairs + 2) * steps_per_pair, clip_norm=5.0)
    with tempfile.TemporaryDirectory() as folder, open_world("cpu") as world:
        config = TrainingConfig(
            recipe=recipe, run=Path(folder) / "run", workers=workers, precision="fp32", evaluate_every=None,
            save_every=10**9, log_every=20,
        )  # fmt: skip
        trainer, _ = make_trainer(task, config, world, Silent())
        assert trainer is not None
        bare_model = task.build_model()
        bare_optimizer = make_optimizer(bare_model, recipe)
        tokens = task.collate([task.sample(SampleKey(seed=0, step=0, index=i, batch=batch)) for i in range(batch)])

        def bare() -> float:
            start = time.perf_counter()
            for _ in range(steps_per_pair):
                language_loss(bare_model, tokens).backward()  # type: ignore[no-untyped-call]
                bare_optimizer.step()
                bare_optimizer.zero_grad(set_to_none=True)
            return time.perf_counter() - start

        def loop() -> float:
            start = time.perf_counter()
            for _ in range(steps_per_pair):
                trainer.step()
                trainer.between_steps()
            return time.perf_counter() - start

        with trainer:
            bare(), loop()
            times = [(bare(), loop()) if i % 2 else (loop(), bare())[::-1] for i in range(pairs)]
        log = [json.loads(line) for line in (config.run / "log.jsonl").read_text().splitlines()]
    ratios = [b / a for a, b in times]
    return {
        "pairs": pairs,
        "bare_step_ms": 1000 * statistics.median(a for a, _ in times) / steps_per_pair,
        "loop_step_ms": 1000 * statistics.median(b for _, b in times) / steps_per_pair,
        "median_ratio": statistics.median(ratios),
        "quartiles": statistics.quantiles(ratios, n=4),
        "waiting_share": statistics.median(line["waiting"] for line in log[1:]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--steps-per-pair", type=int, default=1)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    result = measure(options.pairs, options.batch, options.workers, options.steps_per_pair)
    print(json.dumps({"limit": 1.05, **result}, indent=1))
    verdict = "within" if result["median_ratio"] <= 1.05 else "OVER"
    print(
        f"the loop takes {result['median_ratio']:.3f} of the bare step (median of {options.pairs}): {verdict} the limit"
    )


if __name__ == "__main__":
    main()
