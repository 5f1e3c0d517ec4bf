"""Small JSON files of a log (poses, times), with errors that name the file and the place in it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from copilot4d.datasets.pose_files import rigid_poses
from copilot4d.datasets.text_files import read_text
from copilot4d.errors import DataError
from copilot4d.geometry import se3
from copilot4d.geometry.se3 import FloatArray

RESTORE = "unpack the file again"
# Hesai's own axes, as several data sets have them (x left, y backward, z up), from ours (x forward, y left, z up).
LEFT_BACK_UP_FROM_LIDAR = np.array([[0.0, 1, 0, 0], [-1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
_QUATERNION_TOLERANCE = 1e-2


def read_json(path: Path, field: str, kind: type) -> Any:
    """A whole JSON file whose outermost value is of this kind (list or dict)."""
    text = read_text(path, field)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        found = " ".join(str(error).split())[:100]
        raise DataError(path, field, expected="JSON", found=found, remedy=RESTORE) from error
    if not isinstance(value, kind):
        raise bad_value(path, field, f"a {kind.__name__}", value)
    return value


def number_list(path: Path, field: str, value: Any, count: int) -> list[float]:
    """Exactly `count` finite numbers."""
    if not isinstance(value, Sequence) or len(value) != count or not all(_is_number(v) for v in value):
        raise bad_value(path, field, f"{count} finite numbers", value)
    return [float(v) for v in value]


def poses_of(path: Path, quaternions_wxyz: FloatArray, translations: FloatArray, labels: list[str]) -> FloatArray:
    """(N, 4) unit quaternions and (N, 3) -> (N, 4, 4), exactly rigid."""
    with np.errstate(over="ignore"):
        lengths = np.linalg.norm(quaternions_wxyz, axis=-1)
    wrong = ~(np.abs(lengths - 1) <= _QUATERNION_TOLERANCE)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise DataError(
            path, f"pose, {labels[at]}", expected="a unit quaternion", found=f"length {lengths[at]:.6g}", remedy=RESTORE
        )
    return rigid_poses(path, se3.from_quaternion(quaternions_wxyz, translations), labels)


def bad_value(path: Path, field: str, expected: str, found: Any) -> DataError:
    """A DataError about one value of a JSON file."""
    return DataError(path, field, expected=expected, found=repr(found)[:60], remedy=RESTORE)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300  # False for NaN
