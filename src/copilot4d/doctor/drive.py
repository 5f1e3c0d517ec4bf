"""The examination of one drive: reads a bounded sample of its sweeps and runs every check on it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from copilot4d.datasets.folder_timing import TimeSource
from copilot4d.doctor.axes import check_axes, turned_points, upright
from copilot4d.doctor.clock import ClockFacts, check_clock, read_clock
from copilot4d.doctor.clouds import CloudFacts, check_clouds, check_origins, read_cloud
from copilot4d.doctor.file_frame import FileFrame
from copilot4d.doctor.files import (
    check_columns,
    check_duplicates,
    check_numbers,
    check_short,
    suspicious_sizes,
    sweep_paths,
)
from copilot4d.doctor.finding import Finding, from_data_error, problem
from copilot4d.doctor.ground import Ground, agree, find_ground
from copilot4d.doctor.motion import check_motion
from copilot4d.doctor.own_vehicle import OwnReturns, check_own_returns, find_own_returns
from copilot4d.doctor.pairs import FramePair, telling_pairs
from copilot4d.doctor.poses import PoseCheck, check_poses
from copilot4d.doctor.registration import SweepPair, structure
from copilot4d.doctor.skew import check_skew, read_skew
from copilot4d.doctor.trajectory import (
    NO_MOTION,
    TrajectoryFacts,
    check_jumps,
    check_rigid,
    check_turns,
    read_trajectory,
)
from copilot4d.doctor.units import UnitGuess, check_units, guess_unit
from copilot4d.doctor.windows import check_windows, count_windows
from copilot4d.errors import DataError
from copilot4d.geometry import Drive, Sweep
from copilot4d.geometry.se3 import FloatArray

_MOST_GROUNDS = 6  # sweeps in which the ground is looked for
_MOST_OWN = 12  # sweeps in which the vehicle itself is looked for


@dataclass(frozen=True, kw_only=True)
class Source:
    """What the files of a drive say about it: how points and poses were turned, and where its times come from."""

    frame: FileFrame = field(default_factory=FileFrame)
    times: TimeSource | None = None
    columns: int | None = None  # of bare float files; None: not to be questioned


@dataclass(frozen=True, kw_only=True)
class DriveReport:
    """What was seen of one drive. Lengths of clouds and ground are in the points' own unit."""

    drive: Drive
    sweeps: int
    has_poses: bool
    clock: ClockFacts
    clouds: tuple[CloudFacts, ...]  # of the sampled sweeps that could be read
    ground: Ground | None
    unit: UnitGuess
    trajectory: TrajectoryFacts
    poses: PoseCheck
    own_returns: OwnReturns | None  # of the vehicle that carries the lidar
    windows: dict[str, int]  # complete windows of each setting
    findings: tuple[Finding, ...]


class SweepCache:
    """Reads sweeps once and remembers what was wrong with those that cannot be read."""

    def __init__(self, drive: Drive, keep: int) -> None:
        self.drive = drive
        self.keep = keep
        self.findings: list[Finding] = []
        self._sweeps: dict[int, Sweep | None] = {}

    def get(self, frame: int) -> Sweep | None:
        """The sweep, or None where it cannot be read; the finding then stands in `findings`."""
        if frame not in self._sweeps:
            try:
                sweep: Sweep | None = self.drive[frame]
            except DataError as error:
                self.findings.append(from_data_error(error, "sweep"))
                sweep = None
            if len(self._sweeps) >= self.keep and sweep is not None:
                return sweep
            self._sweeps[frame] = sweep
        return self._sweeps[frame]


def examine_drive(
    drive: Drive, *, has_poses: bool = True, sweeps: int = 12, every_sweep: bool = False, source: Source | None = None
) -> DriveReport:
    """Run every check on a drive. Works on any `Drive`: from disk, from the simulator, or in memory.

    `source` says how its files were turned into it, for remedies that speak of the files.
    """
    source = source or Source()
    name, poses, times = drive.name, drive.world_from_lidar, drive.timestamps_ns
    cache = SweepCache(drive, keep=4 * sweeps + 32)
    clock = read_clock(times)
    findings = check_clock(name, clock, len(drive), source.times)
    findings += _check_files(drive, cache, clock, source.columns)
    findings += check_motion(name, drive)
    if any(finding.code == "columns" for finding in findings):
        return _nonsense(drive, clock, has_poses, (*cache.findings, *findings))
    clouds, grounds = _sample(drive, cache, len(drive) if every_sweep else sweeps)
    findings += check_clouds(name, clouds)
    ground = agree(grounds)
    far = float(np.median([c.range_far for c in clouds if not c.empty])) if any(not c.empty for c in clouds) else None
    height = ground.origin_height if ground is not None else None
    unit = guess_unit(far, height) if far is not None else UnitGuess(name="metres")
    metres = unit.metres_per_unit
    if far is not None:
        findings += check_units(name, unit, far, height)
        findings += check_origins(name, clouds, None if height is None else height * metres)
    trajectory = read_trajectory(poses, times)
    told_by = source.times.kind if source.times is not None else ""
    if has_poses and told_by in ("file", "names") and any(f.code == "clock-unit" for f in findings):
        check = PoseCheck(verdict="not checked: each sweep has the pose of a wrong time")
    elif has_poses:
        check, more = _check_motion(drive, cache, ground, metres, trajectory, source.frame)
        findings += more
    else:
        check = PoseCheck(verdict="there are none")
        findings.append(_no_poses(name, drive))
        findings += check_axes(name, ground, NO_MOTION, 0.0, source.frame)
    own = _own_returns(drive, cache, clouds, ground, metres)
    findings += check_own_returns(name, drive, own)
    windows = count_windows(drive)
    findings += check_windows(name, drive, windows)
    return DriveReport(
        drive=drive, sweeps=len(drive), has_poses=has_poses, clock=clock, clouds=tuple(clouds), ground=ground,
        unit=unit, trajectory=trajectory, poses=check, own_returns=own, windows=windows,
        findings=(*cache.findings, *findings),
    )  # fmt: skip


