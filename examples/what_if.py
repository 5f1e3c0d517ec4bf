"""What if the ego braked, or moved to the left? A notebook as a script: `# %%` begins a cell.

python examples/what_if.py                                  # a simulated street, predicted by mini
python examples/what_if.py --data path/to/log --out what_if.png
"""

# %% Settings
import argparse
from pathlib import Path

import numpy as np

from copilot4d import load_forecaster, open_dataset
from copilot4d.datasets.windows import protocol_windows, read_clip
from copilot4d.geometry import se3
from copilot4d.pictures import Cell, bev_image, panel, write_png
from copilot4d.simulator import simulate_drive

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--data", type=Path, help="your log; without it, a street is simulated")
parser.add_argument("--model", default="mini")
parser.add_argument("--out", type=Path, default=Path("what_if.png"))
options = parser.parse_args()

# %% A moment in the middle of the first drive
dataset = open_dataset(options.data) if options.data else {"street": simulate_drive(seed=7, seconds=6.0)}
windows = [window for window in protocol_windows(dataset, "1s") if window.complete]
window = windows[len(windows) // 2]
clip = read_clip(dataset[window.drive], window)

# %% Three plans as future poses, five frames of 0.2 s: as recorded, braking, one metre to the left
start = clip.past[-1].world_from_lidar
ahead = se3.relative_motion(np.broadcast_to(start, clip.future_poses.shape), clip.future_poses)  # seen from the start


def braking(share: np.ndarray) -> np.ndarray:
    """The recorded path, covered less and less quickly: the last frame has half the way."""
    slower = ahead.copy()
    slower[:, :3, 3] *= share[:, None]
    return start @ slower


left = ahead.copy()
left[:, 1, 3] += np.linspace(0.0, 1.0, len(ahead))  # y is left
plans = {
    "as recorded": clip.future_poses,
    "braking": braking(np.linspace(0.9, 0.5, len(ahead))),
    "one metre to the left": start @ left,
}

# %% Predict each, with the same random draws
model = load_forecaster(options.model)
futures = {name: model.forecast(clip.past, poses, seed=0) for name, poses in plans.items()}
for name, future in futures.items():
    moved = np.linalg.norm(plans[name][-1][:3, 3] - start[:3, 3])
    print(f"{name}: the ego moves {moved:.2f} m, {len(future.sweeps[-1].points)} points in the last frame")

# %% Draw the last frame of each plan, in its own lidar frame
cells = [Cell(bev_image(future.sweeps[-1].points, half=32.0), name) for name, future in futures.items()]
print("written:", write_png(options.out, panel([cells], heading=f"1 s ahead, predicted by {options.model}")))
