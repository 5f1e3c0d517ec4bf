"""Where a model fails: its worst references against a baseline, drawn, and what the error lies on.

    python benchmarks/results/failures.py --model runs/world_model --scores world_model.json \\
        --baseline-scores ray_tracing.json --data street-v1/val --out failures

Both score files must be of the same frames. Written: one picture for each, now | truth | forecast | baseline, and
failures.json with their captions.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from causes import explain, seen_before
from numpy.typing import NDArray
from pykdtree.kdtree import KDTree

from copilot4d import load_forecaster, open_dataset
from copilot4d.datasets.windows import read_clip, window_at
from copilot4d.errors import Copilot4dError, ProtocolError, UsageError
from copilot4d.evaluation import Protocol, ScoreFile
from copilot4d.evaluation.chamfer import chamfer_full_and_roi
from copilot4d.evaluation.protocol import protocol_by_name
from copilot4d.evaluation.scores import ReferenceScore
from copilot4d.evaluation.true_rays import TrueFrame, true_frame
from copilot4d.forecaster import Forecast, Forecaster
from copilot4d.forecasting.copilot4d import Copilot4D
from copilot4d.geometry import Clip, Drive, inside_box, se3
from copilot4d.geometry.se3 import FloatArray
from copilot4d.pictures import Frame, Look, write_png
from copilot4d.simulator.drive import SimulatedDrive


def worst(ours: ScoreFile, baseline: ScoreFile, count: int) -> list[tuple[ReferenceScore, ReferenceScore]]:
    """The references where our ROI Chamfer exceeds the baseline's most, one of each drive first."""
    if ours.protocol_hash != baseline.protocol_hash or ours.setting != baseline.setting:
        raise ProtocolError("the two score files were made by different rules")
    known = {(r.drive, r.reference_ns): r for r in baseline.by_reference}
    if not ours.by_reference or not known:
        raise ProtocolError("a score file does not tell its references one by one: score again")
    pairs = [(r, known[r.drive, r.reference_ns]) for r in ours.by_reference if (r.drive, r.reference_ns) in known]
    pairs.sort(key=lambda pair: pair[1].chamfer_roi - pair[0].chamfer_roi)
    first_of_drive = list({pair[0].drive: pair for pair in reversed(pairs)}.values())
    ordered = [pair for pair in pairs if pair in first_of_drive] + [
        pair for pair in pairs if pair not in first_of_drive
    ]
    return ordered[:count]


def forecast_again(
    forecaster: Forecaster, clip: Clip, truth: Sequence[TrueFrame], options: Mapping[str, Any]
) -> Forecast:
    """The forecast that was scored: the same rays and sampling."""
    if isinstance(forecaster, Copilot4D):
        sampler = {name: options[name] for name in ("schedule", "top_k", "reverse") if name in options}
        forecaster = forecaster.with_sampler(**sampler)
        forecaster = (
            forecaster if options.get("depth_selection", options.get("copy_path")) else forecaster.tokens_only()
        )
    sampling = {name: options[name] for name in ("seed", "guidance", "steps") if name in options}
    return forecaster.forecast(clip.past, clip.future_poses, [frame.rays for frame in truth], **sampling)


def in_scoring_frame(frame: TrueFrame, points: FloatArray) -> FloatArray:
    return se3.transform_points(frame.scoring_from_future, points.astype(np.float64))


def moving_points(drive: Drive, index: int, frame: TrueFrame) -> NDArray[np.bool_] | None:
    """(N,) which true points of a future frame lie on something that moves; None where nobody knows."""
    if not isinstance(drive, SimulatedDrive):
        return None
    sweep = drive[index]
    moving: NDArray[np.bool_] = drive.truth(index).moving
    _, row = KDTree(sweep.points.astype(np.float64)).query(frame.points.astype(np.float64), k=1)
    found: NDArray[np.bool_] = moving[row]
    return found


class Predicted(NamedTuple):
    """One predicted frame, in the frame of scoring."""

    points: FloatArray  # the cloud that is scored
    on_rays: FloatArray  # (N, 3) what it says of each true ray
    chamfer_roi: float


