"""`Sweep`, `Drive` and `Clip`: one revolution of the lidar, a whole log, and the few sweeps of one forecast."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copilot4d.errors import UsageError
from copilot4d.geometry import clock, se3
from copilot4d.geometry.rays import Rays, inside_box, rays_through
from copilot4d.geometry.se3 import FloatArray


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """One sweep: points (N, 3) float32 in its own lidar frame (x forward, y left, z up, metres).

    `origins` (N, 3) float32, in the same frame, is given where several lidars were merged; None means all rays start
    at the frame's own origin. `world_from_lidar` is float64 4x4.
    """

    points: NDArray[np.float32]
    world_from_lidar: FloatArray
    timestamp_ns: int
    intensity: NDArray[np.float32] | None = None
    origins: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        if self.points.ndim != 2 or self.points.shape[1] != 3 or self.points.dtype != np.float32:
            raise UsageError(f"Sweep.points must be (N, 3) float32, got {self.points.shape} {self.points.dtype}")
        if self.world_from_lidar.shape != (4, 4):
            raise UsageError(f"Sweep.world_from_lidar must be (4, 4), got {self.world_from_lidar.shape}")
        for name, values in (("points", self.points), ("origins", self.origins)):
            if values is not None and not np.isfinite(values).all():
                bad = ~np.isfinite(values).all(axis=1)
                raise UsageError(
                    f"Sweep.{name} must be finite: {int(bad.sum())} of {len(values)} rows are NaN or infinite, the "
                    f"first is row {int(np.argmax(bad))}; leave those points out when the sweep is made"
                )
        if not np.isfinite(self.world_from_lidar).all():
            raise UsageError(
                "Sweep.world_from_lidar must be finite, and holds NaN or infinite numbers: correct the pose"
            )
        for name in ("intensity", "origins"):
            extra = getattr(self, name)
            if extra is not None and len(extra) != len(self.points):
                raise UsageError(f"Sweep.{name} needs a row per point: {len(extra)} for {len(self.points)} points")

    def __len__(self) -> int:
        return len(self.points)

    def __repr__(self) -> str:
        x, y, z = self.world_from_lidar[:3, 3]
        return f"Sweep({len(self):,} points, lidar at ({x:.1f}, {y:.1f}, {z:.1f}) m, {self.timestamp_ns * 1e-9:.3f} s)"

    @property
    def point_origins(self) -> NDArray[np.float32]:
        """(N, 3): where each point's ray started, in the sweep's frame."""
        return np.zeros_like(self.points) if self.origins is None else self.origins

    def rays(self) -> tuple[Rays, FloatArray]:
        """One ray per point, and its depth."""
        return rays_through(self.points, self.point_origins)

    def select(self, keep: NDArray[Any]) -> Sweep:
        """The sweep with only the points of a mask or of indices."""
        if keep.dtype == np.bool_:
            keep = np.flatnonzero(keep)  # rows by number are gathered in half the time of rows by mask
        return replace(
            self,
            points=self.points[keep],
            intensity=None if self.intensity is None else self.intensity[keep],
            origins=None if self.origins is None else self.origins[keep],
        )

    def without_box(self, box: FloatArray | None) -> Sweep:
        """The sweep without the points in a closed box, such as returns from the ego vehicle's own body."""
        return self if box is None else self.select(~inside_box(self.points, box))

    def points_in(self, frame_from_world: FloatArray) -> NDArray[np.float32]:
        """(N, 3) this sweep's points in another frame."""
        return se3.transform_points(se3.compose(frame_from_world, self.world_from_lidar), self.points)


def sweep_on(rays: Rays, depths_m: FloatArray, world_from_lidar: FloatArray, timestamp_ns: int) -> Sweep:
    """The points of rays at their depths (N,), as a sweep in the rays' own frame."""
    return Sweep(
        points=rays.points_at(depths_m).astype(np.float32),
        world_from_lidar=world_from_lidar,
        timestamp_ns=timestamp_ns,
        origins=rays.origins.astype(np.float32) if rays.origins.any() else None,
    )


def gathered_sweep(sweeps: Sequence[Sweep]) -> Sweep:
    """One sweep of the points of several that lie in one frame already; pose and time are the first one's."""
    if len(sweeps) == 1:
        return sweeps[0]
    has_origins = any(sweep.origins is not None for sweep in sweeps)
    return replace(
        sweeps[0],
        points=np.concatenate([sweep.points for sweep in sweeps]),
        intensity=None,
        origins=np.concatenate([sweep.point_origins for sweep in sweeps]) if has_origins else None,
    )


