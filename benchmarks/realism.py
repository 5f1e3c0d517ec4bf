"""How near the simulated streets are to real ones: one table, three pictures.

    python benchmarks/realism.py KITTI_ROOT --count 10 --every 12 --picture docs/pictures/realism.png \\
        --street-picture docs/pictures/street.png --whatif-picture docs/pictures/whatif.png

KITTI_ROOT is a KITTI Odometry tree at 5 Hz (every second sweep). Every statistic is made by the same code from both.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pykdtree.kdtree import KDTree

from copilot4d import open_dataset
from copilot4d.geometry import Drive, Sweep, se3
from copilot4d.geometry.se3 import FloatArray
from copilot4d.pictures import Cell, bev_image, panel, write_png
from copilot4d.simulator import simulate_drive, start
from copilot4d.simulator.benchmark import split_seed, whatif_drive
from copilot4d.simulator.lidar import MOVING_BASE

RANGE_BINS = np.arange(0.0, 82.0, 2.0)
HEIGHT_BINS = np.arange(-4.0, 4.25, 0.25)
GAP = 3  # sweeps (0.6 s) before and after, when a moving thing has left the place
MOVING_RANGE_M = 30.0


@dataclass
class Statistics:
    """Sums over sweeps; `row` turns them into shares."""

    points: list[int] = field(default_factory=list)
    ranges: FloatArray = field(default_factory=lambda: np.zeros(len(RANGE_BINS) - 1))
    heights: FloatArray = field(default_factory=lambda: np.zeros(len(HEIGHT_BINS) - 1))
    ground: list[float] = field(default_factory=list)
    nearest: list[FloatArray] = field(default_factory=list)
    moving: list[float] = field(default_factory=list)
    true_moving: list[float] = field(default_factory=list)

    def add(self, drive: Drive, i: int) -> None:
        sweep = drive[i]
        points = sweep.without_box(drive.ego_box).points
        self.points.append(len(sweep))
        self.ranges += np.histogram(np.linalg.norm(points, axis=1), RANGE_BINS)[0]
        self.heights += np.histogram(points[:, 2], HEIGHT_BINS)[0]
        self.ground.append(float(ground_mask(points).mean()))
        self.nearest.append(step_distances(sweep, drive[i + 1]))
        self.moving.append(moving_share(drive[i - GAP], sweep, drive[i + GAP]))

    def share(self, name: str) -> FloatArray:
        counts: FloatArray = getattr(self, name)
        return np.asarray(counts / counts.sum())

    def row(self) -> dict[str, float]:
        steps = np.concatenate(self.nearest)
        return {
            "points per sweep": float(np.mean(self.points)),
            "share of ground points": float(np.mean(self.ground)),
            "step distance, median (m)": float(np.median(steps)),
            "step distance, 90% (m)": float(np.quantile(steps, 0.9)),
            "step distance, share above 1 m": float((steps > 1.0).mean()),
            "share of moving points": float(np.mean(self.moving)),
        }


def ground_mask(points: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Points at most 0.2 m above the lowest point of their square metre, in squares whose bottom lies well below the
    lidar."""
    cell = np.floor(points[:, :2]).astype(np.int64) + 200
    flat = cell[:, 0] * 400 + cell[:, 1]
    lowest = np.full(400 * 400, np.inf)
    np.minimum.at(lowest, flat, points[:, 2])
    return np.asarray((points[:, 2] < lowest[flat] + 0.2) & (lowest[flat] < -1.0))


def step_distances(one: Sweep, other: Sweep) -> FloatArray:
    """From each point of a sweep to the nearest one of the next, after the ego's motion, at most 5 m."""
    moved = other.points_in(se3.invert(one.world_from_lidar))
    distances, _ = KDTree(np.ascontiguousarray(moved)).query(np.ascontiguousarray(one.points))
    return np.asarray(np.minimum(distances, 5.0))


