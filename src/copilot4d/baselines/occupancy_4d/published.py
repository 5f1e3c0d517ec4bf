"""4D-Occ as its authors built it: T. Khurana, P. Hu, D. Held, D. Ramanan, *Point Cloud Forecasting as a Proxy for 4D
Occupancy Forecasting*, CVPR 2023.

    densities = ReLU(linear(past) + decoder(encoder(past)))

`linear` is one dense 3 x 3 convolution from all past voxels of a place and its neighbours to all of its output voxels.
Heights and times are channels of a bird's-eye map. Rays render as published, see `rendering.exit_depth`.

    B clips, C channels, X/Y/Z voxels, T future steps
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

from copilot4d.baselines.occupancy_4d.config import DepthKind, check_reading, mini_grid
from copilot4d.baselines.occupancy_4d.network import OccupancyNetwork
from copilot4d.baselines.occupancy_4d.past import PastVoxels
from copilot4d.errors import UsageError, check_range
from copilot4d.geometry import VoxelGrid
from copilot4d.rendering import RayBatch
from copilot4d.rendering.exit_depth import exit_depths
from copilot4d.rendering.voxel_depth import VoxelDepths


@dataclass(frozen=True, kw_only=True)
class PublishedOccupancy4dConfig:
    """The sizes of the published network; its region is `paper`'s."""

    grid: VoxelGrid = field(default_factory=mini_grid)
    past_frames: int = 5
    future_frames: int = 5
    layers: tuple[int, int, int, int, int] = (2, 2, 3, 6, 5)  # convolutions of the encoder's five blocks
    filters: tuple[int, int, int, int, int] = (32, 64, 128, 256, 256)  # their channels
    decoder: tuple[int, int] = (128, 64)  # channels at half and at full size
    depth: DepthKind = "expected"  # as published; the others read the same densities
    min_opacity: float = 0.5

    def __post_init__(self) -> None:
        check_range("occupancy_4d.past_frames", self.past_frames, 1, 64)
        check_range("occupancy_4d.future_frames", self.future_frames, 1, 64)
        check_range("occupancy_4d.layers", self.layers, 1, 64)
        check_range("occupancy_4d.filters", self.filters, 1, 8192)
        check_range("occupancy_4d.decoder", self.decoder, 1, 8192)
        frames = max(self.past_frames, self.future_frames)
        check_range("the voxels of all frames", self.grid.cells * frames, 1, 1 << 29)
        if self.grid.shape[0] % 4 or self.grid.shape[1] % 4 or min(self.grid.shape[:2]) < 8:
            raise UsageError(f"the grid's x and y cells {self.grid.shape[:2]} must divide by 4 and be 8 or more")
        check_reading(self.depth, self.min_opacity)

    @property
    def fold(self) -> int:
        """Every voxel column is a cell of the map."""
        return 1

    @property
    def map_size(self) -> tuple[int, int]:
        """Cells of the map, along x and y."""
        return (self.grid.shape[0], self.grid.shape[1])


def published_preset(name: str) -> PublishedOccupancy4dConfig:
    """A preset by its name: paper (as published), mini (half the channels, the mini models' region), tiny (tests)."""
    if name == "paper":
        return PublishedOccupancy4dConfig(
            grid=VoxelGrid.from_bounds((-70.0, -70.0, -4.5), (70.0, 70.0, 4.5), shape=(700, 700, 45))
        )
    if name == "mini":
        return PublishedOccupancy4dConfig(filters=(16, 32, 64, 128, 128), decoder=(64, 32))
    if name == "tiny":
        grid = VoxelGrid.from_bounds((-16.0, -16.0, -3.0), (16.0, 16.0, 3.0), shape=(64, 64, 12))
        return PublishedOccupancy4dConfig(
            grid=grid, past_frames=2, future_frames=2, layers=(1, 1, 1, 1, 1), filters=(8, 8, 16, 16, 16),
            decoder=(16, 8),
        )  # fmt: skip
    raise UsageError(f"`preset` is one of paper, mini, tiny, got {name!r}")


