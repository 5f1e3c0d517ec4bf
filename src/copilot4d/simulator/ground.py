"""The ground: a height for every quarter metre, with kerbs, crossfall, gardens and gentle hills."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from copilot4d.geometry.se3 import FloatArray
from copilot4d.simulator import random_numbers
from copilot4d.simulator.roads import PAVEMENT_WIDTH_M, Road, RoadMap

CELL_M = 0.25
COARSE = 8  # fine cells along a coarse cell of the ray caster's grid
MARGIN_M = 80.0  # ground beyond the outermost junctions
GARDEN, PAVEMENT, ROAD = range(3)  # land use
KERB_M = 0.12
CROSSFALL = 0.022  # roads fall away from their middle by this much per metre, and the water runs off
RIDE_M = -CROSSFALL * 1.65  # how high vehicles stand on it, in the middle of the lane beside the centre line


@dataclass(frozen=True, kw_only=True)
class Hills:
    """The smooth part of the height: a few long waves. Vehicles ride on it."""

    wave: FloatArray  # (W, 2) radians per metre
    phase: FloatArray  # (W,)
    height_m: FloatArray  # (W,)

    def at(self, xy: FloatArray) -> FloatArray:
        """(..., 2) -> (...,) height."""
        return np.asarray(np.sin(xy @ self.wave.T + self.phase) @ self.height_m)

    def slope(self, xy: FloatArray) -> FloatArray:
        """(..., 2) -> (..., 2) rise per metre along x and y."""
        return np.asarray((np.cos(xy @ self.wave.T + self.phase) * self.height_m) @ self.wave)


@dataclass(frozen=True, kw_only=True)
class Ground:
    """Heights at the corners of quarter-metre cells, two triangles a cell, and what the land is used for."""

    origin: FloatArray  # (2,) the corner of cell (0, 0)
    height_m: NDArray[np.float32]  # (nx + 1, ny + 1)
    use: NDArray[np.uint8]  # (nx, ny)
    top_m: NDArray[np.float32]  # (nx / COARSE, ny / COARSE) the highest point of each coarse cell
    hills: Hills

    def use_at(self, xy: FloatArray) -> NDArray[np.uint8]:
        """(..., 2) -> (...,) land use; outside the raster it counts as garden."""
        index = np.floor((xy - self.origin) / CELL_M).astype(np.int64)
        inside = ((index >= 0) & (index < self.use.shape)).all(axis=-1)
        clipped = np.clip(index, 0, np.array(self.use.shape) - 1)
        return np.where(inside, self.use[clipped[..., 0], clipped[..., 1]], GARDEN).astype(np.uint8)

    def height_at(self, xy: FloatArray) -> FloatArray:
        """(..., 2) -> (...,) height of the nearest corner; outside the raster, of the raster's edge."""
        index = np.rint((xy - self.origin) / CELL_M).astype(np.int64)
        index = np.clip(index, 0, np.array(self.height_m.shape) - 1)
        return self.height_m[index[..., 0], index[..., 1]].astype(np.float64)


def draw_ground(seed: int, road_map: RoadMap, relief_m: float) -> Ground:
    """The ground of a road map."""
    rng = random_numbers.generator(seed, random_numbers.STREET, 1)
    low = road_map.junctions.min(axis=0) - MARGIN_M
    extent = road_map.junctions.max(axis=0) + MARGIN_M - low
    shape = (np.ceil(extent / (CELL_M * COARSE)).astype(int) * COARSE).tolist()
    use = np.zeros(shape, dtype=np.uint8)
    fall = np.zeros(shape, dtype=np.float32)
    for points, value, lateral_m in _pavements_and_roads(road_map):
        index = np.floor((points - low) / CELL_M).astype(np.int64)
        use[index[:, 0], index[:, 1]] = value
        fall[index[:, 0], index[:, 1]] = -CROSSFALL * lateral_m
    hills = _draw_hills(rng, relief_m)
    fall = ndimage.uniform_filter(fall, 9)  # no step where a road runs into its junction
    step = np.where(use == ROAD, 0.0, KERB_M).astype(np.float32)
    rough = _roughness(rng, shape) * (use == GARDEN)
    cells = step + rough + fall
    corner = np.pad(cells, 1, mode="edge")
    corner = 0.25 * (corner[:-1, :-1] + corner[1:, :-1] + corner[:-1, 1:] + corner[1:, 1:])
    height = (corner + _hill_raster(hills, low, corner.shape)).astype(np.float32)
    return Ground(origin=low, height_m=height, use=use, top_m=_coarse_top(height), hills=hills)


def _draw_hills(rng: np.random.Generator, relief_m: float) -> Hills:
    length = rng.uniform(120.0, 420.0, 4)
    bearing = rng.uniform(0.0, 2 * np.pi, 4)
    wave = (2 * np.pi / length)[:, None] * np.stack([np.cos(bearing), np.sin(bearing)], axis=-1)
    height = relief_m * rng.uniform(0.1, 1.0, 4) * length / 420.0  # short waves are low: slopes stay gentle
    return Hills(wave=wave, phase=rng.uniform(0.0, 2 * np.pi, 4), height_m=height)


