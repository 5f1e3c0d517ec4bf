"""Three plans, imagined before one is driven. A notebook as a script: `# %%` begins a cell.

    python examples/what_if_planner.py what_if_planner.png              # imagined by the shipped model
    python examples/what_if_planner.py what_if_planner.png copy_last    # by another: a baseline, a model's folder

It needs no data: the street is simulated.
"""

# %% A moment on a simulated street: the ego drives at 7 m/s, and the car ahead is stopping
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from copilot4d.environment import Branch, Transition, WorldModelEnv
from copilot4d.pictures import Cell, Legend, bev_image, panel, write_png
from copilot4d.simulator import simulate_drive

MODEL = sys.argv[2] if len(sys.argv) > 2 else "mini"
STEPS = 10  # of 0.2 s
drive = simulate_drive(seed=2_000_000_000_012, seconds=5.0)  # the street of val_012 in street-v1

# %% What is wanted: to get on, but never closer than SAFE_M to what is ahead
SAFE_M = 6.0
NOSE_M, HALF_WIDTH_M = 2.3, 1.1  # of the ego, seen from its lidar
FREE_M = 30.0  # as far as the reward looks


def clearance_m(points: np.ndarray) -> float:
    """From the ego's nose to the nearest thing on the strip of road ahead of it; the ground does not count."""
    x, y, z = points.T
    ahead = (x > NOSE_M) & (np.abs(y) < HALF_WIDTH_M) & (z > -1.2) & (z < 0.3)
    return float(min(x[ahead].min(initial=FREE_M) - NOSE_M, FREE_M))


def reward(previous: dict[str, Any], action: np.ndarray, following: dict[str, Any], info: dict[str, Any]) -> float:
    """A point for every metre forward, two off for every metre that is missing to a safe distance."""
    info["clearance_m"] = clearance_m(following["points"][: following["count"]])
    return float(action[0]) * info["step_s"] - 2 * max(0.0, SAFE_M - info["clearance_m"])


# %% The environment, at that moment
env = WorldModelEnv(MODEL, (drive, 40), reward=reward, horizon=STEPS, max_points=20_480)
observation, now = env.reset(seed=0)
print(f"{observation['count']} points, {now['speed_m_s']:.1f} m/s, {now['yaw_rate_rad_s']:+.2f} rad/s")


# %% Three plans. Each may look at what it has seen so far: that is what a fork is for
def keep(info: dict[str, Any]) -> list[float]:
    """Go on as before."""
    return [now["speed_m_s"], now["yaw_rate_rad_s"]]


def brake(info: dict[str, Any]) -> list[float]:
    """4 m/s^2, to a stop."""
    return [max(0.0, info["speed_m_s"] - 4.0 * info["step_s"]), now["yaw_rate_rad_s"]]


def swerve(info: dict[str, Any]) -> list[float]:
    """A little to the left for 0.6 s, back for 0.6 s, then straight on: it stays in its lane."""
    turn = 0.25 if info["step"] < 3 else -0.25 if info["step"] < 6 else 0.0
    return [now["speed_m_s"], now["yaw_rate_rad_s"] + turn]


def imagine(plan: Callable[[dict[str, Any]], list[float]]) -> Branch[WorldModelEnv]:
    """Drive a plan in a fork to the horizon; `env` stays at the moment."""
    fork, info, transitions, truncated = env.fork(), now, [], False
    while not truncated:
        transitions.append(Transition(*fork.step(plan(info))))
        info, truncated = transitions[-1].info, transitions[-1].truncated
    return Branch(fork, tuple(transitions))


branches = {plan.__name__: imagine(plan) for plan in (keep, brake, swerve)}

# %% The best of them
for name, branch in branches.items():
    nearest = min(transition.info["clearance_m"] for transition in branch.transitions)
    print(f"{name:7s} reward {branch.total_reward:6.1f}, nearest {nearest:4.1f} m")
best = max(branches, key=lambda name: branches[name].total_reward)
print(f"best: {best}")


# %% A picture: the moment, and where each plan ends. The line is the way the ego takes, or took
def way(world_from_view: np.ndarray, branch: Branch[WorldModelEnv]) -> np.ndarray:
    """(STEPS + 1, 3) the ego's places in the frame that a picture is drawn in."""
    places = np.concatenate([now["world_from_lidar"][None], branch.world_from_lidar])[:, :, 3]
    return (np.linalg.inv(world_from_view) @ places.T).T[:, :3]


view = {"half": 20.0, "size": 420, "z_range": (-2.0, 2.0)}
cells = [
    Cell(bev_image(env.sweep.points, path=way(now["world_from_lidar"], branches[best]), **view), f"now: {best} is best")
]
for name, branch in branches.items():
    end = branch.transitions[-1].info
    picture = bev_image(branch.env.sweep.points, path=way(end["world_from_lidar"], branch), **view)
    cells.append(Cell(picture, f"{name}, {end['time_s']:.0f} s on", f"reward {branch.total_reward:.1f}"))
out = Path(sys.argv[1] if len(sys.argv) > 1 else "what_if_planner.png")
write_png(out, panel([cells], heading=f"What if? Imagined by {MODEL}", legend=Legend.of_height(view["z_range"])))
print(f"wrote {out}")
