"""What if the ego did something else? Forecasts under four plans against four true futures (docs/whatif.md).

    python benchmarks/counterfactual.py --model ray_tracing --moments 60 --out ray_tracing.jsonl
    python benchmarks/counterfactual.py --model truth --moments 60       # the measurement itself: must score 100%

One JSON line per moment; a run that was stopped goes on. The first use of a moment simulates it (some 30 s).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copilot4d import load_forecaster, open_dataset
from copilot4d.datasets.windows import window_at
from copilot4d.evaluation.counterfactual import Branch, near_moving, obedience
from copilot4d.evaluation.reaction import HELD_UP_M, LanePath, displacement_m, reacts
from copilot4d.evaluation.whatif_summary import summarise
from copilot4d.forecaster import Forecast, sampling_of
from copilot4d.geometry import Drive, Sweep, inside_box, se3
from copilot4d.geometry.se3 import FloatArray
from copilot4d.simulator.benchmark import PLANS
from copilot4d.simulator.drive import MOVING_M_S, SimulatedDrive
from copilot4d.simulator.lidar import MOVING_BASE

Z_M = (-4.0, 4.0)


def simulated(drive: Drive) -> SimulatedDrive:
    """The drive, which knows its truth."""
    assert isinstance(drive, SimulatedDrive)
    return drive


class WhatIf:
    """One moment: its past, and the four true futures."""

    def __init__(self, number: int, setting: str, data: str) -> None:
        dataset = open_dataset(data)
        self.number = number
        self.drives = {plan: simulated(dataset[f"whatif_{number:02d}_{plan}"]) for plan in PLANS}
        any_drive = self.drives["keep"]
        assert any_drive.moment_frame is not None
        self.window = window_at(any_drive, any_drive.moment_frame, setting)
        self.past = [any_drive[i].without_box(any_drive.ego_box) for i in self.window.past]
        self.frames = self.window.future
        self.poses = {plan: drive.world_from_lidar[list(self.frames)] for plan, drive in self.drives.items()}
        self.sweeps = {plan: [self._true(drive, i) for i in self.frames] for plan, drive in self.drives.items()}
        self.branches = {plan: self._branch(plan) for plan in PLANS}

    def _true(self, drive: SimulatedDrive, frame: int) -> Sweep:
        sweep: Sweep = drive[frame]
        return sweep.without_box(drive.ego_box)

    def _agents(self, frame: int) -> NDArray[np.bool_]:
        """(A,) which agents move at this time in any of the four futures: one that stopped in one counts there too."""
        moves: NDArray[np.bool_] = np.any(
            [d.truth(frame).agent_speeds_m_s > MOVING_M_S for d in self.drives.values()], axis=0
        )
        moves[0] = False
        return moves

    def _branch(self, plan: str) -> Branch:
        drive, moving, boxes = self.drives[plan], [], []
        assert drive.ego_box is not None
        for frame in self.frames:
            truth, sweep, agents = drive.truth(frame), drive[frame], self._agents(frame)
            agent = truth.object_ids - MOVING_BASE
            kept = ~inside_box(sweep.points, drive.ego_box)
            moving.append(np.append(agents, False)[np.where(agent >= 0, agent, -1)][kept])
            boxes.append(np.concatenate([truth.agent_poses, truth.agent_sizes_m], axis=1)[agents])
        points = [sweep.points for sweep in self.sweeps[plan]]
        return Branch(points=points, moving=moving, moving_boxes=boxes, world_from_lidar=self.poses[plan])

    def follower_path(self) -> LanePath | None:
        """The way of the car behind under `keep`, from the moment to the last frame."""
        keep = self.drives["keep"]
        if keep.follower is None:
            return None
        frames = range(self.window.reference, self.frames[-1] + 1)
        poses = np.stack([keep.truth(i).agent_poses[keep.follower] for i in frames])
        _, width, height = keep.truth(self.frames[-1]).agent_sizes_m[keep.follower]
        return LanePath.of(poses, float(width), float(height))

    def true_displacement_m(self, path: LanePath) -> float:
        """Of the follower's middle at the last frame, brake minus keep, along its way."""
        last = self.frames[-1]
        places = [self.drives[p].truth(last).agent_poses[self.drives[p].follower, :3] for p in ("brake", "keep")]
        along, _, _ = path.position_m(np.stack(places))
        return float(along[0] - along[1])


