"""Opens a data set in a process of its own and prints, as JSON, the work that it did and the memory that it took."""

from __future__ import annotations

import json
import pickle
import sys
import time
from collections import Counter

from copilot4d.datasets import argoverse2, argoverse2_files, json_records, nuscenes_tables, open_dataset  # noqa: F401
from copilot4d.datasets.drive_list import DriveList, SweepItems
from tests.full_size.memory import memory_mb

work: Counter[str] = Counter()


def counted(module, function: str) -> None:
    real = getattr(module, function)

    def count(*args, **options):
        work[function] += 1
        return real(*args, **options)

    setattr(module, function, count)


counted(argoverse2, "read_ego_poses")
counted(argoverse2, "numbered_sweeps")
counted(nuscenes_tables, "_pose")
path, split, looked_at = sys.argv[1], sys.argv[2] or None, int(sys.argv[3])
before_mb, own_mb, before_s = memory_mb(), memory_mb("RssAnon"), time.process_time()
dataset = open_dataset(path)
chosen = dataset if split is None else dataset.split(split)
chosen.prepare()
drives = DriveList([chosen])
items = SweepItems(drives.lengths)
opened_mb, opened_s = memory_mb() - before_mb, time.process_time() - before_s
poses = sum(float(drives[i].world_from_lidar[0, 0, 0]) for i in range(0, len(drives), max(1, len(drives) // looked_at)))
print(
    json.dumps(
        {
            "drives": len(dataset), "chosen": len(chosen), "sweeps": len(items), "work": dict(work),
            "opened_mb": opened_mb, "opened_cpu_s": opened_s, "own_mb": memory_mb("RssAnon") - own_mb,
            "pickled_bytes": len(pickle.dumps(chosen)), "looked_at": poses, "first": drives[0].name,
        }
    )
)  # fmt: skip
