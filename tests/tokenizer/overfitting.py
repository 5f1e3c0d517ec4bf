"""Training a tokenizer on one or a few sweeps until it knows them by heart."""

from __future__ import annotations

import math

import numpy as np
import torch

from copilot4d.geometry import Sweep
from copilot4d.rendering import RayBatch
from copilot4d.tokenizer import PointBatch, Tokenizer, TokenizerBatch, TokenizerConfig, training_pass


def overfit(config: TokenizerConfig, sweeps: list[Sweep], *, steps: int, rays: int, learning_rate: float) -> Tokenizer:
    """AdamW with a short warm-up and a cosine on all sweeps at once, `rays` of each per step; the codebook's care."""
    torch.manual_seed(0)
    tokenizer = Tokenizer(config).train()
    optimizer = torch.optim.AdamW(tokenizer.parameters(), lr=learning_rate, betas=(0.9, 0.95), weight_decay=0)
    rng = np.random.default_rng(0)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * min(1, (step + 1) / 30) * (0.55 + 0.45 * math.cos(math.pi * step / steps))
        parts = [sweep.select(rng.permutation(len(sweep))[:rays]).rays() for sweep in sweeps]
        batch = TokenizerBatch(
            points=PointBatch.of(sweeps),
            rays=RayBatch.of([part[0] for part in parts]),
            true_depths_m=torch.from_numpy(np.concatenate([part[1] for part in parts]).astype(np.float32)),
        )
        offsets = torch.from_numpy(rng.random(len(batch.rays), dtype=np.float32))
        done = training_pass(tokenizer, batch, offsets=offsets, noise=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        done.losses["total"].backward()
        torch.nn.utils.clip_grad_norm_(tokenizer.parameters(), 1.0)
        optimizer.step()
        features = done.features.flatten(0, 2)
        rows = features[torch.from_numpy(rng.permutation(len(features))[: config.vocabulary])]
        counts = torch.bincount(done.tokens.flatten(), minlength=config.vocabulary)
        if tokenizer.codebook.update(rows, counts, torch.Generator().manual_seed(step)).reinitialised:
            optimizer.state.pop(tokenizer.codebook.weight, None)
    return tokenizer.eval()