class Case:
    """One reference, forecast again by both."""

    def __init__(self, drive: Drive, reference_ns: int, ours: ScoreFile, protocol: Protocol) -> None:
        index = int(np.flatnonzero(drive.timestamps_ns == reference_ns)[0])
        self.drive, self.protocol, self.scores = drive, protocol, ours
        self.clip = read_clip(drive, window_at(drive, index, ours.setting))
        self.truth = [true_frame(self.clip, i, protocol) for i in range(len(self.clip.future))]

    def predicted(self, forecaster: Forecaster) -> list[Predicted]:
        """What a forecaster says of each future frame."""
        made = forecast_again(forecaster, self.clip, self.truth, self.scores.options)
        assert made.depths is not None, "every forecaster answers given rays"
        found = []
        for frame, sweep, depths in zip(self.truth, made.sweeps, made.depths, strict=True):
            points, true = in_scoring_frame(frame, sweep.points), in_scoring_frame(frame, frame.points)
            on_rays = in_scoring_frame(frame, frame.rays.points_at(depths))
            chamfer = chamfer_full_and_roi(points, true, self.protocol.roi).roi
            found.append(Predicted(points, on_rays, chamfer))
        return found

    def draw(
        self, ours: FloatArray, baseline: FloatArray, name: str, k: int, notes: Sequence[str], heading: str
    ) -> NDArray[np.uint8]:
        """now | truth | forecast | baseline, all in the reference frame, cropped to the ROI."""
        look = Look(half=self.protocol.half_m)
        seconds = (self.clip.future[k].timestamp_ns - self.clip.reference.timestamp_ns) * 1e-9
        true = in_scoring_frame(self.truth[k], self.truth[k].points)
        now = self.clip.reference.points.astype(np.float64)
        cells = [look.cell("sweep", Frame(points=self._cropped(now), time_s=0.0))]
        for role, points, note in (("truth", true, ""), ("forecast", ours, notes[0]), (name, baseline, notes[1])):
            cells.append(look.cell(role, Frame(points=self._cropped(points), time_s=seconds, note=note)))
        return look.panel([cells], heading)

    def _cropped(self, points: FloatArray) -> FloatArray:
        return points[inside_box(points, self.protocol.roi)]


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    try:
        draw_worst(options)
    except Copilot4dError as error:
        print(f"failures.py: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    return 0


def draw_worst(options: argparse.Namespace) -> None:
    ours, theirs = ScoreFile.read(options.scores), ScoreFile.read(options.baseline_scores)
    protocol = protocol_by_name(ours.protocol)
    if protocol.scoring_frame != "reference":
        raise UsageError(f"{options.scores}: pictures need scores in the reference frame, not {ours.protocol}")
    model, baseline = load_forecaster(options.model), load_forecaster(theirs.model)
    dataset = open_dataset(options.data)
    options.out.mkdir(parents=True, exist_ok=True)
    entries = []
    for number, (bad, base) in enumerate(worst(ours, theirs, options.count), start=1):
        case = Case(dataset[bad.drive], bad.reference_ns, ours, protocol)
        made, other = case.predicted(model), case.predicted(baseline)
        k = int(np.nanargmax([a.chamfer_roi - b.chamfer_roi for a, b in zip(made, other, strict=True)]))
        mine, its = made[k], other[k]
        frame, index = case.truth[k], case.clip.future_frames[k]
        why = explain(
            mine.on_rays,
            in_scoring_frame(frame, frame.points),
            protocol.roi,
            origin=frame.origin_in(frame.scoring_from_future),
            moving=moving_points(case.drive, index, frame),
            seen=seen_before(case.clip, frame),
        )
        seconds = (case.clip.future[k].timestamp_ns - bad.reference_ns) * 1e-9
        heading = f"{bad.drive}, sweep {case.clip.past_frames[-1]}, {seconds:.1f} s ahead"
        caption = (
            f"{heading}: ROI Chamfer {mine.chamfer_roi:.2f} m² against {its.chamfer_roi:.2f} of {theirs.model} (over "
            f"the whole forecast {bad.chamfer_roi:.2f} against {base.chamfer_roi:.2f}). {why.words()}"
        )
        notes = [f"{one.chamfer_roi:.2f} m²" for one in (mine, its)]
        file = f"{number}.png"
        title = f"{heading}, in the frame of the newest sweep"
        write_png(options.out / file, case.draw(mine.points, its.points, theirs.model, k, notes, title))
        entries.append({"file": file, "caption": caption, "drive": bad.drive, "reference_ns": bad.reference_ns})
        print(caption, flush=True)
    (options.out / "failures.json").write_text(json.dumps({"pictures": entries}, indent=1) + "\n", encoding="utf-8")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a model's folder or run")
    parser.add_argument("--scores", type=Path, required=True, help="its score file")
    parser.add_argument(
        "--baseline-scores", type=Path, required=True, help="a baseline's score file of the same frames"
    )
    parser.add_argument("--data", required=True)
    parser.add_argument("--drives", nargs="+", default=[], help="those that were scored; the score files say which")
    parser.add_argument("--out", type=Path, required=True, help="the folder for the pictures")
    parser.add_argument("--count", type=int, default=3)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
