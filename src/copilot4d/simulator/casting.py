"""Casting many rays into a street: one walk over a grid seen from above, with lists of primitives in its cells.

The grid's coarse cells are two metres wide. A ray looks at the ground of a cell only where it dips below the cell's
highest point. Moving things are given at the start and the end of the sweep; each ray meets them where they are at its
own moment. Leaves, hedges and fences let light in: how deep is decided by a number that depends on the ray's key only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copilot4d.compiled import compiled, in_threads
from copilot4d.errors import UsageError
from copilot4d.geometry.se3 import FloatArray
from copilot4d.simulator.ground import CELL_M, COARSE, Ground
from copilot4d.simulator.intersections import MISS, meet_box, meet_cylinder, meet_ellipsoid, meet_ground
from copilot4d.simulator.materials import ASPHALT, column
from copilot4d.simulator.random_numbers import mix, unit
from copilot4d.simulator.shapes import BOX, CYLINDER

GROUND_ID, NOTHING_ID = -1, -2


@dataclass(frozen=True, kw_only=True)
class Bodies:
    """P primitives as arrays. `params` (P, 8): x, y, bottom, top, half_x, half_y, cos, sin."""

    kind: NDArray[np.int64]
    params: FloatArray
    material: NDArray[np.int64]
    owner: NDArray[np.int64]  # the object a primitive belongs to; for moving bodies, the row in the poses


@dataclass(frozen=True, kw_only=True)
class CastScene:
    """All that rays can meet. Moving bodies are in their owner's frame; poses (A, 4) are x, y, z, yaw."""

    ground: Ground
    static: Bodies
    static_cells: tuple[NDArray[np.int32], NDArray[np.int32]]  # (cells + 1,) starts, items
    moving: Bodies  # sorted by owner
    moving_first: NDArray[np.int64]  # (A + 1,) where each owner's primitives begin
    moving_reach: FloatArray  # (A, 2) the radius around an owner that holds its primitives, and its top
    moving_cells: tuple[NDArray[np.int32], NDArray[np.int32]]  # of owners
    poses_start: FloatArray
    poses_end: FloatArray
    free_path_m: FloatArray  # (materials,)

    def with_moving(self, moving: Bodies, poses_start: FloatArray, poses_end: FloatArray) -> CastScene:
        """The same street with other moving bodies, whose owners must come in the order of the poses."""
        owners = len(poses_start)
        p = moving.params
        reach = np.zeros((owners, 2))
        np.maximum.at(reach[:, 0], moving.owner, np.hypot(p[:, 0], p[:, 1]) + np.hypot(p[:, 4], p[:, 5]))
        np.maximum.at(reach[:, 1], moving.owner, p[:, 3])
        middle = 0.5 * (poses_start + poses_end)
        half = 0.5 * np.abs(poses_end - poses_start)[:, :2] + reach[:, :1]
        return replace(
            self, moving=moving, moving_first=np.searchsorted(moving.owner, np.arange(owners + 1)),
            moving_reach=reach, moving_cells=_cells(self.ground, middle[:, 0], middle[:, 1], half[:, 0], half[:, 1]),
            poses_start=poses_start, poses_end=poses_end,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Hits:
    """What N rays met: depth (inf: nothing), owner (GROUND_ID, NOTHING_ID, a static object, or `moving_base` + row of
    the poses), material, cosine of incidence.
    """

    depth: FloatArray
    owner: NDArray[np.int64]
    material: NDArray[np.int64]
    cosine: FloatArray


def make_scene(ground: Ground, static: Bodies) -> CastScene:
    """A street without anything that moves."""
    none = Bodies(
        kind=np.zeros(0, np.int64), params=np.zeros((0, 8)), material=np.zeros(0, np.int64), owner=np.zeros(0, np.int64)
    )
    cells, poses = ground.top_m.shape[0] * ground.top_m.shape[1], np.zeros((0, 4))
    return CastScene(
        ground=ground,
        static=static,
        static_cells=_cells(ground, static.params[:, 0], static.params[:, 1], *_reach(static)),
        moving=none,
        moving_first=np.zeros(1, np.int64),
        moving_reach=np.zeros((0, 2)),
        moving_cells=(np.zeros(cells + 1, np.int32), np.zeros(0, np.int32)),
        poses_start=poses,
        poses_end=poses,
        free_path_m=column("free_path_m"),
    )


def cast(
    scene: CastScene, origins: FloatArray, directions: FloatArray, fractions: FloatArray, *, max_range_m: float,
    key: int = 0, moving_base: int = 1_000_000, threads: int = 1,
) -> Hits:  # fmt: skip
    """Cast rays (N, 3) from world origins along unit directions; fractions (N,) in [0, 1] are moments of the sweep.

    `key` 0 makes leaves opaque. The answer does not depend on the number of threads.
    """
    if max_range_m <= 0:
        raise UsageError(f"rays need a positive range, got max_range_m={max_range_m}")
    n = len(directions)
    hits = Hits(depth=np.empty(n), owner=np.empty(n, np.int64), material=np.empty(n, np.int64), cosine=np.empty(n))
    g = scene.ground
    arguments: tuple[Any, ...] = (
        origins, directions, fractions, g.origin, g.height_m, g.top_m, g.use,
        *_arrays(scene.static), scene.static.owner, *scene.static_cells,
        *_arrays(scene.moving), scene.moving_first, scene.moving_reach, *scene.moving_cells, scene.poses_start,
        scene.poses_end, scene.free_path_m, float(max_range_m), np.uint64(key), moving_base,
        hits.depth, hits.owner, hits.material, hits.cosine,
    )  # fmt: skip

    def work(first: int, last: int) -> None:
        _cast(first, last, *arguments)

    in_threads(work, n, threads)
    return hits


def _arrays(bodies: Bodies) -> tuple[Any, ...]:
    return bodies.kind, bodies.params, bodies.material


def _reach(bodies: Bodies) -> tuple[FloatArray, FloatArray]:
    """Half sizes of the upright bounding boxes along x and y."""
    p = bodies.params
    cos, sin = np.abs(p[:, 6]), np.abs(p[:, 7])
    return cos * p[:, 4] + sin * p[:, 5], sin * p[:, 4] + cos * p[:, 5]


def _cells(
    ground: Ground, x: FloatArray, y: FloatArray, reach_x: FloatArray, reach_y: FloatArray
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    nx, ny = ground.top_m.shape
    size = CELL_M * COARSE
    low = np.stack([x - reach_x, y - reach_y], axis=-1) - ground.origin
    high = np.stack([x + reach_x, y + reach_y], axis=-1) - ground.origin
    first = np.clip(np.floor(low / size - 1e-6), 0, [nx - 1, ny - 1]).astype(np.int64)
    last = np.clip(np.floor(high / size + 1e-6), 0, [nx - 1, ny - 1]).astype(np.int64)
    outside = (high < 0).any(axis=-1) | (low > np.array([nx, ny]) * size).any(axis=-1)
    starts, items = _fill_cells(first, last, outside, nx, ny)
    return starts, items


@compiled
def _fill_cells(first: Any, last: Any, outside: Any, nx: Any, ny: Any) -> Any:
    starts = np.zeros(nx * ny + 1, np.int32)
    for p in range(len(first)):
        if not outside[p]:
            for i in range(first[p, 0], last[p, 0] + 1):
                for j in range(first[p, 1], last[p, 1] + 1):
                    starts[i * ny + j + 1] += 1
    for c in range(nx * ny):
        starts[c + 1] += starts[c]
    items = np.empty(starts[nx * ny], np.int32)
    cursor = starts[:-1].copy()
    for p in range(len(first)):
        if not outside[p]:
            for i in range(first[p, 0], last[p, 0] + 1):
                for j in range(first[p, 1], last[p, 1] + 1):
                    items[cursor[i * ny + j]] = p
                    cursor[i * ny + j] += 1
    return starts, items


@compiled
def _meet(kind: Any, ox: Any, oy: Any, oz: Any, dx: Any, dy: Any, dz: Any, params: Any, b: Any) -> Any:
    if kind == BOX:
        return meet_box(ox, oy, oz, dx, dy, dz, params, b)
    if kind == CYLINDER:
        return meet_cylinder(ox, oy, oz, dx, dy, dz, params, b)
    return meet_ellipsoid(ox, oy, oz, dx, dy, dz, params, b)


@compiled
def _depth_inside(near: Any, far: Any, free_path: Any, key: Any, ray: Any, body: Any) -> Any:
    """The depth of the return from a body: its surface, or somewhere inside if it is porous, or MISS."""
    if free_path <= 0.0 or key == 0:
        return near if near >= 0.0 else far
    word = mix(key ^ mix(np.uint64(ray) * np.uint64(2654435761) + np.uint64(body)))
    depth = max(near, 0.0) - np.log(1.0 - unit(word)) * free_path
    return depth if depth <= far else MISS


@compiled
def _cast(
    begin: Any, stop: Any, origins: Any, directions: Any, fractions: Any, corner: Any, height: Any, top: Any, use: Any,
    kind: Any, params: Any, material: Any, owner: Any, starts: Any, items: Any,
    m_kind: Any, m_params: Any, m_material: Any, m_first: Any, m_reach: Any, m_starts: Any, m_items: Any,
    pose_0: Any, pose_1: Any, free_path: Any, max_range: Any, key: Any, moving_base: Any,
    out_depth: Any, out_owner: Any, out_material: Any, out_cosine: Any,
) -> None:  # fmt: skip
    nx, ny = top.shape
    size = CELL_M * COARSE
    placed = np.empty((1, 8))
    for r in range(begin, stop):
        ox, oy, oz = origins[r, 0] - corner[0], origins[r, 1] - corner[1], origins[r, 2]
        dx, dy, dz = directions[r, 0], directions[r, 1], directions[r, 2]
        wx, wy = origins[r, 0], origins[r, 1]
        best, who, what, cosine = max_range, NOTHING_ID, 0, 0.0
        t = 0.0
        i, j = int(np.floor(ox / size)), int(np.floor(oy / size))
        step_i, step_j = 1 if dx > 0 else -1, 1 if dy > 0 else -1
        tx, span_x, ty, span_y = MISS, MISS, MISS, MISS  # depth of the next border and the distance between borders
        if dx != 0.0:
            tx, span_x = ((i + (1 if dx > 0 else 0)) * size - ox) / dx, size / abs(dx)
        if dy != 0.0:
            ty, span_y = ((j + (1 if dy > 0 else 0)) * size - oy) / dy, size / abs(dy)
        while 0 <= i < nx and 0 <= j < ny and t < best:
            leave = min(tx, ty)
            cell = i * ny + j
            z_in, z_out = oz + t * dz, oz + min(leave, best) * dz
            lowest, highest = min(z_in, z_out), max(z_in, z_out)
            for k in range(starts[cell], starts[cell + 1]):
                b = items[k]
                # Tested one cell at a time, a primitive above or below the ray here can still be met in another cell.
                if params[b, 2] > highest or params[b, 3] < lowest:
                    continue
                near, far, c = _meet(kind[b], wx, wy, oz, dx, dy, dz, params, b)
                if near < best and far >= 0.0:
                    depth = _depth_inside(near, far, free_path[material[b]], key, r, b)
                    if 0.0 <= depth < best:
                        best, who, what, cosine = depth, owner[b], material[b], c
            for k in range(m_starts[cell], m_starts[cell + 1]):
                a, f = m_items[k], fractions[r]
                mx = pose_0[a, 0] + f * (pose_1[a, 0] - pose_0[a, 0])
                my = pose_0[a, 1] + f * (pose_1[a, 1] - pose_0[a, 1])
                lift = pose_0[a, 2] + f * (pose_1[a, 2] - pose_0[a, 2])
                aside = (mx - wx) * dy - (my - wy) * dx  # the ray's line passes the owner at this distance or less
                if abs(aside) > m_reach[a, 0] or lowest > lift + m_reach[a, 1]:
                    continue
                yaw = pose_0[a, 3] + f * (pose_1[a, 3] - pose_0[a, 3])
                cos, sin = np.cos(yaw), np.sin(yaw)
                for b in range(m_first[a], m_first[a + 1]):
                    q = m_params[b]
                    placed[0, 0], placed[0, 1] = mx + cos * q[0] - sin * q[1], my + sin * q[0] + cos * q[1]
                    placed[0, 2], placed[0, 3], placed[0, 4], placed[0, 5] = q[2] + lift, q[3] + lift, q[4], q[5]
                    placed[0, 6], placed[0, 7] = cos, sin
                    near, far, c = _meet(m_kind[b], wx, wy, oz, dx, dy, dz, placed, 0)
                    if near < best and far >= 0.0:
                        depth = near if near >= 0.0 else far
                        if depth < best:
                            best, who, what, cosine = depth, moving_base + a, m_material[b], c
            end = min(leave, best)
            if min(z_in, oz + end * dz) <= top[i, j]:
                dip = (
                    t if z_in <= top[i, j] else max(t, (top[i, j] - oz) / dz - 1e-6)
                )  # above the highest point: no ground
                depth, c = meet_ground(ox, oy, oz, dx, dy, dz, dip, end, height, CELL_M)
                if depth < best:
                    x, y = int((ox + depth * dx) / CELL_M), int((oy + depth * dy) / CELL_M)
                    x, y = min(max(x, 0), use.shape[0] - 1), min(max(y, 0), use.shape[1] - 1)
                    best, who, what, cosine = depth, GROUND_ID, ASPHALT + 2 - use[x, y], c
            t = leave
            if tx <= ty:
                i += step_i
                tx += span_x
            else:
                j += step_j
                ty += span_y
        out_depth[r] = best if who != NOTHING_ID else np.inf
        out_owner[r], out_material[r], out_cosine[r] = who, what, cosine
