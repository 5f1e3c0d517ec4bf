"""ego_box.txt in a KITTI Odometry sequence: where the own vehicle's returns lie, if it is not KITTI's car."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from copilot4d.datasets.text_files import numbered_lines, parse_floats
from copilot4d.errors import DataError
from copilot4d.geometry.se3 import FloatArray

FILE_NAME = "ego_box.txt"


def read_ego_box(folder: Path) -> FloatArray | None:
    """(6,) xmin ymin zmin xmax ymax zmax in the lidar frame, metres; None where the folder has no such file."""
    path = folder / FILE_NAME
    if not path.exists():
        return None
    lines = numbered_lines(path, "ego_box")
    expected, remedy = "one line: xmin ymin zmin xmax ymax zmax", "write it so, or remove the file for KITTI's own box"
    if len(lines) != 1:
        raise DataError(path, "ego_box", expected=expected, found=f"{len(lines)} lines", remedy=remedy)
    number, line = lines[0]
    box = np.array(parse_floats(path, "ego_box", number, line.split(), 6))
    if not (box[:3] <= box[3:]).all():
        raise DataError(path, f"ego_box, line {number}", expected=expected, found=repr(line), remedy=remedy)
    return box


def write_ego_box(folder: Path, ego_box: FloatArray) -> None:
    """Write what `read_ego_box` reads, to the last digit."""
    text = " ".join(repr(float(value)) for value in ego_box)
    (folder / FILE_NAME).write_text(f"# xmin ymin zmin xmax ymax zmax, lidar frame, metres\n{text}\n", encoding="utf-8")
