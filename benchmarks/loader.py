"""How many sweeps one loader worker prepares for the tokenizer: reading, ego box, augmentation, rays, in CPU seconds.

    python benchmarks/loader.py --data path/to/kitti path/to/nuscenes@20hz path/to/argoverse2 --sweeps 40

Without --data it takes simulated streets. CPU time of one process, so that other processes do not matter; the first
sweeps, which compile loops and warm the file cache, are not counted. An A100 at the count of benchmarks/costs.py
wants 45 sweeps a second, an H100 142: what one worker gives says how many are needed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from copilot4d.counter import SampleKey
from copilot4d.datasets import open_dataset
from copilot4d.datasets.drive_list import DriveList
from copilot4d.presets import preset
from copilot4d.training.malloc import keep_freed_memory
from copilot4d.training.tasks.tokenizer import TokenizerTask, TokenizerTraining

WANTED_PER_S = 60.0


def cpu_ms(work: Callable[[int], object], count: int, warm_up: int = 3) -> float:
    """CPU milliseconds of one call."""
    for i in range(warm_up):
        work(i)
    start = time.process_time()
    for i in range(count):
        work(warm_up + i)
    return (time.process_time() - start) / count * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["street-v1/val"])
    parser.add_argument("--sweeps", type=int, default=20)
    parser.add_argument("--rays", type=int, default=16384, help="supervised of each sweep")
    options = parser.parse_args()
    keep_freed_memory()  # as the training process does, whose workers inherit it
    config = preset("paper").tokenizer
    for path in options.data:
        dataset = open_dataset(path)
        dataset = dataset.select([name for name in dataset.names if dataset.has_poses(name)][:4])
        task = TokenizerTask(TokenizerTraining(tokenizer=config, rays_per_sweep=options.rays), DriveList([dataset]))
        keys = [SampleKey(seed=0, step=i, index=0, batch=1) for i in range(options.sweeps + 3)]
        places = [task.items[key.item(len(task.items))] for key in keys]
        reading = cpu_ms(lambda i, at=places, t=task: t.drives[at[i][0]][at[i][1]], options.sweeps)  # type: ignore[misc]
        whole = cpu_ms(lambda i, k=keys, t=task: t.sample(k[i]), options.sweeps)  # type: ignore[misc]
        points = len(task.drives[0][0])
        verdict = "enough" if 1e3 / whole >= WANTED_PER_S else f"below {WANTED_PER_S:.0f}"
        print(f"{dataset.format:15s} {points:7d} points: reading {reading:5.1f} ms, with augmentation and "
              f"{options.rays} rays {whole:5.1f} ms = {1e3 / whole:.0f} sweeps/s a core ({verdict})")  # fmt: skip


if __name__ == "__main__":
    main()
