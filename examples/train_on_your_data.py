"""Fine-tune the shipped world model on your logs, and compare. A notebook as a script: `# %%` begins a cell.

    python examples/train_on_your_data.py                                                  # simulated logs
    python examples/train_on_your_data.py --data my_logs --held-out tuesday --updates 4000

Each cell is a command of the command line. The defaults (2 updates) only show that everything fits together.
"""

# %% Settings
import argparse
from pathlib import Path

from copilot4d import open_dataset
from copilot4d.checkpoints.model_folder import shipped_model
from copilot4d.cli.main import main
from copilot4d.datasets import write_folder
from copilot4d.simulator import simulate_drive

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--data", type=Path, help="your logs, at least two drives; without it, two are simulated")
parser.add_argument("--held-out", default="tuesday", help="the drive that is not trained on")
parser.add_argument("--updates", type=int, default=2)
parser.add_argument("--out", type=Path, default=Path("train_on_your_data"))
options = parser.parse_args()
mini = shipped_model("mini")


def run(*words: object) -> None:
    """A command, as one would type it."""
    print("$ copilot4d", *words)
    assert main([str(word) for word in words]) == 0, "the command failed; its message is above"


# %% Two logs: yours, or simulated ones in the own-data format
logs = options.data
if logs is None:
    logs = options.out / "logs"
    for name, seed in (("monday", 1), ("tuesday", 2)):
        if not (logs / name).exists():
            write_folder(simulate_drive(seed=seed, seconds=4.0, name=name), logs / name)
train_on = [name for name in open_dataset(logs) if name != options.held_out]
print("train on", train_on, "and hold out", options.held_out)

# %% Sweeps to tokens, by the shipped tokenizer
tokens = options.out / "tokens"
run("tokenize", "--tokenizer", mini / "tokenizer", "--data", logs, "--held-out", options.held_out,
    "--gathered-past", "--out", tokens)  # fmt: skip

# %% Fine-tune the world model. The same command goes on after an interrupt
world = options.out / "world"
run("train", "world-model", "--preset", "mini", "--tokens", tokens, "--tokenizer", mini / "tokenizer",
    "--init-from", mini / "world_model", "--learning-rate", "1e-4", "--updates", options.updates, "--batch", "2",
    "--held-out-clips", "2", "--evaluate-every", options.updates, "--run", world)  # fmt: skip

# %% Forecast the held-out drive with it, tokens only
run("forecast", "--model", world, "--data", logs, "--drive", options.held_out, "--frame", "12", "--no-depth-selection",
    "--out", options.out / "forecast")  # fmt: skip

# %% Score it beside the shipped model, both with tokens only
common = ("--data", logs, "--drives", options.held_out, "--setting", "1s", "--roi-half", "32", "--limit", "1",
          "--no-depth-selection")  # fmt: skip
run("evaluate", "--model", world, *common, "--out", options.out / "tuned.json")
run("evaluate", "--model", "mini", *common, "--out", options.out / "shipped.json")
run("compare", options.out / "tuned.json", options.out / "shipped.json")
