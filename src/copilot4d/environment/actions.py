"""What an action is, what is a reasonable one, and the refusal of all others."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias, get_args

import gymnasium
import numpy as np
from gymnasium import spaces

from copilot4d.environment.motion import twist_of
from copilot4d.errors import UsageError
from copilot4d.geometry import se3
from copilot4d.geometry.se3 import FloatArray

ActionMode: TypeAlias = Literal["speed_yaw_rate", "se3"]

_TWIST = ("forward speed", "speed to the left", "speed upwards", "roll rate", "pitch rate", "yaw rate")
_UNITS = ("m/s", "m/s", "m/s", "rad/s", "rad/s", "rad/s")
_USED: dict[ActionMode, list[int]] = {"speed_yaw_rate": [0, 5], "se3": [0, 1, 2, 3, 4, 5]}
_SLACK = 1e-6  # relative: a bound that was rounded to float32, as the spaces hold it, is not outside


class ActionRefusedError(UsageError, gymnasium.error.InvalidAction):
    """An action that no car can do, or that is no action at all. The environment is as it was and can go on."""


@dataclass(frozen=True, kw_only=True)
class ActionLimits:
    """The fastest that an ego may move, in its own frame. They are the bounds of the action space."""

    max_speed_m_s: float = 40.0
    max_reverse_m_s: float = 5.0
    max_yaw_rate_rad_s: float = 1.0
    max_sideways_m_s: float = 5.0  # to the left and right, up and down: only "se3" and poses move so
    max_tilt_rate_rad_s: float = 1.0  # about x and y: only "se3" and poses turn so

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (np.isfinite(value) and value >= 0):
                raise UsageError(f"ActionLimits({field.name}) must be finite and at least 0, got {value}")
        if self.max_speed_m_s == 0:
            raise UsageError("ActionLimits(max_speed_m_s) must be above 0: an ego that cannot move has no actions")

    @property
    def low(self) -> FloatArray:
        """(6,) the smallest twist."""
        return np.array([-self.max_reverse_m_s, *-self.high[1:]])

    @property
    def high(self) -> FloatArray:
        """(6,) the largest twist."""
        sideways, tilt = self.max_sideways_m_s, self.max_tilt_rate_rad_s
        return np.array([self.max_speed_m_s, sideways, sideways, tilt, tilt, self.max_yaw_rate_rad_s])


@dataclass(frozen=True)
class Actions:
    """Actions of one mode: their space, and the way to the ego's twist and back."""

    mode: ActionMode
    limits: ActionLimits

    def __post_init__(self) -> None:
        if self.mode not in _USED:
            raise UsageError(f"action_mode is one of {', '.join(get_args(ActionMode))}, got {self.mode!r}")

    def space(self) -> spaces.Box:
        """A new space of all actions of the mode, in m/s and rad/s."""
        used = _USED[self.mode]
        return spaces.Box(self.limits.low[used].astype(np.float32), self.limits.high[used].astype(np.float32))

    def twist(self, action: Any) -> FloatArray:
        """(6,) the twist of an action, or ActionRefusedError."""
        used = _USED[self.mode]
        try:
            given = np.asarray(action, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ActionRefusedError(f"action refused: {self._wanted()}, got {action!r}") from error
        if given.shape != (len(used),):
            hint = "; a pose goes to step_pose" if given.shape == (4, 4) else ""
            raise ActionRefusedError(f"action refused: {self._wanted()}, got the shape {given.shape}{hint}")
        twist = np.zeros(6)
        twist[used] = given
        self._check(twist, "action")
        return twist

    def twist_between(self, world_from_previous: FloatArray, world_from_next: Any, step_s: float) -> FloatArray:
        """(6,) the twist that leads from one pose to another in a step, or ActionRefusedError."""
        try:
            pose = np.asarray(world_from_next, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ActionRefusedError(
                f"pose refused: world_from_lidar (4, 4) is needed, got {world_from_next!r}"
            ) from error
        if pose.shape != (4, 4):
            raise ActionRefusedError(f"pose refused: world_from_lidar (4, 4) is needed, got the shape {pose.shape}")
        error_of_pose = float(se3.rigidity_error(pose))
        if not error_of_pose <= se3.RIGID_TOLERANCE:
            found = f"off by {error_of_pose:.3g}" if np.isfinite(pose).all() else "it has NaN or infinity"
            raise ActionRefusedError(
                "pose refused: world_from_lidar must be a rigid motion, a rotation and a shift with the last row "
                f"0 0 0 1; {found}"
            )
        twist = twist_of(se3.relative_motion(world_from_previous, se3.nearest_rigid(pose)), step_s)
        self._check(twist, "pose")
        return twist

    def action_of(self, twist: FloatArray) -> FloatArray:
        """The action of this mode that is nearest to a twist: what a reward function is given."""
        return twist[_USED[self.mode]].astype(np.float32)

    def _wanted(self) -> str:
        names = ", ".join(f"{_TWIST[i]} ({_UNITS[i]})" for i in _USED[self.mode])
        return f"{self.mode!r} actions are {len(_USED[self.mode])} numbers: {names}"

    def _check(self, twist: FloatArray, what: str) -> None:
        for name, unit, value, low, high in zip(_TWIST, _UNITS, twist, self.limits.low, self.limits.high, strict=True):
            slack = _SLACK * max(1.0, high)
            if not low - slack <= value <= high + slack:  # NaN fails as well
                raise ActionRefusedError(
                    f"{what} refused: {name} must be {low:g} to {high:g} {unit}, got {value:g}; nothing was changed. "
                    "ActionLimits(...) sets other bounds"
                )
