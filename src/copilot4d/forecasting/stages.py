"""The two ends of a forecast, as functions: sweeps to tokens, and decoded scenes to what rays read in them.

A scene has one frame, in which its tokens were made: the sweep's lidar frame, or the reference's. Depths along a ray
are the same in both, so rays are carried into the scene's frame, and their depths are used in the lidar's.

    P past frames, H/W tokens of a frame, S scenes, R rays
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor

from copilot4d.forecasting.ray_reading import RayReading
from copilot4d.geometry import Rays, Sweep, gathered_sweep, inside_box, se3
from copilot4d.geometry.se3 import FloatArray
from copilot4d.motion import ExtrapolatedPast
from copilot4d.tokenizer import Scene, Tokenizer

MASK63 = (1 << 63) - 1  # what a torch generator takes as a seed


def encode(
    tokenizer: Tokenizer, sweeps: Sequence[Sweep], world_from_reference: FloatArray | None, *,
    gathered_past: bool = False,
) -> Tensor:  # fmt: skip
    """(P, H, W) tokens of sweeps in the reference frame; None: each in its own lidar frame.

    gathered_past: the first frame is of all sweeps together.
    """
    if world_from_reference is not None:
        reference_from_world = se3.invert(world_from_reference)
        sweeps = [replace(sweep, points=sweep.points_in(reference_from_world)) for sweep in sweeps]
    if gathered_past:
        sweeps = [gathered_sweep(sweeps), *sweeps[1:]]
    return tokenizer.encode(sweeps)


def encode_expected(
    tokenizer: Tokenizer, past: ExtrapolatedPast, newest: Sweep, ahead_s: float, world_from_lidar: FloatArray,
    world_from_reference: FloatArray | None,
) -> Tensor:  # fmt: skip
    """(1, H, W) tokens of the past carried on by `ahead_s`: in the frame of the newest sweep, which is the reference's
    where there is one, else in the lidar frame at the pose.
    """
    box = tokenizer.config.grid.box
    if world_from_reference is not None:
        return tokenizer.encode([past.sweep_at(ahead_s, newest, box)])
    lidar_from_newest = se3.relative_motion(world_from_lidar, newest.world_from_lidar)
    points = se3.transform_points(lidar_from_newest, past.newest_at(ahead_s)).astype(np.float32)
    inside = points[inside_box(points, box)]
    return tokenizer.encode(
        [replace(newest, points=inside, world_from_lidar=world_from_lidar, intensity=None, origins=None)]
    )


def render(
    tokenizer: Tokenizer, scene: Scene, rays: Rays, world_from_lidar: FloatArray,
    world_from_reference: FloatArray | None, *, seed: int,
) -> tuple[RayReading, ...]:  # fmt: skip
    """What rays of a lidar at this pose read in each of S scenes, whose tokens were made as in `encode`."""
    scene_from_lidar = (
        se3.identity() if world_from_reference is None else se3.relative_motion(world_from_reference, world_from_lidar)
    )
    in_scene = rays.transformed(scene_from_lidar)
    found = tokenizer.render(scene, [in_scene] * len(scene), seed=seed & MASK63)
    shape = (len(scene), len(rays))
    values = (found.answered_m, found.opacity.clamp(0, 1), found.returned, found.exit_m)
    return tuple(map(RayReading, *(value.view(shape).cpu().numpy() for value in values)))
