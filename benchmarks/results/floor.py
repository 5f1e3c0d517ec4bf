"""The floor of any forecast: the true tokens of the future, decoded and scored as if they had been forecast.

    python benchmarks/results/floor.py --tokenizer runs/streets --data street-v1/val --setting 3s --out floor.json

A forecaster of tokens that was always right would get exactly this score. By default a future sweep is tokenised in the
frame of the reference sweep, as the mini world model does: what left the region by then is lost to it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from copilot4d import open_dataset
from copilot4d.checkpoints.load_tokenizer import LoadedTokenizer, load_tokenizer
from copilot4d.cli.console import track
from copilot4d.cli.evaluate import check_writable, choose_drives, show
from copilot4d.datasets.windows import read_clip, window_at
from copilot4d.errors import Copilot4dError, ForecastError, UsageError
from copilot4d.evaluation import Protocol, evaluate_dataset
from copilot4d.forecaster import Forecast, PlainForecaster, check_forecast_input
from copilot4d.forecasting import stages
from copilot4d.geometry import Drive, Rays, Sweep, sweep_on
from copilot4d.geometry.se3 import FloatArray
from copilot4d.tokenizer import Tokenizer
from copilot4d.training.malloc import keep_freed_memory

TokenFrame = Literal["reference", "own"]


class TokenizerFloor(PlainForecaster):
    """Answers with the truth, as far as its tokens hold it. It knows the drives that it is asked about."""

    name = "tokenizer_floor"

    def __init__(
        self, loaded: LoadedTokenizer, drives: Mapping[str, Drive], setting: str, *,
        token_frame: TokenFrame = "reference",
    ) -> None:  # fmt: skip
        if loaded.tokenizer.config.mode == "voxel_centres":
            raise UsageError("a tokenizer of mode 'voxel_centres' renders no rays, so it has no floor on rays")
        self.tokenizer: Tokenizer = loaded.tokenizer.eval()
        self.setting, self.token_frame = setting, token_frame
        self.fingerprint = f"{loaded.sha256} {token_frame}"
        self.settings = {"token_frame": token_frame, "tokenizer_sha256": loaded.sha256}
        self._drives = drives
        self._references: dict[tuple[int, bytes], list[tuple[str, int]]] = {}  # drives may start alike
        for name, drive in drives.items():
            for frame, time_ns in enumerate(drive.timestamps_ns):
                key = _moment(int(time_ns), drive.world_from_lidar[frame])
                self._references.setdefault(key, []).append((name, frame))

    @torch.no_grad()
    def forecast(
        self, past: Sequence[Sweep], future_poses: FloatArray, rays: Sequence[Rays] | None = None, *,
        guidance: float | None = None, steps: int | None = None, seed: int = 0, futures: int = 1,
    ) -> Forecast:  # fmt: skip
        """See `Forecaster.forecast`; the past says only which moment is meant."""
        check_forecast_input(past, future_poses, rays, futures=futures)
        if rays is None:
            raise ForecastError("the floor answers given rays only")
        reference = past[-1].world_from_lidar
        sweeps, depths = [], []
        for sweep, its_rays in zip(self._future(past[-1], future_poses), rays, strict=True):
            depths.append(self._rendered(sweep, reference, its_rays, seed))
            sweeps.append(sweep_on(its_rays, depths[-1], sweep.world_from_lidar, sweep.timestamp_ns))
        return Forecast(sweeps=tuple(sweeps), depths=tuple(depths))

    def _future(self, newest: Sweep, future_poses: FloatArray) -> tuple[Sweep, ...]:
        """The true sweeps after this one: those of the drive that has this moment and these poses after it."""
        found = []
        for name, frame in self._references.get(_moment(newest.timestamp_ns, newest.world_from_lidar), []):
            window = window_at(self._drives[name], frame, self.setting)
            if np.array_equal(self._drives[name].world_from_lidar[list(window.future)], future_poses):
                found.append((name, window))
        if len(found) != 1:
            raise ForecastError(
                f"{len(found)} drives have this moment with these future poses, where one is needed: the floor can be "
                "measured only on the drives and in the setting that it was made for"
            )
        name, window = found[0]
        return read_clip(self._drives[name], window).future

    def _rendered(self, sweep: Sweep, world_from_reference: FloatArray, rays: Rays, seed: int) -> FloatArray:
        """(R,) depths along a sweep's rays in the scene that its own tokens decode to."""
        reference = None if self.token_frame == "own" else world_from_reference
        scene = self.tokenizer.decode(stages.encode(self.tokenizer, [sweep], reference))
        (reading,) = stages.render(self.tokenizer, scene, rays, sweep.world_from_lidar, reference, seed=seed)
        return reading.depths_m


def _moment(time_ns: int, world_from_lidar: FloatArray) -> tuple[int, bytes]:
    return time_ns, world_from_lidar.astype("float64").tobytes()


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    try:
        measure(options)
    except Copilot4dError as error:
        print(f"floor.py: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        return 130
    return 0


def measure(options: argparse.Namespace) -> None:
    check_writable(options.out)
    keep_freed_memory()
    dataset = choose_drives(open_dataset(options.data), tuple(options.drives), None)
    forecaster = TokenizerFloor(
        load_tokenizer(options.tokenizer), dataset, options.setting, token_frame=options.token_frame
    )
    partial = options.out.with_name(f"{options.out.name}.partial")
    scores = evaluate_dataset(
        forecaster, dataset, setting=options.setting,
        protocol=Protocol(roi_half_m=options.roi_half, every=options.every), seed=options.seed,
        data=f"{dataset.format}: {options.data}", resume=partial, track=track,
    )  # fmt: skip
    scores.write(options.out)
    partial.unlink(missing_ok=True)
    show(scores)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", required=True, help="its run, a checkpoint, or a shared folder")
    parser.add_argument("--data", required=True)
    parser.add_argument("--drives", nargs="+", default=[])
    parser.add_argument("--setting", required=True, choices=["1s", "3s"])
    parser.add_argument("--out", type=Path, required=True, help="the score file")
    parser.add_argument("--roi-half", type=float, default=32.0, help="metres")
    parser.add_argument("--every", type=int, default=12, help="score only each n-th reference frame")
    parser.add_argument("--token-frame", default="reference", choices=["reference", "own"])
    parser.add_argument("--seed", type=int, default=0, help="of the noise in spatial skipping")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
