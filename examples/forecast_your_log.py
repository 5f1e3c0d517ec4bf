"""Forecast your log, score it, draw it. A notebook as a script: `# %%` begins a cell.

python examples/forecast_your_log.py                                  # a simulated log, forecast by mini
python examples/forecast_your_log.py --data path/to/log --model mini --out forecast_your_log
"""

# %% Settings
import argparse
from collections.abc import Sequence
from pathlib import Path

from copilot4d import load_forecaster, open_dataset
from copilot4d.datasets import write_folder
from copilot4d.datasets.windows import protocol_windows, read_clip
from copilot4d.evaluation import Protocol, evaluate_dataset
from copilot4d.geometry import Sweep
from copilot4d.pictures import Frame, Story, forecast_strip, write_png
from copilot4d.simulator import simulate_drive

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--data", type=Path, help="your log; without it, a simulated one is written")
parser.add_argument("--model", default="mini")
parser.add_argument("--out", type=Path, default=Path("forecast_your_log"))
options = parser.parse_args()
options.out.mkdir(parents=True, exist_ok=True)

# %% A log: yours, or 6 s of a simulated street in the own-data format
log = options.data
if log is None:
    log = options.out / "log"
    if not log.exists():
        write_folder(simulate_drive(seed=2_000_000_000_012, seconds=6.0), log)
dataset = open_dataset(log)
print(f"{log}: {dataset.format}, drives {', '.join(dataset)}")

# %% One moment: five past frames, five future frames, 0.2 s apart
windows = [window for window in protocol_windows(dataset, "1s") if window.complete]
window = windows[len(windows) // 2]
clip = read_clip(dataset[window.drive], window)

# %% Forecast. The poses say where the ego will be; the model predicts what its lidar will measure there
model = load_forecaster(options.model)
future = model.forecast(clip.past, clip.future_poses)
for k, sweep in enumerate(future.sweeps):
    print(f"frame {k + 1}: {len(sweep.points)} points")

# %% Draw past, truth and forecast from above
now = clip.past[-1].timestamp_ns


def frames(sweeps: Sequence[Sweep]) -> list[Frame]:
    """Sweeps with their time after the newest past one."""
    return [Frame(points=s.points, time_s=(s.timestamp_ns - now) / 1e9) for s in sweeps]


predicted = [Frame(points=s.points, time_s=t.time_s) for s, t in zip(future.sweeps, frames(clip.future), strict=False)]
story = Story(past=frames(clip.past), truth=frames(clip.future), forecast=predicted, model=options.model)
print("written:", write_png(options.out / "forecast.png", forecast_strip(story)))

# %% Score three reference frames, and the baseline on the same frames. Smaller is better
protocol = Protocol(roi_half_m=32, every=max(1, len(windows) // 3), limit=3)
for forecaster in (model, load_forecaster("ray_tracing")):
    scores = evaluate_dataset(forecaster, dataset, setting="1s", protocol=protocol)
    print(
        f"{forecaster.name}: ROI Chamfer {scores.metrics['chamfer_roi']:.3f} m², {scores.references} reference frames"
    )
