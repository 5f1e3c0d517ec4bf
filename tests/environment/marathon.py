"""A thousand random events in one process; prints how often each kind happened and the memory on the way."""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path

import numpy as np

from copilot4d.baselines import RayTracing
from copilot4d.environment import ActionRefusedError, NotRunningError, WorldModelEnv
from copilot4d.errors import UsageError
from tests.environment.dreamer import Dreamer
from tests.support.scenes import make_drive

MODELS = {"dreamer": Dreamer, "ray_tracing": RayTracing}
KINDS = {
    "step": 0.5, "wrong": 0.1, "wrong pose": 0.05, "fork": 0.1, "fork step": 0.1, "branches": 0.05, "reset": 0.07,
    "wrong reset": 0.03,
}  # fmt: skip
WRONG = ([200.0, 0.0], [np.nan, 0.0], [5.0, 20.0], [5.0], np.eye(4), None, "left", [np.inf, np.inf])


class Accepted(Exception):  # noqa: N818
    """Something wrong was."""


class Runner:
    def __init__(self, model: str) -> None:
        drives = {
            name: make_drive(16, name=name, rings=16, azimuths=90, speed=speed)
            for name, speed in (("a", 6.0), ("b", 9.0))
        }
        self.env = WorldModelEnv(MODELS[model](), drives, horizon=8, futures=2, max_points=4096)
        self.env.reset(seed=0)
        self.env.action_space.seed(0)
        self.rng = np.random.default_rng(0)
        self.forks: list[WorldModelEnv] = []

    def event(self, kind: str) -> None:
        try:
            self._try(kind)
        except ActionRefusedError:
            assert kind in ("wrong", "wrong pose")
        except NotRunningError:  # the horizon
            if kind != "fork step":
                self.env.reset()
        except UsageError:
            assert kind == "wrong reset"

    def _try(self, kind: str) -> None:
        env = self.env
        if kind == "step":
            observation, *_ = env.step(env.action_space.sample())
            assert observation in env.observation_space
        elif kind == "fork":
            self.forks = [*self.forks[-4:], env.fork()]
        elif kind == "fork step":
            if self.forks:
                self.forks[self.rng.integers(len(self.forks))].step(env.action_space.sample())
        elif kind == "branches":
            env.branches([[env.action_space.sample()] for _ in range(2)])
        elif kind == "reset":
            env.reset()
        else:
            if kind == "wrong":
                env.step(WRONG[self.rng.integers(len(WRONG))])
            elif kind == "wrong pose":
                env.step_pose(np.full((4, 4), self.rng.normal()))
            else:
                env.reset(options={"drive": "nowhere"})
            raise Accepted(kind)


def resident_pages() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1])


def main(model: str, events: int = 1000) -> None:
    runner = Runner(model)
    counts, memory = dict.fromkeys(KINDS, 0), {}
    for event in range(1, events + 1):
        kind = str(runner.rng.choice(list(KINDS), p=list(KINDS.values())))
        counts[kind] += 1
        runner.event(kind)
        if event in (100, events):
            memory[event] = resident_pages()
    print(json.dumps({"counts": counts, "memory": memory}))


if __name__ == "__main__":
    main(sys.argv[1])
