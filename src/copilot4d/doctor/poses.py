"""Do the poses fit the sweeps? Or without them, inverted, shifted by a frame, in other units, angles or axes?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from copilot4d.doctor.explanations import Explanation, unusual_explanations, usual_explanations
from copilot4d.doctor.file_frame import FileFrame
from copilot4d.doctor.finding import Finding, problem, remark
from copilot4d.doctor.pairs import FramePair, motion_size, shift_sensitivity_m
from copilot4d.doctor.registration import SweepPair, forward_starts
from copilot4d.geometry import se3
from copilot4d.geometry.se3 import FloatArray

_BETTER = 0.8  # another explanation must fit this much better than the poses as given
_BETTER_FEW = 0.6  # where there are fewer than three pairs to judge by
_BETTER_SMALL = 0.85  # a shift by one frame changes little; it must do so everywhere instead
_MOST_PAIRS = 0.75  # in this share of the pairs
_MATTERS_M = 0.005  # pairs whose misfit changes less have no say
_TIED = 1.04
_EXPLAINED = 1.6  # a remedy must bring the misfit this near to the one of the motion that fits best
_SAME = 0.97  # sweeps that fit this well without the poses say nothing about them
_GOOD_FIT_M = 0.12  # sweeps that fit as well as this are not questioned further
_STILL_M = 0.15
_MOST_REGISTERED = 3  # pairs; finding the best motion costs more than trying a given one
_CAN_TELL_M = 0.1  # a shift that moves typical points by less than this cannot be seen

_AS_GIVEN = Explanation(code="", title="as given", remedy="", correct=lambda poses: poses)


@dataclass(frozen=True, kw_only=True)
class PoseCheck:
    """How well a drive's sweeps fit under each explanation of its poses (mean over pairs, metres)."""

    pairs: tuple[FramePair, ...] = ()
    given_m: float = float("nan")
    misfits_m: Mapping[str, float] = field(default_factory=dict)  # by explanation's label
    verdict: str = "not checked"
    findings: tuple[Finding, ...] = ()


def check_poses(
    where: str,
    poses: FloatArray,
    timestamps_ns: np.ndarray,
    pairs: Sequence[tuple[FramePair, SweepPair]],
    to_working: Callable[[FloatArray], FloatArray],
    up: FloatArray,
    frame: FileFrame,
) -> PoseCheck:
    """Judge a drive's poses by pairs of its sweeps. `to_working` brings poses to the sweeps' working frame; `up` (3,)
    is up in the axes of the points as loaded; `frame` says how the files became that.
    """
    if len(poses) < 2:
        return PoseCheck(verdict="cannot tell: there is only one sweep")
    if not pairs:
        return PoseCheck(verdict="cannot tell: no two sweeps have enough structure above the ground")

    frames = [frames for frames, _ in pairs]

    def misfits(explanations: Sequence[Explanation]) -> list[tuple[Explanation, FloatArray]]:
        corrected = [to_working(explanation.corrected(poses, frame)) for explanation in explanations]
        by_pair = [sweeps.misfits_m(np.stack([_motion(m, at) for m in corrected])) for at, sweeps in pairs]
        return list(zip(explanations, np.stack(by_pair, axis=1), strict=True))

    (_, given), *tried = misfits([_AS_GIVEN, *usual_explanations()])
    working = to_working(poses)
    registration = _register(working, timestamps_ns, pairs[:_MOST_REGISTERED], given)
    few = given[: len(registration.misfits_m)]
    if few.mean() > 1.3 * registration.misfits_m.mean() or few.mean() > _GOOD_FIT_M:
        tried += misfits(unusual_explanations(up, frame))
    shown = {e.label: float(np.nanmean(m)) for e, m in tried if e.label and np.isfinite(m).any()}
    result = PoseCheck(pairs=tuple(frames), given_m=float(given.mean()), misfits_m=shown)
    return _judged(where, result, working, given, registration, tried)


