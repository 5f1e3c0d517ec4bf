"""What enters the network: tokens by name and by what their codes mean, and actions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from copilot4d.errors import UsageError
from copilot4d.layers.feed_forward import Conditioning
from copilot4d.layers.kept import KeptResults
from copilot4d.layers.temporal import AttentionMask
from copilot4d.world_model.actions import ActionInput, Actions, action_features


class TokenEmbedding(nn.Module):
    """Tokens to features, and features back to logits with the same table; the last row is MASK, which is no output."""

    def __init__(self, vocabulary: int, dim: int) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.table = nn.Embedding(vocabulary + 1, dim)
        self.conditioning = Conditioning(dim, dim)
        self._kept = KeptResults()

    @property
    def mask_token(self) -> int:
        """The index of MASK on the input side."""
        return self.vocabulary

    def forward(self, tokens: Tensor) -> Tensor:
        """(...,) int -> (..., C). The conditioning treats tokens one by one, so it acts on the table itself."""
        return functional.embedding(tokens, self.rows())

    def rows(self) -> Tensor:
        """(V + 1, C) what each token enters as."""
        return self._kept.get("rows", self, lambda: self.conditioning(self.table.weight))

    @property
    def output_table(self) -> Tensor:
        """(V, C) weight tying: no bias, and no row for MASK."""
        return self.table.weight[: self.vocabulary]

    def logits(self, features: Tensor) -> Tensor:
        """(..., C) -> (..., V)."""
        return functional.linear(features, self.output_table)


class ActionEmbedding(nn.Module):
    """Actions to one vector per frame for each feature level; a learned null action where none is known."""

    undecayed_parameters = ("null",)

    def __init__(self, dims: Sequence[int], kind: ActionInput = "matrix", *, interval: bool = False) -> None:
        super().__init__()
        self.kind, self.interval = kind, interval
        size = action_features(kind, interval=interval)
        self.null = nn.Parameter(torch.randn(size) * (3 * size) ** -0.5)
        self.levels = nn.ModuleList(Conditioning(size, dim) for dim in dims)

    def forward(self, actions: Actions) -> list[Tensor]:
        """(B, T) actions -> one (B, T, 1, 1, C) per level, to be added at all locations."""
        flat = actions.features(self.kind, interval=self.interval).to(self.null.dtype)  # (B, T, F)
        flat = torch.where(actions.known[..., None], flat, self.null)
        return [level(flat)[:, :, None, None] for level in self.levels]


class CodeMotion(nn.Module):
    """Code vectors of a frame and of the frames before it, with their neighbours: what makes motion visible.

    The learned table knows codes by name alone, so that it must learn of every code what a car's edge looks like. The
    tokenizer's own vectors say it, and side by side with those of the frames before, a small convolution reads where
    things go. A token that is not known (MASK, or no such frame) is a zero vector with a flag. Not in the paper.
    """

    vectors: Tensor

    def __init__(self, vocabulary: int, code_dim: int, frames: int, dim: int) -> None:
        super().__init__()
        self.frames = frames
        self.register_buffer("vectors", torch.zeros(vocabulary + 1, code_dim + 1))
        self.enter = nn.Conv2d((code_dim + 1) * frames, dim, 5, padding=2)
        self.leave = nn.Conv2d(dim, dim, 3, padding=1)

    def set_vectors(self, codes: Tensor) -> None:
        """The tokenizer's code vectors (V, D): the directions in which they differ most, of mean square 1."""
        size = self.vectors.shape[1] - 1
        if len(codes) != len(self.vectors) - 1:
            raise UsageError(f"the tokenizer has {len(codes)} codes, the world model reads {len(self.vectors) - 1}")
        centred = codes.double().cpu() - codes.double().cpu().mean(0)
        _, _, directions = torch.linalg.svd(centred, full_matrices=False)
        found = centred @ directions[:size].T
        found = found / found.square().mean().sqrt().clamp_min(1e-6)
        self.vectors.zero_()
        self.vectors[:-1, : found.shape[1]] = found.to(self.vectors)
        self.vectors[:-1, -1] = 1.0

    def forward(self, tokens: Tensor, before: Tensor, *, mask: AttentionMask) -> Tensor:
        """(B, T, H, W) and all frames up to the last of them (B, frames - 1 + T, H, W) -> (B, T, H, W, C).

        Frames that see themselves alone know of none before them.
        """
        length = tokens.shape[1]
        absent = len(self.vectors) - 1
        starts = [self.frames - 1 - back for back in range(1, self.frames)]
        stacked = torch.stack([tokens, *(before[:, s : s + length] for s in starts)], dim=2)  # (B, T, frames, H, W)
        if alone := mask.alone(length):
            stacked = stacked.clone()
            stacked[:, length - alone :, 1:] = absent
        return self._of_frames(stacked)

    def _of_frames(self, stacked: Tensor) -> Tensor:
        """(B, T, frames, H, W) -> (B, T, H, W, C)."""
        batch, length, _, height, width = stacked.shape
        x = functional.embedding(stacked, self.vectors)  # (B, T, frames, H, W, D)
        x = x.movedim(-1, 3).reshape(batch * length, -1, height, width)
        x = self.leave(functional.gelu(self.enter(x)))
        result: Tensor = x.movedim(1, -1).reshape(batch, length, height, width, -1)
        return result


class ExpectedTokens(CodeMotion):
    """The tokens that a frame would have if all went on as before: by name, and their code vectors with neighbours.

    They come from the past sweeps, whose moving objects are carried on with constant velocity (`copilot4d.motion`), so
    that the network learns where that is wrong instead of how things move. Not in the paper.
    """

    def __init__(self, vocabulary: int, code_dim: int, dim: int) -> None:
        super().__init__(vocabulary, code_dim, 1, dim)
        self.name = nn.Linear(dim, dim, bias=False)

    def of(self, expected: Tensor, rows: Tensor) -> Tensor:
        """(B, T, H, W) tokens, MASK where none are expected -> (B, T, H, W, C). rows: (V + 1, C) of the embedding."""
        names = self.name(rows)
        known = (expected != len(rows) - 1)[..., None]
        return functional.embedding(expected, names) * known + self._of_frames(expected[:, :, None])
