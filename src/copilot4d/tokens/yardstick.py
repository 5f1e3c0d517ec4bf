"""Do tokens describe the street or the scan? How many stay when only the scan changes, by what a column holds.

Two questions are asked of simulated drives, whose truth says what each point lies on. While the ego stands: how many
tokens of a sweep are kept a moment later? At one moment: how many are the same if another sensor scans it? Both are
split by what the first scan has in a column: nothing, ground alone, something that stands, something that moves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from copilot4d.geometry import Drive, Sweep, VoxelGrid, inside_box, se3
from copilot4d.simulator.drive import SimulatedDrive
from copilot4d.tokenizer.reconstruction import clean_sweep
from copilot4d.tokenizer.tokenizer import Tokenizer
from copilot4d.tokens.columns import CLASSES
from copilot4d.tokens.scans import moved_into

STANDING_M = 0.02  # less than this between two sweeps, the ego stands
APART_S = 0.2  # the time between two frames of the 1s setting


@dataclass(frozen=True, kw_only=True)
class KnownSweep:
    """A sweep without the ego's own returns, and what each of its points lies on."""

    sweep: Sweep
    ground: NDArray[np.bool_]  # (N,)
    moving: NDArray[np.bool_]  # (N,)

    @classmethod
    def of(cls, drive: SimulatedDrive, frame: int) -> KnownSweep:
        """A sweep of a simulated drive."""
        sweep, truth = drive[frame], drive.truth(frame)
        kept = np.ones(len(sweep), dtype=bool)
        if drive.ego_box is not None:
            kept = ~inside_box(sweep.points, drive.ego_box.astype(np.float32))
        return cls(sweep=sweep.select(kept), ground=truth.object_ids[kept] < 0, moving=truth.moving[kept])


def column_classes(known: KnownSweep, grid: VoxelGrid, columns: tuple[int, int]) -> NDArray[np.int64]:
    """(H, W) the class of each column, by the most telling point in it: moving, structure, ground, none."""
    points = known.sweep.points
    inside = inside_box(points, grid.box.astype(np.float32)) & (points < np.array(grid.maximum, dtype=np.float32)).all(
        -1
    )
    low, high = np.array(grid.minimum[:2]), np.array(grid.maximum[:2])
    cell = np.floor((points[inside, :2] - low) / (high - low) * np.array(columns)).astype(np.int64)
    cell = np.clip(cell, 0, np.array(columns) - 1)
    kind = np.where(known.moving[inside], 3, np.where(known.ground[inside], 1, 2))
    classes = np.zeros(columns, dtype=np.int64)
    np.maximum.at(classes, (cell[:, 0], cell[:, 1]), kind)
    return classes


@dataclass(kw_only=True)
class TokenYardstick:
    """Counts over many pairs of scans."""

    codes: int
    kept: dict[str, NDArray[np.int64]] = field(default_factory=dict)  # question -> (4,) by class
    asked: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    used: NDArray[np.bool_] = field(init=False)  # (4, K) whether a class has used a code

    def __post_init__(self) -> None:
        self.used = np.zeros((len(CLASSES), self.codes), dtype=bool)

    def add(
        self, question: str, classes: NDArray[np.int64], first: NDArray[np.int64], second: NDArray[np.int64]
    ) -> None:
        """(H, W) classes by the first scan, and the tokens of both scans."""
        size = len(CLASSES)
        same = np.bincount(classes[first == second], minlength=size)
        self.kept[question] = self.kept.get(question, np.zeros(size, dtype=np.int64)) + same
        asked = np.bincount(classes.flatten(), minlength=size)
        self.asked[question] = self.asked.get(question, np.zeros(size, dtype=np.int64)) + asked
        self.used[classes, first] = True

    def summary(self) -> dict[str, float]:
        """Shares kept (`kept_standing_ground`), and the codes that each class uses (`codes_ground`)."""
        found = {
            f"kept_{question}_{name}": float(self.kept[question][c] / self.asked[question][c])
            for question in self.kept
            for c, name in enumerate(CLASSES)
            if self.asked[question][c]
        }
        if self.kept:
            found |= {f"codes_{name}": float(self.used[c].sum()) for c, name in enumerate(CLASSES)}
        return found


def standing_pairs(drive: Drive) -> list[tuple[int, int]]:
    """Frames APART_S from each other between which the ego stands."""
    times, places = drive.timestamps_ns * 1e-9, drive.world_from_lidar[:, :3, 3]
    pairs = []
    for i in range(len(drive)):
        j = int(np.argmin(np.abs(times - times[i] - APART_S)))
        if j > i and abs(times[j] - times[i] - APART_S) < 0.05 and np.linalg.norm(places[j] - places[i]) < STANDING_M:
            pairs.append((i, j))
    return pairs


def evenly(values: Sequence[tuple[int, int]], count: int) -> list[tuple[int, int]]:
    """At most `count` of some values, evenly spread."""
    if not values or count < 1:
        return []
    chosen = np.unique(np.linspace(0, len(values) - 1, min(count, len(values))).round().astype(int))
    return [values[i] for i in chosen]


def scan_pairs(
    drives: Sequence[Drive], others: Mapping[str, Drive], pairs_per_drive: int
) -> Iterator[tuple[str, KnownSweep, Sweep]]:
    """Pairs of scans in the first one's frame: ("standing" or "sensors", the first with its truth, the second)."""
    for drive in drives:
        if not isinstance(drive, SimulatedDrive) or drive.read_truth is None:
            continue
        for i, j in evenly(standing_pairs(drive), pairs_per_drive):
            yield "standing", KnownSweep.of(drive, i), _in_frame_of(drive, i, drive, j)
        other = others.get(drive.name)
        if other is not None:
            for i, _ in evenly([(k, k) for k in range(len(drive))], pairs_per_drive):
                yield "sensors", KnownSweep.of(drive, i), _in_frame_of(drive, i, other, i)


def _in_frame_of(drive: Drive, frame: int, other: Drive, other_frame: int) -> Sweep:
    sweep = other[other_frame].without_box(other.ego_box)
    return moved_into(sweep, se3.invert(drive.world_from_lidar[frame]) @ sweep.world_from_lidar)


@torch.no_grad()
def measure_tokens(
    tokenizer: Tokenizer, drives: Sequence[Drive], others: Mapping[str, Drive], *, pairs_per_drive: int = 4
) -> dict[str, float]:
    """The yardstick of a tokenizer on simulated drives; empty where no drive knows its truth."""
    config = tokenizer.config
    yardstick = TokenYardstick(codes=config.vocabulary)
    for question, known, second in scan_pairs(drives, others, pairs_per_drive):
        first, then = tokenizer.encode([clean_sweep(known.sweep), clean_sweep(second)]).cpu().numpy()
        yardstick.add(question, column_classes(known, config.grid, config.tokens), first, then)
    return yardstick.summary()
