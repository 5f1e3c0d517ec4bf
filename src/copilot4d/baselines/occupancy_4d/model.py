"""The network: binary voxels of the past -> densities of the voxels at each future step.

Axes: B clips, H/W cells of a bird's-eye map (H along x), C channels, f voxel columns a side of a cell, T future steps,
Z heights. Maps are (B, C, H, W) in memory order (B, H, W, C): convolutions run at the matrix-multiply peak that way.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from copilot4d.baselines.occupancy_4d.config import Occupancy4dConfig
from copilot4d.baselines.occupancy_4d.network import OccupancyNetwork
from copilot4d.baselines.occupancy_4d.past import PastVoxels
from copilot4d.rendering import RayBatch
from copilot4d.rendering.voxel_depth import VoxelDepths, voxel_depths

CLOCK_DIM = 32
USUAL_INTERVAL_S = 0.35  # between those of the protocol's settings, 0.2 s and 0.6 s, on a logarithmic scale


class Occupancy4d(OccupancyNetwork):
    """Our variant of 4D-Occ. `forward` gives logits of densities, `render` what rays see in them."""

    def __init__(self, config: Occupancy4dConfig) -> None:
        super().__init__()
        self.config: Occupancy4dConfig = config
        dims, levels = config.dims, len(config.dims)
        self.stem = Stem(config)
        self.clock = nn.Sequential(nn.Linear(1, CLOCK_DIM), nn.SiLU(), nn.Linear(CLOCK_DIM, CLOCK_DIM), nn.SiLU())
        last = levels - 1
        dilations = [[1] * n for n in config.blocks]
        dilations[last] = [config.dilations[i % len(config.dilations)] for i in range(config.blocks[last])]
        self.down_blocks = nn.ModuleList(
            nn.ModuleList(Block(dim, d) for d in dilations[level]) for level, dim in enumerate(dims)
        )
        self.up_blocks = nn.ModuleList(
            nn.ModuleList(Block(dim, 1) for _ in range(n)) for dim, n in zip(dims, config.up_blocks, strict=False)
        )
        self.shrink = nn.ModuleList(nn.Conv2d(dims[i], dims[i + 1], 2, stride=2) for i in range(last))
        self.grow = nn.ModuleList(nn.ConvTranspose2d(dims[i + 1], dims[i], 2, stride=2) for i in range(last))
        self.persistence = None if config.persistence is None else Persistence(config, config.persistence)
        self.norm = nn.LayerNorm(dims[0])
        outputs = config.fold**2 * config.future_frames * config.grid.shape[2]
        self.head = nn.Linear(dims[0], outputs)
        nn.init.normal_(self.head.weight, std=0.1 * dims[0] ** -0.5)
        nn.init.constant_(self.head.bias, config.initial_logit)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, past: PastVoxels) -> Tensor:
        """(B, X/f, Y/f, f, f, T, Z) float32 logits; a voxel's density is softplus(logit) per cell size."""
        config = self.config
        octaves = torch.log2(past.intervals_s / USUAL_INTERVAL_S)
        clock = self.clock(octaves[:, None])  # (B, CLOCK_DIM)
        map_ = self.stem(past)  # (B, C, H, W)
        kept = []
        for level, blocks in enumerate(self.down_blocks):
            assert isinstance(blocks, nn.ModuleList)
            map_ = self.shrink[level - 1](map_) if level else map_
            for block in blocks:
                map_ = block(map_, clock)
            kept.append(map_)
        for level in reversed(range(len(self.up_blocks))):
            blocks = self.up_blocks[level]
            assert isinstance(blocks, nn.ModuleList)
            map_ = kept[level] + self.grow[level](map_)
            for block in blocks:
                map_ = block(map_, clock)
        logits: Tensor = self.head(functional.relu(self.norm(map_.permute(0, 2, 3, 1)))).float()
        if self.persistence is not None:
            logits = self.persistence(logits, past)
        return logits.view(*logits.shape[:3], config.fold, config.fold, config.future_frames, config.grid.shape[2])

    def blocks(self) -> Iterator[Block]:
        """All residual blocks."""
        return (module for module in self.modules() if isinstance(module, Block))

    def render(self, densities: Tensor, rays: RayBatch, steps: Tensor) -> VoxelDepths:
        """See `OccupancyNetwork`: `densities` are the logits of `forward`."""
        with torch.autocast(device_type=densities.device.type, enabled=False):
            return voxel_depths(densities, rays, steps, self.config.grid)


