"""Training, evaluating and serving the studio in one process for hours: does memory stay flat?

    python benchmarks/soak.py --minutes 120 --out soak           # soak/memory.csv, soak/memory.png
    python benchmarks/soak.py --minutes 5

Round after round: some updates of a tokenizer from where the last round stopped (checkpoint, loader, log and all), the
protocol's scores of a model on a drive, and the page of a studio that serves on 127.0.0.1 all the while (without a
browser: its windows have an endurance test of their own, tests/studio/test_endurance.py).
Memory is what the process holds after collecting garbage and giving free pages back. The first quarter warms up; the
mean of the last quarter must lie within 2% of that of the second, else the exit code is 1.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import gc
import sys
import tempfile
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch

from copilot4d import presets
from copilot4d.datasets import open_dataset, write_folder
from copilot4d.evaluation import evaluate_dataset
from copilot4d.forecasting.copilot4d import Copilot4D
from copilot4d.simulator import simulate_drive
from copilot4d.studio.library import Library
from copilot4d.studio.server import Studio
from copilot4d.studio.view import Start
from copilot4d.tokenizer import Tokenizer
from copilot4d.training import Recipe, TrainingConfig, train
from copilot4d.training.tasks.tokenizer import TokenizerTask, TokenizerTraining
from copilot4d.world_model import WorldModel

FLAT = 0.02
UPDATES = 20  # of a round


def resident_mb() -> float:
    """What this process holds, after what is free was given back."""
    gc.collect()
    with suppress(OSError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def growth(memory_mb: list[float]) -> float:
    """How much the mean of the last quarter lies above that of the second; the first quarter warms up."""
    second, last = (np.mean(np.array_split(memory_mb, 4)[i]) for i in (1, 3))
    return float(last / second - 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--out", type=Path, help="folder for memory.csv and memory.png")
    options = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as scratch:
        rows = soak(Path(scratch), options.minutes)
    grown = growth([row[2] for row in rows]) if len(rows) >= 8 else float("nan")
    if options.out is not None:
        write(options.out, rows, grown)
    said = (
        "too few rounds to tell" if np.isnan(grown) else f"memory changed by {grown:+.2%} (at most {FLAT:.0%} allowed)"
    )
    print(f"{len(rows)} rounds in {rows[-1][1]:.1f} minutes, {rows[-1][2]:.0f} MB: {said}")
    return int(grown > FLAT)


def soak(scratch: Path, minutes: float) -> list[tuple[int, float, float]]:
    """(round, minutes, MB) of every round."""
    drive = simulate_drive(seed=1, seconds=3.0)
    write_folder(drive, scratch / "data" / "street")
    dataset = open_dataset(scratch / "data" / "street")
    config = presets.tiny()
    forecaster = Copilot4D(Tokenizer(config.tokenizer), WorldModel(config.world_model))
    training = TokenizerTraining(tokenizer=config.tokenizer, rays_per_sweep=256)
    recipe = Recipe(batch=2, learning_rate=1e-3, warmup_steps=10, cosine_steps=1_000_000, clip_norm=0.1)
    studio = Studio(
        Start(data=str(dataset.root), model="copy_last", out=scratch), Library(), port=0, settle_s=0.01
    )  # fmt: skip
    rows: list[tuple[int, float, float]] = []
    began = time.monotonic()
    try:
        while (time.monotonic() - began) / 60 < minutes:
            task = TokenizerTask(training, [drive], [drive], held_out_sweeps=2)
            run = TrainingConfig(
                recipe=recipe, run=scratch / "run", max_steps=UPDATES * (len(rows) + 1), workers=1, device="cpu",
                log_every=10, save_every=10, evaluate_every=UPDATES, pictures_every=None, precision="fp32",
            )  # fmt: skip
            train(task, run)
            evaluate_dataset(forecaster, dataset, setting="1s", limit=1, steps=2)
            with urllib.request.urlopen(studio.url, timeout=60) as page:
                assert page.status == 200
            rows.append((len(rows), (time.monotonic() - began) / 60, resident_mb()))
            print(f"round {len(rows)}, {rows[-1][1]:.1f} min: {rows[-1][2]:.1f} MB", flush=True)
    finally:
        studio.close()
    return rows


def write(out: Path, rows: list[tuple[int, float, float]], grown: float) -> None:
    """The numbers, and their plot."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    out.mkdir(parents=True, exist_ok=True)
    with (out / "memory.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("round", "minutes", "mb"), *rows])
    figure, axes = pyplot.subplots(figsize=(7, 3))
    axes.plot([row[1] for row in rows], [row[2] for row in rows])
    axes.set(xlabel="minutes", ylabel="memory of the process, MB", ylim=(0, None), title=f"change {grown:+.2%}")
    figure.savefig(out / "memory.png", dpi=120, bbox_inches="tight")


if __name__ == "__main__":
    sys.exit(main())
