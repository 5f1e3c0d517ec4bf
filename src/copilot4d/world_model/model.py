"""`WorldModel`: tokens and ego motion in, logits over the vocabulary out.

Axes: B batch, T frames, H/W tokens of a frame (H along x, W along y), C channels, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from copilot4d.errors import UsageError, check_range
from copilot4d.layers.init import init_fan_in
from copilot4d.layers.kept import KeptResults
from copilot4d.layers.position import PositionKind, SpatialPosition
from copilot4d.layers.temporal import AttentionMask
from copilot4d.world_model.actions import ActionInput, Actions, TokenFrame
from copilot4d.world_model.embedding import ActionEmbedding, CodeMotion, ExpectedTokens, TokenEmbedding
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
    actions: ActionInput = "matrix"  # the paper's flattened 4x4, or "fourier": features whose size survives
    interval_input: bool = False  # whether the time between frames is an input
    code_dim: int = 0  # dimensions of the tokenizer's code vectors that are an input, too; 0: tokens are names alone
    code_frames: int = 3  # the frame itself and those before it whose code vectors are
    # Whether the tokens that the past, carried on, would give are an input (`copilot4d.motion`); needs code_dim.
    expected_input: bool = False
    # The share of updates with fewer past sweeps, down to one. Frames of such models are counted from the reference.
    short_pasts: float = 0.0
    unet: UNetConfig = field(default_factory=UNetConfig)
    diffusion: DiffusionConfig = field(default_factory=DiffusionConfig)
    activation_checkpointing: bool = False  # recompute instead of storing: less memory, a third more time

    def __post_init__(self) -> None:
        if self.vocabulary < 2:
            raise UsageError(f"world_model.vocabulary must be at least 2, got {self.vocabulary}")
        check_range("world_model.vocabulary", self.vocabulary, 2, 1 << 17)
        check_range("world_model.frames", self.frames, 2, 256)
        check_range("world_model.tokens", self.tokens, 1, 4096)
        check_range("world_model.tokens x .unet.dims", math.prod(self.tokens) * self.unet.dims[0], 1, 1 << 28)
        if not 1 <= self.past_frames < self.frames:
            raise UsageError(f"world_model.past_frames must lie in [1, frames = {self.frames}), got {self.past_frames}")
        if self.token_frame not in get_args(TokenFrame):
            raise UsageError(
                f"world_model.token_frame is one of {', '.join(get_args(TokenFrame))}, got {self.token_frame!r}"
            )
        if self.gathered_past and self.token_frame != "reference":
            raise UsageError(
                'world_model.gathered_past needs the token frame "reference": sweeps are gathered in one frame'
            )
        if self.spatial_position not in get_args(PositionKind):
            known = ", ".join(get_args(PositionKind))
            raise UsageError(f"world_model.spatial_position is one of {known}, got {self.spatial_position!r}")
        if self.actions not in get_args(ActionInput):
            raise UsageError(f"world_model.actions is one of {', '.join(get_args(ActionInput))}, got {self.actions!r}")
        check_range("world_model.code_dim", self.code_dim, 0, 4096)
        check_range("world_model.code_frames", self.code_frames, 1, 256)
        if self.expected_input and not self.code_dim:
            raise UsageError("world_model.expected_input reads code vectors: set world_model.code_dim, 24 say")
        if not 0 <= self.short_pasts <= 1:
            raise UsageError(f"world_model.short_pasts must lie in [0, 1], got {self.short_pasts}")
        self.unet.sizes(self.tokens)

    def first_position(self, past: int) -> int:
        """Where in time the first of so many past frames stands: models of short pasts count from the reference."""
        return max(0, self.past_frames - past) if self.short_pasts else 0

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
    kept_buffers = ("motion.vectors", "expected.vectors")  # of the tokenizer: a file of these weights must have them

    def __init__(self, config: WorldModelConfig) -> None:
        super().__init__()
        self.config = config
        self.source_rows: Tensor | None = None
        dim = config.unet.dims[0]
        self.tokens = TokenEmbedding(config.vocabulary, dim)
        self.actions = ActionEmbedding(config.unet.dims, config.actions, interval=config.interval_input)
        self.motion = (
            CodeMotion(config.vocabulary, config.code_dim, config.code_frames, dim) if config.code_dim else None
        )
        self.expected = ExpectedTokens(config.vocabulary, config.code_dim, dim) if config.expected_input else None
        self.spatial_position = SpatialPosition(config.tokens, dim, config.spatial_position)
        self.temporal_position = nn.Parameter(torch.randn(config.frames, dim) * (3 * dim) ** -0.5)
        self.unet = SpatioTemporalUNet(config.unet, config.tokens)
        self.norm = nn.LayerNorm(dim)
        self._kept = KeptResults()
        init_fan_in(self)
        self.unet.scale_residuals()
        for part in (
            self.motion,
            self.expected,
        ):  # it begins as nothing, so that other weights may be continued with it
            if part is not None:
                nn.init.zeros_(part.leave.weight)
                nn.init.zeros_(cast(Tensor, part.leave.bias))
        if self.expected is not None:
            nn.init.zeros_(self.expected.name.weight)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.temporal_position.device

    def forward(self, tokens: Tensor, actions: Actions, *, mask: AttentionMask = AttentionMask.CAUSAL) -> Tensor:
        """(B, T, H, W) int -> (B, T, H, W, V) logits. Frames that see themselves alone have null actions."""
        return self.logits(self.features(tokens, actions, mask=mask))

    def features(
        self,
        tokens: Tensor,
        actions: Actions,
        *,
        mask: AttentionMask = AttentionMask.CAUSAL,
        positions: Tensor | None = None,
        cache: UNetCache | None = None,
    ) -> Tensor:
        """(B, T, H, W) int -> (B, T, H, W, C), what `logits` reads. positions: (T,) each frame's place in the clip."""
        self._check(tokens, actions)
        frames = tokens.shape[1]
        alone = mask.alone(frames)
        past = cache.length if cache is not None else 0
        if positions is None:
            first = cache.first_position if cache is not None else 0
            positions = torch.arange(first + past, first + past + frames)
        # Positions are on the CPU up to here: to look at them must not make a GPU's sampling loop wait.
        if past + frames - alone > self.config.frames or int(positions.max()) >= self.config.frames:
            raise UsageError(
                f"this world model was made for clips of {self.config.frames} frames, got {past + frames}; "
                "`rollout` slides its window over longer ones"
            )
        positions = positions.to(tokens.device, non_blocking=True)
        known = actions.known.clone()
        known[:, frames - alone :] = False
        conditions = self.actions(actions.with_known(known))
        rows = self.tokens.rows()
        x = self.spatial_position(functional.embedding(tokens, rows))
        if self.expected is not None:
            x = x + self.expected.of(self._expected(actions, known, tokens), rows)
        if self.motion is not None:
            x = x + self.motion(tokens, self._frames_before(tokens, positions, cache), mask=mask)
        x = x + self.temporal_position[positions][:, None, None]
        x = self.unet(
            x, conditions, mask=mask, cache=cache, checkpointing=self.config.activation_checkpointing
        )  # (B, T, H, W, C)
        result: Tensor = self.norm(x)
        return result

    def logits(self, features: Tensor) -> Tensor:
        """(..., C) -> (..., V)."""
        return self.tokens.logits(features)

    def _expected(self, actions: Actions, known: Tensor, tokens: Tensor) -> Tensor:
        """(B, T, H, W) expected tokens; MASK where there are none, and in frames without an action."""
        if actions.expected is None:
            return torch.full_like(tokens, self.config.mask_token)
        return torch.where(known[..., None, None], actions.expected, self.config.mask_token)

    def _frames_before(self, tokens: Tensor, positions: Tensor, cache: UNetCache | None) -> Tensor:
        """All frames up to the last of `tokens`, from code_frames - 1 before the first on; MASK where there is none."""
        wanted = self.config.code_frames - 1
        before = tokens.new_full((len(tokens), wanted, *tokens.shape[2:]), self.config.mask_token)
        if cache is not None and cache.newest_tokens is not None and wanted:
            kept = cache.newest_tokens[:, -wanted:]
            before[:, wanted - kept.shape[1] :] = kept
        return torch.cat([before, self._of_one_moment(tokens, positions)], dim=1)

    def _of_one_moment(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Frames (B, T, H, W) as frames before others: a gathered one is of no one moment, and so all MASK."""
        if not self.config.gathered_past:
            return tokens
        return torch.where((positions == 0).to(tokens.device)[:, None, None], self.config.mask_token, tokens)

    def new_cache(self, past: int | None = None) -> UNetCache:
        """An empty cache for a past of so many frames; None: of as many as the model was trained with."""
        cache = self.unet.new_cache(self.config.frames)
        cache.first_position = self.config.first_position(self.config.past_frames if past is None else past)
        return cache

    def set_code_vectors(self, codes: Tensor) -> None:
        """The tokenizer's code vectors (V, D); nothing happens where the model does not read them."""
        for part in (self.motion, self.expected):
            if part is not None:
                part.set_vectors(codes)

    @property
    def lacks_code_vectors(self) -> bool:
        """Whether the model reads code vectors and was given none: its forecasts would be silently wrong."""
        parts = [part for part in (self.motion, self.expected) if part is not None]
        return any(not bool(part.vectors.any()) for part in parts)

    def adapted(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Weights of a world model without some of these inputs, completed by this one's own first weights.

        Where `source_rows` (V,) was set, the weights know the codes of another tokenizer: each code begins as that one.
        """
        table = tensors.get("tokens.table.weight")
        if self.source_rows is not None and table is not None:
            tensors = {**tensors, "tokens.table.weight": torch.cat([table[self.source_rows], table[-1:]])}
        mine = {name: tensor.detach() for name, tensor in self.state_dict().items()}
        inputs = ("motion.", "expected.", "actions.")
        return {
            name: tensors[name] if name in tensors and not _differs(tensors[name], value, name, inputs) else value
            for name, value in mine.items()
            if name in tensors or name.startswith(inputs)
        } | {name: value for name, value in tensors.items() if name not in mine and not name.startswith(inputs)}

    @torch.no_grad()
    def remember(self, tokens: Tensor, actions: Actions, cache: UNetCache) -> None:
        """Append finished frames (B, T, H, W) to the past."""
        positions = torch.arange(tokens.shape[1]) + cache.first_position + cache.length
        self.features(tokens, actions, positions=positions, cache=cache)
        cache.keep(tokens.shape[1])
        tokens = self._of_one_moment(tokens, positions)
        newest = tokens if cache.newest_tokens is None else torch.cat([cache.newest_tokens, tokens], dim=1)
        cache.newest_tokens = newest[:, -self.config.code_frames :]

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
        frame, position = tokens[:, None], cache.first_position + cache.length
        if not guidance:
            return Prediction(self.features(frame, actions, cache=cache)[:, 0], None)
        # To look at tokens would make a GPU wait.
        if tokens.device.type == "cpu" and bool((tokens == self.config.mask_token).all()):
            conditional = self.features(frame, actions, cache=cache)[:, 0]
            return Prediction(conditional, self._features_of_nothing(position).expand_as(conditional))
        both = actions.expanded(2)
        positions = torch.full((2,), position)
        features = self.features(
            frame.expand(-1, 2, -1, -1), both, mask=AttentionMask.GUIDANCE, positions=positions, cache=cache
        )
        return Prediction(features[:, 0], features[:, 1])

    @torch.no_grad()
    def predict_alone(self, tokens: Tensor, position: int = 0) -> Tensor:
        """(B, H, W) tokens -> (B, H, W, V) unconditional logits of a frame at a position of the clip."""
        return self.logits(self._features_alone(tokens, position))

    def _features_alone(self, tokens: Tensor, position: int) -> Tensor:
        """(B, H, W) tokens -> (B, H, W, C) of a frame that knows no past and no action."""
        nothing = Actions.null(tokens.shape[0], 1, tokens.device)
        positions = torch.full((1,), position)
        return self.features(tokens[:, None], nothing, mask=AttentionMask.IDENTITY, positions=positions)[:, 0]

    def _features_of_nothing(self, position: int) -> Tensor:
        """(1, H, W, C) of a frame that is all MASK, too: every frame is sampled from it, so it is computed once."""
        blank = torch.full((1, *self.config.tokens), self.config.mask_token, device=self.device)
        return self._kept.get(position, self, lambda: self._features_alone(blank, position))

    def _check(self, tokens: Tensor, actions: Actions) -> None:
        if tokens.ndim != 4 or tuple(tokens.shape[2:]) != self.config.tokens:
            raise UsageError(
                f"tokens must be (B, T, {self.config.tokens[0]}, {self.config.tokens[1]}), got {tokens.shape}"
            )
        if actions.known.shape != tokens.shape[:2]:
            raise UsageError(f"one action per frame is needed: tokens {tokens.shape}, actions {actions.known.shape}")


def _differs(tensor: Tensor, mine: Tensor, name: str, inputs: tuple[str, ...]) -> bool:
    """Whether a tensor of an input has another shape than this model's."""
    return name.startswith(inputs) and tensor.shape != mine.shape
