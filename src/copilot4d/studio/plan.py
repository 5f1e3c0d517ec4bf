"""`Plan`: what the user wants the ego to do, kept apart from any moment; and the poses that it means at one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import numpy as np

from copilot4d.errors import UsageError
from copilot4d.geometry import se3
from copilot4d.geometry.se3 import FloatArray
from copilot4d.studio.moment import StudioMoment
from copilot4d.studio.paths import (
    HARD_BRAKE_M_S2,
    SWERVE_M,
    Controls,
    drawn_way,
    drive_way,
    poses_of,
    swerve_way,
)

Kind = Literal["log", "keep", "brake", "swerve", "sliders", "drawn"]
PRESETS: tuple[Kind, ...] = ("keep", "brake", "swerve", "log")
WAYPOINTS = 4  # that can be dragged; the last is the end of the forecast
_LINE_POINTS = 41


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A preset by its name, the sliders' controls, or waypoints that were dragged (K, 2) in the ego's frame."""

    kind: Kind = "log"
    controls: Controls = field(default_factory=Controls)
    waypoints_m: FloatArray | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise UsageError(f"there is no plan {self.kind!r}; there are: {', '.join(get_args(Kind))}")
        if self.kind == "drawn" and self.waypoints_m is None:
            raise UsageError("a drawn plan needs waypoints")

    def at(self, moment: StudioMoment) -> PlannedWay:
        """What the plan means at a moment."""
        fine_s = np.linspace(0.0, float(moment.times_s[-1]), _LINE_POINTS)
        waypoint_times_s = moment.times_s[-1] * np.arange(1, WAYPOINTS + 1) / WAYPOINTS
        if self.kind == "log":
            times = np.concatenate([[0.0], moment.times_s])
            known = np.concatenate([moment.world_from_reference[None], moment.log_poses])
            seen = se3.relative_motion(moment.world_from_reference, known)
            return PlannedWay(
                poses=moment.log_poses,
                line_m=se3.interpolate_trajectory(times, seen, fine_s)[:, :3, 3],
                waypoints_m=se3.interpolate_trajectory(times, seen, waypoint_times_s)[:, :2, 3],
                controls=moment.controls,
            )
        controls = self.controls_at(moment)
        ways = [self._way(controls, times, waypoint_times_s) for times in (moment.times_s, fine_s)]
        at_waypoints = self._way(controls, waypoint_times_s, waypoint_times_s)
        line = np.concatenate([ways[1][:, :2], np.zeros((len(fine_s), 1))], axis=1)
        return PlannedWay(
            poses=poses_of(moment.world_from_reference, ways[0]), line_m=line, waypoints_m=at_waypoints[:, :2],
            controls=controls,
        )  # fmt: skip

    def controls_at(self, moment: StudioMoment) -> Controls:
        """What the sliders show for this plan."""
        if self.kind == "sliders":
            return self.controls
        braking = HARD_BRAKE_M_S2 if self.kind == "brake" else 0.0
        return replace(moment.controls, brake_m_s2=braking)

    def _way(self, controls: Controls, times_s: FloatArray, waypoint_times_s: FloatArray) -> FloatArray:
        if self.kind == "drawn":
            assert self.waypoints_m is not None
            return drawn_way(self.waypoints_m, waypoint_times_s, times_s)
        if self.kind == "swerve":
            return swerve_way(controls.speed_m_s, SWERVE_M, times_s)
        return drive_way(controls, times_s)


@dataclass(frozen=True, kw_only=True)
class PlannedWay:
    """A plan at a moment: poses for the model, a line and waypoints (in the reference frame) for the eye."""

    poses: FloatArray  # (F, 4, 4) world_from_lidar
    line_m: FloatArray  # (M, 3) from the ego on
    waypoints_m: FloatArray  # (K, 2)
    controls: Controls
