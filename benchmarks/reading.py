"""What reading a sweep costs, beside the bare read of the same file: numpy.fromfile for .bin, pyarrow for .feather.

    python benchmarks/reading.py                     # on sweeps of 120,000 points that it writes itself
    python benchmarks/reading.py 000000.bin 1.feather   # on these files

Both reads of a file take turns in one run, and the ratio is that of their medians. What is measured is
`drive[i]`: opening, reading, the check for NaN, and the `Sweep`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import feather

from copilot4d.datasets.point_files import read_kitti_points, read_points, write_points
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
    read_file = read_kitti_points if path.suffix == ".bin" else read_points
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
    azimuth, elevation = rng.uniform(-np.pi, np.pi, POINTS), np.deg2rad(rng.uniform(-24, 2, POINTS))
    distance = np.minimum(1.73 / np.maximum(np.sin(-elevation), 1e-3), rng.uniform(8, 80, POINTS))
    directions = [np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth), np.sin(elevation)]
    points = (np.stack(directions, axis=1) * distance[:, None]).astype(np.float32)
    intensity = rng.random(POINTS, dtype=np.float32)
    paths = [folder / "kitti.bin", folder / "ours.feather", folder / "argoverse2.feather"]
    for path in paths[:2]:
        write_points(path, points, intensity)
    columns: dict[str, NDArray[Any]] = {name: points[:, k].astype(np.float16) for k, name in enumerate("xyz")}
    columns |= {
        "intensity": (255 * intensity).astype(np.uint8),
        "laser_number": np.arange(POINTS).astype(np.uint8) % 64,
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
            bare, ours = median_seconds([bare_read(path), lambda drive=drive: drive[0]], options.rounds)  # type: ignore[misc]
            count = len(read_points(path).points)
            print(f"{path.name[-28:]:<28} {count:>8} {bare * 1e6:>8.0f} us {ours * 1e6:>8.0f} us {ours / bare:>6.2f}")


if __name__ == "__main__":
    main()
