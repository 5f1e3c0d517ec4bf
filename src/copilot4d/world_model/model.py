"""`WorldModel`: tokens and ego motion in, logits over the vocabulary out.

Axes: B batch, T frames, H/W tokens of a frame (H along x, W along y), C channels, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import get_args

import torch
from torch import Tensor, nn

from copilot4d.errors import UsageError, check_range
from copilot4d.layers.init import init_fan_in
from copilot4d.layers.position import PositionKind, SpatialPosition
from copilot4d.world_model.actions import Actions, TokenFrame
from copilot4d.world_model.embedding import ActionEmbedding, TokenEmbedding
from copilot4d.world_model.objectives import DiffusionConfig
from copilot4d.world_model.unet import SpatioTemporalUNet, UNetCache, UNetConfig


@dataclass(frozen=True, kw_only=True)
class WorldModelConfig:
    """Everything that decides a world model's weights and their meaning."""

    vocabulary: int = 1024
    tokens: tuple[int, int] = (128, 128)  # of a frame, along x and y
    frames: int = 10  # the longest clip: positions in time are learned
    past_frames: int = 5  # of a training clip; the newest of them is the reference
    token_frame: TokenFrame = "own"  # the frame in which sweeps were tokenised; it decides what an action is
    # The oldest past frame is of all past sweeps gathered, so that what was seen once is not lost: `reference` only.
    gathered_past: bool = False
    spatial_position: PositionKind = "sincos"
    unet: UNetConfig = field(default_factory=UNetConfig)
    diffusion: DiffusionConfig = field(default_factory=DiffusionConfig)
    activation_checkpointing: bool = False  # recompute instead of storing: less memory, a third more time

    def __post_init__(self) -> None:
        if self.vocabulary < 2:
            raise UsageError(f"--vocabulary must be at least 2, got {self.vocabulary}")
        check_range("--vocabulary", self.vocabulary, 2, 1 << 17)
        check_range("--frames", self.frames, 2, 256)
        check_range("--tokens", self.tokens, 1, 4096)
        check_range("--tokens x --dims", math.prod(self.tokens) * self.unet.dims[0], 1, 1 << 28)
        if not 1 <= self.past_frames < self.frames:
            raise UsageError(f"--past-frames must lie in [1, frames = {self.frames}), got {self.past_frames}")
        if self.token_frame not in get_args(TokenFrame):
            raise UsageError(f"--token-frame is one of {', '.join(get_args(TokenFrame))}, got {self.token_frame!r}")
        if self.gathered_past and self.token_frame != "reference":
            raise UsageError('--gathered-past needs the token frame "reference": sweeps are gathered in one frame')
        if self.spatial_position not in get_args(PositionKind):
            known = ", ".join(get_args(PositionKind))
            raise UsageError(f"--spatial-position is one of {known}, got {self.spatial_position!r}")
        self.unet.sizes(self.tokens)

    @property
    def mask_token(self) -> int:
        """The index of MASK among the inputs: one behind the vocabulary."""
        return self.vocabulary


@dataclass(frozen=True)
class Prediction:
    """One frame with the past and without it: logits (B, H, W, V), or the features (B, H, W, C) they are made of."""

    conditional: Tensor
    unconditional: Tensor | None


