"""Training the world model: clips of tokens, Algorithm 1's noise, the three objectives; all randomness by counter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from copilot4d.config import default_values, to_mapping
from copilot4d.counter import SampleKey, StepCounter
from copilot4d.errors import UsageError
from copilot4d.geometry import VoxelGrid
from copilot4d.tokens.token_clips import TokenClip
from copilot4d.training.clip_batch import ClipBatch, batch_of, newest_past
from copilot4d.training.distributed import World
from copilot4d.training.task import TrainingTask
from copilot4d.training.world_model_classes import object_share, position_weights
from copilot4d.training.world_model_pictures import forecast_pictures
from copilot4d.training.world_model_scores import TokenScores, score_clip
from copilot4d.world_model import (
    TokenFrame,
    WorldModel,
    WorldModelConfig,
    denoising_loss,
    draw_noise,
    make_denoising,
)
from copilot4d.world_model.unet import Group

ACTIONS = {
    "own": "previous_from_current: the motion t-1 -> t at frame t, 4x4 row-major; the first frame's is unknown",
    "reference": "reference_from_t: where the lidar of frame t is in the tokens' common frame, 4x4 row-major",
}


class Clips(Protocol):
    """Clips by number, in several augmented variants, all of one tokenizer: `TokenClips`, or a list in memory."""

    token_frame: TokenFrame
    gathered_past: bool
    vocabulary: int
    token_shape: tuple[int, int]
    tokenizer_sha256: str
    variants: int
    fingerprint: str
    has_expected: bool
    has_columns: bool

    def __len__(self) -> int: ...

    @property
    def intervals_s(self) -> tuple[float, ...]:
        """Seconds between two frames of its clips."""
        ...

    def clip(self, item: int, variant: int) -> TokenClip:
        """Clip number `item` of a variant."""
        ...


@dataclass(frozen=True, kw_only=True)
class WorldModelTraining:
    """What decides a trained world model, beside its tokens and the recipe."""

    world_model: WorldModelConfig = field(default_factory=WorldModelConfig)


class WorldModelTask(TrainingTask):
    """Every clip of `clips` is a sample; some clips of `held_out` choose the best checkpoint.

    grid: the tokenizer's, which tells how large a token is, for the copy that follows the ego's motion.
    tokenizer: the folder of the tokenizer, for pictures of decoded forecasts instead of token maps.
    code_vectors: (V, D) the tokenizer's, for a world model that reads them.
    source_rows: (V,) which codes of another tokenizer ours begin as, where the first weights know its tokens.
    """

    name = "world_model"
    score = "loss"

    def __init__(
        self,
        config: WorldModelTraining,
        clips: Clips,
        held_out: Clips | None = None,
        *,
        held_out_clips: int = 32,
        grid: VoxelGrid | None = None,
        tokenizer: Path | None = None,
        code_vectors: Tensor | None = None,
        source_rows: Tensor | None = None,
    ) -> None:
        self.training = config
        self.clips, self.held_out = clips, held_out
        self.grid, self.tokenizer, self.code_vectors = grid, tokenizer, code_vectors
        self.source_rows = source_rows
        if config.world_model.code_dim and code_vectors is None:
            raise UsageError(
                f"a world model with code_dim {config.world_model.code_dim} reads the tokenizer's code vectors: name "
                "the tokenizer that made the tokens"
            )
        if config.world_model.diffusion.weighs and not clips.has_columns:
            raise UsageError(
                "moving_weight and empty_weight need to know what columns hold, and these tokens were made without: "
                "make them anew, with columns"
            )
        if config.world_model.expected_input and not clips.has_expected:
            raise UsageError(
                "a world model with expected_input reads the tokens of the past carried on, and these tokens were made "
                "without: make them anew, with `expected`"
            )
        if held_out_clips < 1:
            raise UsageError(f"`held_out_clips` must be at least 1, got {held_out_clips}")
        for some in (clips, held_out):
            if some is not None:
                check_clips(config.world_model, some)
        if held_out is not None and held_out.tokenizer_sha256 != clips.tokenizer_sha256:
            raise UsageError(
                f"the held-out tokens are of tokenizer {held_out.tokenizer_sha256[:12]}, those to train on of "
                f"{clips.tokenizer_sha256[:12]}; tokenize both with the same tokenizer"
            )
        self.chosen = evenly_spread(0 if held_out is None else len(held_out), held_out_clips)
        self.intervals = sorted({held_out.clip(i, 0).interval for i in self.chosen}) if held_out is not None else []

    def build_model(self) -> nn.Module:
        """A fresh world model."""
        model = WorldModel(self.training.world_model)
        if self.code_vectors is not None:
            model.set_code_vectors(self.code_vectors)
        model.source_rows = self.source_rows
        return model

    def sample(self, key: SampleKey) -> TokenClip:
        """A clip in one of its variants."""
        return self.clips.clip(*self._item(key))

    def collate(self, samples: Sequence[TokenClip]) -> ClipBatch:
        """Clips -> tokens and actions."""
        return batch_of(samples, self.training.world_model.token_frame)

    def loss(self, model: nn.Module, batch: Any, counter: StepCounter) -> Mapping[str, Tensor]:
        """Algorithm 1: one objective for the whole step, noise of its own for every sample."""
        assert isinstance(model, WorldModel)
        config = model.config
        objective = config.diffusion.objective(float(counter.step_generator("objective").random()))
        past = self._past_frames(config, counter)
        batch = newest_past(batch, config, past)
        noise = draw_noise(
            counter.sample_torch("noise"), batch.tokens.shape[1], config.tokens[0] * config.tokens[1], config.vocabulary
        )
        denoising = make_denoising(
            batch.tokens, objective, noise, config.diffusion, past_frames=past, mask_token=config.mask_token
        )
        weight = position_weights(batch.columns, config.diffusion) if config.diffusion.weighs else None
        found = denoising_loss(
            model, denoising, batch.actions, weight=weight, first_position=config.first_position(past)
        )
        return {"total": found.loss, "accuracy": found.accuracy}

    def evaluate(self, model: nn.Module, world: World) -> Mapping[str, float]:
        """Losses by objective, and the next frame against two ways to copy; each rank takes its share of the clips."""
        assert isinstance(model, WorldModel)
        if self.held_out is None:
            return {}
        warped = self.training.world_model.token_frame == "own" and self.grid is not None
        objects = self._object_share
        scores, beyond = (TokenScores(warped=warped, object_share=objects) for _ in range(2))
        for first in range(0, len(self.chosen), world.size):  # ranks of a sharded model must make equally many passes
            mine = first + world.rank
            number = self.chosen[min(mine, len(self.chosen) - 1)]
            counted = scores if mine < len(self.chosen) else beyond
            score_clip(model, counted, self.held_out.clip(number, 0), number, grid=self.grid)
        return scores.summary(world, model.config.diffusion, self.intervals)

    @cached_property
    def _object_share(self) -> Tensor | None:
        """(V,) how often a code stands for something above the ground, among the held-out clips to score on."""
        if self.held_out is None or not self.held_out.has_columns:
            return None
        return object_share([self.held_out.clip(i, 0) for i in self.chosen], self.held_out.vocabulary)

    def pictures(self, model: nn.Module, world: World) -> Mapping[str, NDArray[np.uint8]]:
        """Forecast beside truth for the first and the middle held-out clip."""
        assert isinstance(model, WorldModel)
        if self.held_out is None:
            return {}
        shown = [self.chosen[i] for i in sorted({0, len(self.chosen) // 2})]
        return forecast_pictures(model, [self.held_out.clip(i, 0) for i in shown], self.tokenizer)

    def config(self) -> Mapping[str, Any]:
        """The world model's configuration."""
        return to_mapping(self.training)

    def default_config(self) -> Mapping[str, Any]:
        """Of the same."""
        return default_values(self.training)

    def conventions(self) -> Mapping[str, Any]:
        """What the weights take tokens and actions to be."""
        config = self.training.world_model
        return {
            "tokens": "(T, H, W), H along x, W along y",
            "token_frame": config.token_frame,
            "actions": ACTIONS[config.token_frame],
            "vocabulary": config.vocabulary,
            "token_shape": list(config.tokens),
            "tokenizer_sha256": self.clips.tokenizer_sha256,
            "intervals_s": list(self.clips.intervals_s),
        }

    def data_fingerprint(self) -> str:
        """Of the tokens to train on."""
        return self.clips.fingerprint

    def describe(self, key: SampleKey) -> Mapping[str, Any]:
        """Drive, reference frame, interval, variant."""
        item, variant = self._item(key)
        clip = self.clips.clip(item, variant)
        return {"drive": clip.drive, "reference": clip.reference, "interval": clip.interval, "variant": variant}

    def shard_units(self, model: nn.Module) -> Sequence[nn.Module]:
        """Groups of two spatial blocks and a temporal one."""
        return [module for module in model.modules() if isinstance(module, Group)]

    def compile_targets(self, model: nn.Module) -> Sequence[nn.Module]:
        """The groups."""
        return self.shard_units(model)

    @staticmethod
    def _past_frames(config: WorldModelConfig, counter: StepCounter) -> int:
        """How many past frames the clips of this step have: all, or fewer where the model learns short pasts."""
        generator = counter.step_generator("past frames")
        if config.past_frames == 1 or generator.random() >= config.short_pasts:
            return config.past_frames
        return int(generator.integers(1, config.past_frames))

    def _item(self, key: SampleKey) -> tuple[int, int]:
        """Which clip, in which variant: a clip's next visits see other variants."""
        return key.item(len(self.clips)), int(key.generator("variant").integers(self.clips.variants))


