"""Futures, frame by frame: the past's keys and values are cached, each frame is sampled by Algorithm 2 with guidance.

Axes: B clips, S futures of each, R = B S rows, P past frames, F future frames, H/W tokens of a frame.
"""

from __future__ import annotations

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


@torch.no_grad()
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
    track: Track = silent,
) -> Tensor:
    """Past tokens (B, P, H, W) and poses (B, P, 4, 4), (B, F, 4, 4) world_from_lidar -> tokens (B, S, F, H, W).

    futures: how many, or which: the numbers of the futures to make. Random numbers depend on (seed, future, frame,
    step) alone, so future 3 is the same whether it is made alone or with others. world_from_reference: the pose of the
    tokens' common frame where the model has token_frame "reference"; the newest past pose unless given.
    Frames beyond the model's clip length are made too: the oldest frames leave the window.
    """
    config = config or SamplerConfig()
    which = list(range(futures)) if isinstance(futures, int) else list(futures)
    _check(model, past_tokens, past_poses, future_poses, which)
    poses = np.concatenate([past_poses, future_poses], axis=1)
    reference = past_poses[:, -1] if world_from_reference is None else world_from_reference
    times, limit = len(which), model.config.frames
    keep = min(config.keep_frames or limit - 1, limit - 1)
    device = model.temporal_position.device
    tokens = past_tokens.to(device)  # (B, t, H, W) until the first frame is made, then (R, t, H, W)
    start, cache = 0, None
    frames = track(range(future_poses.shape[1]), "frames", total=future_poses.shape[1])
    for f in frames:
        known = past_tokens.shape[1] + f
        if known - start >= limit:
            start, cache = known - keep, None  # positions in time are learned, so a slid cache would be wrong
        actions = actions_of(poses[:, start : known + 1], model.config.token_frame, world_from_reference=reference)
        actions = actions.to(device)
        if cache is None:
            cache = model.new_cache()
            rows = tokens.shape[0] // actions.known.shape[0]
            model.remember(tokens[:, start:], actions.frames(0, -1).repeated(rows), cache)
            if rows != times:
                cache, tokens = cache.repeated(times), tokens.repeat_interleave(times, dim=0)
        current = actions.frames(known - start).repeated(times)
        draws = Draws(seed, which * past_tokens.shape[0], f)
        frame = sample_frame(model, cache, current, draws, config)
        tokens = torch.cat([tokens, frame[:, None]], dim=1)
        if f + 1 < future_poses.shape[1] and known + 1 - start < limit:
            model.remember(frame[:, None], current, cache)
    made = tokens[:, past_tokens.shape[1] :]
    return made.reshape(past_tokens.shape[0], times, *made.shape[1:])


@torch.no_grad()
def sample_frame(model: WorldModel, cache: UNetCache, actions: Actions, draws: Draws, config: SamplerConfig) -> Tensor:
    """The frame after the cache's past: (R, H, W) tokens. actions: (R, 1)."""

    def logits_of(x: Tensor) -> Tensor:
        seen = model.predict(x, actions, cache, guidance=config.guidance != 0)
        if seen.unconditional is None:
            return seen.conditional
        return guide(seen.conditional, seen.unconditional, config.guidance)

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
        config = replace(config, reverse="maskgit" if diffusion.process == "maskgit" else "paper")
    *_, x = denoise(
        lambda x: logits_of(x.view(-1, height, width)).flatten(1, 2),
        draws,
        config,
        tokens=height * width,
        vocabulary=model.config.vocabulary,
        eta=diffusion.noise,
        device=model.temporal_position.device,
    )
    return x.view(-1, height, width)


def _check(
    model: WorldModel, past_tokens: Tensor, past_poses: FloatArray, future_poses: FloatArray, futures: list[int]
) -> None:
    """Everything that a caller can get wrong, before anything is computed."""
    if past_tokens.ndim != 4 or tuple(past_tokens.shape[2:]) != model.config.tokens or past_tokens.shape[1] == 0:
        wanted = f"(B, P >= 1, {model.config.tokens[0]}, {model.config.tokens[1]})"
        raise ForecastError(f"past tokens must be {wanted}, got {tuple(past_tokens.shape)}")
    if int(past_tokens.min()) < 0 or int(past_tokens.max()) >= model.config.vocabulary:
        found = f"{int(past_tokens.min())} ... {int(past_tokens.max())}"
        raise ForecastError(f"past tokens must lie in [0, {model.config.vocabulary}), got {found}")
    if past_poses.shape != (*past_tokens.shape[:2], 4, 4):
        raise ForecastError(f"one past pose per frame is needed: {past_poses.shape} for {tuple(past_tokens.shape)}")
    if future_poses.ndim != 4 or future_poses.shape[0] != len(past_tokens) or future_poses.shape[2:] != (4, 4):
        raise ForecastError(f"future poses must be ({len(past_tokens)}, F, 4, 4), got {future_poses.shape}")
    if not futures or min(futures) < 0 or len(set(futures)) != len(futures):
        raise UsageError(f"futures are at least one, each numbered once from 0, got {futures}")