class PublishedOccupancy4d(OccupancyNetwork):
    """The network of a configuration."""

    def __init__(self, config: PublishedOccupancy4dConfig) -> None:
        super().__init__()
        self.config: PublishedOccupancy4dConfig = config
        inputs, outputs = (frames * config.grid.shape[2] for frames in (config.past_frames, config.future_frames))
        first, second, third, fourth, fifth = config.filters
        half, full = config.decoder
        self.linear = SparseConv(inputs, outputs, config.map_size, bias=True)
        self.stem = SparseConv(inputs, first, config.map_size, bias=False)
        depths = config.layers
        self.block1 = nn.Sequential(_normed(first), *_convs(depths[0] - 1, first, first), nn.MaxPool2d(2))
        self.block2 = nn.Sequential(*_convs(depths[1], first, second), nn.MaxPool2d(2))
        self.block3 = nn.Sequential(*_convs(depths[2], second, third), nn.MaxPool2d(2))
        self.block4 = nn.Sequential(*_convs(depths[3], third, fourth))
        self.block5 = nn.Sequential(*_convs(depths[4], first + second + third + fourth, fifth))
        self.decoder = nn.Sequential(
            _grow(fifth, half), _normed(half), *_convs(1, half, half),
            _grow(half, full), _normed(full), *_convs(1, full, full),
            nn.Conv2d(full, outputs, 3, padding=1),
        )  # fmt: skip
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, past: PastVoxels) -> Tensor:
        """(B, X, Y, 1, 1, T, Z) float32 densities per cell size."""
        config = self.config
        maps = [self.block1(self.stem(past))]
        for block in (self.block2, self.block3, self.block4):
            maps.append(block(maps[-1]))
        quarter = (config.map_size[0] // 4, config.map_size[1] // 4)
        joined = torch.cat(
            [functional.interpolate(m, size=quarter, mode="bilinear", align_corners=True) for m in maps], dim=1
        )
        output = self.linear(past) + self.decoder(self.block5(joined))  # (B, T Z, X, Y)
        density = functional.relu(output).float().permute(0, 2, 3, 1)
        return density.reshape(len(past), *config.map_size, 1, 1, config.future_frames, config.grid.shape[2])

    def render(self, densities: Tensor, rays: RayBatch, steps: Tensor) -> VoxelDepths:
        """See `OccupancyNetwork`."""
        with torch.autocast(device_type=densities.device.type, enabled=False):
            return exit_depths(densities, rays, steps, self.config.grid)

    def blocks(self) -> Iterable[nn.Module]:
        """See `OccupancyNetwork`."""
        return (self.block1, self.block2, self.block3, self.block4, self.block5, self.decoder)


class SparseConv(nn.Module):
    """A 3 x 3 convolution over binary voxels with zeros around them, computed where there are voxels."""

    def __init__(self, inputs: int, outputs: int, map_size: tuple[int, int], *, bias: bool) -> None:
        super().__init__()
        self.map_size = map_size
        self.weight = nn.Parameter(torch.empty(9, inputs, outputs))  # row by row of the kernel
        bound = (9 * inputs) ** -0.5  # as a dense convolution begins
        nn.init.uniform_(self.weight, -bound, bound)
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound)) if bias else None

    def forward(self, past: PastVoxels) -> Tensor:
        """(B, C, X, Y), side by side in memory by channel."""
        width, height = self.map_size
        outputs = self.weight.shape[2]
        clip, place = past.cells // (width * height), past.cells % (width * height)
        x, y = place // height, place % height
        summed = self.weight.new_zeros(len(past) * width * height, outputs)
        if self.bias is not None:
            summed = self.bias.expand(len(summed), -1)
        for tap in range(9):
            to_x, to_y = x + 1 - tap // 3, y + 1 - tap % 3
            inside = ((to_x >= 0) & (to_x < width) & (to_y >= 0) & (to_y < height)).nonzero()[:, 0]
            target = ((clip * width + to_x) * height + to_y)[inside]
            rows = functional.embedding(past.channels[inside], self.weight[tap])
            summed = summed.index_add(0, target, rows) if tap == 0 else summed.index_add_(0, target, rows)
        return summed.view(len(past), width, height, outputs).permute(0, 3, 1, 2)


def _convs(count: int, inputs: int, outputs: int) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for i in range(count):
        layers += [nn.Conv2d(outputs if i else inputs, outputs, 3, padding=1, bias=False), _normed(outputs)]
    return layers


def _normed(channels: int) -> nn.Module:
    return nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU())


def _grow(inputs: int, outputs: int) -> nn.Module:
    return nn.ConvTranspose2d(inputs, outputs, 3, stride=2, padding=1, output_padding=1, bias=False)
