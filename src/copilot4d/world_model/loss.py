"""The training loss: cross entropy of the true tokens, where the objective counts them.

Axes: M counted positions, C channels, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from copilot4d.world_model.actions import Actions
from copilot4d.world_model.model import WorldModel
from copilot4d.world_model.objectives import Denoising

LOGITS_AT_ONCE = 1 << 19  # about what fits a cache: the loss goes over logits several times


@dataclass(frozen=True)
class DenoisingLoss:
    """Cross entropy with label smoothing, and accuracy: means over samples of means over a sample's counted positions.

    So neither depends on how a batch is split. Without MaskGIT every sample counts equally many positions.
    """

    loss: Tensor
    accuracy: Tensor
    counted: int


def denoising_loss(
    model: WorldModel, task: Denoising, actions: Actions, *, weight: Tensor | None = None, first_position: int = 0
) -> DenoisingLoss:
    """Line 8 of Algorithm 1. Logits are made only where they count, a few at a time, and never kept.

    weight: (B, T, H, W) how much each position counts beside the others of its sample; None: all the same.
    first_position: where in time the first frame stands.
    """
    frames = task.inputs.shape[1]
    positions = torch.arange(first_position, first_position + frames)
    features = model.features(task.inputs, actions, mask=task.mask, positions=positions)
    counted, targets = task.counted[:, task.first :], task.targets[:, task.first :]
    each = counted.float() if weight is None else counted * weight[:, task.first :].float()
    per_sample = each.flatten(1).sum(-1).clamp_min(1e-9)
    weight = each / (len(per_sample) * per_sample)[:, None, None, None]
    features = features[:, task.first :]
    if bool(counted.all()):
        chosen, targets, weight = features.flatten(0, 3), targets.flatten(), weight.flatten()
    else:
        chosen, targets, weight = features[counted], targets[counted], weight[counted]
    smoothing = model.config.diffusion.label_smoothing
    loss, accuracy = linear_cross_entropy(chosen, model.tokens.output_table, targets, weight, smoothing)
    return DenoisingLoss(loss, accuracy, int(counted.sum()))


def plain_cross_entropy(
    features: Tensor, table: Tensor, targets: Tensor, weight: Tensor, smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """The reference of `linear_cross_entropy`: the same numbers, with all logits in memory at once."""
    logits = functional.linear(features, table).float()
    loss = functional.cross_entropy(logits, targets, reduction="none", label_smoothing=smoothing)
    return (weight * loss).sum(), (weight * (logits.argmax(-1) == targets)).sum()


def linear_cross_entropy(
    features: Tensor, table: Tensor, targets: Tensor, weight: Tensor, smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Of logits = features (M, C) @ table (V, C)^T: the weighted sums of cross entropies and of right answers.

    With label smoothing s the loss of a position is lse(logits) - (1 - s) logit of the target - s mean of the logits.
    """
    loss, right = _LinearCrossEntropy.apply(features, table, targets, weight, smoothing)  # type: ignore[no-untyped-call]
    return loss, right


class _LinearCrossEntropy(torch.autograd.Function):
    """The gradients are made with the loss, while the logits are there: (M, V) numbers are neither kept nor remade."""

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, table: Tensor, targets: Tensor, weight: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        needed = ctx.needs_input_grad[0] or ctx.needs_input_grad[1]
        loss, right = weight.new_zeros(()), weight.new_zeros(())
        mean = table.float().mean(0)
        to_features = torch.empty_like(features) if needed else None
        across = table.t().contiguous()  # (C, V): with it, and with a gradient that lies this way, products are faster
        to_across = torch.zeros_like(across, dtype=torch.float32) if needed else None
        rows = max(1, LOGITS_AT_ONCE // len(table))
        for start in range(0, len(features), rows):
            part = slice(start, start + rows)
            x, w, column = features[part], weight[part], targets[part, None]
            logits = (x @ across).float()
            highest = logits.amax(-1, keepdim=True)
            true = logits.gather(-1, column)
            right += (w * (true >= highest)[:, 0]).sum()
            total = logits.sub_(highest).exp_().sum(-1, keepdim=True)
            average = (x.float() @ mean)[:, None]
            each = total.log() + highest - (1 - smoothing) * true - smoothing * average
            loss += (w * each[:, 0]).sum()
            if to_features is not None and to_across is not None:
                slope = logits.mul_(w[:, None] / total)  # w softmax, then w (softmax - (1 - s) at the target)
                slope.scatter_add_(-1, column, -(1 - smoothing) * w[:, None])
                slope = slope.to(features.dtype)
                to_features[part] = slope @ table - smoothing * w[:, None] * mean
                to_across += x.t() @ slope
        if to_features is not None and to_across is not None:
            to_across -= smoothing / len(table) * (weight @ features.float())[:, None]
            ctx.save_for_backward(to_features, to_across.t().to(table.dtype).contiguous())
        ctx.mark_non_differentiable(right)
        return loss, right

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        to_features, to_table = ctx.saved_tensors
        return gradient * to_features, gradient * to_table, None, None, None
