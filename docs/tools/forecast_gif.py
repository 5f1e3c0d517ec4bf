"""Draw docs/images/forecast.gif: a simulated street that the model was not trained on, truth beside forecast.

python docs/tools/forecast_gif.py
python docs/tools/forecast_gif.py --drive 7 --reference 60 --setting 3s --out forecast.gif
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from copilot4d import load_forecaster
from copilot4d.datasets.windows import read_clip, window_at
from copilot4d.geometry import Clip, Sweep
from copilot4d.pictures import Cell, bev_image, panel, write_gif
from copilot4d.pictures.ink import Image
from copilot4d.simulator.benchmark import street_v1_drive

PICTURE = Path(__file__).parents[1] / "images" / "forecast.gif"
HALF_M, SIZE_PX = 32.0, 400  # `mini` predicts within 32 m of where the forecast begins


def main(arguments: Sequence[str] | None = None) -> None:
    """Forecast one moment and write the film."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drive", type=int, default=7, help="number of the street-v1 test drive")
    parser.add_argument("--reference", type=int, default=60, help="the newest past sweep")
    parser.add_argument("--setting", choices=("1s", "3s"), default="3s")
    parser.add_argument("--model", default="mini")
    parser.add_argument("--out", type=Path, default=PICTURE)
    options = parser.parse_args(arguments)
    drive = street_v1_drive("test", options.drive)
    clip = read_clip(drive, window_at(drive, options.reference, options.setting))
    model = load_forecaster(options.model)
    future = model.forecast(clip.past, clip.future_poses)
    frames = list(film(clip, future.sweeps, options.model))
    frames += [frames[-1]] * 3  # hold the last frame before the loop begins again
    write_gif(options.out, frames, fps=2.5, colours=64)
    print(f"{options.out}: {options.out.stat().st_size / 1e6:.2f} MB, {len(frames)} frames")


def film(clip: Clip, predicted: Sequence[Sweep], model: str) -> Iterator[Image]:
    """First the past on both sides, then the recorded future beside the predicted one."""
    now_ns = clip.past[-1].timestamp_ns
    for k, truth in enumerate((*clip.past, *clip.future)):
        step = k - len(clip.past)
        ahead = f"{(truth.timestamp_ns - now_ns) / 1e9:+.1f} s"
        right, words = (
            (truth, f"past, given to {model}") if step < 0 else (predicted[step], f"{model} predicts {ahead}")
        )
        left_words = f"recorded {ahead}" if step >= 0 else ("now" if truth.timestamp_ns == now_ns else f"past {ahead}")
        yield panel([[Cell(_above(truth), left_words), Cell(_above(right), words)]])


def _above(sweep: Sweep) -> Image:
    points = np.asarray(sweep.points)
    return bev_image(points, half=HALF_M, size=SIZE_PX, point_px=2, rings=False)


if __name__ == "__main__":
    main()
