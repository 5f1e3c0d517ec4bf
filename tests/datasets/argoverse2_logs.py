"""Small Argoverse 2 logs for tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather

from copilot4d.geometry import Drive, Sweep, se3
from tests.support.argoverse2_tree import (
    write_table,
)  # fmt: skip

LOG = "7fab2350-7eaf-3b7e-a39d-6937a4c1bede"
CALIBRATION = "calibration/egovehicle_SE3_sensor.feather"


def tiny_drive(frames: int = 3, points: int = 10) -> Drive:
    rng = np.random.default_rng(0)
    return Drive.from_sweeps(
        "tiny",
        [
            Sweep(
                points=rng.normal(size=(points, 3), scale=9).astype(np.float32),
                world_from_lidar=se3.from_yaw(0.1 * i, (5000 + i, 2400.0, 66.0)),
                timestamp_ns=i * 100_000_000,
            )
            for i in range(frames)
        ],
    )


def sweep_file(log: Path, index: int = 0) -> Path:
    return sorted((log / "sensors" / "lidar").iterdir())[index]


def change_column(path: Path, name: str, values: object | None) -> None:
    """Replace a column, or drop it where `values` is None."""
    table = pa.feather.read_table(str(path), memory_map=False)
    columns = {n: table.column(n) for n in table.column_names}
    columns.pop(name, None)
    write_table(path, columns if values is None else {**columns, name: values})
