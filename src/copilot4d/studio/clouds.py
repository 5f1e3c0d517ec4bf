"""What is seen: which clouds of a session at which time, and in which colours. No widget and no browser is known here.

Every cloud is shown in the reference frame: the newest past sweep's lidar frame, in which the ego stands at the origin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from copilot4d.geometry import Sweep
from copilot4d.geometry.se3 import FloatArray
from copilot4d.pictures.ink import colour_table
from copilot4d.studio.moment import StudioMoment
from copilot4d.studio.run import Run, disagreement_m
from copilot4d.studio.session import Session

ColourBy = Literal["layer", "height", "time", "disagreement"]
COLOUR_BY: tuple[ColourBy, ...] = ("layer", "height", "time", "disagreement")
HEIGHTS_M = (-0.3, 4.5)  # above the road: the first and the last colour
FULL_DISAGREEMENT_M = 2.0
PAST, TRUTH, SIMULATED = (120, 144, 190), (236, 236, 236), (110, 220, 120)
FUTURES = (
    (255, 150, 50), (60, 200, 255), (255, 90, 170), (190, 230, 60), (180, 130, 255), (255, 220, 80), (70, 230, 190),
    (255, 110, 90),
)  # fmt: skip
_GREY = (110, 114, 124)
SIDE_M = 50.0  # from forecast to truth, side by side: to the left


@dataclass(frozen=True, kw_only=True)
class Look:
    """What the user wants to see. time: 0 is the newest past sweep, 1 the first future frame, -1 the sweep before."""

    time: int = 0
    all_times: bool = False
    past: bool = True
    truth: bool = True
    futures: bool = True
    only_future: int | None = None  # of each run; None: all
    colour: ColourBy = "layer"
    side_by_side: bool = False  # the truth beside the forecast, not in the same place


@dataclass(frozen=True, kw_only=True)
class Cloud:
    """One sweep in its role. `name` is unique and stays the same while the sweep does."""

    name: str
    title: str
    role: Literal["past", "truth", "simulated", "future"]
    sweep: Sweep
    time: int
    time_s: float
    tint: tuple[int, int, int]
    visible: bool
    rivals: tuple[Sweep, ...] = ()  # futures of the same time, this one among them

    @property
    def is_truth(self) -> bool:
        """What the log or the simulator shows, not what a model predicts."""
        return self.role in ("truth", "simulated")

    def points(self, moment: StudioMoment) -> NDArray[np.float32]:
        """(N, 3) in the reference frame."""
        return np.asarray(self.sweep.points_in(moment.reference_from_world), dtype=np.float32)


def clouds(session: Session, look: Look) -> list[Cloud]:
    """Everything that there is to show, with whether it is to be seen now."""
    moment = session.moment
    if moment is None:
        return []
    found = [
        _cloud("past", k - len(moment.past) + 1, sweep, float(time_s), look, PAST)
        for k, (sweep, time_s) in enumerate(zip(moment.past, moment.past_times_s, strict=True))
    ]
    found += [
        _cloud("truth", k + 1, sweep, float(time_s), look, TRUTH)
        for k, (sweep, time_s) in enumerate(zip(moment.truth, moment.times_s, strict=False))
    ]
    runs = session.runs()
    if runs:
        found += [
            _cloud("simulated", k + 1, sweep, float(moment.times_s[k]), look, SIMULATED)
            for k, sweep in enumerate(tuple(runs[-1].simulated))
        ]
    for k in range(len(moment.times_s)):
        found += _futures_at(runs, k, float(moment.times_s[k]), look)
    return found


class Label(NamedTuple):
    """Words in the scene: what is shown at a place (3,), in the reference frame."""

    name: str
    text: str
    place_m: tuple[float, float, float]


def labels(session: Session, look: Look, shown: Sequence[Cloud]) -> list[Label]:
    """Which cloud is the truth of which plan, and which is whose forecast."""
    visible = {cloud.role for cloud in shown if cloud.visible}
    side_m = SIDE_M if look.side_by_side else 0.0
    found = []
    runs = session.runs() if "future" in visible else ()
    for order, run in enumerate(runs):
        found.append(Label(f"run_{order}", f"forecast: {run.model}, plan {run.label}", (0.0, 0.0, 6.0 + 2.5 * order)))
    above_m = 6.0 if look.side_by_side else 6.0 + 2.5 * len(runs)
    if "truth" in visible:
        is_its_own = session.plan.kind == "log"
        words = "truth of this plan (the log)" if is_its_own else "truth of the LOG's way, not of this plan"
        found.append(Label("truth", words, (0.0, side_m, above_m)))
    if "simulated" in visible:
        found.append(Label("simulated", "simulated truth of this plan", (0.0, side_m, above_m + 2.5)))
    if visible == {"past"}:
        found.append(Label("past", "past: input of the model", (0.0, 0.0, 6.0)))
    return found


def clock(moment: StudioMoment, time: int) -> str:
    """The time of a frame in seconds, and which frame it is."""
    if time > 0:
        return f"+{float(moment.times_s[time - 1]):.1f} s: future frame {time} of {len(moment.times_s)}"
    seconds = float(moment.past_times_s[len(moment.past) - 1 + time])
    return "0.0 s: now, the newest past sweep" if time == 0 else f"{seconds:.1f} s: past"


def colours(cloud: Cloud, moment: StudioMoment, by: ColourBy) -> NDArray[np.uint8]:
    """(N, 3) uint8."""
    points = cloud.points(moment)
    height = (points[:, 2] - moment.ground_m - HEIGHTS_M[0]) / (HEIGHTS_M[1] - HEIGHTS_M[0])
    if by == "height":
        return _mapped("turbo", height)
    if by == "time":
        first, last = float(moment.past_times_s[0]), float(moment.times_s[-1])
        share = (cloud.time_s - first) / max(last - first, 1e-6)
        return _shaded(_mapped("plasma", np.array([0.1 + 0.9 * share]))[0], height)
    if by == "disagreement":
        if cloud.role != "future":
            return _shaded(np.array(_GREY), height)
        rivals = [np.asarray(s.points_in(moment.reference_from_world), dtype=np.float32) for s in cloud.rivals]
        mine = next(i for i, sweep in enumerate(cloud.rivals) if sweep is cloud.sweep)
        return _mapped("inferno", 0.25 + 0.75 * disagreement_m(rivals, only=mine)[0] / FULL_DISAGREEMENT_M)
    return _shaded(np.array(cloud.tint), height)


def colours_key(cloud: Cloud, by: ColourBy) -> tuple[object, ...]:
    """Changes when the colours do: those of disagreement depend on the other futures too."""
    others = tuple(map(id, cloud.rivals)) if by == "disagreement" else ()
    return (by, cloud.tint, others)


def legend(by: ColourBy, futures: int) -> str:
    """What the colours mean, in words."""
    if by == "height":
        return "height above the road: blue low, red high"
    if by == "time":
        return "time: violet is the oldest past, yellow the farthest future"
    if by == "disagreement":
        if futures < 2:
            return "one future has nothing to disagree with: sample several, or keep one and try another plan"
        return f"distance to the other futures: dark none, yellow {FULL_DISAGREEMENT_M:g} m and more"
    return "blue past, white truth, green simulated truth, other colours the forecasts"


def _futures_at(runs: Sequence[Run], k: int, time_s: float, look: Look) -> list[Cloud]:
    at = [(run, future, sweep) for run in runs for future, sweep in enumerate(run.sweeps_at(k))]
    wanted = [entry for entry in at if look.only_future is None or entry[1] == look.only_future]
    rivals = tuple(sweep for _, _, sweep in wanted)
    found = []
    for run, future, sweep in at:
        several = len({id(r) for r in runs}) > 1
        order = runs.index(run) if several else future
        is_wanted = look.only_future is None or future == look.only_future
        found.append(
            _cloud(
                "future", k + 1, sweep, time_s, look, FUTURES[order % len(FUTURES)],
                part=f"{id(run)}_{future}", title=f"{run.label} {future + 1}", rivals=rivals, hidden=not is_wanted,
            )
        )  # fmt: skip
    return found


def _cloud(
    role: Literal["past", "truth", "simulated", "future"], time: int, sweep: Sweep, time_s: float, look: Look,
    tint: tuple[int, int, int], *, part: str = "", title: str = "", rivals: tuple[Sweep, ...] = (),
    hidden: bool = False,
) -> Cloud:  # fmt: skip
    layer_on = {"past": look.past, "truth": look.truth, "simulated": look.truth, "future": look.futures}[role]
    visible = layer_on and not hidden and (look.all_times or time == look.time)
    place = f"{role}/{part}/{time}" if part else f"{role}/{time}"
    return Cloud(
        name=f"/clouds/{place.replace('-', 'm')}", title=title or role, role=role, sweep=sweep, time=time,
        time_s=time_s, tint=tint, visible=visible, rivals=rivals,
    )  # fmt: skip


def _mapped(colormap: str, share: FloatArray) -> NDArray[np.uint8]:
    index = np.clip(np.nan_to_num(share) * 256, 0, 255).astype(np.int64)
    return np.asarray(colour_table(colormap)[index])


def _shaded(tint: NDArray[np.integer[np.typing.NBitBase]] | NDArray[np.uint8], height: FloatArray) -> NDArray[np.uint8]:
    """One colour, darker near the road, so that shapes are seen."""
    brightness = 0.6 + 0.4 * np.clip(np.nan_to_num(height), 0.0, 1.0)
    return np.asarray(np.clip(tint[None, :] * brightness[:, None], 0, 255), dtype=np.uint8)
