"""What the timestamps say: the rate, and where sweeps are missing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from copilot4d.datasets.folder_timing import TimeSource
from copilot4d.datasets.text_files import UNITS_NS
from copilot4d.doctor.finding import Finding, listed, problem, remark
from copilot4d.geometry import clock

_SLOWEST_HZ, _FASTEST_HZ = 0.4, 60.0
_UNSTEADY = 0.1  # of the interval


@dataclass(frozen=True, kw_only=True)
class ClockFacts:
    """The rhythm of a drive."""

    rate_hz: float  # NaN for a single sweep
    gaps: tuple[tuple[int, int], ...]  # (frame after which sweeps are missing, how many)
    jitter_s: float  # standard deviation of the intervals that are not gaps

    @property
    def missing(self) -> int:
        """How many sweeps the clock says are missing."""
        return sum(lost for _, lost in self.gaps)


def read_clock(timestamps_ns: NDArray[np.int64]) -> ClockFacts:
    """The rate, the gaps and the jitter of increasing timestamps."""
    if len(timestamps_ns) < 2:
        return ClockFacts(rate_hz=float("nan"), gaps=(), jitter_s=0.0)
    intervals_s = np.diff(timestamps_ns) * 1e-9
    lost = clock.lost_after(timestamps_ns)
    gaps = tuple((int(i), int(lost[i])) for i in np.flatnonzero(lost))
    regular_s = intervals_s[lost == 0]
    jitter_s = float(np.std(regular_s)) if len(regular_s) else 0.0
    return ClockFacts(rate_hz=1e9 / clock.interval_ns(timestamps_ns), gaps=gaps, jitter_s=jitter_s)


def check_clock(where: str, facts: ClockFacts, frames: int, times: TimeSource | None = None) -> list[Finding]:
    """Findings about rate, gaps and jitter. `times`: where own data says when its sweeps were taken."""
    findings = []
    if facts.gaps:
        after = listed([f"{lost} after frame {frame}" for frame, lost in facts.gaps])
        findings.append(problem(
            "sweeps-missing", where, "Sweeps are missing",
            f"{facts.missing} at {len(facts.gaps)} place(s) of {frames} sweeps, by the timestamps: {after}",
            "copy the missing sweeps again; or cut the log into two drives at each gap; windows that would cross a "
            "gap are left out",
        ))  # fmt: skip
    if not np.isnan(facts.rate_hz) and not _SLOWEST_HZ <= facts.rate_hz <= _FASTEST_HZ:
        findings.append(_wrong_unit(where, facts, times))
    elif not np.isnan(facts.rate_hz) and facts.jitter_s > _UNSTEADY / facts.rate_hz:
        findings.append(remark(
            "clock-unsteady", where, "The sweeps come at an uneven rate",
            f"intervals of {1e3 / facts.rate_hz:.0f} ms that vary by {facts.jitter_s * 1e3:.0f} ms",
            "nothing, if the sensor was so; otherwise use the sensor's own timestamps, not the recorder's",
        ))  # fmt: skip
    return findings


_UNIT_NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}


def _wrong_unit(where: str, facts: ClockFacts, times: TimeSource | None) -> Finding:
    """Intervals that no lidar has: the unit that would make them plausible, and the line that says so."""
    read_as = times.unit if times is not None and times.unit in UNITS_NS else "s"
    fits = [
        unit for unit in UNITS_NS if _SLOWEST_HZ <= facts.rate_hz * UNITS_NS[read_as] / UNITS_NS[unit] <= _FASTEST_HZ
    ]
    evidence = f"a sweep every {1 / facts.rate_hz:.4g} s, where lidars turn 2 to 20 times a second"
    remedy = (
        "check whether the times are seconds, milliseconds, microseconds or nanoseconds, and write them as the "
        "format wants them"
    )
    if fits:
        interval_s = UNITS_NS[fits[0]] / UNITS_NS[read_as] / facts.rate_hz
        evidence += f"; they look like {_UNIT_NAMES[fits[0]]}, which gives a sweep every {interval_s:.3g} s"
        if times is not None and times.kind != "rate":
            remedy = f"write `{times.line(fits[0])}` in copilot4d.yaml"
        else:
            remedy = (
                f"write the times in the unit that the format wants: what is there looks like {_UNIT_NAMES[fits[0]]}"
            )
    return problem("clock-unit", where, "The timestamps are not in the unit that their format says", evidence, remedy)
