"""What reading a sweep costs, beside the bare read of the same file: numpy.fromfile for .bin, pyarrow for .feather.

    python benchmarks/reading.py                     # on sweeps of 120,000 points that it writes itself
    python benchmarks/reading.py 000000.bin 1.feather   # on these files

Both reads of a file take turns in one run, and the ratio is that of their medians. What is measured is
`drive[i]` of that format's loader: opening, reading, the checks, and the `Sweep`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import feather

from copilot4d.datasets.argoverse2_files import read_sweep_file
from copilot4d.datasets.point_files import PointFile, read_kitti_points, read_points, write_points
from copilot4d.datasets.sweep_files import SweepReader
from copilot4d.geometry import Drive, se3

POINTS = 120_000
LIMIT = 1.5


def median_seconds(readers: list[Callable[[], object]], rounds: int) -> list[float]:
    """The median time of each reader; they take turns, so that all see the same state of the machine."""
    seconds: list[list[float]] = [[] for _ in readers]
    for _ in range(rounds):
        for reader, times in zip(readers, seconds, strict=True):
            start = time.perf_counter()
            result = reader()
            times.append(time.perf_counter() - start)
            del result
    return [statistics.median(times) for times in seconds]


def drive_of(path: Path) -> Drive:
    """A drive of one sweep, as the loaders make it."""
    pose, times = se3.identity((1,)), np.zeros(1, dtype=np.int64)
    read_file: Callable[[Path], PointFile] = read_kitti_points if path.suffix == ".bin" else read_points
    if path.suffix == ".feather" and "laser_number" in feather.read_table(path).column_names:  # an Argoverse 2 sweep
        read_file = partial(read_sweep_file, lidar_from_ego=se3.identity(), lower_origin=np.zeros(3))
    reader = SweepReader(paths=(path,), world_from_lidar=pose, timestamps_ns=times, read_file=read_file)
    return Drive(name=path.stem, world_from_lidar=pose, timestamps_ns=times, read=reader)


def bare_read(path: Path) -> Callable[[], object]:
    """The yardstick of a file: what numpy or pyarrow alone take for it."""
    if path.suffix == ".feather":
        return lambda: feather.read_table(path)
    return lambda: np.fromfile(path, dtype=np.float32)


def write_samples(folder: Path) -> list[Path]:
    """A sweep like a real one: rings on the ground and walls, as .bin and as Argoverse 2's and our own .feather."""
    rng = np.random.default_rng(0)
    azimuth = np.repeat(np.linspace(-np.pi, np.pi, POINTS // 64), 64)  # in the order of the sensor: ring by ring
    elevation = np.tile(np.deg2rad(np.linspace(-24, 2, 64)), POINTS // 64)
    wall = 20 + 12 * np.sin(3 * azimuth) + rng.normal(0, 0.02, POINTS)
    distance = np.minimum(1.73 / np.maximum(np.sin(-elevation), 1e-3), wall)
    directions = [np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth), np.sin(elevation)]
    points = (np.stack(directions, axis=1) * distance[:, None]).astype(np.float32)
    intensity = rng.random(POINTS, dtype=np.float32)
    paths = [folder / "kitti.bin", folder / "ours.feather", folder / "argoverse2.feather"]
    for path in paths[:2]:
        write_points(path, points, intensity)
    columns: dict[str, NDArray[Any]] = {name: points[:, k].astype(np.float16) for k, name in enumerate("xyz")}
    columns |= {
        "intensity": (255 * intensity).astype(np.uint8),
        "laser_number": (np.arange(POINTS) % 64).astype(np.uint8),
    }
    columns |= {"offset_ns": np.arange(POINTS, dtype=np.int32) * 833}
    feather.write_feather(pa.table(columns), str(paths[2]))
    return paths


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, help=".bin (KITTI) or .feather files")
    parser.add_argument("--rounds", type=int, default=300, help="how often each file is read each way")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        paths = options.paths or write_samples(Path(folder))
        print(f"{'file':<28} {'points':>8} {'bare read':>11} {'sweep':>11} {'ratio':>6}   limit {LIMIT}")
        for path in paths:
            drive = drive_of(path)
            count = len(drive[0])  # and what is compiled on first use is compiled now
            bare, ours = median_seconds([bare_read(path), lambda drive=drive: drive[0]], options.rounds)  # type: ignore[misc]
            print(f"{path.name[-28:]:<28} {count:>8} {bare * 1e6:>8.0f} us {ours * 1e6:>8.0f} us {ours / bare:>6.2f}")


if __name__ == "__main__":
    main()
