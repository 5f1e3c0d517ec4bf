"""Small nuScenes trees for tests."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from copilot4d.geometry import Drive, Sweep, se3


def tiny_drive(frames: int = 4) -> Drive:
    rng = np.random.default_rng(0)
    return Drive.from_sweeps(
        "tiny",
        [
            Sweep(
                points=rng.normal(size=(7, 3), scale=9).astype(np.float32),
                world_from_lidar=se3.from_yaw(0.1 * i, (600 + i, 1600.0, 2.0)),
                timestamp_ns=i * 50_000_000,
            )
            for i in range(frames)
        ],
    )


def edit(root: Path, table: str, change) -> None:
    """Load a table, let `change(records)` alter it in place, write it back."""
    path = next(root.glob("v1.0-*")) / f"{table}.json"
    records = json.loads(path.read_text())
    change(records)
    path.write_text(json.dumps(records))