class WorldModel(nn.Module):
    """A spatio-temporal Transformer that reads partly masked, partly noised frames and predicts their true tokens."""

    undecayed_parameters = ("temporal_position",)

    def __init__(self, config: WorldModelConfig) -> None:
        super().__init__()
        self.config = config
        dim = config.unet.dims[0]
        self.tokens = TokenEmbedding(config.vocabulary, dim)
        self.actions = ActionEmbedding(config.unet.dims)
        self.spatial_position = SpatialPosition(config.tokens, dim, config.spatial_position)
        self.temporal_position = nn.Parameter(torch.randn(config.frames, dim) * (3 * dim) ** -0.5)
        self.unet = SpatioTemporalUNet(config.unet, config.tokens)
        self.norm = nn.LayerNorm(dim)
        init_fan_in(self)
        self.unet.scale_residuals()

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.temporal_position.device

    def forward(self, tokens: Tensor, actions: Actions, *, alone: int = 0) -> Tensor:
        """(B, T, H, W) int -> (B, T, H, W, V) logits. The last `alone` frames see only themselves, with null actions.

        alone = 0 is the causal mask, alone = T the identity mask.
        """
        return self.logits(self.features(tokens, actions, alone=alone))

    def features(
        self,
        tokens: Tensor,
        actions: Actions,
        *,
        alone: int = 0,
        positions: Tensor | None = None,
        cache: UNetCache | None = None,
    ) -> Tensor:
        """(B, T, H, W) int -> (B, T, H, W, C), what `logits` reads. positions: (T,) each frame's place in the clip."""
        self._check(tokens, actions, alone)
        frames = tokens.shape[1]
        past = cache.length if cache is not None else 0
        if positions is None:
            positions = torch.arange(past, past + frames, device=tokens.device)
        if past + frames - alone > self.config.frames or int(positions.max()) >= self.config.frames:
            raise UsageError(
                f"this world model was made for clips of {self.config.frames} frames, got {past + frames}; "
                "`rollout` slides its window over longer ones"
            )
        known = actions.known.clone()
        known[:, frames - alone :] = False
        conditions = self.actions(Actions(actions.motion, known))
        x = self.spatial_position(self.tokens(tokens))
        x = x + self.temporal_position[positions][:, None, None]
        x = self.unet(
            x, conditions, alone=alone, cache=cache, checkpointing=self.config.activation_checkpointing
        )  # (B, T, H, W, C)
        result: Tensor = self.norm(x)
        return result

    def logits(self, features: Tensor) -> Tensor:
        """(..., C) -> (..., V)."""
        return self.tokens.logits(features)

    def new_cache(self) -> UNetCache:
        """An empty past."""
        return self.unet.new_cache(self.config.frames)

    @torch.no_grad()
    def remember(self, tokens: Tensor, actions: Actions, cache: UNetCache) -> None:
        """Append finished frames (B, T, H, W) to the past."""
        self.features(tokens, actions, cache=cache)
        cache.keep(tokens.shape[1])

    @torch.no_grad()
    def predict(self, tokens: Tensor, actions: Actions, cache: UNetCache, *, guidance: bool) -> Prediction:
        """Logits of the frame after the cache's past, (B, H, W) tokens with actions (B, 1); the cache stays as it is.

        With guidance the pass has one more frame: a copy at the same position in time, alone, with the null action.
        """
        seen = self.predict_features(tokens, actions, cache, guidance=guidance)
        unconditional = None if seen.unconditional is None else self.logits(seen.unconditional)
        return Prediction(self.logits(seen.conditional), unconditional)

    @torch.no_grad()
    def predict_features(self, tokens: Tensor, actions: Actions, cache: UNetCache, *, guidance: bool) -> Prediction:
        """`predict` before the logits, which are linear in what this gives: guidance may be done here for less."""
        frame = tokens[:, None]
        if not guidance:
            return Prediction(self.features(frame, actions, cache=cache)[:, 0], None)
        both = Actions(actions.motion.expand(-1, 2, 4, 4), actions.known.expand(-1, 2))
        positions = torch.full((2,), cache.length, device=tokens.device)
        features = self.features(frame.expand(-1, 2, -1, -1), both, alone=1, positions=positions, cache=cache)
        return Prediction(features[:, 0], features[:, 1])

    @torch.no_grad()
    def predict_alone(self, tokens: Tensor, position: int = 0) -> Tensor:
        """(B, H, W) tokens -> (B, H, W, V) unconditional logits of a frame at a position of the clip."""
        nothing = Actions.null(tokens.shape[0], 1, tokens.device)
        positions = torch.full((1,), position, device=tokens.device)
        return self.logits(self.features(tokens[:, None], nothing, alone=1, positions=positions)[:, 0])

    def _check(self, tokens: Tensor, actions: Actions, alone: int) -> None:
        if tokens.ndim != 4 or tuple(tokens.shape[2:]) != self.config.tokens:
            raise UsageError(
                f"tokens must be (B, T, {self.config.tokens[0]}, {self.config.tokens[1]}), got {tokens.shape}"
            )
        if actions.known.shape != tokens.shape[:2]:
            raise UsageError(f"one action per frame is needed: tokens {tokens.shape}, actions {actions.known.shape}")
        if not 0 <= alone <= tokens.shape[1]:
            raise UsageError(f"alone must lie in [0, {tokens.shape[1]}], got {alone}")
