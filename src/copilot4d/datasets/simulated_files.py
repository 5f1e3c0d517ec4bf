"""Simulated drives on disk: the folder or KITTI format, and the truth about every point and agent beside it.

A drive is written beside its place, forced to the disk and renamed when it is whole, so that whatever stands there is
complete. Processes that make the same drive at the same time do not touch each other's parts; the first that is done
gives the drive. The truth holds the sha256 of every sweep file, which is checked each time that one is read, and the
archive has checksums of its own.
"""

from __future__ import annotations

import glob
import hashlib
import os
import shutil
import uuid
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from copilot4d.datasets.ego_box_files import write_ego_box
from copilot4d.datasets.folder_writer import write_folder, write_kitti
from copilot4d.datasets.point_files import read_points
from copilot4d.datasets.simulated_truth import check_truth
from copilot4d.errors import DataError, UsageError
from copilot4d.geometry import Sweep
from copilot4d.simulator.drive import SimulatedDrive, SweepTruth
from copilot4d.simulator.lidar import MOVING_BASE

TRUTH = "truth.npz"
TRUTH_VERSION = 1
_DAMAGE = (OSError, ValueError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)  # of an .npz
_KEYS = (
    "truth_version", "name", "split", "plan", "moment_frame", "follower", "world_from_lidar", "timestamps_ns",
    "ego_box", "object_ids", "moving", "first_point", "agent_poses", "agent_speeds_m_s", "agent_sizes_m", "agent_kinds",
)  # fmt: skip
HASHES = "sweep_sha256"  # of each sweep file, in order; drives that were written before it was kept have none
WrittenFormat = Literal["folder", "kitti"]
Repair = Callable[[DataError], None]


def place_of(out: Path, name: str, format: WrittenFormat) -> Path:
    """Where a drive stands when it is finished."""
    return out / "sequences" / name if format == "kitti" else out / name


def write_simulated(drive: SimulatedDrive, out: Path, format: WrittenFormat = "folder") -> Path:
    """Write a drive with its truth below OUT; returns its folder. A finished one is left as it is."""
    final = place_of(out, drive.name, format)
    if final.exists():
        return final
    if format == "kitti" and len(drive) and drive[0].origins is not None:
        raise UsageError(
            f"drive {drive.name} has two lidars, which the KITTI format cannot hold: use the folder format"
        )
    _remove_remains(out, drive.name)
    partial_root = out / f".partial-{drive.name}-{uuid.uuid4().hex[:8]}-{os.getpid()}"
    try:
        _move(_write(drive, partial_root, format), final, len(drive))
    finally:
        shutil.rmtree(partial_root, ignore_errors=True)
    return final


def _write(drive: SimulatedDrive, partial_root: Path, format: WrittenFormat) -> Path:
    """Everything that belongs to a drive, below PARTIAL_ROOT; returns its folder there."""
    truths: dict[int, SweepTruth] = {}

    def read(frame: int) -> Sweep:
        sweep = drive.read(frame)
        truths[frame] = drive.truth_of(frame)  # at once, while the sweep's own cast is still at hand
        return sweep

    watched = replace(drive, read=read)
    if format == "kitti":
        written = write_kitti(watched, partial_root)
        write_ego_box(written, np.asarray(drive.ego_box))
    else:
        suffix = ".npz" if len(drive) and drive[0].origins is not None else ".bin"
        written = write_folder(watched, partial_root / drive.name, suffix=suffix)
    arrays: dict[str, Any] = _truth_arrays(drive, [truths[frame] for frame in sorted(truths)])
    files = sorted(path for name in ("sweeps", "velodyne") for path in (written / name).glob("*"))
    arrays[HASHES] = np.array([hashlib.sha256(path.read_bytes()).hexdigest() for path in files])
    np.savez_compressed(written / TRUTH, **arrays)
    for path in (*files, *(path for path in written.iterdir()), written):
        _fsync(path)
    return written


def _move(written: Path, final: Path, sweeps: int) -> None:
    """Put a whole drive into its place, unless somebody else was faster with the same drive."""
    found = sum(path.is_file() for name in ("sweeps", "velodyne") for path in (written / name).glob("*"))
    if final.exists():
        return
    if found != sweeps or not (written / TRUTH).is_file():
        raise DataError(
            written, "sweeps", expected=f"the {sweeps} sweeps just written and {TRUTH}", found=f"{found} sweeps",
            remedy="simulate the drive again, and leave the folder alone meanwhile",
        )  # fmt: skip
    final.parent.mkdir(parents=True, exist_ok=True)
    try:
        written.rename(final)
        _fsync(final.parent)
    except OSError:
        if not final.exists():
            raise


