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
    """Cross entropy with label smoothing, and accuracy: means over samples of means over a sample's counted positions.

    So neither depends on how a batch is split. Without MaskGIT every sample counts equally many positions.
    """

    loss: Tensor
    accuracy: Tensor
    counted: int


def denoising_loss(model: WorldModel, task: Denoising, actions: Actions) -> DenoisingLoss:
    """Line 8 of Algorithm 1. Logits are made frame by frame and only where they count."""
    features = model.features(task.inputs, actions, alone=task.alone)
    smoothing = model.config.diffusion.label_smoothing
    per_sample = task.counted.flatten(1).sum(-1).clamp_min(1)
    weight = (1 / (len(per_sample) * per_sample.to(features)))[:, None, None].expand_as(task.inputs[:, 0])
    loss, accuracy = features.new_zeros(()), features.new_zeros(())
    for t in range(task.first, task.inputs.shape[1]):
        counted = task.counted[:, t]
        everywhere = bool(counted.all())
        chosen = features[:, t].flatten(0, 2) if everywhere else features[:, t][counted]
        arguments = (model, chosen, task.targets[:, t][counted], weight[counted], smoothing)
        if model.config.activation_checkpointing and features.requires_grad:
            frame = torch.utils.checkpoint.checkpoint(_frame_loss, *arguments, use_reentrant=False)
        else:
            frame = _frame_loss(*arguments)
        loss, accuracy = loss + frame[0], accuracy + frame[1]
    return DenoisingLoss(loss, accuracy, int(task.counted.sum()))


def _frame_loss(
    model: WorldModel, features: Tensor, targets: Tensor, weight: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """(M, C), (M,), (M,) -> the weighted sums of cross entropies and of right answers."""
    logits = model.logits(features).float()
    loss = functional.cross_entropy(logits, targets, reduction="none", label_smoothing=smoothing)
    correct = (logits.detach().argmax(-1) == targets).to(weight)
    return (weight * loss).sum(), (weight * correct).sum()