@dataclass(frozen=True, kw_only=True)
class Drive(Sequence[Sweep]):
    """A lazy log: poses and timestamps are at hand, the points of a sweep are read when it is asked for.

    `drive[i]` reads sweep i; `drive[a:b:c]` is a Drive again and reads nothing. `read` gets a frame index of the
    original log and returns that sweep as its file has it; what it raises (DataError) reaches the caller.
    """

    name: str
    world_from_lidar: FloatArray  # (N, 4, 4) float64
    timestamps_ns: NDArray[np.int64]  # (N,) strictly increasing
    read: Callable[[int], Sweep] = field(repr=False)
    split: str | None = None
    format: str = "memory"  # the data set format; the protocol's frame rules depend on it
    source: str = ""  # where it came from, for messages
    ego_box: FloatArray | None = None  # (6,) closed, lidar frame: returns from the ego body, dropped by the protocol
    frames: NDArray[np.int64] | None = None  # which frames of the original log these are; None: all of them

    def __post_init__(self) -> None:
        n = len(self.timestamps_ns)
        if self.world_from_lidar.shape != (n, 4, 4):
            raise UsageError(f"Drive {self.name}: {n} timestamps but poses of shape {self.world_from_lidar.shape}")
        if n > 1 and not (np.diff(self.timestamps_ns) > 0).all():
            raise UsageError(f"Drive {self.name}: timestamps must be strictly increasing")

    def __len__(self) -> int:
        return len(self.timestamps_ns)

    def __repr__(self) -> str:
        seconds = float(self.timestamps_ns[-1] - self.timestamps_ns[0]) * 1e-9 if len(self) else 0.0
        return f"Drive({self.name!r}, {len(self)} sweeps, {seconds:.1f} s, {self.format})"

    def __getitem__(self, index: int | slice) -> Any:  # Sweep for an int, Drive for a slice
        if isinstance(index, slice):
            frames = np.arange(len(self)) if self.frames is None else self.frames
            return replace(
                self,
                world_from_lidar=self.world_from_lidar[index],
                timestamps_ns=self.timestamps_ns[index],
                frames=frames[index],
            )
        i = range(len(self))[index]  # negative indices, IndexError
        return self.read(i if self.frames is None else int(self.frames[i]))

    def __iter__(self) -> Iterator[Sweep]:
        return (self[i] for i in range(len(self)))

    @property
    def interval_s(self) -> float:
        """The time of one sweep by the log's own clock, in seconds (NaN for fewer than two sweeps)."""
        return clock.interval_ns(self.timestamps_ns) * 1e-9

    @classmethod
    def from_sweeps(cls, name: str, sweeps: Sequence[Sweep], **properties: Any) -> Drive:
        """A drive that is already in memory."""
        kept = list(sweeps)
        return cls(
            name=name,
            world_from_lidar=np.stack([s.world_from_lidar for s in kept]) if kept else np.zeros((0, 4, 4)),
            timestamps_ns=np.array([s.timestamp_ns for s in kept], dtype=np.int64),
            read=kept.__getitem__,
            **properties,
        )


@dataclass(frozen=True, kw_only=True)
class Clip:
    """The sweeps of one forecast: past (oldest first, the last is the reference) and the true future."""

    drive: str
    past: tuple[Sweep, ...]
    future: tuple[Sweep, ...]
    past_frames: tuple[int, ...]  # indices in the drive
    future_frames: tuple[int, ...]

    def __repr__(self) -> str:
        return f"Clip({self.drive!r}, {len(self.past)} past and {len(self.future)} future sweeps)"

    @property
    def reference(self) -> Sweep:
        """The newest past sweep: its lidar frame is the frame of scoring."""
        return self.past[-1]

    @property
    def future_poses(self) -> FloatArray:
        """(F, 4, 4) world_from_lidar of the future sweeps: the ego's motion, which a forecast is given."""
        return np.stack([s.world_from_lidar for s in self.future])

    def reference_from(self, sweep: Sweep) -> FloatArray:
        """(4, 4): from a sweep's own lidar frame to the reference frame."""
        return se3.relative_motion(self.reference.world_from_lidar, sweep.world_from_lidar)
