"""`Occupancy4dConfig`: everything that decides a 4D-Occ network's weights and their meaning; and its presets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol, get_args

from copilot4d.errors import UsageError, check_range
from copilot4d.geometry import VoxelGrid

DepthKind = Literal["expected", "normalised", "median"]


def mini_grid() -> VoxelGrid:
    """The mini tokenizer's region and voxels: 64 m x 64 m x 8 m, 25 cm a side."""
    return VoxelGrid.from_bounds((-32.0, -32.0, -4.0), (32.0, 32.0, 4.0), shape=(256, 256, 32))


class OccupancyConfig(Protocol):
    """What the inputs and the readings of such a network depend on."""

    @property
    def grid(self) -> VoxelGrid:
        """The voxels of the reference frame."""
        ...

    @property
    def past_frames(self) -> int:
        """How many sweeps it reads."""
        ...

    @property
    def future_frames(self) -> int:
        """How many it predicts."""
        ...

    @property
    def fold(self) -> int:
        """Voxel columns a side of one cell of the input map."""
        ...

    @property
    def map_size(self) -> tuple[int, int]:
        """Cells of the input map, along x and y."""
        ...

    @property
    def depth(self) -> DepthKind:
        """What a forecast answers."""
        ...

    @property
    def min_opacity(self) -> float:
        """Below it a beam of free generation has no return."""
        ...


def check_reading(depth: str, min_opacity: float) -> None:
    """Raise UsageError where densities cannot be read so."""
    if depth not in get_args(DepthKind):
        raise UsageError(f"occupancy_4d.depth is one of {', '.join(get_args(DepthKind))}, got {depth!r}")
    if not 0 < min_opacity <= 1:
        raise UsageError(f"occupancy_4d.min_opacity must lie in (0, 1], got {min_opacity}")


@dataclass(frozen=True, kw_only=True)
class Occupancy4dConfig:
    """Our variant of 4D-Occ: a 2D encoder-decoder over the bird's-eye map, with heights and times as channels."""

    grid: VoxelGrid = field(default_factory=mini_grid)
    past_frames: int = 5
    future_frames: int = 5
    fold: int = 2  # voxel columns a side of one cell of the finest map
    dims: tuple[int, ...] = (64, 128, 192)  # channels of each level; each has half the cells a side of the one before
    blocks: tuple[int, ...] = (1, 2, 4)  # residual blocks of each level, on the way down
    up_blocks: tuple[int, ...] = (1, 1)  # on the way up, of each level but the lowest
    dilations: tuple[int, ...] = (1, 2)  # of the lowest level's blocks, in turn
    persistence: float | None = 2.0  # first logit that a voxel gets per past frame that holds it; None: none
    initial_logit: float = -4.0  # of every voxel: a ray passes 55 of them before half of it is stopped
    # What a forecast answers: the expected depth, as published (what nothing stops counts up to the region's exit); or
    # the mean or median of what is stopped, which presume that the ray came back.
    depth: DepthKind = "expected"
    min_opacity: float = 0.5  # below it a beam of free generation has no return

    def __post_init__(self) -> None:
        levels = len(self.dims)
        if levels < 1 or len(self.blocks) != levels or len(self.up_blocks) != levels - 1:
            raise UsageError(
                f"occupancy_4d.dims and .blocks need one value per level and .up_blocks one less, got {self.dims}, "
                f"{self.blocks} and {self.up_blocks}"
            )
        if min(self.past_frames, self.future_frames, self.fold, *self.dims, *self.dilations) < 1:
            raise UsageError("occupancy_4d.past_frames, .future_frames, .fold, .dims and .dilations must be at least 1")
        check_range("the number of levels", levels, 1, 8)
        check_range("occupancy_4d.past_frames", self.past_frames, 1, 64)
        check_range("occupancy_4d.future_frames", self.future_frames, 1, 64)
        check_range("occupancy_4d.fold", self.fold, 1, 64)
        check_range("occupancy_4d.dims", self.dims, 1, 8192)
        check_range("occupancy_4d.blocks", self.blocks, 0, 64)
        check_range("occupancy_4d.up_blocks", self.up_blocks, 0, 64)
        check_range("the number of occupancy_4d.dilations", len(self.dilations), 1, 64)
        check_range("occupancy_4d.dilations", self.dilations, 1, 64)
        frames = max(self.past_frames, self.future_frames)
        check_range("the voxels of all frames", self.grid.cells * frames, 1, 1 << 29)
        unit = self.fold * 2 ** (levels - 1)
        if self.grid.shape[0] % unit or self.grid.shape[1] % unit:
            raise UsageError(
                f"the grid's x and y cells {self.grid.shape[:2]} must divide by occupancy_4d.fold x 2^(levels - 1) "
                f"= {unit}"
            )
        check_reading(self.depth, self.min_opacity)

    @property
    def map_size(self) -> tuple[int, int]:
        """Cells of the finest map, along x and y."""
        return (self.grid.shape[0] // self.fold, self.grid.shape[1] // self.fold)

    @property
    def input_channels(self) -> int:
        """Binary voxels over one cell of the finest map."""
        return self.fold**2 * self.past_frames * self.grid.shape[2]


def paper() -> Occupancy4dConfig:
    """About the published region: 20 cm voxels, and 140.8 m instead of its 140 m, which halves evenly."""
    grid = VoxelGrid.from_bounds((-70.4, -70.4, -4.5), (70.4, 70.4, 4.5), shape=(704, 704, 45))
    return Occupancy4dConfig(
        grid=grid, dims=(96, 192, 256, 256), blocks=(2, 2, 4, 6), up_blocks=(2, 2, 2), dilations=(1, 2, 4),
        persistence=None,
    )  # fmt: skip


def mini() -> Occupancy4dConfig:
    """Trains on one CPU core within hours, in the mini tokenizer's region."""
    return Occupancy4dConfig()


def tiny() -> Occupancy4dConfig:
    """Seconds, for tests: 2 + 2 frames."""
    grid = VoxelGrid.from_bounds((-16.0, -16.0, -3.0), (16.0, 16.0, 3.0), shape=(64, 64, 12))
    return Occupancy4dConfig(
        grid=grid, past_frames=2, future_frames=2, dims=(16, 32), blocks=(1, 1), up_blocks=(1,)
    )  # fmt: skip


PRESETS = {"paper": paper, "mini": mini, "tiny": tiny}


def occupancy_4d_preset(name: str) -> Occupancy4dConfig:
    """A preset by its name."""
    if name not in PRESETS:
        raise UsageError(f"`preset` is one of {', '.join(PRESETS)}, got {name!r}")
    return PRESETS[name]()
