"""A 3D viewer inside a page: point clouds over time, truth | forecast | difference, several plans side by side.

The drawing is plain WebGL (assets/*.js, written here, nothing is downloaded). Clouds travel inside the page: whole
centimetres, as differences from point to point, compressed. `Page.viewer(viewer)` puts one onto a page.
"""

from __future__ import annotations

import base64
import html
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from copilot4d.errors import UsageError
from copilot4d.geometry.se3 import FloatArray
from copilot4d.pictures.ink import colour_table

MAX_POINTS = 20_000  # of one cloud; more are thinned evenly, and the page says so
REACH_M = 320.0  # whole centimetres in 16 bits
ERROR_STEP_M = 0.01  # an error is one byte: up to 2.55 m
COLOURS = {"height": "turbo", "distance": "viridis", "error": "plasma"}
ASSETS = Path(__file__).parent / "assets"
SCRIPTS = ("camera.js", "drawing.js", "data.js", "viewer.js")


@dataclass(frozen=True, kw_only=True)
class Cloud:
    """Points (N, 3) in their own lidar frame, and for a forecast how far each lies from the nearest true point."""

    points: FloatArray
    error_m: FloatArray | None = None  # (N,)

    def __post_init__(self) -> None:
        if self.points.ndim != 2 or self.points.shape[1] != 3:
            raise UsageError(f"a cloud needs points of shape (N, 3), got {self.points.shape}")
        if self.error_m is not None and self.error_m.shape != (len(self.points),):
            raise UsageError(f"a cloud needs one error per point: {self.error_m.shape} for {len(self.points)} points")


def compared(points: FloatArray, true_points: FloatArray) -> Cloud:
    """A forecast cloud with each point's distance to the nearest true one (infinite where there is no true point).

    >>> cloud = compared(np.array([[1.0, 0, 0], [5, 0, 0]]), np.array([[1.0, 0, 0], [4, 0, 0]]))
    >>> cloud.error_m.tolist()
    [0.0, 1.0]
    """
    points = np.asarray(points)
    if len(points) == 0 or len(true_points) == 0:
        return Cloud(points=points, error_m=np.full(len(points), np.inf))
    distances, _ = cKDTree(true_points).query(points)
    return Cloud(points=points, error_m=np.asarray(distances))


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One column: an ego plan, its truth where it is known, and each model's forecast of it, by frame."""

    name: str
    caption: str
    reference_from_lidar: FloatArray  # (P + F, 4, 4), past and future, in the lidar frame of the last past sweep
    forecasts: Mapping[str, Sequence[Cloud]]  # model -> F clouds
    truth: Sequence[Cloud | None] = ()  # F clouds, None where the log has none; empty where the truth is unknown


@dataclass(frozen=True, kw_only=True)
class Horizon:
    """One setting of the forecast: P past frames, common to all plans, and F future ones of every plan."""

    name: str
    past_s: Sequence[float]  # (P,) oldest first, the last is 0
    future_s: Sequence[float]  # (F,)
    past: Sequence[Cloud]
    plans: Sequence[Plan]

    def __post_init__(self) -> None:
        past, future = len(self.past_s), len(self.future_s)
        if not past or not future or len(self.past) != past:
            raise UsageError(f"horizon {self.name}: {len(self.past)} past clouds for {past} past times")
        for plan in self.plans:
            if plan.reference_from_lidar.shape != (past + future, 4, 4):
                shape = plan.reference_from_lidar.shape
                raise UsageError(f"plan {plan.name}: {past + future} poses (4, 4) are needed, got {shape}")
            counts = {"truth": len(plan.truth) or future, **{name: len(c) for name, c in plan.forecasts.items()}}
            for what, count in counts.items():
                if count != future:
                    raise UsageError(f"plan {plan.name}: {what} has {count} clouds for {future} future times")


