"""Does a model move what moves? Rays that truly meet something moving: the share within 1 m of the truth, by frame.

    python benchmarks/moving_rays.py --models mini copy_last --data street-v1/val --setting 1s --every 40
    python benchmarks/moving_rays.py --models mini --tokens-only --setting 3s --drives val_010 val_011

Beside the models stands what the true boxes would say if all agents went on with constant velocity.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from copilot4d import load_forecaster, open_dataset
from copilot4d.datasets.windows import protocol_windows
from copilot4d.evaluation.moving_rays import constant_velocity_errors, moving_ray_errors
from copilot4d.evaluation.moving_tally import MovingTally
from copilot4d.forecasting.copilot4d import Copilot4D
from copilot4d.simulator.drive import SimulatedDrive


def main() -> None:
    """Print one row per model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["mini", "copy_last"])
    parser.add_argument("--tokens-only", action="store_true", help="rays read the decoded tokens alone")
    parser.add_argument("--data", default="street-v1/val")
    parser.add_argument("--drives", nargs="*", default=[])
    parser.add_argument("--setting", default="1s", choices=["1s", "3s"])
    parser.add_argument("--every", type=int, default=40)
    parser.add_argument("--whole-past", action="store_true", help="leave out references with fewer past sweeps")
    parser.add_argument(
        "--steps", type=int, default=None, help="sampling steps per frame; by default as stored with the model"
    )
    parser.add_argument("--top-k", type=int, default=None, help="by default as stored with the model")
    parser.add_argument("--schedule", default=None, help="by default as stored with the model")
    parser.add_argument("--guidance", type=float, default=None, help="by default as stored with the model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=None, help="a JSON file for the rows")
    options = parser.parse_args()
    dataset = open_dataset(options.data)
    names = options.drives or dataset.names
    drives = {name: drive for name in names if isinstance(drive := dataset[name], SimulatedDrive)}
    windows = [w for w in protocol_windows(drives, options.setting, every=options.every) if w.future]
    if options.whole_past:
        most = max(len(w.past) for w in windows)
        windows = [w for w in windows if len(w.past) == most]
    rows = {"constant velocity (true boxes)": constant_velocity_errors(drives, windows)}
    for name in options.models:
        model = load_forecaster(name)
        label = name
        if isinstance(model, Copilot4D):
            changes = {"top_k": options.top_k, "schedule": options.schedule}
            model = model.with_sampler(**{key: value for key, value in changes.items() if value is not None})
            if options.tokens_only:
                model, label = model.tokens_only(), f"{name}, tokens only"
        rows[label] = moving_ray_errors(
            model, drives, windows, steps=options.steps, guidance=options.guidance, seed=options.seed
        )
    print(f"{options.data}, {options.setting}, {len(drives)} drives, {len(windows)} references")
    for label, tally in rows.items():
        print(f"{label:36s} {described(tally)}", flush=True)
    if options.out is not None:
        said = {label: tally.summary() for label, tally in rows.items()}
        options.out.write_text(json.dumps(said, indent=1) + "\n")


def described(tally: MovingTally) -> str:
    """One row."""
    found = tally.summary()
    if not found:
        return "no ray meets something moving"
    frames = " ".join(f"{100 * row['within_1m']:.0f}" for row in found["per_horizon"])
    near = f"within 1 m {100 * found['within_1m']:.0f}% ({frames})"
    return f"{near}  median {found['median_m']:.2f} m  {found['rays']} rays"


if __name__ == "__main__":
    main()
