"""How well a world model knows the tokens of clips that it never saw, against two ways to copy.

The question: the next frame, wholly masked, given the true past, in one pass; the answer is the most probable token.
The yardsticks: the last frame's tokens where they are, and the last frame's tokens moved by the ego's motion. Most
tokens of a street stay what they were, so all is told twice: over all tokens, and over those that *changed* (the true
next token is not the last frame's, so that plain copying has none of them).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from copilot4d.counter import counter_seed
from copilot4d.geometry import VoxelGrid, se3
from copilot4d.geometry.se3 import FloatArray
from copilot4d.tokens.token_clips import TokenClip
from copilot4d.training.clip_batch import batch_of
from copilot4d.training.distributed import World
from copilot4d.training.world_model_classes import (
    arrival_sums,
    class_names,
    class_summary,
    class_sums,
    position_weights,
)
from copilot4d.world_model import (
    Actions,
    DiffusionConfig,
    Objective,
    WorldModel,
    denoising_loss,
    draw_noise,
    make_denoising,
)

FRAMES = ("next", "last")  # of the future, for scores by class


class TokenScores:
    """Sums over clips, which ranks can add up.

    warped: whether the copy moved by the ego's motion is a yardstick. object_share: (V,) how often a code stands for
    something above the ground, where it is known what columns hold.
    """

    def __init__(self, *, warped: bool, object_share: Tensor | None = None) -> None:
        self.warped, self.object_share = warped, object_share
        self._sums: defaultdict[str, float] = defaultdict(float)

    def add_loss(self, objective: Objective, loss: float) -> None:
        """One clip's loss under an objective."""
        self._sums[f"loss_{objective.value}"] += loss
        self._sums[f"clips_{objective.value}"] += 1

    def add_next(self, predicted: Tensor, last: Tensor, warped: Tensor | None, true: Tensor, interval: int) -> None:
        """One clip's next frame, (H, W) four times: predicted, the last frame, that frame moved, and the truth."""
        changed = true != last
        sums, right = self._sums, predicted == true
        sums["tokens"] += true.numel()
        sums["changed"] += int(changed.sum())
        sums["right"] += int(right.sum())
        sums["right_changed"] += int((right & changed).sum())
        sums[f"changed@{interval}"] += int(changed.sum())
        sums[f"right_changed@{interval}"] += int((right & changed).sum())
        if warped is not None:
            sums["warped"] += int((warped == true).sum())
            sums["warped_changed"] += int(((warped == true) & changed).sum())

    def add_classes(self, logits: Tensor, clip: TokenClip, past: int) -> None:
        """One clip's future (F, H, W, V), all of it masked at once: its first and last frame by class."""
        if clip.columns is None or self.object_share is None:
            return
        for when, frame in zip(FRAMES, (0, len(logits) - 1), strict=True):
            true, columns = clip.tokens[past + frame], clip.columns[past + frame]
            class_sums(self._sums, when, logits[frame], true, columns)
            arrival_sums(self._sums, when, logits[frame], self.object_share, clip.columns[past - 1], columns)

    def summary(self, world: World, diffusion: DiffusionConfig, intervals: Sequence[int] = ()) -> dict[str, float]:
        """Scores by name, over the clips of all ranks.

        loss is the training loss: objectives by their share in training. accuracy* is the model's, copy_* and warped_*
        are the yardsticks'. Where clips have several intervals, accuracy_changed_every_k is that of interval k.
        """
        names = [
            "tokens", "changed", "right", "right_changed", "warped", "warped_changed",
            *(f"{what}_{objective.value}" for objective in Objective for what in ("loss", "clips")),
            *class_names(FRAMES),
            *(f"{what}@{k}" for k in intervals for what in ("changed", "right_changed")),
        ]  # fmt: skip
        total = world.sum(torch.tensor([self._sums[name] for name in names], dtype=torch.float64))
        sums = dict(zip(names, total.tolist(), strict=True))
        shares = {objective: diffusion.share(objective) for objective in Objective if diffusion.share(objective) > 0}
        losses = {o: _ratio(sums[f"loss_{o.value}"], sums[f"clips_{o.value}"]) for o in shares}
        tokens, changed = sums["tokens"], sums["changed"]
        found = {
            "loss": sum(share * losses[objective] for objective, share in shares.items()),
            **{f"loss_{objective.value}": loss for objective, loss in losses.items()},
            "accuracy": _ratio(sums["right"], tokens),
            "copy_accuracy": _ratio(tokens - changed, tokens),
        }
        if self.warped:
            found["warped_accuracy"] = _ratio(sums["warped"], tokens)
        found |= {"changed": _ratio(changed, tokens), "accuracy_changed": _ratio(sums["right_changed"], changed)}
        if self.warped:
            found["warped_accuracy_changed"] = _ratio(sums["warped_changed"], changed)
        if len(intervals) > 1:
            found |= {
                f"accuracy_changed_every_{k}": _ratio(sums[f"right_changed@{k}"], sums[f"changed@{k}"])
                for k in intervals
            }
        return found | class_summary(sums, FRAMES)


