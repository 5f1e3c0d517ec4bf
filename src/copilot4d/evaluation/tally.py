"""`Tally`: collects the scores of single frames into those of a data set."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copilot4d.evaluation.frame_score import METRICS, DetailedScore, FrameScore
from copilot4d.evaluation.moving_tally import MovingTally
from copilot4d.evaluation.pooled_median import PooledMedian
from copilot4d.evaluation.protocol import Protocol
from copilot4d.evaluation.scores import HorizonScore, ReferenceScore, ScoreFile
from copilot4d.evaluation.several import SeveralFrame, several_from_plain, several_to_plain, summarise_several
from copilot4d.geometry.se3 import FloatArray


class Tally:
    """Frames in, one `ScoreFile` out: unweighted means over all frames, the same per horizon, pooled medians."""

    def __init__(self, *, parity: bool) -> None:
        self._parity = parity
        self.seconds_forecasting = 0.0
        self._scores: dict[int, list[FrameScore]] = defaultdict(list)  # by horizon
        self._seconds_ahead: dict[int, list[float]] = defaultdict(list)
        self._references: dict[tuple[str, int], list[float]] = defaultdict(list)  # ROI Chamfer of each one's frames
        self._horizons: dict[tuple[str, int], list[int]] = defaultdict(list)  # which frames these are
        self._reasons: Counter[str] = Counter()
        self._frames: list[str] = []
        self._l1, self._absrel = PooledMedian(), PooledMedian()
        self._several: list[SeveralFrame] = []
        self._moving = MovingTally()

    def add(
        self, drive: str, horizon: int, times_ns: tuple[int, int], detailed: DetailedScore, *, truth: str = ""
    ) -> None:
        """One scored frame: its horizon (1 is the first), the times of its reference frame and of itself.

        `truth` tells apart logs that share names and times but not what was measured.
        """
        reference_ns, future_ns = times_ns
        self._scores[horizon].append(detailed.score)
        self._seconds_ahead[horizon].append((future_ns - reference_ns) * 1e-9)
        self._references[drive, reference_ns].append(detailed.score.chamfer_roi)
        self._horizons[drive, reference_ns].append(horizon)
        self._frames.append(f"{drive} {reference_ns} {future_ns} {truth}\n")
        self._l1.add(detailed.roi_l1[np.isfinite(detailed.roi_l1)])
        self._absrel.add(detailed.roi_absrel[np.isfinite(detailed.roi_absrel)])

    def add_moving(self, horizon: int, errors_m: FloatArray) -> None:
        """Depth errors of the rays of a frame that meet something moving."""
        self._moving.add(horizon, errors_m)

    def add_several(self, frames: Sequence[SeveralFrame]) -> None:
        """What several futures of a window say beside the first one's scores."""
        self._several += frames

    def not_scored(self, reason: str, frames: int = 1) -> None:
        """Frames of the protocol that have no score, and why."""
        if frames:
            self._reasons[reason] += frames

    @property
    def frames_scored(self) -> int:
        """How many (reference, future frame) pairs have a score."""
        return sum(map(len, self._scores.values()))

    def reasons(self) -> str:
        """Why frames have no score, for messages."""
        return "; ".join(f"{count} frames: {reason}" for reason, count in self._reasons.items()) or "there are none"

    def score_file(self, *, protocol: Protocol, futures: int = 1, **about: Any) -> ScoreFile:
        """All that was added, with what the caller knows about the run."""
        every_score = [score for scores in self._scores.values() for score in scores]
        return ScoreFile(
            protocol=protocol.name,
            protocol_hash=protocol.hash,
            protocol_rules=protocol.rules,
            frames_scored=self.frames_scored,
            frames_not_scored=sum(self._reasons.values()),
            not_scored_because=dict(self._reasons),
            metrics=self._means(every_score),
            per_horizon=[
                HorizonScore(
                    horizon=horizon,
                    seconds_ahead=float(np.mean(self._seconds_ahead[horizon])),
                    frames_scored=len(scores),
                    metrics=self._means(scores),
                )
                for horizon, scores in sorted(self._scores.items())
            ],
            references=len(self._references),
            by_reference=[
                ReferenceScore(
                    drive=drive,
                    reference_ns=time_ns,
                    frames=len(values),
                    chamfer_roi=float(np.mean(values)),
                    chamfer_roi_ahead=self._ahead(drive, time_ns),
                )
                for (drive, time_ns), values in sorted(self._references.items())
            ],
            seconds_forecasting=self.seconds_forecasting,
            frames_hash=hashlib.sha256("".join(self._frames).encode()).hexdigest()[:12],
            pooled={"roi_l1_median": self._l1.value(), "roi_absrel_median": self._absrel.value()},
            several=summarise_several(self._several, futures),
            moving=self._moving.summary(),
            **about,
        )

    def state(self) -> tuple[dict[str, Any], NDArray[np.int64], NDArray[np.int64]]:
        """All that was added, as plain values and the counts behind the two pooled medians (see `restore`)."""
        plain = {
            "scores": [[horizon, list(s.as_dict().values())] for horizon, row in self._scores.items() for s in row],
            "seconds_ahead": [[horizon, s] for horizon, row in self._seconds_ahead.items() for s in row],
            "references": [[*key, values] for key, values in sorted(self._references.items())],
            "horizons": [[*key, values] for key, values in sorted(self._horizons.items())],
            "reasons": dict(self._reasons),
            "frames": self._frames,
            "seconds_forecasting": self.seconds_forecasting,
            "several": [several_to_plain(frame) for frame in self._several],
            "moving": self._moving.to_plain(),
        }
        return plain, self._l1.counts, self._absrel.counts

    def restore(self, plain: Mapping[str, Any], l1_counts: NDArray[np.int64], absrel_counts: NDArray[np.int64]) -> None:
        """Become the tally whose `state` this is."""
        restored = Tally(parity=self._parity)
        if l1_counts.shape != restored._l1.counts.shape or absrel_counts.shape != restored._absrel.counts.shape:
            raise ValueError("the counts have another shape")
        for horizon, values in plain["scores"]:
            restored._scores[int(horizon)].append(FrameScore(**dict(zip(METRICS, values, strict=True))))
        for horizon, seconds in plain["seconds_ahead"]:
            restored._seconds_ahead[int(horizon)].append(float(seconds))
        for drive, reference_ns, values in plain["references"]:
            restored._references[str(drive), int(reference_ns)] = [float(value) for value in values]
        for drive, reference_ns, horizons in plain["horizons"]:
            restored._horizons[str(drive), int(reference_ns)] = [int(horizon) for horizon in horizons]
        restored._reasons = Counter({str(reason): int(count) for reason, count in plain["reasons"].items()})
        restored._moving = MovingTally.from_plain(plain.get("moving", ()))
        restored._several = [several_from_plain(values) for values in plain["several"]]
        restored._frames = [str(line) for line in plain["frames"]]
        restored.seconds_forecasting = float(plain["seconds_forecasting"])
        restored._l1.counts, restored._absrel.counts = l1_counts.copy(), absrel_counts.copy()
        self.__dict__.update(restored.__dict__)

    def _ahead(self, drive: str, reference_ns: int) -> list[float]:
        """ROI Chamfer of each future frame of a reference; NaN for a frame between others that has no score."""
        key = drive, reference_ns
        known = dict(zip(self._horizons[key], self._references[key], strict=True))
        return [known.get(k, float("nan")) for k in range(1, max(known, default=0) + 1)]

    def _means(self, scores: Sequence[FrameScore]) -> dict[str, float]:
        return {metric: self._mean(metric, scores) for metric in METRICS}

    def _mean(self, metric: str, scores: Sequence[FrameScore]) -> float:
        values = np.array([getattr(score, metric) for score in scores])
        if self._parity and metric.startswith("roi_"):  # frames without a ray in the ROI are skipped there
            values = values[~np.isnan(values)]
        return float(values.mean()) if len(values) else float("nan")