def _fsync(path: Path) -> None:
    """Force a file's or a folder's bytes to the disk; a system that cannot open folders has nothing to force."""
    if os.name == "nt" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_simulated(folder: Path, *, split: str | None = None, repair: Repair | None = None) -> SimulatedDrive:
    """A drive that `write_simulated` wrote in the folder format, bit for bit as it was simulated.

    repair: called with the error where a sweep turns out to be damaged; it puts the drive there anew, or raises.
    """
    path = folder / TRUTH
    try:
        with np.load(path, allow_pickle=False) as file:
            truth = {key: file[key] for key in _KEYS}
            if HASHES in file:
                truth[HASHES] = file[HASHES]
        check_truth(truth)
    except _DAMAGE as error:
        raise DataError(
            path, "truth", expected="the truth of a simulated drive", found=str(error) or type(error).__name__,
            remedy=_remedy(folder),
        ) from error  # fmt: skip
    if int(truth["truth_version"]) != TRUTH_VERSION:
        raise DataError(
            path, "truth_version", expected=str(TRUTH_VERSION), found=str(truth["truth_version"]),
            remedy=_remedy(folder),
        )  # fmt: skip
    moment, follower = int(truth["moment_frame"]), int(truth["follower"])
    return SimulatedDrive(
        name=str(truth["name"]),
        world_from_lidar=truth["world_from_lidar"],
        timestamps_ns=truth["timestamps_ns"],
        read=partial(_read_or_repair, folder, truth, repair),
        read_truth=partial(_read_truth, truth),
        split=split or str(truth["split"]) or None,
        format="simulated",
        source=str(folder),
        ego_box=truth["ego_box"],
        plan=str(truth["plan"]),
        moment_frame=None if moment < 0 else moment,
        follower=None if follower < 0 else follower,
    )


def _remove_remains(out: Path, name: str) -> None:
    """Remove what processes left that are gone; their number is the last part of the name."""
    for remains in out.glob(f".partial-{glob.escape(name)}-*"):
        process = remains.name.rpartition("-")[2]
        if process.isdecimal() and not _is_alive(int(process)):
            shutil.rmtree(remains, ignore_errors=True)


def _is_alive(process: int) -> bool:
    if os.name == "nt":  # signal 0 asks nothing there, it ends the process
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # somebody else's
        pass
    return True


def _remedy(folder: Path) -> str:
    return f"remove {folder} and simulate the drive again (a drive of street-v1 is made again when it is opened)"


def _truth_arrays(drive: SimulatedDrive, frames: list[SweepTruth]) -> dict[str, NDArray[Any]]:
    return {
        "truth_version": np.array(TRUTH_VERSION),
        "moving_base": np.array(MOVING_BASE),
        "name": np.array(drive.name),
        "split": np.array(drive.split or ""),
        "plan": np.array(drive.plan),
        "moment_frame": np.array(-1 if drive.moment_frame is None else drive.moment_frame),
        "follower": np.array(-1 if drive.follower is None else drive.follower),
        "world_from_lidar": drive.world_from_lidar,
        "timestamps_ns": drive.timestamps_ns,
        "ego_box": np.asarray(drive.ego_box),
        "object_ids": np.concatenate([f.object_ids for f in frames]),
        "moving": np.concatenate([f.moving for f in frames]),
        "first_point": np.cumsum([0, *(len(f.object_ids) for f in frames)]),
        "agent_poses": np.stack([f.agent_poses for f in frames]),
        "agent_speeds_m_s": np.stack([f.agent_speeds_m_s for f in frames]),
        "agent_sizes_m": frames[0].agent_sizes_m,
        "agent_kinds": np.array(frames[0].agent_kinds),
    }


def _read_truth(truth: dict[str, NDArray[Any]], i: int) -> SweepTruth:
    rows = slice(int(truth["first_point"][i]), int(truth["first_point"][i + 1]))
    return SweepTruth(
        object_ids=truth["object_ids"][rows],
        moving=truth["moving"][rows],
        agent_poses=truth["agent_poses"][i],
        agent_speeds_m_s=truth["agent_speeds_m_s"][i],
        agent_sizes_m=truth["agent_sizes_m"],
        agent_kinds=tuple(truth["agent_kinds"].tolist()),
    )


def _read_or_repair(folder: Path, truth: dict[str, NDArray[Any]], repair: Repair | None, i: int) -> Sweep:
    try:
        return _read_sweep(folder, truth, i)
    except DataError as error:
        if repair is None:
            raise
        repair(error)
    return _read_sweep(folder, truth, i)


def _read_sweep(folder: Path, truth: dict[str, NDArray[Any]], i: int) -> Sweep:
    stamp = int(truth["timestamps_ns"][i])
    found = [path for suffix in (".bin", ".npz") if (path := folder / "sweeps" / f"{stamp:019d}{suffix}").is_file()]
    if not found:
        raise DataError(
            folder / "sweeps", "sweep", expected=f"a file for time {stamp} ns", found="none",
            remedy=_remedy(folder),
        )  # fmt: skip
    try:
        _check_hash(found[0], truth, i)
        file = read_points(found[0])
    except DataError as error:
        raise DataError(
            error.path, error.field, expected=error.expected, found=error.found, remedy=_remedy(folder)
        ) from error
    points = int(truth["first_point"][i + 1] - truth["first_point"][i])
    if len(file.points) != points:
        raise DataError(
            found[0], "points", expected=f"{points} points, as {TRUTH} has them", found=str(len(file.points)),
            remedy=_remedy(folder),
        )  # fmt: skip
    return Sweep(
        points=np.ascontiguousarray(file.points),
        world_from_lidar=truth["world_from_lidar"][i],
        timestamp_ns=stamp,
        intensity=None if file.intensity is None else np.ascontiguousarray(file.intensity),
        origins=None if file.origins is None else np.ascontiguousarray(file.origins),
    )


def _check_hash(path: Path, truth: dict[str, NDArray[Any]], i: int) -> None:
    if HASHES in truth and (found := hashlib.sha256(path.read_bytes()).hexdigest()) != truth[HASHES][i]:
        raise DataError(path, "sha256", expected=str(truth[HASHES][i]), found=found, remedy="")
