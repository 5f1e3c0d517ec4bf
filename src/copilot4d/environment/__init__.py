"""The world model as a gymnasium environment: act, and see what the model imagines. Docs: docs/environment.md.

    from copilot4d.environment import WorldModelEnv

    env = WorldModelEnv("mini", (drive, 40))
    observation, info = env.reset(seed=0)
    observation, reward, terminated, truncated, info = env.step([8.0, 0.0])   # 8 m/s, straight on

Importing this registers "copilot4d/WorldModel-v0"; `gymnasium.make("copilot4d.environment:copilot4d/WorldModel-v0")`
does both at once. No network library is loaded before a model is.
"""

import gymnasium

from copilot4d.environment.actions import ActionLimits, ActionMode, ActionRefusedError
from copilot4d.environment.branch import Branch, Transition
from copilot4d.environment.env import NotRunningError, WorldModelEnv
from copilot4d.environment.moments import Moment
from copilot4d.environment.motion import motion_of, twist_of

ENVIRONMENT_ID = "copilot4d/WorldModel-v0"

if ENVIRONMENT_ID not in gymnasium.registry:
    gymnasium.register(id=ENVIRONMENT_ID, entry_point="copilot4d.environment:WorldModelEnv")

__all__ = [
    "ENVIRONMENT_ID", "ActionLimits", "ActionMode", "ActionRefusedError", "Branch", "Moment", "NotRunningError",
    "Transition", "WorldModelEnv", "motion_of", "twist_of",
]  # fmt: skip
