"""Returns from the vehicle that carries the lidar: points that stay where they are in the lidar's own frame while the
vehicle drives. They spoil every score (a ray that ends on the bonnet is a metre long) unless `ego_box` drops them.

Nothing here asks the poses: whether the vehicle moves is read from the surroundings, which then do not stay in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from copilot4d.doctor.finding import Finding, problem
from copilot4d.doctor.ground import agree, find_ground
from copilot4d.errors import DataError
from copilot4d.geometry import Drive
from copilot4d.geometry.rays import inside_box
from copilot4d.geometry.se3 import FloatArray

_CELL_M = 0.25
_REACH_M = 6.0  # no part of a car is farther from its lidar
_EDGE_M = 5.5  # what reaches as far as this is a wall beside the road
_AROUND_M = 20.0
_ABOVE_GROUND_M = 0.3
_STAYS = 0.8  # of the sweeps
_MOVES = 0.35  # of the surroundings stay in place: more, and the vehicle may stand still
_FEWEST_SWEEPS = 5
_FEWEST_SHARE = 0.002  # of the points
_MARGIN_M = 0.1
_SAMPLE = 8


@dataclass(frozen=True, kw_only=True)
class OwnReturns:
    """The part of the points that lie on the vehicle itself, and a box around them (6,), lidar frame, metres."""

    share: float
    box: FloatArray

    @property
    def line(self) -> str:
        """The line of copilot4d.yaml that drops them."""
        return f"ego_box: [{', '.join(f'{value:.1f}' for value in self.box)}]"


def find_own_returns(
    clouds: Sequence[NDArray[np.floating]], ground_z: float | None, ego_box: FloatArray | None = None
) -> OwnReturns | None:
    """The vehicle's own returns in sweeps (N, 3) in metres, z up, spread over a drive; None where there are none.

    Points inside `ego_box` are dropped already; the box that comes back holds it too. Nothing is said of a vehicle that
    stands still, or where the ground is not known.
    """
    if len(clouds) < _FEWEST_SWEEPS or ground_z is None:
        return None
    total = sum(len(cloud) for cloud in clouds)
    clouds = [cloud[~inside_box(cloud, ego_box)] if ego_box is not None else cloud for cloud in clouds]
    standing = [cloud[cloud[:, 2] > ground_z + _ABOVE_GROUND_M] for cloud in clouds]
    counts = _occupied(standing)
    stays = counts >= _STAYS * len(clouds)
    distance = _distance_of_cells(counts.shape)
    around = (counts > 0) & (distance > _REACH_M)
    if not around.any() or float((stays & around).sum()) > _MOVES * _cells_a_sweep(standing):
        return None
    own = _without_walls(stays & (distance < _REACH_M), distance)
    if not own.any():
        return None
    fixed = [cloud[own[tuple(_cells(cloud, counts.shape).T)]] for cloud in standing]
    points = np.concatenate(fixed)
    share = len(points) / max(1, total)
    if share < _FEWEST_SHARE:
        return None
    low = np.floor((points.min(axis=0) - _MARGIN_M) * 10) / 10
    high = np.ceil((points.max(axis=0) + _MARGIN_M) * 10) / 10
    if ego_box is not None:
        low, high = np.minimum(low, ego_box[:3]), np.maximum(high, ego_box[3:])
    return OwnReturns(share=share, box=np.concatenate([low, high]).astype(np.float64) + 0.0)


def own_returns_of(drive: Drive, sweeps: int = _SAMPLE) -> OwnReturns | None:
    """The same for a drive in metres: reads a few of its sweeps. A drive with too few, or damaged ones, has None."""
    frames = np.unique(np.linspace(0, len(drive) - 1, min(sweeps, len(drive))).round().astype(int))
    try:
        clouds = [drive[int(frame)].points for frame in frames]
    except DataError:
        return None  # whoever uses that sweep says so
    ground = agree([found for cloud in clouds[::3] if (found := find_ground(cloud)) is not None])
    level = None if ground is None or ground.up != "+z" else -ground.origin_height
    return find_own_returns(clouds, level, drive.ego_box)


def check_own_returns(where: str, drive: Drive, found: OwnReturns | None) -> list[Finding]:
    """A problem where the log holds the vehicle's own returns."""
    if found is None:
        return []
    low, high = found.box[:3], found.box[3:]
    place = ", ".join(f"{axis} {a:.1f} to {b:.1f}" for axis, a, b in zip("xyz", low, high, strict=True))
    return [problem(
        "own-vehicle", where, "The sweeps hold returns from the vehicle itself",
        f"{found.share:.1%} of the points stay in one place on the vehicle while it drives: {place} m",
        own_returns_remedy(drive, found),
    )]  # fmt: skip


def own_returns_remedy(drive: Drive, found: OwnReturns) -> str:
    """What to write, and where."""
    match drive.format:
        case "folder":
            return f"write this line in copilot4d.yaml, so that they are dropped: `{found.line}`"
        case "kitti_odometry":
            values = " ".join(f"{value:.1f}" for value in found.box)
            return f"write this line in ego_box.txt beside the sequence's calib.txt: `{values}`"
        case _:
            return f"drop the points in this box before they are used (xmin ymin zmin xmax ymax zmax): `{found.line}`"


def _cells(points: NDArray[np.floating], shape: tuple[int, ...]) -> NDArray[np.int64]:
    index = np.floor(points[:, :3] / _CELL_M).astype(np.int64) + np.array(shape) // 2
    clipped: NDArray[np.int64] = np.clip(index, 0, np.array(shape) - 1)
    return clipped


def _occupied(clouds: Sequence[NDArray[np.floating]]) -> NDArray[np.int64]:
    """(X, Y, Z) in how many sweeps each cell around the lidar holds a point; the outermost cells are never counted."""
    half = int(_AROUND_M / _CELL_M) + 1
    counts = np.zeros((2 * half, 2 * half, int(12 / _CELL_M)), dtype=np.int64)
    for cloud in clouds:
        taken = np.zeros(counts.shape, dtype=bool)
        taken[tuple(_cells(cloud, counts.shape).T)] = True
        counts += taken
    for axis in range(3):
        edge: list[slice | list[int]] = [slice(None)] * 3
        edge[axis] = [0, -1]
        counts[tuple(edge)] = 0
    return counts


def _cells_a_sweep(clouds: Sequence[NDArray[np.floating]]) -> float:
    """How many cells of the surroundings one sweep holds, the median over sweeps."""
    sizes = []
    for cloud in clouds:
        distance = np.hypot(cloud[:, 0], cloud[:, 1])
        near = cloud[(distance > _REACH_M) & (distance < _AROUND_M)]
        sizes.append(len(np.unique(np.floor(near / _CELL_M).astype(np.int64), axis=0)))
    return float(np.median(sizes))


def _distance_of_cells(shape: tuple[int, ...]) -> FloatArray:
    """(X, Y, 1) horizontal distance of each column of cells from the lidar, metres."""
    x, y = ((np.arange(n) - n // 2 + 0.5) * _CELL_M for n in shape[:2])
    distance: FloatArray = np.hypot(x[:, None], y[None, :])[..., None]
    return distance


def _without_walls(stays: NDArray[np.bool_], distance: FloatArray) -> NDArray[np.bool_]:
    """Only bodies of cells that end before the edge of the search: a wall beside a straight road goes on."""
    labels, _ = ndimage.label(stays, structure=np.ones((3, 3, 3)))
    reaching = np.unique(labels[stays & (distance > _EDGE_M)])
    return stays & ~np.isin(labels, reaching)