def moving_share(before: Sweep, now: Sweep, after: Sweep) -> float:
    """The share of points off the ground, up to 30 m away, whose place was seen through both before and after."""
    points = now.points
    near = (np.linalg.norm(points, axis=1) < MOVING_RANGE_M) & (np.linalg.norm(points, axis=1) > 3.0)
    candidate = near & ~ground_mask(points)
    seen_through = np.ones(candidate.sum(), dtype=bool)
    for other in (before, after):
        moved = se3.transform_points(
            se3.relative_motion(other.world_from_lidar, now.world_from_lidar), points[candidate]
        )
        seen_through &= _passes(other, moved)
    return float(seen_through.sum() / len(points))


def _passes(sweep: Sweep, places: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Whether all rays of the sweep near the direction of a place went at least 1 m beyond it (and some did)."""
    columns, rows = 900, 70  # 0.4 degrees
    image = np.full((columns, rows), np.inf)
    u, v, r = _bins(sweep.points, columns, rows)
    np.minimum.at(image, (u, v), r)
    known = np.isfinite(image)
    nearest, seen = image.copy(), known.copy()
    for du in (-1, 0, 1):
        for dv in (-1, 0, 1):
            nearest = np.minimum(nearest, np.roll(np.roll(image, du, 0), dv, 1))
            seen |= np.roll(np.roll(known, du, 0), dv, 1)
    u, v, r = _bins(places, columns, rows)
    return np.asarray(seen[u, v] & (nearest[u, v] > r + 1.0))


def _bins(points: FloatArray, columns: int, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64], FloatArray]:
    r = np.linalg.norm(points, axis=1)
    azimuth = np.arctan2(points[:, 1], points[:, 0])
    elevation = np.degrees(np.arcsin(points[:, 2] / np.maximum(r, 1e-6)))
    u = np.floor((azimuth + np.pi) / (2 * np.pi) * columns).astype(np.int64) % columns
    v = np.clip(np.floor((elevation + 25.5) / 0.4), 0, rows - 1).astype(np.int64)
    return u, v, r


def total_variation(a: FloatArray, b: FloatArray) -> float:
    return float(0.5 * np.abs(a - b).sum())


def measure(drives: list[Drive], every: int) -> Statistics:
    statistics = Statistics()
    for drive in drives:
        for i in range(GAP, len(drive) - GAP, every):
            statistics.add(drive, i)
            if hasattr(drive, "truth"):
                statistics.true_moving.append(float(drive.truth(i).moving.mean()))
    return statistics


def simulated(drives: int, first_seed: int) -> list[Drive]:
    return [
        simulate_drive(seed=seed, sensor="hdl64", seconds=12.0, rate_hz=5.0)
        for seed in range(first_seed, first_seed + drives)
    ]


def table(real: Statistics, simulated: Statistics) -> str:
    lines = ["| statistic | KITTI | simulated | simulated / KITTI |", "|---|---|---|---|"]
    ours = simulated.row()
    for name, value in real.row().items():
        lines.append(f"| {name} | {value:.4g} | {ours[name]:.4g} | {ours[name] / value:.2f} |")
    for name in ("ranges", "heights"):
        distance = total_variation(real.share(name), simulated.share(name))
        lines.append(f"| histogram of {name}: total variation | 0 | {distance:.3f} | |")
    lines.append(f"| moving points by the simulator's own truth | | {np.mean(simulated.true_moving):.4g} | |")
    return "\n".join(lines)


def picture(real: Drive, ours: list[Drive], path: Path) -> None:
    """Two real sweeps above two simulated ones, from above, coloured by height."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(10, 10), facecolor="white")
    shown = [
        (real[10], "KITTI"),
        (real[len(real) - 10], "KITTI"),
        (ours[0][30], "simulated"),
        (ours[1][30], "simulated"),
    ]
    for axis, (sweep, title) in zip(axes.flat, shown, strict=True):
        x, y, z = sweep.points.T
        axis.scatter(x, y, s=0.15, c=z, cmap="viridis", vmin=-2, vmax=2, linewidths=0)
        axis.set(xlim=(-45, 45), ylim=(-45, 45), aspect="equal", xticks=[], yticks=[], title=title)
    figure.tight_layout()
    figure.savefig(path, dpi=80)


def street_picture(seed: int, path: Path) -> None:
    """A street from above with its traffic: the ego red, vehicles orange, pedestrians magenta, parked cars blue."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Circle

    simulation = start(seed)
    street = simulation.street
    figure, axis = plt.subplots(figsize=(9, 9), facecolor="white")
    low = street.ground.origin
    high = low + 0.25 * np.array(street.ground.use.shape)
    land = ListedColormap(["#e4edd8", "#d9d9d9", "#8f9396"])
    axis.imshow(street.ground.use.T[::4, ::4], origin="lower", extent=(low[0], high[0], low[1], high[1]), cmap=land)
    colours = {"building": "#b5651d", "car": "#3b5b8c", "van": "#3b5b8c", "hedge": "#4d7c3a", "fence": "#9c8f7a"}
    for item in street.objects:
        if item.shape.name in ("tree", "bush"):
            radius = max(p.half_x for p in item.shape.primitives)
            axis.add_patch(Circle((item.x, item.y), radius, color="#6fa35a", alpha=0.6, lw=0))
        else:
            size = np.maximum([item.shape.length_m, item.shape.width_m], 0.5) / 2
            _draw_rectangle(axis, [item.x, item.y, *size, item.yaw], colours.get(item.shape.name, "#444444"))
    for k, rectangle in enumerate(simulation.footprints()):
        walks = simulation.people.walks[k]
        _draw_rectangle(axis, rectangle, "red" if k == 0 else ("magenta" if walks else "orange"))
    inner = street.roads.junctions
    axis.set(xticks=[], yticks=[], xlim=(inner[:, 0].min() - 45, inner[:, 0].max() + 45))
    axis.set(ylim=(inner[:, 1].min() - 45, inner[:, 1].max() + 45))
    figure.tight_layout()
    figure.savefig(path, dpi=75)


def whatif_picture(number: int, path: Path) -> None:
    """One moment under two plans, from above: the car behind the ego red, other traffic green, all else blue."""
    rows = []
    for plan in ("keep", "brake"):
        drive = whatif_drive(number, plan)
        if drive.moment_frame is None or drive.follower is None:
            raise SystemExit(f"nobody follows the ego at moment {number}; take another")
        row = []
        for seconds in (0, 2, 4):
            frame = drive.moment_frame + round(seconds / drive.interval_s)
            sweep, truth = drive[frame], drive.truth(frame)
            agent = truth.object_ids - MOVING_BASE
            values = np.where(agent == drive.follower, 0.95, np.where(truth.moving, 0.55, 0.15))
            image = bev_image(sweep.points, half=26.0, size=420, values=values, z_range=(0.0, 1.0))
            gap_m = float(np.linalg.norm(truth.agent_poses[0, :2] - truth.agent_poses[drive.follower, :2]))
            speeds = truth.agent_speeds_m_s[[0, drive.follower]]
            note = f"ego {speeds[0]:.1f} m/s, behind it {speeds[1]:.1f} m/s, {gap_m:.0f} m"
            row.append(Cell(image, f"{plan}, {seconds} s", note))
        rows.append(row)
    write_png(path, panel(rows))


def _draw_rectangle(axis: Any, rectangle: Any, colour: str) -> None:
    x, y, half_x, half_y, yaw = rectangle
    corners = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]]) * [half_x, half_y]
    turn = np.array([[np.cos(yaw), np.sin(yaw)], [-np.sin(yaw), np.cos(yaw)]])
    axis.fill(*(corners @ turn + [x, y]).T, color=colour, lw=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kitti", type=Path, nargs="?", help="a KITTI Odometry tree with drives named train_...")
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--every", type=int, default=9)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--street-picture", type=Path)
    parser.add_argument("--whatif-picture", type=Path)
    parser.add_argument("--whatif-moment", type=int, default=2)
    options = parser.parse_args()
    if options.street_picture:
        street_picture(split_seed("val", 3), options.street_picture)
    if options.whatif_picture:
        whatif_picture(options.whatif_moment, options.whatif_picture)
    if options.kitti is None:
        print("skipped: there is nothing real to compare with; give the path to a KITTI Odometry tree")
        return
    dataset = open_dataset(options.kitti)
    real = [dataset[name] for name in dataset if name.startswith("train_")]
    ours = simulated(options.count, options.first_seed)
    print(table(measure(real, options.every), measure(ours, options.every)))
    if options.picture:
        picture(real[-1], ours, options.picture)


if __name__ == "__main__":
    main()
