"""The neural feature grid: occupancy at any (x, y, z), evaluated only under the columns that are asked for.

Axes: B scenes, H/W cells of the decoder's map, X/Y/Z cells of the feature grid, S points, C grid channels.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from copilot4d.errors import UsageError, check_range
from copilot4d.geometry import VoxelGrid
from copilot4d.rendering import Corners, trilinear_corners
from copilot4d.rendering.one_pass import HiddenGrid
from copilot4d.rendering.weighted_rows import weighted_rows

POINTS_AT_ONCE = 1 << 20


@dataclass(frozen=True, kw_only=True)
class FeatureGridConfig:
    """The feature grid's size: `upsample` cells per cell of the decoder's map along x and y."""

    upsample: int = 2
    levels: int | None = None  # cells along z; None: as many as the voxel grid
    channels: int = 16
    hidden: int = 32
    occupancy_bias: float = -2.0  # the MLP's last bias at the start: rays must reach far samples to learn from them

    def __post_init__(self) -> None:
        for name in ("upsample", "channels", "hidden"):
            if getattr(self, name) < 1:
                raise UsageError(f"tokenizer.feature_grid.{name} must be at least 1, got {getattr(self, name)}")
        check_range("tokenizer.feature_grid.upsample", self.upsample, 1, 16)
        check_range("tokenizer.feature_grid.channels", self.channels, 1, 1024)
        check_range("tokenizer.feature_grid.hidden", self.hidden, 1, 8192)
        if self.levels is not None:
            check_range("tokenizer.feature_grid.levels", self.levels, 1, 4096)


@dataclass(frozen=True)
class FeatureTable:
    """Some columns of a feature grid: rows (columns x Z, C), and which column of (B, X, Y) has which number."""

    rows: Tensor
    number_of_column: Tensor  # (B * X * Y,); meaningless for columns that were not asked for


class FeatureGrid(nn.Module):
    """LayerNorm and Linear to the grid, trilinear interpolation, an MLP of one hidden layer to occupancy logits."""

    def __init__(self, config: FeatureGridConfig, dim: int, voxels: VoxelGrid, map_size: tuple[int, int]) -> None:
        super().__init__()
        self.config = config
        self.map_size = map_size
        levels = config.levels if config.levels is not None else voxels.shape[2]
        shape = (map_size[0] * config.upsample, map_size[1] * config.upsample, levels)
        self.grid = VoxelGrid.from_bounds(voxels.minimum, voxels.maximum, shape)
        self.norm = nn.LayerNorm(dim)
        self.linear = nn.Linear(dim, config.upsample**2 * levels * config.channels, bias=False)
        self.hidden = nn.Linear(config.channels, config.hidden, bias=True)
        self.occupancy = nn.Linear(config.hidden, 1, bias=True)

    def refined(self, weight: Tensor) -> Tensor:
        """The first layer's weight of a grid with fewer cells along x and y, as one of this grid's.

        Each of this grid's cells takes the weights of the coarser cell that holds it. Any other weight is returned as
        it is.
        """
        up, levels, channels = self.config.upsample, self.grid.shape[2], self.config.channels
        coarse = round((len(weight) / (levels * channels)) ** 0.5)
        fits = (
            weight.ndim == 2
            and coarse**2 * levels * channels == len(weight)
            and weight.shape[1] == self.norm.normalized_shape[0]
        )
        if not fits or coarse >= up or up % coarse:
            return weight
        cells = weight.view(coarse, coarse, levels * channels, -1)
        times = up // coarse
        return cells.repeat_interleave(times, dim=0).repeat_interleave(times, dim=1).reshape(-1, weight.shape[1])

    def forward(self, features: Tensor, points: Tensor, scenes: Tensor) -> Tensor:
        """(B, H, W, D) decoder map, (S, 3) points of (S,) scenes -> (S,) occupancy logits."""
        if torch.is_grad_enabled() or len(points) <= POINTS_AT_ONCE:
            corners = trilinear_corners(points, scenes, self.grid)
            return self._query(self.table(features, self._used(features, [corners])), corners)
        parts = list(zip(torch.split(points, POINTS_AT_ONCE), torch.split(scenes, POINTS_AT_ONCE), strict=True))
        used = self._used(features, (trilinear_corners(p, s, self.grid) for p, s in parts))
        table = self.table(features, used)
        return torch.cat([self._query(table, trilinear_corners(p, s, self.grid)) for p, s in parts])

    def table(self, features: Tensor, used: Tensor | None = None) -> FeatureTable:
        """The feature grid at the columns (B * X * Y,) that are used; None: all of it."""
        picked, columns = self._picked(features, used)
        rows = self.linear(picked).view(-1, self.config.channels)  # (cells x up x up x Z, C)
        return FeatureTable(_at_least_fp32(rows), columns)

    def hidden_grid(self, features: Tensor, used: Tensor | None = None) -> HiddenGrid:
        """What the MLP's hidden layer reads at the cells of one scene (1, H, W, D); used as in `table`."""
        picked, columns = self._picked(features, used)
        linear = self.linear.weight.view(-1, self.config.channels, self.linear.in_features)
        joined = torch.einsum("kc,ncd->nkd", self.hidden.weight, linear)  # both layers in one
        values = functional.linear(picked, joined.flatten(0, 1), self.hidden.bias.repeat(len(joined)))
        return HiddenGrid(
            grid=self.grid, values=values.view(-1, self.config.hidden), columns=columns,
            weights=self.occupancy.weight[0], bias=float(self.occupancy.bias),
        )  # fmt: skip

    def _picked(self, features: Tensor, used: Tensor | None) -> tuple[Tensor, Tensor]:
        """The normalised map at its cells with used columns, and the number of each column in what they make."""
        batch, (height, width), up = features.shape[0], self.map_size, self.config.upsample
        cells = batch * height * width
        if used is None:
            chosen = torch.arange(cells, device=features.device)
        else:
            chosen = used.view(batch, height, up, width, up).any(dim=4).any(dim=2).flatten().nonzero()[:, 0]
        number = torch.zeros(cells, dtype=torch.int64, device=features.device)
        number[chosen] = torch.arange(len(chosen), device=features.device)
        within = torch.arange(up * up, device=features.device).view(1, 1, up, 1, up)
        columns = number.view(batch, height, 1, width, 1) * (up * up) + within  # (B, H, up, W, up)
        return self.norm(features.flatten(0, 2).index_select(0, chosen)), columns.flatten()

    def dense(self, features: Tensor) -> Tensor:
        """(B, H, W, D) -> (B, X, Y, Z, C): the whole grid, for looking at; 1 GB a scene at the paper's size."""
        table = self.table(features)
        rows = table.rows.view(-1, self.grid.shape[2], self.config.channels)[table.number_of_column]
        return rows.view(features.shape[0], *self.grid.shape, self.config.channels)

    def occupancy_logits(self, values: Tensor) -> Tensor:
        """(S, C) interpolated features -> (S,)."""
        hidden = functional.relu(self.hidden(values))
        return _at_least_fp32(self.occupancy(hidden)[:, 0])

    def _used(self, features: Tensor, parts: Iterable[Corners]) -> Tensor:
        x, y, _ = self.grid.shape
        used = torch.zeros(features.shape[0] * x * y, dtype=torch.bool, device=features.device)
        for corners in parts:
            used[corners.columns.flatten()] = True
        return used

    def _query(self, table: FeatureTable, corners: Corners) -> Tensor:
        rows = corners.rows(table.number_of_column[corners.columns], self.grid.shape[2])
        return self.occupancy_logits(weighted_rows(table.rows, rows, corners.weights))


def _at_least_fp32(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))
