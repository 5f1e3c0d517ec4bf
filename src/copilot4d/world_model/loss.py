"""The training loss: cross entropy of the true tokens, where the objective counts them."""

from __future__ import annotations

from dataclasses import dataclass

import torch.utils.checkpoint
from torch import Tensor
from torch.nn import functional

from copilot4d.world_model.actions import Actions
from copilot4d.world_model.model import WorldModel
from copilot4d.world_model.objectives import Denoising


@dataclass(frozen=True)
class DenoisingLoss:
    """Cross entropy with label smoothing, and accuracy, both as means over counted positions."""

    loss: Tensor
    accuracy: Tensor
    counted: int


def denoising_loss(model: WorldModel, task: Denoising, actions: Actions) -> DenoisingLoss:
    """Line 8 of Algorithm 1. Logits are made frame by frame and only where they count."""
    features = model.features(task.inputs, actions, alone=task.alone)
    smoothing = model.config.diffusion.label_smoothing
    total, correct = features.new_zeros(()), features.new_zeros(())
    for t in range(task.first, task.inputs.shape[1]):
        counted = task.counted[:, t]
        chosen = features[:, t].flatten(0, 2) if bool(counted.all()) else features[:, t][counted]
        arguments = (model, chosen, task.targets[:, t][counted], smoothing)
        if model.config.activation_checkpointing and features.requires_grad:
            frame = torch.utils.checkpoint.checkpoint(_frame_loss, *arguments, use_reentrant=False)
        else:
            frame = _frame_loss(*arguments)
        total, correct = total + frame[0], correct + frame[1]
    count = int(task.counted.sum())
    return DenoisingLoss(total / max(count, 1), correct / max(count, 1), count)


def _frame_loss(model: WorldModel, features: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """(M, C), (M,) -> the sum of cross entropies, and how many are right."""
    logits = model.logits(features)
    loss = functional.cross_entropy(logits.float(), targets, reduction="sum", label_smoothing=smoothing)
    return loss, (logits.detach().argmax(-1) == targets).sum()