def _hill_raster(hills: Hills, low: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    """sin(a + b) over a lattice needs sines of the two axes only."""
    x = low[0] + CELL_M * np.arange(shape[0])
    y = low[1] + CELL_M * np.arange(shape[1])
    ax, ay = np.outer(x, hills.wave[:, 0]) + hills.phase, np.outer(y, hills.wave[:, 1])
    left = np.concatenate([np.sin(ax), np.cos(ax)], axis=1) * np.tile(hills.height_m, 2)
    right = np.concatenate([np.cos(ay), np.sin(ay)], axis=1)
    return left.astype(np.float32) @ right.astype(np.float32).T


def _roughness(rng: np.random.Generator, shape: list[int]) -> FloatArray:
    """Lawns and beds: bumps of a few centimetres, a metre wide, on banks of some decimetres; one tile of 128 m."""
    tile = 512
    fine = ndimage.zoom(
        rng.random((tile // 4, tile // 4), dtype=np.float32), 4, order=1, mode="grid-wrap", grid_mode=True
    )
    bank = ndimage.zoom(rng.random((8, 8), dtype=np.float32), 64, order=1, mode="grid-wrap", grid_mode=True)
    rough = 0.12 * fine + 0.7 * bank**2 - 0.15
    times = (-(-shape[0] // tile), -(-shape[1] // tile))
    return np.asarray(np.tile(rough, times)[: shape[0], : shape[1]], dtype=np.float32)


def _pavements_and_roads(road_map: RoadMap) -> list[tuple[FloatArray, int, FloatArray]]:
    """Points that cover each strip densely, their land use and their distance from the road's middle."""
    pavements, roads = [], []
    for road in road_map.roads:
        strip = _strip(road, -road.kerb_right_m - PAVEMENT_WIDTH_M, road.kerb_left_m + PAVEMENT_WIDTH_M)
        pavements.append((strip[0], PAVEMENT, strip[1]))
        strip = _strip(road, -road.kerb_right_m, road.kerb_left_m)
        roads.append((strip[0], ROAD, strip[1]))
    for junction in range(len(road_map.junctions)):
        corners = {PAVEMENT: [], ROAD: []}  # type: dict[int, list[FloatArray]]
        for r, end in road_map.at(junction):
            road, i = road_map.roads[r], 0 if end == 0 else -1
            for side in (1, -1):
                for use, extra in ((ROAD, 0.0), (PAVEMENT, PAVEMENT_WIDTH_M)):
                    corners[use].append(road.centre[i] + side * (road.kerb_m(side) + extra) * road.normal[i])
        for use, kept in ((PAVEMENT, pavements), (ROAD, roads)):
            star = _star(road_map.junctions[junction], corners[use])
            kept.append((star, use, np.full(len(star), 2.0)))
    return pavements + roads


def _strip(road: Road, right_m: float, left_m: float) -> tuple[FloatArray, FloatArray]:
    line = np.repeat(road.centre, 6, axis=0)[: 6 * len(road.centre) - 5]
    normal = np.repeat(road.normal, 6, axis=0)[: len(line)]
    between = np.tile(np.arange(6) / 6.0, len(road.centre))[: len(line), None]
    onward = np.vstack([np.repeat(road.centre[1:], 6, axis=0), road.centre[-1:]])
    line = line + between * (onward - line)
    lateral = np.arange(right_m, left_m, 0.17)
    points = line[:, None, :] + lateral[None, :, None] * normal[:, None, :]
    return points.reshape(-1, 2), np.tile(np.abs(lateral), len(line))


def _star(middle: FloatArray, corners: list[FloatArray]) -> FloatArray:
    """The polygon whose corners lie around `middle`, as points: triangles between it and its neighbours."""
    around = sorted(corners, key=lambda c: float(np.arctan2(*(c - middle)[::-1])))
    u, v = np.meshgrid(np.linspace(0, 1, 120), np.linspace(0, 1, 120), indexing="ij")
    inside = u + v <= 1
    weights = np.stack([u[inside], v[inside]], axis=-1)
    fans = [
        weights @ (np.stack([a, b]) - middle) + middle for a, b in zip(around, around[1:] + around[:1], strict=True)
    ]
    return np.concatenate(fans)


def _coarse_top(height: NDArray[np.float32]) -> NDArray[np.float32]:
    """The maximum over each coarse cell, both of its edges included."""
    nx, ny = (height.shape[0] - 1) // COARSE, (height.shape[1] - 1) // COARSE
    top = np.full((nx, ny), -np.inf, dtype=np.float32)
    for i in range(COARSE + 1):
        for j in range(COARSE + 1):
            np.maximum(top, height[i : i + nx * COARSE : COARSE, j : j + ny * COARSE : COARSE], out=top)
    return top