def evenly_spread(count: int, wanted: int) -> list[int]:
    """At most `wanted` of range(count), from the first to the last."""
    return [int(i) for i in np.unique(np.linspace(0, count - 1, min(wanted, count)).round())] if count else []


def check_clips(config: WorldModelConfig, clips: Clips) -> None:
    """UsageError where a world model cannot be trained on these tokens."""
    if len(clips) == 0:
        raise UsageError("training a world model needs at least one clip; the chosen drives have none")
    for name, wanted, found in (
        ("vocabulary", config.vocabulary, clips.vocabulary),
        ("tokens", tuple(config.tokens), tuple(clips.token_shape)),
        ("token_frame", config.token_frame, clips.token_frame),
        ("gathered_past", config.gathered_past, clips.gathered_past),
    ):
        if wanted != found:
            raise UsageError(
                f"the world model has {name} {wanted}, but the tokens were made with {found}; change {name} in "
                "the world model's configuration, or tokenize anew"
            )
    first = clips.clip(0, 0)
    frames = (first.past_frames, len(first.tokens) - first.past_frames)
    if frames != (config.past_frames, config.frames - config.past_frames):
        raise UsageError(
            f"the world model learns from {config.past_frames} + {config.frames - config.past_frames} frames, but the "
            f"clips have {frames[0]} + {frames[1]}; change past_frames and frames in its configuration"
        )
