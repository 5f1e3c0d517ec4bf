"""Futures, frame by frame: the past's keys and values are cached, each frame is sampled by Algorithm 2 with guidance.

Axes: B clips, S futures of each, R = B S rows, P past frames, F future frames, H/W tokens of a frame.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from copilot4d.errors import ForecastError, UsageError
from copilot4d.geometry.se3 import FloatArray
from copilot4d.progress import Track, silent
from copilot4d.world_model.actions import Actions, actions_of
from copilot4d.world_model.model import WorldModel
from copilot4d.world_model.reverse import guide
from copilot4d.world_model.sampler import Draws, SamplerConfig, denoise
from copilot4d.world_model.unet import UNetCache


def rollout(
    model: WorldModel,
    past_tokens: Tensor,
    past_poses: FloatArray,
    future_poses: FloatArray,
    *,
    config: SamplerConfig | None = None,
    seed: int = 0,
    futures: int | Sequence[int] = 1,
    world_from_reference: FloatArray | None = None,
    expected: Tensor | None = None,
    track: Track = silent,
) -> Tensor:
    """Past tokens (B, P, H, W) and poses (B, P, 4, 4), (B, F, 4, 4) world_from_lidar -> tokens (B, S, F, H, W).

    expected: (B, F, H, W) tokens of the past carried on, for models that read them. See `Rollout`, which makes the same
    frames one at a time.
    """
    if future_poses.ndim != 4 or future_poses.shape[1] == 0:
        raise ForecastError(f"future poses must be (B, F >= 1, 4, 4), got {future_poses.shape}")
    run = Rollout(
        model,
        past_tokens,
        past_poses,
        config=config,
        seed=seed,
        futures=futures,
        world_from_reference=world_from_reference,
    )
    steps = track(range(future_poses.shape[1]), "frames", total=future_poses.shape[1])
    made = [run.step(future_poses[:, f], None if expected is None else expected[:, f]) for f in steps]
    return torch.stack(made, dim=2)


class Rollout:
    """A world that goes on: each `step` takes the ego's next pose and makes the next frame.

    futures: how many, or which: the numbers of the futures to make. Random numbers depend on (seed, future, frame,
    step) alone, so future 3 is the same whether it is made alone or with others. world_from_reference: the pose of the
    tokens' common frame where the model has token_frame "reference"; the newest past pose unless given. interval_s: the
    time between two frames, for models that read it; 0: not known. Frames beyond the model's clip length are made too:
    the oldest frames leave the window.
    """

    def __init__(
        self,
        model: WorldModel,
        past_tokens: Tensor,
        past_poses: FloatArray,
        *,
        config: SamplerConfig | None = None,
        seed: int = 0,
        futures: int | Sequence[int] = 1,
        world_from_reference: FloatArray | None = None,
        interval_s: float = 0.0,
    ) -> None:
        self.model = model
        self.config = config or SamplerConfig()
        self.seed = seed
        self.futures = list(range(futures)) if isinstance(futures, int) else list(futures)
        _check(model, past_tokens, past_poses, self.futures)
        self.reference = past_poses[:, -1] if world_from_reference is None else world_from_reference
        self.poses = past_poses  # (B, t, 4, 4) of all frames so far
        self.tokens = past_tokens.to(model.device)  # (B, t, H, W) until the first frame is made, then (R, t, H, W)
        # (B, t, H, W) the tokens that each frame would have if all went on as before; MASK where that is not known.
        self.expected = torch.full_like(self.tokens, model.config.mask_token)
        self.interval_s = interval_s
        self.made = 0  # frames
        self._start = 0  # the window's first frame
        self._cache: UNetCache | None = None

    @torch.no_grad()
    def step(self, world_from_lidar: FloatArray, expected: Tensor | None = None) -> Tensor:
        """The ego's next pose (B, 4, 4) -> the next frame (B, S, H, W).

        expected: (B, H, W) tokens of the past carried on to that frame, for models that read them.
        """
        clips, known = len(self.poses), self.tokens.shape[1]
        if world_from_lidar.shape != (clips, 4, 4):
            raise ForecastError(f"the next poses must be ({clips}, 4, 4), one per clip, got {world_from_lidar.shape}")
        poses = np.concatenate([self.poses, world_from_lidar[:, None]], axis=1)
        if self.is_full:  # positions in time are learned, so a slid cache would be wrong
            limit = self.model.config.frames
            self._start = known - min(self.config.keep_frames or limit - 1, limit - 1)
            self._cache = None
        actions = actions_of(
            poses[:, self._start :],
            self.model.config.token_frame,
            world_from_reference=self.reference,
            interval_s=self.interval_s,
        ).to(self.model.device)
        if expected is None:
            expected = torch.full_like(self.expected[:, 0], self.model.config.mask_token)
        expectations = torch.cat([self.expected, expected.to(self.expected)[:, None]], dim=1)
        if self.model.config.expected_input:
            actions = actions.with_expected(expectations[:, self._start :])
        cache = self._past(actions)
        draws = Draws(self.seed, self.futures * clips, self.made)
        frame = sample_frame(
            self.model, cache, actions.frames(known - self._start).repeated(len(self.futures)), draws, self.config
        )
        self.tokens = torch.cat([self.tokens, frame[:, None]], dim=1)
        self.expected = expectations
        self.poses = poses  # only now: a step that failed was not taken
        self.made += 1
        return frame.view(clips, len(self.futures), *frame.shape[1:])

    @property
    def is_full(self) -> bool:
        """Whether the window has no room for the next frame: its oldest frames must leave first."""
        window = self.tokens.shape[1] - self._start
        first = self._cache.first_position if self._cache is not None else self.model.config.first_position(window)
        return first + window >= self.model.config.frames

    def fork(self) -> Rollout:
        """A copy that goes on by itself: tokens and poses are never changed in place, the cache is copied."""
        forked: Rollout = copy.copy(self)
        forked._cache = None if self._cache is None else self._cache.repeated(1)
        return forked

    def _past(self, actions: Actions) -> UNetCache:
        """The cache with all frames of the window; the clips' own past is computed once for all their futures."""
        window = self.tokens.shape[1] - self._start
        cache = self.model.new_cache(window) if self._cache is None else self._cache
        rows = len(self.tokens) // len(self.poses)
        new = self.tokens[:, self._start + cache.length :]
        self.model.remember(new, actions.frames(cache.length, -1).repeated(rows), cache)
        if rows != len(self.futures):
            cache, self.tokens = cache.repeated(len(self.futures)), self.tokens.repeat_interleave(len(self.futures), 0)
        self._cache = cache
        return cache