@dataclass(frozen=True, kw_only=True)
class Viewer:
    """All that one viewer shows. `models`: the one that is shown first comes first."""

    horizons: Sequence[Horizon]
    models: Sequence[str]
    label: str = "3D view of the forecast"
    height_range_m: tuple[float, float] = (-2.5, 2.5)
    distance_range_m: tuple[float, float] = (0.0, 50.0)
    error_range_m: tuple[float, float] = (0.0, 2.0)
    max_points: int = MAX_POINTS

    def html(self) -> str:
        """The viewer's element; it comes to life once `script()` runs."""
        description, content = self._packed()
        described = json.dumps(description, separators=(",", ":")).replace("<", "\\u003c")
        packed = base64.b64encode(content).decode()
        return (
            f'<section class="viewer" aria-label="{html.escape(self.label, quote=True)}">\n'
            '<p class="viewer-message" role="status">The 3D view needs JavaScript and WebGL. '
            "Without them, the pictures and the film below show the same clouds.</p>\n"
            f'<script type="application/json" class="viewer-description">{described}</script>\n'
            f'<script type="application/octet-stream" class="viewer-clouds">{packed}</script>\n</section>'
        )

    def _packed(self) -> tuple[dict[str, Any], bytes]:
        """What JavaScript reads: a description in which clouds are numbers, and all clouds one after the other."""
        packer = _Packer(self.max_points)
        horizons = [
            {
                "name": horizon.name,
                "times": [*map(float, horizon.past_s), *map(float, horizon.future_s)],
                "past": [packer.add(cloud) for cloud in horizon.past],
                "plans": [
                    {
                        "name": plan.name,
                        "caption": plan.caption,
                        # WebGL reads matrices column by column
                        "poses": [np.round(pose.T, 5).reshape(-1).tolist() for pose in plan.reference_from_lidar],
                        "truth": [None if cloud is None else packer.add(cloud) for cloud in plan.truth],
                        "forecasts": {name: [packer.add(c) for c in clouds] for name, clouds in plan.forecasts.items()},
                    }
                    for plan in horizon.plans
                ],
            }
            for horizon in self.horizons
        ]
        ranges = {"height": self.height_range_m, "distance": self.distance_range_m, "error": self.error_range_m}
        description = {
            "horizons": horizons,
            "models": list(self.models),
            "clouds": packer.counts,
            "thinned": packer.thinned,
            "errorStep": ERROR_STEP_M,
            "colours": {
                name: {"range": ranges[name], "table": base64.b64encode(colour_table(table).tobytes()).decode()}
                for name, table in COLOURS.items()
            },
        }
        return description, zlib.compress(packer.content(), 6)


class _Packer:
    """Turns clouds into bytes: all clouds' low bytes of the differences, then the high bytes, then the errors."""

    def __init__(self, max_points: int) -> None:
        self.max_points = max_points
        self.counts: list[list[int]] = []  # points, and whether it has errors
        self.thinned = 0  # of the original points, how many were left out at most in one cloud
        self._places: list[NDArray[np.int16]] = []
        self._errors: list[NDArray[np.uint8]] = []
        self._known: dict[int, int] = {}
        self._alive: list[Cloud] = []  # an id is only unique among the living

    def add(self, cloud: Cloud) -> int:
        """The cloud's number; the same object keeps its number."""
        if id(cloud) in self._known:
            return self._known[id(cloud)]
        keep = np.flatnonzero(np.isfinite(cloud.points).all(axis=1) & (np.abs(cloud.points) < REACH_M).all(axis=1))
        if len(keep) > self.max_points:
            self.thinned = max(self.thinned, len(keep) - self.max_points)
            keep = keep[np.linspace(0, len(keep) - 1, self.max_points).astype(np.int64)]
        self._places.append(np.round(np.asarray(cloud.points, dtype=np.float64)[keep] * 100).astype(np.int16))
        if cloud.error_m is not None:
            steps = np.minimum(cloud.error_m[keep] / ERROR_STEP_M, 255)
            self._errors.append(np.round(steps).astype(np.uint8))
        self.counts.append([len(keep), int(cloud.error_m is not None)])
        self._known[id(cloud)] = number = len(self.counts) - 1
        self._alive.append(cloud)
        return number

    def content(self) -> bytes:
        """Everything that was added. Neighbours in a sweep lie near each other: differences compress well."""
        places = np.concatenate(self._places) if self._places else np.zeros((0, 3), dtype=np.int16)
        steps = np.diff(places, axis=0, prepend=np.zeros((1, 3), dtype=np.int16)).T.astype("<i2")  # wraps, as in JS
        split = np.ascontiguousarray(steps).view(np.uint8).reshape(-1, 2)
        errors = np.concatenate(self._errors) if self._errors else np.zeros(0, dtype=np.uint8)
        return split[:, 0].tobytes() + split[:, 1].tobytes() + errors.tobytes()


@cache
def asset(name: str) -> str:
    """A file of assets/, which pages carry inside them."""
    return (ASSETS / name).read_text(encoding="utf-8")


@cache
def script() -> str:
    """The program of all viewers of a page."""
    parts = "\n".join(asset(name) for name in SCRIPTS)
    return f'(function () {{\n"use strict";\n{parts}\n}})();\n'