def measure(moment: WhatIf, forecasts: Mapping[str, Sequence[Sweep]], roi: FloatArray) -> dict[str, Any]:
    """All that is known about one moment."""
    truths = {plan: branch.points for plan, branch in moment.branches.items()}
    moving = {plan: branch.moving_points() for plan, branch in moment.branches.items()}
    found: dict[str, Any] = {"all": {}, "moving": {}}
    for plan in PLANS:
        clouds = [sweep.points for sweep in forecasts[plan]]
        found["all"][plan] = asdict(obedience(plan, clouds, truths, roi))
        on_moving = near_moving(clouds, moment.poses[plan], moment.branches)
        found["moving"][plan] = asdict(obedience(plan, on_moving, moving, roi))
    found["reaction"] = reaction(moment, forecasts)
    return found


def reaction(moment: WhatIf, forecasts: Mapping[str, Sequence[Sweep]]) -> dict[str, Any] | None:
    """None where nobody follows, or the follower does not brake, or cannot be seen in the true sweeps."""
    path = moment.follower_path()
    if path is None:
        return None
    true_m = moment.true_displacement_m(path)
    seen_m = _displacement(moment.sweeps, path)
    if not (true_m <= -HELD_UP_M and np.isfinite(seen_m)):
        return None
    imagined_m = _displacement(forecasts, path)
    return {"true_m": true_m, "seen_m": seen_m, "imagined_m": imagined_m, "reacts": reacts(imagined_m, true_m)}


def _displacement(sweeps: Mapping[str, Sequence[Sweep]], path: LanePath) -> float:
    last = {plan: sweeps[plan][-1] for plan in ("brake", "keep")}
    in_world = {p: se3.transform_points(s.world_from_lidar, s.points.astype(np.float64)) for p, s in last.items()}
    return displacement_m(in_world["brake"], in_world["keep"], path)


def main() -> None:
    arguments = parse()
    out = Path(arguments.out or f"whatif_{Path(arguments.model).name}_{arguments.setting}.jsonl")
    forecaster = None if arguments.model == "truth" else load_forecaster(arguments.model, tokenizer=arguments.tokenizer)
    used = sampling_of(forecaster, guidance=arguments.guidance, steps=arguments.sampling_steps)
    key = {
        "model": "truth" if forecaster is None else forecaster.name,
        "fingerprint": "" if forecaster is None else forecaster.fingerprint,
        **{name: getattr(arguments, name) for name in ("setting", "data", "seed")},
        "guidance": used.guidance,
        "sampling_steps": used.steps,
        "roi_half": arguments.roi_half,
    }
    lines = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    if any(line["key"] != key for line in lines):
        sys.exit(f"{out} was made by another model or with other options; choose another --out, or remove it")
    done = {line["moment"] for line in lines}
    half = arguments.roi_half
    roi = np.array([-half, -half, Z_M[0], half, half, Z_M[1]])
    for number in range(arguments.moments):
        if number in done:
            continue
        moment = WhatIf(number, arguments.setting, arguments.data)
        forecasts: dict[str, Sequence[Sweep]] = {}
        for plan in PLANS:
            if forecaster is None:
                forecasts[plan] = moment.sweeps[plan]
                continue
            made: Forecast = forecaster.forecast(
                moment.past,
                moment.poses[plan],
                seed=arguments.seed,
                guidance=used.guidance,
                steps=used.steps,
            )
            forecasts[plan] = made.sweeps
        line = {"key": key, "moment": number, **measure(moment, forecasts, roi)}
        lines.append(line)
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(_plain(line), allow_nan=False) + "\n")
        print(f"moment {number}: {summarise([line]).text()}", flush=True)
    lines.sort(key=lambda line: line["moment"])
    print(f"\n{key['model']}, {arguments.setting}, {len(lines)} moments\n{summarise(lines).text()}\nWrote {out}")


def _plain(value: Any) -> Any:
    """NaN has no place in JSON."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return None if isinstance(value, float) and np.isnan(value) else value


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a baseline, a model's folder or run, or `truth`")
    parser.add_argument("--tokenizer", help="of a world model's run that does not name its own")
    parser.add_argument("--moments", type=int, default=60)
    parser.add_argument("--setting", default="3s", choices=["1s", "3s"])
    parser.add_argument("--data", default="street-v1-whatif")
    parser.add_argument("--out")
    parser.add_argument("--roi-half", type=float, default=32.0, help="metres, in each sweep's own frame")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--guidance", type=float, default=None, help="by default as stored with the model")
    parser.add_argument("--sampling-steps", type=int, default=None, help="by default as stored with the model")
    return parser.parse_args()


if __name__ == "__main__":
    main()