class Stem(nn.Module):
    """A convolution of `f` x `f` voxel columns with stride f over binary voxels, computed where there are voxels."""

    def __init__(self, config: Occupancy4dConfig) -> None:
        super().__init__()
        self.map_size = config.map_size
        self.weight = nn.Parameter(torch.empty(config.input_channels, config.dims[0]))
        self.bias = nn.Parameter(torch.zeros(config.dims[0]))
        # A cell with points has a handful of its hundreds of voxels occupied: weights of the size 1/sqrt(4).
        nn.init.normal_(self.weight, std=0.5)

    def forward(self, past: PastVoxels) -> Tensor:
        """(B, C, H, W)."""
        height, width = self.map_size
        rows = functional.embedding(past.channels, self.weight)
        empty = self.bias.to(rows.dtype).expand(len(past) * height * width, -1)
        summed = empty.index_add(0, past.cells, rows)
        return summed.view(len(past), height, width, -1).permute(0, 3, 1, 2)


class Persistence(nn.Module):
    """Past voxels straight to the same voxels of the future: a learned weight per past frame, height and future step.

    What stands still need not be squeezed through the map's few channels; the network adds what moves and what was
    hidden. Without it the first thousands of steps go into learning to copy.
    """

    undecayed_parameters = ("weight",)

    def __init__(self, config: Occupancy4dConfig, initial: float) -> None:
        super().__init__()
        self.levels = config.grid.shape[2]
        shape = (config.past_frames, self.levels, config.future_frames)
        self.weight = nn.Parameter(torch.full(shape, float(initial)))

    def forward(self, logits: Tensor, past: PastVoxels) -> Tensor:
        """(B, H, W, f f T Z) with the weights added; changes `logits` in place."""
        frames, _, steps = self.weight.shape
        column, z = past.channels // self.levels, past.channels % self.levels
        sub, frame = column // frames, column % frames
        first = past.cells * logits.shape[-1] + sub * steps * self.levels + z  # position of step 0
        positions = first[:, None] + torch.arange(steps, device=first.device) * self.levels
        logits.view(-1).index_add_(0, positions.flatten(), self.weight[frame, z].flatten().to(logits.dtype))
        return logits


class Block(nn.Module):
    """Pre-norm residual block of two 3 x 3 convolutions, told the rate of the frames."""

    def __init__(self, dim: int, dilation: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.conv1 = nn.Conv2d(dim, dim, 3, padding=dilation, dilation=dilation, bias=False)
        self.conv2 = nn.Conv2d(dim, dim, 3, padding=dilation, dilation=dilation)
        self.clock = nn.Linear(CLOCK_DIM, dim)
        nn.init.normal_(self.conv1.weight, std=(2 / (9 * dim)) ** 0.5)
        nn.init.normal_(self.conv2.weight, std=0.2 * (2 / (9 * dim)) ** 0.5)

    def forward(self, x: Tensor, clock: Tensor) -> Tensor:
        """(B, C, H, W) and (B, CLOCK_DIM) -> (B, C, H, W)."""
        y = self.conv1(functional.relu(_normed(self.norm1, x)))
        y = y + self.clock(clock)[:, :, None, None]
        return x + self.conv2(functional.relu(_normed(self.norm2, y)))  # type: ignore[no-any-return]


def _normed(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    """LayerNorm over the channels, which lie side by side in memory."""
    return norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)  # type: ignore[no-any-return]
