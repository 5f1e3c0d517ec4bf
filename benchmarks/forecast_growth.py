"""How the cost of a forecast grows with rays, futures, frames, sampling steps and the region, with fitted exponents.

    python benchmarks/forecast_growth.py                              # the shipped model on a simulated street
    python benchmarks/forecast_growth.py --data path/to/kitti --drive 08 --plot docs/images/growth.png

CPU seconds of one thread, so that other work on the machine hardly counts; the smaller of `--repeats` forecasts. One
thing changes at a time, from the values that `--rays`, `--frames` and `--sampling-steps` give; the region is that of
the mini preset with random weights, and it brings its tokens along: half as wide has a quarter of them. The exponent is
the slope of a line through the logarithms: 1 is in proportion, less means that there is a part that does not grow.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from copilot4d import load_forecaster, open_dataset, presets
from copilot4d.datasets.windows import read_clip, window_at
from copilot4d.forecaster import Forecaster, sampling_of
from copilot4d.forecasting.copilot4d import Copilot4D
from copilot4d.geometry import Clip, Rays, VoxelGrid
from copilot4d.tokenizer import PointBatch, Tokenizer
from copilot4d.tokenizer.skipping import true_mask
from copilot4d.tokenizer.voxels import voxelise
from copilot4d.training.malloc import keep_freed_memory
from copilot4d.world_model import WorldModel
from forecast_speed import some_rays

RAYS, FUTURES, FRAMES, STEPS = (5_000, 20_000, 60_000, 120_000), (1, 2, 4), (1, 2, 4), (1, 2, 4, 8)
HALVES_M = (16.0, 32.0, 64.0)


def main() -> None:
    options = parse()
    torch.set_num_threads(1)
    keep_freed_memory()
    drive = open_dataset(options.data)[options.drive]
    clip = read_clip(drive, window_at(drive, options.frame, "1s"))
    model = load_forecaster(options.model)
    steps = sampling_of(model, steps=options.sampling_steps).steps
    usual = {"rays": options.rays, "frames": options.frames, "steps": steps, "futures": 1}
    cost(model, clip, **usual, repeats=1)  # compiles and warms up

    def along(name: str, values: Sequence[int]) -> list[float]:
        return [cost(model, clip, **(usual | {name: value}), repeats=options.repeats) for value in values]

    curves: dict[str, tuple[Sequence[float], list[float]]] = {
        "rays": (RAYS, along("rays", RAYS)), "futures": (FUTURES, along("futures", FUTURES)),
        "frames": (FRAMES, along("frames", FRAMES)), "sampling steps": (STEPS, along("steps", STEPS)),
    }  # fmt: skip
    regions = [cost(mini_of(half, clip), clip, **usual, repeats=options.repeats) for half in HALVES_M]
    curves["region, half its width in metres"] = (HALVES_M, regions)
    curves["tokens"] = ([(half / HALVES_M[0] * 16) ** 2 for half in HALVES_M], regions)
    print(f"{options.model} on {options.data}, CPU seconds of one thread; where it does not change: {usual}")
    print("| grows with | values | CPU seconds | exponent |\n|---|---|---|---|")
    for name, (values, seconds) in curves.items():
        shown = " / ".join(f"{value:g}" for value in values)
        print(f"| {name} | {shown} | {' / '.join(f'{s:.2f}' for s in seconds)} | {exponent(values, seconds):.2f} |")
    if options.plot is not None:
        draw(curves, options.plot)


def cost(
    model: Forecaster, clip: Clip, *, rays: int, frames: int, steps: int, futures: int, repeats: int
) -> float:  # fmt: skip
    """CPU seconds of one forecast."""
    asked: list[Rays] = [some_rays(sweep, rays) for sweep in clip.future[:frames]]

    def forecast() -> object:
        return model.forecast(clip.past, clip.future_poses[:frames], asked, steps=steps, futures=futures)

    return min(spent(forecast) for _ in range(repeats))


def spent(work: Callable[[], object]) -> float:
    before = time.process_time()
    work()
    return time.process_time() - before


def mini_of(half_m: float, clip: Clip) -> Copilot4D:
    """The mini preset, fresh, with another region: voxels and tokens keep their size. Rays are sampled where the newest
    past sweep has points, as those of a trained model are.
    """
    config = presets.mini()
    grid, scale = config.tokenizer.grid, half_m / 32.0
    (_, _, low), (_, _, high) = grid.minimum, grid.maximum
    shape = (round(grid.shape[0] * scale), round(grid.shape[1] * scale), grid.shape[2])
    larger = VoxelGrid.from_bounds((-half_m, -half_m, low), (half_m, half_m, high), shape)
    tokenizer = Tokenizer(dataclasses.replace(config.tokenizer, grid=larger)).eval()
    world_model = WorldModel(dataclasses.replace(config.world_model, tokens=tokenizer.config.tokens))
    mask = true_mask(voxelise(PointBatch.of([clip.past[-1]]), larger), tokenizer.config.skipping.pool)
    tokenizer.mask_of = lambda scene, *_: mask.expand(len(scene), -1, -1, -1)  # type: ignore[method-assign]
    return Copilot4D(tokenizer, world_model)


def exponent(values: Sequence[float], seconds: Sequence[float]) -> float:
    """The slope of a line through the logarithms."""
    return float(np.polyfit(np.log(values), np.log(seconds), 1)[0])


def draw(curves: dict[str, tuple[Sequence[float], list[float]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 4.0))
    for name, (values, seconds) in curves.items():
        if name != "tokens":  # the same forecasts as those of the region
            label = f"{name} ({exponent(values, seconds):.2f})"
            axes.loglog(np.array(values) / values[0], seconds, marker="o", label=label)
    axes.set_xlabel("times the smallest value")
    axes.set_ylabel("CPU seconds of a forecast, one thread")
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend(title="grows with (exponent)")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="mini")
    parser.add_argument("--data", default="street-v1/val")
    parser.add_argument("--drive", default="val_000")
    parser.add_argument("--frame", type=int, default=40)
    parser.add_argument("--rays", type=int, default=20_000)
    parser.add_argument("--frames", type=int, default=2)
    parser.add_argument("--sampling-steps", type=int, default=None, help="by default as stored with the model")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--plot", type=Path, default=None, help="where to draw the curves (PNG)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