def _judged(
    where: str, check: PoseCheck, working: FloatArray, given: FloatArray, registration: _Registration,
    tried: Sequence[tuple[Explanation, FloatArray]],
) -> PoseCheck:  # fmt: skip
    stated = np.array([motion_size(_motion(working, frames)) for frames in check.pairs])
    registered, moved = registration.misfits_m, registration.moved_m
    few = given[: len(registered)]
    best_fit = (
        f"{registered.mean():.2f} m (of {few.mean():.2f} m, in {len(few)} of them) with the motion that fits best"
    )
    numbers = f"misfit of {len(check.pairs)} pairs of sweeps: {given.mean():.2f} m with the poses as given"
    if stated.max() < _STILL_M and np.median(moved) < 2 * _STILL_M:
        return _with(check, "cannot tell: the vehicle stands still in all pairs")
    static = problem(
        "poses-static", where, "The poses hardly change, but the vehicle moves",
        f"{numbers}, {best_fit}, which goes {np.median(moved):.1f} m",
        "write the pose of every sweep; `copilot4d.doctor.write_estimated_poses` makes poses from the sweeps",
    )  # fmt: skip
    if stated.max() < 1e-3:
        return _with(check, static.title, static)
    enough = max(_EXPLAINED * float(registered.mean()), _GOOD_FIT_M)
    winners = [
        (e, m)
        for e, m in tried
        if _beaten(given, m, _needed(e, len(given)), 3 if e.small else 1)
        and (e.small or _mean(m[: len(registered)]) <= enough)
    ]
    if winners:
        best = min(_ratio(given, m) for _, m in winners)
        tied = [e for e, m in winners if _ratio(given, m) <= _TIED * best + 1e-9]
        first = _most_likely(tied, working)
        others = sorted({e.title for e in tied} - {first.title})
        also = f"; {len(others)} other explanation(s) fit as well ({others[0]})" if others else ""
        after = next(m for e, m in tried if e is first)
        evidence = (
            f"{numbers}, {np.nanmean(after):.2f} m with this corrected, {_without_poses(tried)} without poses{also}"
        )
        found = problem(first.code, where, first.title, evidence, first.remedy)
        return _with(check, found.title, found)
    if stated.max() < _STILL_M:
        return _with(check, static.title, static)
    if (few > 2 * registered + _GOOD_FIT_M / 2).mean() >= _MOST_PAIRS:
        found = problem(
            "poses-wrong", where, "The poses do not fit the sweeps, and no usual mistake explains it",
            f"{numbers}, {best_fit}",
            "check where the poses come from (sensor, calibration, time offset); "
            "`copilot4d.doctor.write_estimated_poses` makes poses from the sweeps",
        )  # fmt: skip
        return _with(check, found.title, found)
    if registered.mean() < 0.75 * few.mean() and (few > registered + 0.04).mean() >= _MOST_PAIRS:
        found = remark(
            "poses-coarse", where, "The poses fit the sweeps, but coarsely",
            f"{numbers}, {best_fit}",
            "nothing, or estimate poses from the sweeps (`copilot4d.doctor.write_estimated_poses`) and compare scores",
        )  # fmt: skip
        return _with(check, found.title, found)
    without = next((m for e, m in tried if e.code == "poses-none"), None)
    if without is not None and _ratio(given, without) <= 1 / _SAME:
        found = remark(
            "poses-untested", where, "The sweeps do not show whether the poses are right",
            f"{numbers}, {_without_poses(tried)} without any: the surroundings look the same from both places",
            "check a drive with more structure (parked cars, poles, houses); look at the report's pictures",
        )  # fmt: skip
        return _with(check, "cannot tell: the sweeps fit as well without the poses", found)
    if shift_sensitivity_m(working, list(check.pairs)) < _CAN_TELL_M:
        return _with(check, "fit; a shift by one frame cannot be told: the motion hardly changes")
    return _with(check, "fit")


def _without_poses(tried: Sequence[tuple[Explanation, FloatArray]]) -> str:
    """The misfit without poses, for evidence."""
    return f"{next(float(np.mean(m)) for e, m in tried if e.code == 'poses-none'):.2f} m"


class _Registration(NamedTuple):
    """What registering the first pairs gave: the misfit under the motion that fits best, and how far that goes."""

    misfits_m: FloatArray
    moved_m: FloatArray


def _register(
    working: FloatArray, timestamps_ns: np.ndarray, pairs: Sequence[tuple[FramePair, SweepPair]], given: FloatArray
) -> _Registration:
    misfits, moved = [], []
    for (frames, sweeps), misfit in zip(pairs, given, strict=False):
        starts = np.stack([_motion(working, frames), np.eye(4)])
        if misfit > _GOOD_FIT_M:
            seconds = float(timestamps_ns[frames.later] - timestamps_ns[frames.earlier]) * 1e-9
            starts = np.concatenate([starts, forward_starts(float(np.clip(seconds, 0.05, 1.5)))])
        best = sweeps.registered(starts)
        misfits.append(min(float(sweeps.misfits_m(best[None])[0]), misfit))
        moved.append(float(motion_size(best)))
    return _Registration(np.array(misfits), np.array(moved))


def _most_likely(tied: Sequence[Explanation], working: FloatArray) -> Explanation:
    """Of explanations that fit equally well. On a straight road, inverted poses and axes turned about face are the
    same motion: poses that drive forward (+x) speak for the axes.
    """
    motion = se3.relative_motion(working[:-1], working[1:])[:, :3, 3].sum(axis=0)
    forward = motion[0] > 0.8 * np.linalg.norm(motion)
    axes = [e for e in tied if e.code == "axes-turned"]
    return axes[0] if forward and axes and tied[0].code == "poses-inverted" else tied[0]


def _needed(explanation: Explanation, pairs: int) -> float:
    if explanation.small:
        return _BETTER_SMALL
    return _BETTER if pairs >= 3 else _BETTER_FEW


def _ratio(given: FloatArray, other: FloatArray) -> float:
    known = np.isfinite(other)
    return float(other[known].mean() / max(given[known].mean(), 1e-6))


def _mean(misfits: FloatArray) -> float:
    """The mean over the pairs whose motion is known; infinite where none is."""
    known = misfits[np.isfinite(misfits)]
    return float(known.mean()) if len(known) else float("inf")


def _beaten(given: FloatArray, other: FloatArray, ratio: float, fewest: int = 1) -> bool:
    """Whether another motion fits better by that ratio on average, and in most pairs in which it matters at all."""
    known = np.isfinite(other)
    known[known] &= np.abs(other[known] - given[known]) > _MATTERS_M
    if known.sum() < fewest:
        return False
    return _ratio(given, other) < ratio and float((other[known] < given[known]).mean()) >= _MOST_PAIRS


def _motion(poses: FloatArray, frames: FramePair) -> FloatArray:
    return se3.relative_motion(poses[frames.earlier], poses[frames.later])


def _with(check: PoseCheck, verdict: str, *findings: Finding) -> PoseCheck:
    return PoseCheck(
        pairs=check.pairs, given_m=check.given_m, misfits_m=check.misfits_m, verdict=verdict, findings=findings
    )  # fmt: skip
