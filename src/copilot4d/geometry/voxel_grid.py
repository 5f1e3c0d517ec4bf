"""`VoxelGrid`: the one source of every size. Cell index = floor((p - min) / size), upper edge exclusive."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from copilot4d.errors import UsageError, check_range
from copilot4d.geometry.se3 import FloatArray

MAX_SIDE, MAX_CELLS = 1 << 14, 1 << 28  # of a grid: four times the paper's


@dataclass(frozen=True, kw_only=True)
class VoxelGrid:
    """An axis-aligned box cut into equal cells; axis 0 is x, axis 1 is y, axis 2 is z, always in this order.

    >>> grid = VoxelGrid.from_bounds((-80, -80, -4.5), (80, 80, 4.5), shape=(1024, 1024, 64))
    >>> grid.cell_size
    (0.15625, 0.15625, 0.140625)
    """

    minimum: tuple[float, float, float]
    cell_size: tuple[float, float, float]
    shape: tuple[int, int, int]

    def __post_init__(self) -> None:
        if not (len(self.minimum) == len(self.cell_size) == len(self.shape) == 3):
            raise UsageError(f"a VoxelGrid has axes x, y, z: got {self.minimum}, {self.cell_size}, {self.shape}")
        if not all(np.isfinite(v) for v in (*self.minimum, *self.cell_size)):
            raise UsageError(f"a VoxelGrid needs finite numbers: minimum {self.minimum}, cell_size {self.cell_size}")
        if min(self.cell_size) <= 0 or min(self.shape) < 1:
            raise UsageError(f"a VoxelGrid needs positive cells: cell_size {self.cell_size}, shape {self.shape}")
        check_range("a VoxelGrid's cells along one axis", self.shape, 1, MAX_SIDE)
        check_range("a VoxelGrid's cells", self.cells, 1, MAX_CELLS)

    @classmethod
    def from_bounds(
        cls, minimum: tuple[float, float, float], maximum: tuple[float, float, float], shape: tuple[int, int, int]
    ) -> VoxelGrid:
        """The grid with `shape` cells between two corners."""
        if any(high <= low for low, high in zip(minimum, maximum, strict=True)):
            raise UsageError(f"a VoxelGrid's maximum must lie above its minimum on each axis: {minimum} .. {maximum}")
        size = [(high - low) / n for low, high, n in zip(minimum, maximum, shape, strict=True)]
        return cls(minimum=minimum, cell_size=(size[0], size[1], size[2]), shape=shape)

    @property
    def maximum(self) -> tuple[float, float, float]:
        """The upper corner; points on it are outside."""
        x, y, z = (low + size * n for low, size, n in zip(self.minimum, self.cell_size, self.shape, strict=True))
        return (x, y, z)

    @property
    def box(self) -> FloatArray:
        """(6,) xmin, ymin, zmin, xmax, ymax, zmax."""
        return np.array([*self.minimum, *self.maximum])

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return math.prod(self.shape)

    def index_of(self, points: FloatArray) -> NDArray[np.int64]:
        """(..., 3) -> (..., 3) cell indices; outside the grid they are negative or >= shape (see `contains`)."""
        scaled = (np.asarray(points, dtype=np.float64) - self.minimum) / self.cell_size
        return np.floor(scaled).astype(np.int64)

    def contains(self, points: FloatArray) -> NDArray[np.bool_]:
        """(..., 3) -> (...,) whether a point falls into a cell. NaN and infinity do not."""
        scaled = (np.asarray(points, dtype=np.float64) - self.minimum) / self.cell_size
        x, y, z = (
            (scaled[..., i] >= 0) & (scaled[..., i] < self.shape[i]) for i in range(3)
        )  # by column: much faster than all(axis=-1)
        return np.asarray(x & y & z)

    def centre_of(self, index: NDArray[np.integer]) -> FloatArray:
        """(..., 3) cell indices -> (..., 3) coordinates of the cells' centres."""
        return np.asarray(self.minimum) + (np.asarray(index) + 0.5) * np.asarray(self.cell_size)  # type: ignore[no-any-return]

    def flat_index(self, index: NDArray[np.integer]) -> NDArray[np.int64]:
        """(..., 3) cell indices inside the grid -> (...,) position in an array of `shape`, C order."""
        x, y, z = np.moveaxis(np.asarray(index, dtype=np.int64), -1, 0)
        return (x * self.shape[1] + y) * self.shape[2] + z  # type: ignore[no-any-return]

    def unflat_index(self, flat: NDArray[np.integer]) -> NDArray[np.int64]:
        """The inverse of `flat_index`."""
        return np.stack(np.unravel_index(np.asarray(flat, dtype=np.int64), self.shape), axis=-1)