def score_clip(
    model: WorldModel, scores: TokenScores, clip: TokenClip, number: int, *, grid: VoxelGrid | None = None
) -> None:
    """Add a clip to the scores. The noise depends on its number alone, so that steps of a run can be compared."""
    config, poses, t = model.config, clip.world_from_lidar, model.config.past_frames
    actions = batch_of([clip], config.token_frame).actions.to(model.device)
    tokens = clip.tokens[None].to(model.device)
    for objective in Objective:
        if config.diffusion.share(objective) > 0:
            scores.add_loss(objective, objective_loss(model, tokens, actions, objective, number, clip.columns))
    logits = masked_future(model, tokens[:, :t], actions)[0].cpu()
    scores.add_classes(logits, clip, t)
    predicted = logits[0].argmax(-1)
    last, true = clip.tokens[t - 1], clip.tokens[t]
    moved = None
    if scores.warped and grid is not None:
        moved = warped_copy(last, se3.relative_motion(poses[t - 1], poses[t]), grid)
    scores.add_next(predicted, last, moved, true, clip.interval)


@torch.no_grad()
def objective_loss(
    model: WorldModel, tokens: Tensor, actions: Actions, objective: Objective, number: int,
    columns: Tensor | None = None,
) -> float:  # fmt: skip
    """The loss of a clip (1, T, H, W) under one objective, with noise by the clip's number, weighed as in training."""
    config = model.config
    generator = torch.Generator().manual_seed(counter_seed(0, f"held-out {objective.value}", number))
    noise = draw_noise([generator], tokens.shape[1], config.tokens[0] * config.tokens[1], config.vocabulary)
    denoising = make_denoising(
        tokens, objective, noise, config.diffusion, past_frames=config.past_frames, mask_token=config.mask_token
    )
    weight = None
    if columns is not None and config.diffusion.weighs:
        weight = position_weights(columns[None].to(tokens.device), config.diffusion)
    return float(denoising_loss(model, denoising, actions, weight=weight).loss)


@torch.no_grad()
def masked_future(model: WorldModel, past: Tensor, actions: Actions) -> Tensor:
    """Logits (B, F, H, W, V) of all frames after the past (B, P, H, W): wholly masked, in one pass.

    actions: (B, P + F). Frames see earlier ones alone, so the first is
    what a pass with one masked frame would give.
    """
    shape = (past.shape[0], actions.known.shape[1] - past.shape[1], *past.shape[2:])
    masked = past.new_full(shape, model.config.mask_token)
    features = model.features(torch.cat([past, masked], dim=1), actions)
    return model.logits(features[:, past.shape[1] :])


def warped_copy(last: Tensor, previous_from_current: FloatArray, grid: VoxelGrid) -> Tensor:
    """The last frame's tokens (H, W) where the ego's motion (4, 4) brings them, each from the nearest token.

    Each token's centre, at the height of the lidar, is looked up in the last frame. What comes into view there is not
    known: the token that stood in its place is kept.
    """
    height, width = last.shape
    low, high = np.asarray(grid.minimum[:2]), np.asarray(grid.maximum[:2])
    size = (high - low) / (height, width)  # metres, along x and y
    cells = np.stack(np.meshgrid(np.arange(height), np.arange(width), indexing="ij"), axis=-1)
    centres = low + (cells + 0.5) * size
    points = np.concatenate([centres, np.zeros((height, width, 1))], axis=-1)
    before = se3.transform_points(previous_from_current, points.reshape(-1, 3))[:, :2].reshape(height, width, 2)
    source = np.floor((before - low) / size).astype(np.int64)
    known = ((source >= 0) & (source < (height, width))).all(axis=-1)
    source = np.where(known[..., None], source, cells)
    return last[torch.from_numpy(source[..., 0]), torch.from_numpy(source[..., 1])]


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else float("nan")
