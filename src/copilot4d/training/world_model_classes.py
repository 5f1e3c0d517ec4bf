"""What a world model learns and knows of what columns hold: weights of the loss, losses by class, and arrivals.

An *arrival* asks whether motion was understood: of the free cells near something that moves, does the model expect
something above the ground rather in those where it will be than in the others? A guess has an area under the curve of
0.5; a model that knows only that things near movers may come has what the distance to them has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from copilot4d.tokens.columns import CLASSES, EMPTY, MOVING, STRUCTURE
from copilot4d.tokens.token_clips import TokenClip
from copilot4d.world_model import DiffusionConfig

NEAR_CELLS = 3  # from something that moves


def position_weights(columns: Tensor | None, config: DiffusionConfig) -> Tensor:
    """(B, T, H, W) what columns hold -> how much each counts in the loss.

    A cell counts as moving while it holds something that moves, and for two frames after: that it is left again is part
    of the motion.
    """
    assert columns is not None, "the task checks that columns are known"
    moves = columns == MOVING
    held = moves.clone()
    for back in (1, 2):
        held[:, back:] |= moves[:, :-back]
    weight = torch.ones(columns.shape, device=columns.device)
    weight = weight.masked_fill(columns == EMPTY, config.empty_weight)
    return weight.masked_fill(held, config.moving_weight)


def object_share(clips: Sequence[TokenClip], vocabulary: int) -> Tensor:
    """(V,) how often each code stands for something above the ground; 0 for codes that do not occur."""
    counts = torch.zeros(2, vocabulary)
    for clip in clips:
        assert clip.columns is not None, "clips with columns alone are asked"
        above = (clip.columns >= STRUCTURE).flatten()
        for row, chosen in enumerate((~above, above)):
            counts[row] += torch.bincount(clip.tokens.flatten()[chosen], minlength=vocabulary)
    return counts[1] / counts.sum(0).clamp_min(1)


def class_sums(sums: defaultdict[str, float], when: str, logits: Tensor, true: Tensor, columns: Tensor) -> None:
    """Add one frame: logits (H, W, V), true tokens and columns (H, W). when: which frame, in names of scores."""
    loss = functional.cross_entropy(logits.flatten(0, 1).float(), true.flatten(), reduction="none")
    right = logits.argmax(-1).flatten() == true.flatten()
    for number, name in enumerate(CLASSES):
        of_class = columns.flatten() == number
        sums[f"nll_{when}_{name}"] += float(loss[of_class].sum())
        sums[f"right_{when}_{name}"] += int(right[of_class].sum())
        sums[f"count_{when}_{name}"] += int(of_class.sum())


def arrival_sums(
    sums: defaultdict[str, float], when: str, logits: Tensor, share: Tensor, last: Tensor, columns: Tensor
) -> None:
    """Add the pairs of one frame: (H, W) columns of the last past frame and of this one."""
    near = functional.max_pool2d((last == MOVING)[None, None].float(), 2 * NEAR_CELLS + 1, 1, NEAR_CELLS)[0, 0] > 0
    asked = near & (last < STRUCTURE)
    comes = (columns >= STRUCTURE)[asked]
    expected = (logits[asked].float().softmax(-1) @ share.to(logits.device)).cpu()
    some, none = expected[comes.cpu()], expected[~comes.cpu()]
    if len(some) and len(none):
        order = some[:, None] - none[None]
        sums[f"arrived_{when}"] += float((order > 0).sum() + 0.5 * (order == 0).sum())
        sums[f"pairs_{when}"] += order.numel()


def class_names(frames: Sequence[str]) -> list[str]:
    """All names of sums."""
    by_class = [f"{what}_{when}_{name}" for when in frames for what in ("nll", "right", "count") for name in CLASSES]
    return by_class + [f"{what}_{when}" for when in frames for what in ("arrived", "pairs")]


def class_summary(sums: dict[str, float], frames: Sequence[str]) -> dict[str, float]:
    """Scores by name: nll_* and accuracy_* by frame and class, arrival_* by frame; of what occurred."""
    found = {}
    for when in frames:
        for name in CLASSES:
            if count := sums[f"count_{when}_{name}"]:
                found[f"nll_{when}_{name}"] = sums[f"nll_{when}_{name}"] / count
                found[f"accuracy_{when}_{name}"] = sums[f"right_{when}_{name}"] / count
        if pairs := sums[f"pairs_{when}"]:
            found[f"arrival_{when}"] = sums[f"arrived_{when}"] / pairs
    return found
