"""`ScoreFile`: what an evaluation found, as one JSON file that says by which rules."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from copilot4d.errors import DataError
from copilot4d.evaluation.frame_score import METRICS
from copilot4d.version import __version__

FORMAT, FORMAT_VERSION = "copilot4d-scores", 1
_REMEDY = "write it again with copilot4d evaluate"


@dataclass(frozen=True, kw_only=True)
class HorizonScore:
    """The mean over the frames of one horizon."""

    horizon: int  # 1: the first future frame
    seconds_ahead: float  # mean time after the reference frame
    frames_scored: int
    metrics: dict[str, float]  # as the fields of FrameScore


@dataclass(frozen=True, kw_only=True)
class ReferenceScore:
    """The mean over the frames of one forecast: where a model is good, and where it fails."""

    drive: str
    reference_ns: int
    frames: int  # scored
    chamfer_roi: float
    chamfer_roi_ahead: list[float] = field(default_factory=list)  # of each future frame, the first first; NaN: no score


@dataclass(frozen=True, kw_only=True)
class SkippedSweep:
    """A sweep that could not be read, and the reference frames that were left out because their window touches it."""

    drive: str
    frame: int  # as the log counts them
    message: str
    references: list[int]


@dataclass(frozen=True, kw_only=True)
class ScoreFile:
    """One model on one data set in one setting. Metrics are unweighted means over all scored frames.

    Chamfer in m^2, L1 in metres, AbsRel as a fraction. `data` names what was opened; `frames_hash` is over the drives,
    reference times and future times that were scored, so that two files with one hash scored the very same frames.
    """

    protocol: str
    protocol_hash: str
    model: str
    data: str
    setting: str
    frames_scored: int  # (reference, future frame) pairs
    frames_not_scored: int
    metrics: dict[str, float]  # as the fields of FrameScore
    per_horizon: list[HorizonScore]
    seconds: float
    drives: list[str] = field(default_factory=list)
    references: int = 0
    by_reference: list[ReferenceScore] = field(default_factory=list)
    frames_hash: str = ""
    not_scored_because: dict[str, int] = field(default_factory=dict)  # reason -> frames
    skipped: list[SkippedSweep] = field(default_factory=list)
    pooled: dict[str, float] = field(default_factory=dict)  # medians over all in-ROI rays of the data set
    several: dict[str, Any] = field(default_factory=dict)  # several futures: best of them, mean, spread
    moving: dict[str, Any] = field(default_factory=dict)  # rays that meet something moving, where the data knows
    seconds_forecasting: float = 0.0
    options: dict[str, Any] = field(default_factory=dict)  # seed, guidance, steps, ...
    protocol_rules: dict[str, Any] = field(default_factory=dict)
    version: str = __version__

    def __repr__(self) -> str:
        error = self.metrics.get("chamfer_roi", float("nan"))
        return (
            f"ScoreFile({self.model!r}, {self.setting}, {self.protocol}, {self.frames_scored} frames, "
            f"ROI Chamfer {error:.3f} m²)"
        )

    def write(self, path: str | Path) -> Path:
        """Write the file whole or not at all: beside its place, flushed to disk, then renamed."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {"format": FORMAT, "format_version": FORMAT_VERSION, **_json_ready(asdict(self))}
        text = json.dumps(content, indent=1, allow_nan=False) + "\n"
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, prefix=f".{path.name}.", delete=False, encoding="utf-8"
        ) as file:
            temporary = Path(file.name)
            try:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
                temporary.chmod(0o666 & ~_umask())
                temporary.replace(path)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
        return path

    @classmethod
    def read(cls, path: str | Path) -> ScoreFile:
        """Read a score file; DataError where it is damaged or something else."""
        content = _read_json(Path(path))
        known = {f.name: f for f in fields(cls)}
        values = {name: content[name] for name in known if name in content}
        required = ("protocol", "protocol_hash", "model", "data", "setting", "frames_scored", "frames_not_scored",
                    "metrics", "per_horizon", "seconds")  # fmt: skip
        for name in required:
            if name not in values:
                raise DataError(path, name, expected="a value", found="nothing", remedy=_REMEDY)
        for name, value in values.items():
            _check_type(path, name, value, str(known[name].type))
        values["metrics"] = _metrics(path, "metrics", values["metrics"])
        values["pooled"] = {name: _number(path, f"pooled.{name}", v) for name, v in values.get("pooled", {}).items()}
        values["per_horizon"] = [_horizon(path, i, entry) for i, entry in enumerate(values["per_horizon"])]
        values["by_reference"] = [_reference(path, i, entry) for i, entry in enumerate(values.get("by_reference", []))]
        values["skipped"] = [_skipped(path, i, entry) for i, entry in enumerate(values.get("skipped", []))]
        return cls(**values)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _json_ready(value: Any) -> Any:
    """NaN has no place in JSON: a metric that does not exist is null; an infinite one (parity mode) is "inf"."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if isinstance(value, Mapping):
        return {key: _json_ready(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_ready(item) for item in value]
    return value


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(path, "file", expected="a score file", found="no such file", remedy=_REMEDY) from None
    except IsADirectoryError:
        raise DataError(path, "file", expected="a score file", found="a folder", remedy="name the file in it") from None
    except OSError as error:
        raise DataError(path, "file", expected="a readable file", found=str(error), remedy=_REMEDY) from error
    except (ValueError, RecursionError) as error:  # no text, no JSON, or a number of thousands of digits
        raise DataError(path, "file", expected="JSON", found=f"damaged text ({error})", remedy=_REMEDY) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = f"format {content.get('format')!r}" if isinstance(content, dict) else type(content).__name__
        raise DataError(path, "format", expected=repr(FORMAT), found=found, remedy="give a file of copilot4d evaluate")
    if content.get("format_version") != FORMAT_VERSION:
        found = repr(content.get("format_version"))
        remedy = "read it with the version of copilot4d that wrote it, or score again"
        raise DataError(path, "format_version", expected=str(FORMAT_VERSION), found=found, remedy=remedy)
    return content


_LARGEST = 10**300
_TYPES: dict[str, type | tuple[type, ...]] = {"str": str, "int": int, "float": (int, float)}


def _check_type(path: str | Path, name: str, value: Any, annotation: str) -> None:
    kind = annotation.split("[")[0]
    expected: Any = {"list": list, "dict": dict}.get(kind, _TYPES.get(kind, object))
    if not isinstance(value, expected) or (isinstance(value, bool) and kind in ("int", "float")):
        raise DataError(path, name, expected=f"{annotation}", found=f"{value!r:.60}", remedy=_REMEDY)
    if isinstance(value, int) and abs(value) > _LARGEST:
        raise DataError(path, name, expected="a number below 1e300", found="a larger one", remedy=_REMEDY)
    if annotation == "list[str]" and not all(isinstance(item, str) for item in value):
        raise DataError(path, name, expected="a list of texts", found=f"{value!r:.60}", remedy=_REMEDY)


def _number(path: str | Path, name: str, value: Any) -> float:
    if value is None:
        return float("nan")
    if isinstance(value, int) and abs(value) > _LARGEST:
        raise DataError(path, name, expected="a number below 1e300", found="a larger one", remedy=_REMEDY)
    if value in ("inf", "-inf") or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        return float(value)
    raise DataError(path, name, expected="a number or null", found=f"{value!r:.60}", remedy=_REMEDY)


def _metrics(path: str | Path, name: str, values: Any) -> dict[str, float]:
    if not isinstance(values, dict) or set(values) != set(METRICS):
        keys = sorted(values) if isinstance(values, dict) else type(values).__name__
        raise DataError(path, name, expected=f"the metrics {', '.join(METRICS)}", found=str(keys), remedy=_REMEDY)
    return {metric: _number(path, f"{name}.{metric}", values[metric]) for metric in METRICS}


def _horizon(path: str | Path, index: int, entry: Any) -> HorizonScore:
    name = f"per_horizon[{index}]"
    _check_record(path, name, entry, HorizonScore)
    return HorizonScore(**{**entry, "metrics": _metrics(path, f"{name}.metrics", entry["metrics"])})


def _reference(path: str | Path, index: int, entry: Any) -> ReferenceScore:
    name = f"by_reference[{index}]"
    if isinstance(entry, dict) and "chamfer_roi" in entry:  # null stands for NaN
        ahead = entry.get("chamfer_roi_ahead", [])  # absent in files of version 0.1
        if isinstance(ahead, list):
            ahead = [_number(path, f"{name}.chamfer_roi_ahead[{i}]", value) for i, value in enumerate(ahead)]
        value = _number(path, f"{name}.chamfer_roi", entry["chamfer_roi"])
        entry = {**entry, "chamfer_roi": value, "chamfer_roi_ahead": ahead}
    _check_record(path, name, entry, ReferenceScore)
    return ReferenceScore(**entry)


def _skipped(path: str | Path, index: int, entry: Any) -> SkippedSweep:
    _check_record(path, f"skipped[{index}]", entry, SkippedSweep)
    return SkippedSweep(**entry)


def _check_record(path: str | Path, name: str, entry: Any, kind: type) -> None:
    wanted = {f.name: str(f.type) for f in fields(kind)}
    if not isinstance(entry, dict) or set(entry) != set(wanted):
        found = sorted(entry) if isinstance(entry, dict) else type(entry).__name__
        raise DataError(path, name, expected=f"the fields {', '.join(wanted)}", found=str(found), remedy=_REMEDY)
    for key, annotation in wanted.items():
        _check_type(path, f"{name}.{key}", entry[key], annotation)
