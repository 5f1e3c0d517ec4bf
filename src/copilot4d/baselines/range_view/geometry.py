"""Range images: a sweep as a picture of ranges, one row per beam and one column per step of the turn; and back.

Column 0 looks to `first_azimuth_deg`, further columns turn clockwise, seen from above; row 0 is the highest beam. An
empty cell holds 0.

    H rows, W columns, N points
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d
from scipy.signal import find_peaks

from copilot4d.errors import ForecastError, UsageError, check_range
from copilot4d.geometry import BeamPattern, Sweep
from copilot4d.geometry.se3 import FloatArray

ONE_ORIGIN_M = 0.05  # rays that start this near to the frame's own origin start there
MOST_OUTSIDE = 0.2  # of a sweep's points: more outside the rows is another sensor
FEWEST_CELLS = 0.6  # cells per point: fewer is a sensor with more beams, or more columns
FEWEST_ROWS = 0.8  # of the rows between a sweep's lowest and highest point: fewer is a sensor with fewer beams
ENOUGH_POINTS = 200  # of a sweep, to judge its sensor
BIN_DEG, SMOOTH_DEG = 0.02, 0.1  # of the histogram in which beams are looked for
KITTI_BEAMS_DEG = tuple(float(e) for e in np.linspace(3.0, -25.0, 64, endpoint=False) - 28.0 / 128)


@dataclass(frozen=True, kw_only=True)
class RangeGeometry:
    """The cells of a range image. The defaults are those published for KITTI: 64 x 2048, +3 to -25 degrees."""

    elevations_deg: tuple[float, ...] = KITTI_BEAMS_DEG  # of the rows, the highest first
    columns: int = 2048
    first_azimuth_deg: float = 180.0  # of column 0
    min_range_m: float = 1.0
    max_range_m: float = 85.0

    def __post_init__(self) -> None:
        check_range("the rows of a range image", len(self.elevations_deg), 2, 256)
        check_range("range_view.geometry.columns", self.columns, 4, 8192)
        if not all(a > b for a, b in zip(self.elevations_deg, self.elevations_deg[1:], strict=False)):
            raise UsageError("the rows' elevations_deg must fall from the highest beam to the lowest")
        if self.elevations_deg[-1] <= -90 or self.elevations_deg[0] >= 90:
            raise UsageError("the rows' elevations_deg must lie between -90 and 90 degrees")
        if not 0 <= self.min_range_m < self.max_range_m < np.inf:
            raise UsageError(
                f"a range image needs 0 <= min_range_m < max_range_m, got {self.min_range_m} and {self.max_range_m}"
            )

    @property
    def rows(self) -> int:
        """H."""
        return len(self.elevations_deg)

    @classmethod
    def of_pattern(cls, pattern: BeamPattern, *, columns: int, rows: int | None = None) -> RangeGeometry:
        """The image of a sensor: one row per beam that its directions show.

        rows: how many there should be. Where the directions show another number (a sweep that was corrected for a
        fast ego's motion blurs them), the rows are spread evenly over the field of view. The middle of column 0 is put
        where the sensor fires, so that no return lies on the border of two columns.
        """
        directions = np.asarray(pattern.directions, dtype=np.float64)
        if len(directions) < 2:
            raise UsageError(f"a range image needs a pattern of two beams or more, got {len(directions)}")
        elevation = np.rad2deg(np.arcsin(np.clip(directions[:, 2], -1, 1)))
        found = _beams(elevation)
        if rows is not None and len(found) != rows:
            high, low = np.percentile(elevation, [99.9, 0.1])
            found = np.linspace(high, low, rows)
        # Where in its column a beam fires, as an angle: its mean over all beams is the phase of the turn.
        turn = np.exp(1j * columns * np.arctan2(directions[:, 1], directions[:, 0])).mean()
        phase_deg = float(np.rad2deg(np.angle(turn)) / columns)
        steps = np.round((180.0 - phase_deg) * columns / 360.0)
        return cls(
            elevations_deg=tuple(round(float(e), 4) for e in found), columns=columns,
            first_azimuth_deg=round(phase_deg + float(steps) * 360.0 / columns, 6),
            max_range_m=float(pattern.max_range_m),
        )  # fmt: skip

    def cells(self, points: FloatArray) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
        """(N, 3) -> row (N,), column (N,) and range (N,) of each point; a point beyond the rows has row -1."""
        points = np.asarray(points, dtype=np.float64)
        ranges = np.linalg.norm(points, axis=1)
        elevation = np.rad2deg(np.arcsin(np.clip(points[:, 2] / np.maximum(ranges, 1e-9), -1, 1)))
        beams = np.array(self.elevations_deg)
        edges = (beams[:-1] + beams[1:]) / 2
        row = np.searchsorted(-edges, -elevation).astype(np.int64)
        beyond = (elevation > 2 * beams[0] - beams[1]) | (elevation < 2 * beams[-1] - beams[-2])
        row[beyond] = -1
        turned = np.deg2rad(self.first_azimuth_deg) - np.arctan2(points[:, 1], points[:, 0])
        column = np.round(turned * self.columns / (2 * np.pi)).astype(np.int64) % self.columns
        return row, column, ranges.astype(np.float32)

    def project(self, points: FloatArray) -> NDArray[np.float32]:
        """(N, 3) points around the sensor -> (H, W) ranges. The nearest point of a cell counts."""
        row, column, ranges = self.cells(points)
        kept = np.flatnonzero((row >= 0) & (ranges >= self.min_range_m) & (ranges <= self.max_range_m))
        image = np.full((self.rows, self.columns), np.inf, dtype=np.float32)
        np.minimum.at(image, (row[kept], column[kept]), ranges[kept])
        image[np.isinf(image)] = 0.0
        return image

    def directions(self) -> NDArray[np.float32]:
        """(H, W, 3) unit directions through the middles of the cells."""
        elevation = np.deg2rad(np.array(self.elevations_deg))[:, None]
        azimuth = np.deg2rad(self.first_azimuth_deg) - 2 * np.pi * np.arange(self.columns)[None, :] / self.columns
        x, y = np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth)
        return np.stack([x, y, np.broadcast_to(np.sin(elevation), x.shape)], axis=-1).astype(np.float32)

    def unproject(self, image: FloatArray) -> NDArray[np.float32]:
        """(H, W) ranges -> (N, 3) points in the middles of the cells that are not 0."""
        full = image > 0
        points: NDArray[np.float32] = self.directions()[full] * np.asarray(image, dtype=np.float32)[full, None]
        return points

    def check(self, sweep: Sweep) -> None:
        """Raise ForecastError where a sweep is not of the sensor that this image is for."""
        if sweep.origins is not None and float(np.abs(sweep.origins).max(initial=0.0)) > ONE_ORIGIN_M:
            raise ForecastError(
                "a range image has one origin, but the rays of this sweep start in several places (two lidars, or one "
                "that is not at the sweep's own origin): split the sweep by its lidars, or take a model that reads "
                "points (4d_occ, ray_tracing, mini)"
            )
        if len(sweep) < ENOUGH_POINTS:
            return
        row, column, _ = self.cells(sweep.points)
        inside = row >= 0
        told = (
            f"this network reads {self.rows} beams from {self.elevations_deg[0]:.1f} to {self.elevations_deg[-1]:.1f} "
            f"degrees in {self.columns} columns, but the sweep"
        )
        remedy = "train one on this sensor's drives (`copilot4d train baseline`)"
        if inside.mean() < 1 - MOST_OUTSIDE:
            share = 1 - float(inside.mean())
            raise ForecastError(f"{told} has {share:.0%} of its points above or below them; {remedy}")
        cells = len(np.unique(row[inside] * self.columns + column[inside]))
        if cells < FEWEST_CELLS * inside.sum():
            raise ForecastError(
                f"{told} has {int(inside.sum())} points in only {cells} cells: its sensor has more beams; {remedy}"
            )
        used = np.unique(row[inside])
        if len(used) < FEWEST_ROWS * (used[-1] - used[0] + 1):
            raise ForecastError(f"{told} has points in only {len(used)} rows: its sensor has fewer beams; {remedy}")


def _beams(elevation_deg: FloatArray) -> FloatArray:
    """The peaks of the elevations' histogram, the highest beam first."""
    low, high = float(elevation_deg.min()) - 1.0, float(elevation_deg.max()) + 1.0
    counts, edges = np.histogram(elevation_deg, bins=int((high - low) / BIN_DEG), range=(low, high))
    smooth = gaussian_filter1d(counts.astype(np.float64), SMOOTH_DEG / BIN_DEG)
    peaks, found = find_peaks(smooth, prominence=0.0)
    strong = found["prominences"] > 0.05 * np.percentile(found["prominences"], 90)
    middles = (edges[:-1] + edges[1:]) / 2
    return np.asarray(middles[peaks[strong]][::-1])
