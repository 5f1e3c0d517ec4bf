"""What the ego does: drive with the traffic, or one of the plans of a what-if question."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from copilot4d.errors import UsageError
from copilot4d.geometry.se3 import FloatArray

PLAN_KINDS = ("keep", "brake", "swerve", "turn", "path")


@dataclass(frozen=True, kw_only=True)
class EgoPlan:
    """A plan begins at the moment it is given. Make one by name: `EgoPlan.brake()`.

    keep: drive with the traffic. brake: slow down to a stop and stay. swerve: move aside and back while driving on.
    turn: take another way than otherwise at the next junction. path: be at given places at given times, whatever
    the traffic does.
    """

    kind: str = "keep"
    braking_m_s2: float = 5.0
    offset_m: float | None = None  # swerve: to the left; None takes the widest that stays clear of everything
    times_s: FloatArray | None = field(default=None, compare=False)  # path: (N,) from the moment of the plan
    xy: FloatArray | None = field(default=None, compare=False)  # path: (N, 2) world

    def __post_init__(self) -> None:
        if self.kind not in PLAN_KINDS:
            raise UsageError(f"there is no ego plan {self.kind!r}; there are: {', '.join(PLAN_KINDS)}")
        if not 0.5 <= self.braking_m_s2 <= 7.0:
            raise UsageError(f"an ego brakes with 0.5 to 7 m/s^2, got braking_m_s2={self.braking_m_s2}")
        if self.offset_m is not None and not abs(self.offset_m) <= 3.5:
            raise UsageError(f"an ego swerves by at most 3.5 m to either side, got offset_m={self.offset_m}")
        if self.kind == "path":
            times, xy = self.times_s, self.xy
            if times is None or xy is None or len(times) < 2 or xy.shape != (len(times), 2):
                raise UsageError("a path plan needs times_s (N,) and xy (N, 2) with at least two places")
            if not (np.diff(times) > 0).all() or not np.isfinite(xy).all():
                raise UsageError("a path plan needs increasing times_s and finite xy")

    @classmethod
    def keep(cls) -> EgoPlan:
        """Drive on with the traffic."""
        return cls(kind="keep")

    @classmethod
    def brake(cls, braking_m_s2: float = 5.0) -> EgoPlan:
        """Brake to a stop and stay there."""
        return cls(kind="brake", braking_m_s2=braking_m_s2)

    @classmethod
    def swerve(cls, offset_m: float | None = None) -> EgoPlan:
        """Move aside (left positive) and back."""
        return cls(kind="swerve", offset_m=offset_m)

    @classmethod
    def turn(cls) -> EgoPlan:
        """At the next junction, go where the ego would not have gone."""
        return cls(kind="turn")

    @classmethod
    def path(cls, times_s: FloatArray, xy: FloatArray) -> EgoPlan:
        """Be at (N, 2) places at (N,) times."""
        return cls(kind="path", times_s=np.asarray(times_s, dtype=float), xy=np.asarray(xy, dtype=float))


def swerve_offset(plan: EgoPlan, elapsed_s: float) -> float:
    """The lateral offset of a swerve: 1.4 s out, 1.2 s aside, 1.8 s back, along half waves."""
    reach = plan.offset_m or 0.0
    if elapsed_s < 1.4:
        return float(reach * 0.5 * (1 - np.cos(np.pi * elapsed_s / 1.4)))
    if elapsed_s < 2.6:
        return reach
    if elapsed_s < 4.4:
        return float(reach * 0.5 * (1 + np.cos(np.pi * (elapsed_s - 2.6) / 1.8)))
    return 0.0


def path_pose(plan: EgoPlan, elapsed_s: float) -> tuple[float, float, float, float]:
    """x, y, yaw and speed on a given path; before its first and after its last time the ego stands there."""
    assert plan.times_s is not None
    assert plan.xy is not None
    x, y = (float(np.interp(elapsed_s, plan.times_s, plan.xy[:, axis])) for axis in (0, 1))
    k = int(np.clip(np.searchsorted(plan.times_s, elapsed_s, side="right"), 1, len(plan.times_s) - 1))
    moved = plan.xy[k] - plan.xy[k - 1]
    lengths = np.linalg.norm(np.diff(plan.xy, axis=0), axis=1)
    moving = np.flatnonzero(lengths > 1e-6)  # a stretch of standing keeps the heading of the move before it
    before = moving[moving <= k - 1]
    heading_of = before[-1] if len(before) else (moving[0] if len(moving) else 0)
    towards = plan.xy[heading_of + 1] - plan.xy[heading_of]
    inside = plan.times_s[0] <= elapsed_s < plan.times_s[-1]
    speed = float(np.linalg.norm(moved) / (plan.times_s[k] - plan.times_s[k - 1])) if inside else 0.0
    return x, y, float(np.arctan2(towards[1], towards[0])), speed
