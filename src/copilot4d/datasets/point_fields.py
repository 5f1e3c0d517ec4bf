"""`PointFile`, the points of one sweep as a file has them, and the names under which files carry its parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copilot4d.errors import DataError

Array = NDArray[Any]

INTENSITY_NAMES = ("intensity", "reflectance", "reflectivity", "remission", "i")
ORIGIN_NAMES = ("origin_x", "origin_y", "origin_z")
USED_NAMES = frozenset({"x", "y", "z", *INTENSITY_NAMES, *ORIGIN_NAMES})

COPY_AGAIN = "copy the file again from where it came, or leave this sweep out"


@dataclass(frozen=True, kw_only=True)
class PointFile:
    """The points of one file: (N, 3) float32, and (N,) intensity and (N, 3) ray origins where the file has them."""

    points: NDArray[np.float32]
    intensity: NDArray[np.float32] | None = None
    origins: NDArray[np.float32] | None = None
    known_finite: bool = False  # the reader has already seen that no number is NaN or infinite


def from_fields(path: Path, fields: Mapping[str, Array]) -> PointFile:
    """Named columns -> PointFile. Names are matched without regard to case; others than USED_NAMES are ignored."""
    by_name = {name.lower(): values for name, values in fields.items()}
    missing = [name for name in "xyz" if name not in by_name]
    if missing:
        raise DataError(
            path, "columns", expected="x, y and z", found=f"{', '.join(fields) or 'none'} (no {', '.join(missing)})",
            remedy="name the columns of the positions x, y and z",
        )  # fmt: skip
    intensity = next((by_name[name] for name in INTENSITY_NAMES if name in by_name), None)
    has_origins = all(name in by_name for name in ORIGIN_NAMES)
    return PointFile(
        points=_stack(by_name, ("x", "y", "z")),
        intensity=None if intensity is None else to_float32(intensity),
        origins=_stack(by_name, ORIGIN_NAMES) if has_origins else None,
    )


def to_float32(values: Array) -> NDArray[np.float32]:
    """As native float32; what is too large for it becomes inf, which the check of the whole file reports."""
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(np.float32, copy=False)


def damaged(path: Path, what: str, error: Exception | str) -> DataError:
    """The DataError for a file whose container does not hold together."""
    found = " ".join(str(error).split())[:160] or type(error).__name__
    return DataError(path, "points", expected=what, found=f"a damaged file: {found}", remedy=COPY_AGAIN)


def _stack(fields: Mapping[str, Array], names: tuple[str, ...]) -> NDArray[np.float32]:
    stacked = np.empty((len(fields[names[0]]), len(names)), dtype=np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        for k, name in enumerate(names):
            stacked[:, k] = fields[name]
    return stacked
