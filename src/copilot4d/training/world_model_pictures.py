"""Pictures of a world model in training: forecast beside truth, decoded where there is a tokenizer, else token maps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from copilot4d.checkpoints.load_tokenizer import load_tokenizer
from copilot4d.geometry import Rays, se3
from copilot4d.geometry.se3 import FloatArray
from copilot4d.pictures import Cell, Legend, bev_image, panel
from copilot4d.pictures.ink import colour_table
from copilot4d.tokenizer.generation import voxel_centres
from copilot4d.tokenizer.tokenizer import Tokenizer
from copilot4d.tokens.token_clips import TokenClip
from copilot4d.world_model import SamplerConfig, WorldModel, rollout

Image = NDArray[np.uint8]
SIZE_PX = 320
SHOWN = 3  # future frames: the first, a middle one, the last
ELEVATIONS_DEG = np.linspace(-24.0, 4.0, 48)
AZIMUTHS = 512


def forecast_pictures(model: WorldModel, clips: Sequence[TokenClip], tokenizer: Path | None) -> dict[str, Image]:
    """One picture per clip: rows are truth and forecast, columns are future frames."""
    decoder = None if tokenizer is None else load_tokenizer(tokenizer).tokenizer.to(model.device)
    drawn = {}
    for k, clip in enumerate(clips):
        past = clip.past_frames
        poses = clip.world_from_lidar[None]
        config = SamplerConfig()
        expected = None if clip.expected is None else clip.expected[None, past:]
        made = rollout(
            model, clip.tokens[None, :past], poses[:, :past], poses[:, past:], config=config, expected=expected
        )[0, 0].cpu()  # fmt: skip
        title = f"{clip.drive}, frame {clip.reference}, every {clip.interval}"
        drawn[f"forecast_{k}"] = forecast_picture(model, clip, made, decoder, title=title)
    return drawn


def forecast_picture(
    model: WorldModel, clip: TokenClip, made: Tensor, decoder: Tokenizer | None, *, title: str = ""
) -> Image:
    """Truth above forecast. made: (F, H, W) tokens."""
    true = clip.tokens[clip.past_frames :]
    frames = sorted({round(i) for i in np.linspace(0, len(true) - 1, SHOWN)})
    rows = []
    for tokens, words in ((true, "true tokens"), (made, "forecast")):
        cells = []
        for f in frames:
            agree = float((tokens[f] == true[f]).float().mean())
            note = f"+{f + 1}" if tokens is true else f"+{f + 1}: {agree:.0%} of the tokens"
            if decoder is None:
                image = token_map(tokens[f])
            else:
                image = decoded(decoder, tokens[f], sensor_in_tokens(clip, f, model.config.token_frame))
            cells.append(Cell(image, words, note))
        rows.append(cells)
    legend = None if decoder is None else Legend.of_height(_heights(decoder))
    return np.asarray(panel(rows, heading=title, legend=legend))


def sensor_in_tokens(clip: TokenClip, future: int, token_frame: str) -> FloatArray:
    """(4, 4) the lidar of a future frame in the frame that its tokens are in."""
    if token_frame == "own":
        return np.eye(4)
    poses = clip.world_from_lidar
    return se3.relative_motion(poses[clip.past_frames - 1], poses[clip.past_frames + future])


def token_map(tokens: Tensor) -> Image:
    """(H, W) tokens as colours, x up and y left as in every picture from above; neighbours in number look unlike."""
    table = colour_table("turbo")
    mixed = (tokens.numpy().astype(np.int64) * 2654435761) % (1 << 32)  # Knuth's multiplicative hash
    colours = table[(mixed * len(table)) >> 32]
    scale = max(1, SIZE_PX // max(tokens.shape))
    return np.ascontiguousarray(colours[::-1, ::-1].repeat(scale, axis=0).repeat(scale, axis=1))


@torch.no_grad()
def decoded(tokenizer: Tokenizer, tokens: Tensor, tokens_from_lidar: FloatArray) -> Image:
    """What a lidar at a pose would see of decoded tokens (H, W), from above, in the frame of the tokens."""
    scene = tokenizer.decode(tokens[None].to(tokenizer.device))
    if tokenizer.config.mode == "voxel_centres":
        points = voxel_centres(tokenizer, scene)[0].points
    else:
        rendering = tokenizer.render(scene, [_beams().transformed(tokens_from_lidar)])
        points = rendering.points[rendering.returned].cpu().numpy()
    box = tokenizer.config.grid.box
    points = points[((points >= box[:3]) & (points <= box[3:])).all(axis=-1)]
    half = float(np.abs(box[[0, 1, 3, 4]]).max())
    return np.asarray(bev_image(points, half=half, z_range=_heights(tokenizer), size=SIZE_PX))


def _heights(tokenizer: Tokenizer) -> tuple[float, float]:
    box = tokenizer.config.grid.box
    return max(float(box[2]), -2.5), min(float(box[5]), 2.5)


def _beams() -> Rays:
    """A spinning lidar at the origin."""
    elevation, azimuth = np.meshgrid(
        np.radians(ELEVATIONS_DEG), np.linspace(-np.pi, np.pi, AZIMUTHS, endpoint=False), indexing="ij"
    )
    directions = np.stack(
        [np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth), np.sin(elevation)], axis=-1
    )
    return Rays.from_origin(np.zeros(3), directions.reshape(-1, 3))
