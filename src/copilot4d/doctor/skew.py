"""Whether the points of a sweep still hold the motion of the lidar, seen in the data: where points have times, pairs of
sweeps are laid on each other twice, with the points as they were recorded and moved by their times to one instant.
What was compensated already fits worse after it has been moved once more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from copilot4d.datasets.deskewing import RecordedSweep
from copilot4d.doctor.finding import Finding, problem, remark
from copilot4d.doctor.pairs import FramePair
from copilot4d.doctor.registration import SweepPair
from copilot4d.errors import Copilot4dError
from copilot4d.geometry import Drive, se3
from copilot4d.geometry.se3 import FloatArray

_BETTER = 0.9  # one of the two must fit this much better
_MOST_PAIRS = 0.7  # in this share of the pairs
_MATTERS_M = 0.003  # pairs in which the two differ by less have no say
_FEWEST = 3
_HOW = {
    "ros_bag": "`deskew: {}` in the bag's description",
    "folder": "`deskew: {}` in copilot4d.yaml",
}


@dataclass(frozen=True, kw_only=True)
class SkewFacts:
    """How well pairs of sweeps fit, in metres (mean), with points as recorded and moved by their times."""

    pairs: int
    recorded_m: float
    deskewed_m: float
    verdict: str  # "skewed", "compensated" or "cannot tell"


def read_skew(
    drive: Drive, pairs: Sequence[FramePair], to_structure: Callable[[NDArray[np.float32]], FloatArray],
    to_working: Callable[[FloatArray], FloatArray],
) -> SkewFacts | None:  # fmt: skip
    """None where points have no times, or sweeps no structure. `to_structure` takes a sweep's points to what of them is
    compared, in the working frame; `to_working` a motion of the lidar there.
    """
    recorded = getattr(drive.read, "recorded", None)
    if not callable(recorded):
        return None

    def sweep(frame: int) -> RecordedSweep | None:
        found = recorded(frame if drive.frames is None else int(drive.frames[frame]))
        return found if isinstance(found, RecordedSweep) else None

    misfits = []
    for earlier, later in pairs:
        try:
            if (first := sweep(earlier)) is None or (second := sweep(later)) is None:
                return None
            poses = drive.world_from_lidar[[earlier, later]]
            moved = [s.deskewed(pose) for s, pose in zip((first, second), poses, strict=True)]
        except Copilot4dError:
            continue  # other checks tell what is wrong with this sweep
        motion = to_working(se3.relative_motion(poses[0], poses[1]))[None]
        both = [
            SweepPair.of(to_structure(a), to_structure(b)) for a, b in ((first.points, second.points), tuple(moved))
        ]
        if both[0] is not None and both[1] is not None:
            misfits.append([float(pair.misfits_m(motion)[0]) for pair in both if pair is not None])
    if not misfits:
        return None
    as_recorded, deskewed = np.array(misfits).T
    return SkewFacts(
        pairs=len(misfits), recorded_m=float(as_recorded.mean()), deskewed_m=float(deskewed.mean()),
        verdict=_verdict(as_recorded, deskewed),
    )  # fmt: skip


def _verdict(recorded: FloatArray, deskewed: FloatArray) -> str:
    telling = np.abs(recorded - deskewed) > _MATTERS_M
    if telling.sum() < _FEWEST:
        return "cannot tell"
    recorded, deskewed = recorded[telling], deskewed[telling]
    for verdict, better, worse in (("skewed", deskewed, recorded), ("compensated", recorded, deskewed)):
        if better.mean() < _BETTER * worse.mean() and (better < worse).mean() >= _MOST_PAIRS:
            return verdict
    return "cannot tell"


def check_skew(where: str, drive: Drive, facts: SkewFacts | None) -> list[Finding]:
    """A problem where points are moved that should stay, or stay that should be moved; else a remark."""
    if facts is None:
        return []
    numbers = (
        f"misfit of {facts.pairs} pairs of sweeps: {facts.recorded_m:.3f} m with the points as recorded, "
        f"{facts.deskewed_m:.3f} m moved by their times"
    )
    is_deskewed = bool(getattr(drive.read, "is_deskewed", False))
    how = _HOW.get(drive.format, "deskewing turned {}")
    if facts.verdict == "skewed" and not is_deskewed:
        return [problem(
            "skewed", where, "The points hold the lidar's motion within a sweep, and are read so", numbers,
            f"write {how.format('true')}",
        )]  # fmt: skip
    if facts.verdict == "compensated" and is_deskewed:
        return [problem(
            "deskewed-twice", where, "The points were compensated already, and are moved once more", numbers,
            f"write {how.format('false')}",
        )]  # fmt: skip
    said = {
        "skewed": "the sweeps fit better deskewed, as they are read",
        "compensated": "the sweeps fit best as recorded: they are compensated, and are read so",
        "cannot tell": "the points have times, but the sweeps do not show whether they are compensated",
    }[facts.verdict]
    remedy = "nothing" if facts.verdict != "cannot tell" else (
        f"find out what the driver does; {how.format('true or false')}; or check a drive with turns and braking"
    )  # fmt: skip
    return [remark("motion-seen", where, "Motion within a sweep, as the sweeps show it", f"{said} ({numbers})", remedy)]
