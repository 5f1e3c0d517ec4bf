"""What came of a plan: one transition per action."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import gymnasium
import numpy as np

from copilot4d.environment.observation import Observation
from copilot4d.geometry.se3 import FloatArray

EnvT = TypeVar("EnvT", bound=gymnasium.Env[Observation, Any])


@dataclass(frozen=True)
class Transition:
    """What `step` returned."""

    observation: Observation
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


@dataclass(frozen=True)
class Branch(Generic[EnvT]):
    """A plan that was followed: what happened, and the environment where it ended, to be continued or dropped."""

    env: EnvT
    transitions: tuple[Transition, ...]

    @property
    def total_reward(self) -> float:
        """The sum of the rewards."""
        return float(sum(transition.reward for transition in self.transitions))

    @property
    def world_from_lidar(self) -> FloatArray:
        """(len, 4, 4) the ego's poses."""
        return np.stack([transition.info["world_from_lidar"] for transition in self.transitions])
