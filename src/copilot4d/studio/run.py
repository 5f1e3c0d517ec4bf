"""`Run`: one imagined answer to one plan, frame by frame as it is sampled; and how far futures disagree."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pykdtree.kdtree import KDTree

from copilot4d.errors import UsageError
from copilot4d.forecaster import ImaginedFrame
from copilot4d.geometry import Sweep
from copilot4d.geometry.se3 import FloatArray

MOST_FUTURES, MOST_STEPS, MOST_GUIDANCE, MOST_SEED = 8, 50, 5.0, 2**31 - 1
State = Literal["waiting", "running", "done", "cancelled", "failed"]


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How futures are sampled. The same seed gives every plan the same random numbers."""

    guidance: float = 1.0
    steps: int = 10
    seed: int = 0
    futures: int = 1

    def changed(self, guidance: float | None = None, steps: int | None = None) -> Sampling:
        """The same, but for what is given."""
        given = {"guidance": guidance, "steps": steps}
        return replace(self, **{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]

    def checked(self) -> Sampling:
        """Itself, where the studio's widgets can show it."""
        if not 1 <= self.futures <= MOST_FUTURES or not 1 <= self.steps <= MOST_STEPS:
            raise UsageError(f"the studio samples 1 to {MOST_FUTURES} futures in 1 to {MOST_STEPS} steps")
        if not 0.0 <= self.guidance <= MOST_GUIDANCE:
            raise UsageError(f"guidance in the studio lies between 0 and {MOST_GUIDANCE:g}, got {self.guidance}")
        if not 0 <= self.seed <= MOST_SEED:
            raise UsageError(f"a seed in the studio lies between 0 and {MOST_SEED}, got {self.seed}")
        return self


@dataclass(eq=False, kw_only=True)
class Run:
    """What follows if the ego goes this way. `frames` grows while it is sampled; nothing else of it changes later."""

    label: str
    model: str
    sampling: Sampling
    poses: FloatArray  # (F, 4, 4) world_from_lidar
    way: FloatArray  # (M, 3) x, y, z of the ego's way in the reference frame, to be drawn
    frames: list[tuple[ImaginedFrame, ...]] = field(default_factory=list)  # one entry per time, one frame per future
    simulated: list[Sweep] = field(default_factory=list)  # what the simulator shows for this plan, where it can
    state: State = "waiting"
    error: str = ""
    note: str = ""
    began_s: float | None = None  # on the monotonic clock: when sampling began

    def seconds_left(self) -> float | None:
        """How long the missing frames take if each takes as long as those before; None before the first is there."""
        if self.began_s is None or not self.frames:
            return None
        return (time.monotonic() - self.began_s) / len(self.frames) * (len(self.poses) - len(self.frames))

    @property
    def is_pending(self) -> bool:
        """Whether more may come."""
        return self.state in ("waiting", "running")

    def sweeps_at(self, k: int) -> tuple[Sweep, ...]:
        """The futures' sweeps at step k of the forecast (0 is the first), as far as they are there."""
        return tuple(frame.sweep for frame in self.frames[k]) if 0 <= k < len(self.frames) else ()


def disagreement_m(clouds: Sequence[NDArray[np.float32]], only: int | None = None) -> list[NDArray[np.float32]]:
    """Clouds (N_i, 3) in one frame -> for each point (N_i,) how far the other clouds are: the mean over them of the
    distance to their nearest point. 0 where there is no other cloud. `only`: the answer for that cloud alone.
    """
    asked = range(len(clouds)) if only is None else [only]
    dense = [np.ascontiguousarray(cloud, dtype=np.float32) for cloud in clouds]
    trees = {j: KDTree(cloud) for j, cloud in enumerate(dense) if len(cloud) and (only is None or j != only)}
    result = []
    for i in asked:
        total = np.zeros(len(dense[i]), dtype=np.float32)
        others = [tree for j, tree in trees.items() if j != i]
        for tree in others if len(dense[i]) else []:
            total += tree.query(dense[i], k=1)[0]
        result.append(total / np.float32(max(len(others), 1)))
    return result