def _nonsense(drive: Drive, clock: ClockFacts, has_poses: bool, findings: tuple[Finding, ...]) -> DriveReport:
    """The report of a drive whose points are misread: nothing else can be said of them."""
    return DriveReport(
        drive=drive, sweeps=len(drive), has_poses=has_poses, clock=clock, clouds=(), ground=None,
        unit=UnitGuess(name=None), trajectory=NO_MOTION, poses=PoseCheck(verdict="not checked: the points are misread"),
        own_returns=None, windows=count_windows(drive), findings=findings,
    )  # fmt: skip


def _check_files(drive: Drive, cache: SweepCache, clock: ClockFacts, columns: int | None) -> list[Finding]:
    paths = sweep_paths(drive)
    if not paths:
        return []
    if columns is not None and (wrong := check_columns(drive.name, paths, columns)):
        return wrong
    # A suspect is read: what the loader says of it is better than a guess, and a short one may still be readable.
    suspects = suspicious_sizes(paths, drive.format)
    shorts = [(paths[i], reason) for i, reason in suspects.items() if cache.get(i) is not None]
    return [
        *check_short(drive.name, shorts),
        *check_numbers(drive.name, paths, bool(clock.gaps)),
        *check_duplicates(drive.name, paths),
    ]


def _sample(drive: Drive, cache: SweepCache, count: int) -> tuple[list[CloudFacts], list[Ground]]:
    frames = np.unique(np.linspace(0, len(drive) - 1, min(count, len(drive))).round().astype(int))
    with_ground = set(frames[:: max(1, len(frames) // _MOST_GROUNDS)].tolist())
    clouds, grounds = [], []
    for frame in frames.tolist():
        sweep = cache.get(frame)
        if sweep is None:
            continue
        clouds.append(read_cloud(frame, sweep))
        if frame in with_ground and (ground := find_ground(sweep.points)) is not None:
            grounds.append(ground)
    return clouds, grounds


def _check_motion(
    drive: Drive,
    cache: SweepCache,
    ground: Ground | None,
    metres: float,
    trajectory: TrajectoryFacts,
    frame: FileFrame,
) -> tuple[PoseCheck, list[Finding]]:
    """Poses against the sweeps, and what the poses say of themselves."""
    name, poses, times = drive.name, drive.world_from_lidar, drive.timestamps_ns
    findings = check_rigid(name, poses)
    if findings:
        return PoseCheck(verdict=findings[0].title), findings
    turn = upright(ground)
    level = None if ground is None else -ground.origin_height * metres

    def working(frame: int) -> FloatArray | None:
        sweep = cache.get(frame)
        if sweep is None:
            return None
        return structure(turned_points(sweep.points, turn) * metres, level)

    def to_working(given: FloatArray) -> FloatArray:
        motion = np.eye(4)
        motion[:3, :3] = turn
        return motion @ given @ motion.T

    pairs: list[tuple[FramePair, SweepPair]] = []
    for frames in telling_pairs(drive):
        earlier, later = working(frames.earlier), working(frames.later)
        if earlier is not None and later is not None and (pair := SweepPair.of(earlier, later)) is not None:
            pairs.append((frames, pair))
    check = check_poses(name, poses, times, pairs, to_working, turn.T @ np.array([0.0, 0.0, 1.0]), frame)
    if not any(f.severity == "problem" for f in check.findings):  # else nothing can be learned about the points
        at = [frames for frames, _ in pairs]
        skew = read_skew(drive, at, lambda points: structure(turned_points(points, turn) * metres, level), to_working)
        findings += check_skew(name, drive, skew)
    turns = check_turns(name, poses, times)
    if turns and any(f.code in ("poses-wrong", "poses-none") for f in check.findings):
        return replace(check, verdict=turns[0].title, findings=tuple(turns)), turns  # says more than "wrong"
    findings += check.findings
    if any(f.severity == "problem" for f in check.findings):
        return check, findings  # poses that are wrong as a whole also jump, turn wildly and drive sideways
    jumps = check_jumps(name, poses, times)
    if jumps or turns:
        check = replace(check, verdict=f"mostly {check.verdict}, but: {[*jumps, *turns][0].title.lower()}")
    axes = check_axes(name, ground, trajectory, float(poses[:, 2, 2].sum()) / max(1, len(poses)), frame)
    return check, [*findings, *jumps, *turns, *axes]


def _own_returns(
    drive: Drive, cache: SweepCache, clouds: list[CloudFacts], ground: Ground | None, metres: float
) -> OwnReturns | None:
    """In the axes and the unit of the drive as it should be loaded: nothing is said where those are wrong."""
    if ground is None or ground.up != "+z":
        return None
    sweeps = [sweep for cloud in clouds[:: max(1, len(clouds) // _MOST_OWN)] if (sweep := cache.get(cloud.frame))]
    level = -ground.origin_height * metres
    return find_own_returns([sweep.points * np.float32(metres) for sweep in sweeps], level, drive.ego_box)


def _no_poses(name: str, drive: Drive) -> Finding:
    return problem(
        "poses-missing", name, "The log has no poses", f"none were found in {drive.source or drive.name}",
        "add them (docs/own_data.md), or make them from the sweeps: `copilot4d.doctor.write_estimated_poses`",
    )  # fmt: skip
