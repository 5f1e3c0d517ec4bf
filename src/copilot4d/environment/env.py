"""`WorldModelEnv`: a world model as a gymnasium environment. The ego acts, the model imagines the next sweep."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import gymnasium
import numpy as np

from copilot4d.environment.actions import ActionLimits, ActionMode, Actions
from copilot4d.environment.branch import Branch, Transition
from copilot4d.environment.moments import Beginnings, Moments, check_options
from copilot4d.environment.motion import motion_of, twist_of
from copilot4d.environment.observation import DISAGREEMENT_CAP_M, Observation, Packed, Packing, disagreement
from copilot4d.errors import UsageError
from copilot4d.forecaster import Forecaster, Imagination, ImaginedFrame, future_timestamps
from copilot4d.forecasting.repeated import imagine
from copilot4d.geometry import Sweep, se3
from copilot4d.geometry.se3 import FloatArray

Info: TypeAlias = dict[str, Any]
Reward: TypeAlias = Callable[[Observation, FloatArray, Observation, Info], float]
Step: TypeAlias = tuple[Observation, float, bool, bool, Info]

DEFAULT_FORECASTER = "mini"  # the shipped weights
DEFAULT_DATA = "street-v1/val"


class NotRunningError(UsageError, gymnasium.error.ResetNeeded):
    """A step where there is no episode: before the first reset, or after the horizon."""


def no_reward(previous: Observation, action: FloatArray, following: Observation, info: Info) -> float:
    """The default reward: 0."""
    return 0.0


@dataclass(frozen=True, kw_only=True)
class _State:
    """Where an episode is. It never changes, and forks share it: a step is taken by a fork of the imagination."""

    imagination: Imagination
    sweep: Sweep  # the newest: of the past, then of the first future
    frames: tuple[ImaginedFrame, ...]  # of all futures; none before the first step
    packed: Packed
    world_from_lidar: FloatArray  # (4, 4) the ego's pose, as it was asked for
    twist: FloatArray  # (6,) of the ego's last step
    steps_done: int
    step_s: float
    origin: Info  # drive, frame and seed: what an info says of the episode


class WorldModelEnv(gymnasium.Env[Observation, Any]):
    """An episode begins at a moment of a drive; each action moves the ego, and the model imagines what it then sees.

    forecaster: a model or baseline, or the name or folder of one (environments of one name share it); by default the
        weights that come with the package.
    moments: where episodes begin: a data set's name or path, drives by name, a drive, a moment (drive, frame), or a
        list of moments. `reset` draws from them by its seed.
    setting: which past sweeps a moment has and how long a step is, as in the protocol: "1s" or "3s".
    action_mode: "speed_yaw_rate" (m/s, rad/s) or "se3" (vx, vy, vz, wx, wy, wz in the lidar's own frame). Either is
        held for the whole step and starts from the last pose as it is: the ego moves in its own plane.
    horizon: an episode is truncated after this number of steps.
    futures: how many are imagined along the same ego poses. The first is observed, the others tell the disagreement.
    guidance, steps: of the sampler, by default as stored with the model; baselines ignore them.
    reward: reward(previous, action, following, info) -> number; observations are read-only there, info may be added to.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 5}  # noqa: RUF012

    def __init__(
        self,
        forecaster: Forecaster | str | Path = DEFAULT_FORECASTER,
        moments: Moments = DEFAULT_DATA,
        *,
        setting: str = "1s",
        action_mode: ActionMode = "speed_yaw_rate",
        limits: ActionLimits | None = None,
        horizon: int = 15,
        max_points: int = 65_536,
        bound_m: float = 500.0,
        futures: int = 1,
        guidance: float | None = None,
        steps: int | None = None,
        reward: Reward = no_reward,
        render_mode: str | None = None,
    ) -> None:
        if horizon < 1 or futures < 1:
            raise UsageError(f"horizon and futures must be at least 1, got {horizon} and {futures}")
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise UsageError(f"render_mode is None or rgb_array, got {render_mode!r}")
        self.forecaster = shared_forecaster(forecaster) if isinstance(forecaster, str | Path) else forecaster
        self.horizon, self.reward, self.render_mode = horizon, reward, render_mode
        self._beginnings = Beginnings(moments, setting)
        self._actions = Actions(action_mode, limits or ActionLimits())
        self._packing = Packing(max_points, bound_m)
        self._sampling: dict[str, Any] = {"guidance": guidance, "steps": steps, "futures": futures}
        self.action_space = self._actions.space()
        self.observation_space = self._packing.space()  # type: ignore[assignment]  # typed as a space of spaces
        self._state: _State | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, Info]:
        """Begin an episode. The same seed gives the same moment and the same random numbers of the model.

        options: "drive" (a name among the moments, or a Drive) and "frame"; or "past", your own sweeps, oldest
        first and evenly spaced. What they leave open is drawn.
        """
        check_options(options)
        super().reset(seed=seed)
        imagination_seed = int(self.np_random.integers(2**31))  # first: the same whatever the options say
        past, drive, frame = self._beginnings.begin(self.np_random, options)
        step_s = (future_timestamps(past, 1)[0] - past[-1].timestamp_ns) * 1e-9
        state = _State(
            imagination=imagine(self.forecaster, past, seed=imagination_seed, **self._sampling),
            sweep=past[-1],
            world_from_lidar=past[-1].world_from_lidar,
            frames=(),
            packed=self._packing.pack(past[-1].points),
            twist=twist_of(se3.relative_motion(past[-2].world_from_lidar, past[-1].world_from_lidar), step_s),
            steps_done=0,
            step_s=step_s,
            origin={"drive": drive, "frame": frame, "seed": imagination_seed},
        )
        self._state = state
        return _copied(state.packed.observation), self._info(state)

    def step(self, action: Any) -> Step:
        """Move the ego for one step. An unreasonable action raises ActionRefusedError and changes nothing."""
        state = self._running()
        twist = self._actions.twist(action)
        previous_from_next = motion_of(twist, state.step_s)
        world_from_next = se3.nearest_rigid(se3.compose(state.world_from_lidar, previous_from_next))
        return self._advance(state, world_from_next, twist)

    def step_pose(self, world_from_lidar: Any) -> Step:
        """As `step`, with the ego's next pose (4, 4) in the world of the drive, whatever the action mode."""
        state = self._running()
        twist = self._actions.twist_between(state.world_from_lidar, world_from_lidar, state.step_s)
        return self._advance(state, se3.nearest_rigid(np.asarray(world_from_lidar, dtype=np.float64)), twist)

    def fork(self) -> WorldModelEnv:
        """A copy that goes on by itself. It costs next to nothing: states are shared, since none ever changes."""
        other = copy.copy(self)
        other._np_random = copy.deepcopy(self._np_random)
        other.action_space = copy.deepcopy(self.action_space)  # it draws its own samples
        return other

    def branches(self, plans: Sequence[Any]) -> tuple[Branch[WorldModelEnv], ...]:
        """One branch per plan, each a sequence of actions from here on. This environment stays where it is.

        All actions are checked before the first is taken; a plan may not reach beyond the horizon.
        """
        left = self.horizon - self._running().steps_done
        for number, plan in enumerate(plans):
            if not 1 <= len(plan) <= left:
                raise UsageError(f"plan {number} has {len(plan)} actions; 1 to {left} are left to the horizon")
            for action in plan:
                self._actions.twist(action)
        return tuple(self._follow(plan) for plan in plans)

    @property
    def sweep(self) -> Sweep:
        """The newest sweep, whole, with its pose: of the past, then of the first future."""
        return self._begun().sweep

    @property
    def frames(self) -> tuple[ImaginedFrame, ...]:
        """The last step's frame of every future, whole. Empty before the first step."""
        return self._begun().frames

    def render(self) -> Any:
        """The newest sweep from above, (512, 512, 3) uint8; None without a render mode."""
        if self.render_mode is None:
            return None
        from copilot4d.pictures import bev_image

        return bev_image(self._begun().sweep.points)

    def _advance(self, state: _State, world_from_next: FloatArray, twist: FloatArray) -> Step:
        imagination = state.imagination.fork()  # forks share the state; and if this step fails, it was not taken
        frames = imagination.step(world_from_next)
        following = replace(
            state,
            imagination=imagination,
            sweep=frames[0].sweep,
            world_from_lidar=world_from_next,
            frames=frames,
            packed=self._packing.pack(frames[0].sweep.points),
            twist=twist,
            steps_done=state.steps_done + 1,
        )
        info = self._info(following)
        action, observation = self._actions.action_of(twist), following.packed.observation
        reward = _number(self.reward(state.packed.observation, action, observation, info))
        self._state = following
        return _copied(observation), reward, False, following.steps_done >= self.horizon, info

    def _info(self, state: _State) -> Info:
        packed = state.packed
        info: Info = {
            **state.origin,
            "step": state.steps_done,
            "time_s": state.steps_done * state.step_s,
            "step_s": state.step_s,
            "timestamp_ns": state.sweep.timestamp_ns,
            "world_from_lidar": np.array(state.world_from_lidar, dtype=np.float64),
            "speed_m_s": float(state.twist[0]),
            "yaw_rate_rad_s": float(state.twist[5]),
            "points_in_sweep": len(state.sweep),
            "points_outside": packed.outside,
            "subsampled": packed.subsampled,
        }
        # What a model does not have is left out: vectorised environments cannot stack None.
        if state.frames and state.frames[0].tokens is not None:
            info["tokens"] = state.frames[0].tokens.copy()
        if state.frames and state.frames[0].opacity is not None:
            info["opacity"] = packed.padded(state.frames[0].opacity)
        if len(state.frames) > 1:
            seen = packed.observation["points"][: len(packed.kept)]
            others = [frame.sweep.points for frame in state.frames[1:]]
            per_point = disagreement(seen, others)
            info["point_disagreement_m"] = np.zeros(len(packed.observation["points"]), dtype=np.float32)
            info["point_disagreement_m"][: len(seen)] = per_point
            nothing_seen = DISAGREEMENT_CAP_M if any(map(len, others)) else 0.0
            info["disagreement_m"] = float(per_point.mean()) if len(seen) else nothing_seen
        return info

    def _follow(self, plan: Sequence[Any]) -> Branch[WorldModelEnv]:
        env = self.fork()
        return Branch(env=env, transitions=tuple(Transition(*env.step(action)) for action in plan))

    def _begun(self) -> _State:
        if self._state is None:
            raise NotRunningError("no episode has begun: call reset first")
        return self._state

    def _running(self) -> _State:
        state = self._begun()
        if state.steps_done >= self.horizon:
            raise NotRunningError(f"the episode ended at its horizon of {self.horizon} steps: call reset")
        return state


_SHARED: WeakValueDictionary[str, Forecaster] = WeakValueDictionary()


def shared_forecaster(name_or_folder: str | Path) -> Forecaster:
    """The forecaster of a name or folder: one and the same for all environments, as long as one of them lives."""
    from copilot4d.forecasting.load import (
        load_forecaster,  # here: models need torch, the registration of environments does not
    )

    name = str(name_or_folder)
    forecaster = _SHARED.get(name)
    if forecaster is None:
        forecaster = _SHARED[name] = load_forecaster(name_or_folder)
    return forecaster


def _copied(observation: Observation) -> Observation:
    return {name: array.copy() for name, array in observation.items()}


def _number(reward: Any) -> float:
    try:
        number = float(reward)
    except (TypeError, ValueError) as error:
        raise UsageError(f"the reward function must return a number, got {reward!r}; the step was not taken") from error
    if not np.isfinite(number):
        raise UsageError(f"the reward function must return a finite number, got {number}; the step was not taken")
    return number
