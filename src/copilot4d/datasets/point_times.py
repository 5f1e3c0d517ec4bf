"""When each point of a sweep was measured: the many ways in which drivers write it, and what they mean.

Velodyne writes `time` (float seconds from the stamp, often negative), Ouster `t` (uint32 nanoseconds from the stamp),
Hesai and Robosense `timestamp` (float64 Unix seconds), Livox `offset_time` or `timestamp` (nanoseconds, from the stamp
or since 1970), Argoverse `offset_ns`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

TIME_FIELDS = (
    "t",
    "time",
    "timestamp",
    "offset_time",
    "time_stamp",
    "timestamps",
    "offset_ns",
    "time_offset",
    "t_offset",
)
UNITS_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}

_SHORTEST_SWEEP_S, _LONGEST_SWEEP_S = 0.015, 0.6
_NEAR_S = 3_600.0  # an absolute time lies within an hour of the stamp; an offset within a sweep or two


class TimesError(ValueError):
    """Times that no sweep has; the words say why."""


def time_field(names: Mapping[str, Any] | list[str]) -> str | None:
    """The field that tells the time, by its usual names."""
    by_lower = {name.lower(): name for name in names}
    return next((by_lower[name] for name in TIME_FIELDS if name in by_lower), None)


def point_times_ns(values: NDArray[Any], stamp_ns: int, unit: str | None = None) -> NDArray[np.int64] | None:
    """(N,) times of the points in nanoseconds, in the clock of `stamp_ns`; None where they are all one.

    The unit, where it is not given, is the one in which the sweep takes between 15 ms and 600 ms. Values near the stamp
    in that unit are absolute; small ones count from the stamp. TimesError where no unit fits.

    >>> point_times_ns(np.array([0, 50_000_000, 99_000_000], dtype=np.uint32), 10**18).tolist()[-1] - 10**18
    99000000
    >>> int(point_times_ns(np.array([1e9 + 0.05, 1e9 + 0.1, 1e9 + 0.149]), 10**18)[0]) - 10**18
    50000000
    """
    finite = values if values.dtype.kind in "iu" else values[np.isfinite(values)]
    if not len(finite) or finite.min() == finite.max():
        return None
    low, high = finite.min(), finite.max()
    span = float(high) - float(low) if values.dtype.kind == "f" else float(int(high) - int(low))
    chosen = unit or _unit(span, values.dtype.kind)
    if chosen is None:
        raise TimesError(f"times that are {span:.6g} apart in one sweep: in no unit (s, ms, us, ns) is that a sweep")
    scale = UNITS_NS[chosen]
    seconds = float(low) * scale * 1e-9
    if abs(seconds - stamp_ns * 1e-9) < _NEAR_S and abs(seconds) > _NEAR_S:
        return _exact(values, scale)
    if abs(seconds) > 2 * _LONGEST_SWEEP_S:
        raise TimesError(
            f"times that begin {seconds:.6g} s after the stamp (in {chosen}): neither offsets nor the stamp's own clock"
        )
    return stamp_ns + _exact(values, scale)


def _unit(span: float, kind: str) -> str | None:
    """The unit in which this span is a sweep's duration; whole numbers are never seconds."""
    fits = [u for u, ns in UNITS_NS.items() if _SHORTEST_SWEEP_S <= span * ns * 1e-9 <= _LONGEST_SWEEP_S]
    return next((u for u in fits if not (u == "s" and kind in "iu")), None)


def _exact(values: NDArray[Any], scale: int) -> NDArray[np.int64]:
    if values.dtype.kind in "iu":
        return values.astype(np.int64) * scale
    clean = np.where(np.isfinite(values), values, 0).astype(np.float64)
    if scale == 1:
        return np.rint(clean).astype(np.int64)
    whole = np.floor(clean)  # seconds since 1970 times 1e9 keep their nanoseconds only in two parts
    return whole.astype(np.int64) * scale + np.rint((clean - whole) * scale).astype(np.int64)
