"""Chamfer between two clouds of 100,000 points, beside pykdtree's own two queries, without and with its two trees.

    python benchmarks/chamfer.py [--points N] [--repeats N]

Both are timed in turn in one run; the ratio of the medians is what to compare (at most 1.1 is the aim). The price of
the ROI Chamfer on top, and of the torch path where a GPU is at hand, are printed too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import numpy as np
import tyro
from pykdtree.kdtree import KDTree

from copilot4d.evaluation import chamfer, chamfer_torch
from copilot4d.evaluation.chamfer import chamfer_full_and_roi
from copilot4d.geometry.se3 import FloatArray

ROI = np.array([-70.0, -70, -4.5, 70, 70, 4.5])


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to measure."""

    points: int = 100_000
    """Points of each cloud."""
    repeats: int = 15
    """The median of so many interleaved runs is taken."""


def main(options: Options) -> None:
    predicted, true = clouds(options.points)

    true_tree, predicted_tree = KDTree(true), KDTree(predicted)

    def queries() -> None:
        true_tree.query(predicted, k=1, sqr_dists=True)
        predicted_tree.query(true, k=1, sqr_dists=True)

    def bare() -> float:
        forward, _ = KDTree(true).query(predicted, k=1, sqr_dists=True)
        backward, _ = KDTree(predicted).query(true, k=1, sqr_dists=True)
        return float(forward.mean() + backward.mean()) / 2

    ways: dict[str, Callable[[], object]] = {
        "queries alone": queries,
        "trees, queries": bare,
        "chamfer": lambda: chamfer(predicted, true),
        "full and ROI": lambda: chamfer_full_and_roi(predicted, true, ROI),
    }
    seconds = timed(ways, options.repeats)
    print(f"{options.points} x {options.points} points, median of {options.repeats} interleaved runs")
    for name, value in seconds.items():
        print(
            f"{name:>14}: {1e3 * value:7.1f} ms   {value / seconds['queries alone']:.3f} x queries, "
            f"{value / seconds['trees, queries']:.3f} x with trees"
        )
    compare_torch(predicted, true)


def timed(ways: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    samples: dict[str, list[float]] = {name: [] for name in ways}
    for call in ways.values():
        call()  # the first call pays for threads and pages
    for _ in range(repeats):
        for name, call in ways.items():
            start = time.perf_counter()
            call()
            samples[name].append(time.perf_counter() - start)
    return {name: median(values) for name, values in samples.items()}


def compare_torch(predicted: FloatArray, true: FloatArray) -> None:
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    some = slice(None) if device == "cuda" else slice(0, 5000)  # all against all is slow without a GPU
    batch = [torch.from_numpy(np.ascontiguousarray(cloud[some]))[None].to(device) for cloud in (predicted, true)]
    start = time.perf_counter()
    value = float(chamfer_torch(batch[0], batch[1])[0])
    spent, trees = time.perf_counter() - start, chamfer(predicted[some], true[some])
    print(f"torch ({device}, {batch[0].shape[1]} points): {1e3 * spent:.0f} ms, off by {abs(value / trees - 1):.1e}")


def clouds(count: int) -> tuple[FloatArray, FloatArray]:
    """Two sweeps of a 64-beam lidar over ground and walls, a metre of driving apart; rows in firing order."""
    rng = np.random.default_rng(0)
    azimuth = np.repeat(np.linspace(-np.pi, np.pi, -(-count // 64), endpoint=False), 64)[:count]
    elevation = np.deg2rad(np.tile(np.linspace(-24, 2, 64), -(-count // 64)))[:count]
    made = []
    for shift in (0.0, 1.0):
        wall = 12 + 6 * np.sin(3 * azimuth + 0.1 * shift) + 25 * (np.cos(azimuth) > 0.9)
        ground = np.where(elevation < -0.01, 1.73 / np.maximum(-np.sin(elevation), 1e-3), np.inf)
        depth = np.minimum(wall / np.cos(elevation), ground) + rng.normal(0, 0.02, count)
        flat = np.cos(elevation) * depth
        made.append(np.stack([flat * np.cos(azimuth), flat * np.sin(azimuth), np.sin(elevation) * depth], axis=1))
    return made[0].astype(np.float32), made[1].astype(np.float32)


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
