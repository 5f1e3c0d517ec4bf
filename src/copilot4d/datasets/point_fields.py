"""`PointFile`, the points of one sweep as a file has them, and the names under which files carry its parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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

_LONGEST_NUMBER = 60
COPY_AGAIN = "copy the file again from where it came, or leave this sweep out"


@dataclass(frozen=True, kw_only=True)
class PointFile:
    """The points of one file: (N, 3) float32, and (N,) intensity and (N, 3) ray origins where the file has them."""

    points: NDArray[np.float32]
    intensity: NDArray[np.float32] | None = None
    origins: NDArray[np.float32] | None = None
    times: Array | None = None  # (N,) as the file has them (see `point_times`), where they were asked for
    known_finite: bool = False  # the reader has already seen that no number is NaN or infinite


def from_fields(path: Path, fields: Mapping[str, Array], time_names: Sequence[str] = ()) -> PointFile:
    """Named columns -> PointFile. Names are matched without regard to case; others than USED_NAMES are ignored, but for
    the first of `time_names` that is there.
    """
    by_name = {name.lower(): values for name, values in fields.items()}
    time_name = next((name for name in time_names if name in by_name), None)
    if any(name not in by_name for name in "xyz"):
        raise missing_columns(path, fields)
    for name, values in by_name.items():
        if (name in USED_NAMES or name == time_name) and len(values) != len(by_name["x"]):
            raise DataError(
                path, f"column {name}", expected=f"{len(by_name['x'])} numbers, as x has", found=f"{len(values)}",
                remedy="write columns of one length",
            )  # fmt: skip
    intensity = next((by_name[name] for name in INTENSITY_NAMES if name in by_name), None)
    has_origins = all(name in by_name for name in ORIGIN_NAMES)
    return PointFile(
        points=_stack(by_name, ("x", "y", "z")),
        intensity=None if intensity is None else to_float32(intensity),
        origins=_stack(by_name, ORIGIN_NAMES) if has_origins else None,
        times=None if time_name is None else by_name[time_name],
    )


def to_float32(values: Array) -> NDArray[np.float32]:
    """As native float32; what is too large for it becomes inf, which the check of the whole file reports."""
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(np.float32, copy=False)


def damaged(path: Path, what: str, error: Exception | str) -> DataError:
    """The DataError for a file whose container does not hold together."""
    found = " ".join(str(error).split())[:160] or type(error).__name__
    return DataError(path, "points", expected=what, found=f"a damaged file: {found}", remedy=COPY_AGAIN)


def missing_columns(path: Path, names: Iterable[str]) -> DataError:
    """The DataError for a file without x, y or z among its columns."""
    found = ", ".join(list(names)[:20]) or "no columns"
    return DataError(
        path, "columns", expected="x, y and z", found=found, remedy="name the columns of the positions x, y and z"
    )


def _stack(fields: Mapping[str, Array], names: tuple[str, ...]) -> NDArray[np.float32]:
    stacked = np.empty((len(fields[names[0]]), len(names)), dtype=np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        for k, name in enumerate(names):
            stacked[:, k] = fields[name]
    return stacked


def binary_rows(path: Path, content: bytes, start: int, dtype: np.dtype[np.void], count: int) -> Array:
    """(count,) records from `start` on; the file may be longer, not shorter."""
    needed, there = count * dtype.itemsize, len(content) - start
    if there < needed:
        raise damaged(path, f"{count} points of {dtype.itemsize} bytes", f"{there} bytes where {needed} were promised")
    return np.frombuffer(content, dtype, count, start) if count else np.empty(0, dtype)


def ascii_rows(path: Path, lines: list[bytes], names: list[str], count: int) -> dict[str, Array]:
    """`count` lines of numbers, one per name, as columns."""
    kept = [line for line in lines if line.strip()][:count]
    if len(kept) < count:
        raise damaged(path, f"{count} lines of points", f"{len(kept)} lines")
    words = [line.split() for line in kept]
    wrong = next((k for k, row in enumerate(words) if len(row) != len(names)), None)
    if wrong is not None:
        raise damaged(
            path, f"{len(names)} numbers in each line", f"{len(words[wrong])} in line {wrong + 1} of the points"
        )
    longest = max((len(word) for row in words for word in row), default=0)
    if longest > _LONGEST_NUMBER:  # an array of texts has room for the longest in every place
        raise damaged(path, f"numbers of at most {_LONGEST_NUMBER} digits", f"one of {longest}")
    try:
        values = np.array(words, dtype="S").astype(np.float64).reshape(count, len(names))
    except ValueError as error:
        raise damaged(path, "numbers", error) from error
    return {name: values[:, k] for k, name in enumerate(names)}