@torch.no_grad()
def sample_frame(model: WorldModel, cache: UNetCache, actions: Actions, draws: Draws, config: SamplerConfig) -> Tensor:
    """The frame after the cache's past: (R, H, W) tokens. actions: (R, 1)."""

    def logits_of(x: Tensor) -> Tensor:
        seen = model.predict_features(x, actions, cache, guidance=config.guidance != 0)
        if seen.unconditional is None:
            return model.logits(seen.conditional)
        return model.logits(guide(seen.conditional, seen.unconditional, config.guidance))  # logits are linear in them

    return _decode(model, logits_of, draws, config)


@torch.no_grad()
def generate(
    model: WorldModel,
    *,
    config: SamplerConfig | None = None,
    seed: int = 0,
    futures: int | Sequence[int] = 1,
    position: int = 0,
) -> Tensor:
    """Frames from nothing (S, H, W): unconditional samples, without past, action or guidance."""
    which = range(futures) if isinstance(futures, int) else futures
    draws = Draws(seed, list(which), 0)
    return _decode(model, lambda x: model.predict_alone(x, position), draws, config or SamplerConfig())


def _decode(model: WorldModel, logits_of: Callable[[Tensor], Tensor], draws: Draws, config: SamplerConfig) -> Tensor:
    """Run Algorithm 2 to its end, on maps (R, H, W)."""
    diffusion, (height, width) = model.config.diffusion, model.config.tokens
    if config.reverse is None:
        config = replace(config, reverse="frozen" if diffusion.process == "maskgit" else "paper")
    *_, x = denoise(
        lambda x: logits_of(x.view(-1, height, width)).flatten(1, 2),
        draws,
        config,
        tokens=height * width,
        vocabulary=model.config.vocabulary,
        eta=diffusion.noise,
        device=model.device,
    )
    return x.view(-1, height, width)


def _check(model: WorldModel, past_tokens: Tensor, past_poses: FloatArray, futures: list[int]) -> None:
    """Everything that a caller can get wrong, before anything is computed."""
    if past_tokens.ndim != 4 or tuple(past_tokens.shape[2:]) != model.config.tokens or past_tokens.shape[1] == 0:
        wanted = f"(B, P >= 1, {model.config.tokens[0]}, {model.config.tokens[1]})"
        raise ForecastError(f"past tokens must be {wanted}, got {tuple(past_tokens.shape)}")
    if int(past_tokens.min()) < 0 or int(past_tokens.max()) >= model.config.vocabulary:
        found = f"{int(past_tokens.min())} ... {int(past_tokens.max())}"
        raise ForecastError(f"past tokens must lie in [0, {model.config.vocabulary}), got {found}")
    if past_poses.shape != (*past_tokens.shape[:2], 4, 4):
        raise ForecastError(f"one past pose per frame is needed: {past_poses.shape} for {tuple(past_tokens.shape)}")
    if not futures or min(futures) < 0 or len(set(futures)) != len(futures):
        raise UsageError(f"futures are at least one, each numbered once from 0, got {futures}")
