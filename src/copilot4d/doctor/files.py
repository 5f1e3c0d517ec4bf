"""What can be told from the sweep files without reading them: cut files, missing numbers, the same sweep twice."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from copilot4d.datasets.column_count import columns_line, likely_columns
from copilot4d.doctor.finding import Finding, listed, problem
from copilot4d.geometry import Drive

_BYTES_PER_POINT = {"kitti_odometry": 16, "kitti_raw": 16, "nuscenes": 20}  # of .bin files
_SHORT = 0.6  # of the size of the files around it
_AROUND = 5
_SAMPLE_BYTES = 4096
_ARROW = b"ARROW1"


def sweep_paths(drive: Drive) -> tuple[Path, ...]:
    """The file of each sweep of a drive; empty where its sweeps are not single files."""
    paths = getattr(drive.read, "paths", ())
    frames = range(len(drive)) if drive.frames is None else drive.frames
    return tuple(Path(paths[i]) for i in frames) if paths else ()


def suspicious_sizes(paths: Sequence[Path], drive_format: str) -> dict[int, str]:
    """Frames whose file cannot be whole, or is much smaller than those around it, and why. Reads no points."""
    sizes = np.array([_size(path) for path in paths], dtype=np.float64)
    suspects = {}
    for i, path in enumerate(paths):
        around = np.delete(sizes[max(0, i - _AROUND) : i + _AROUND + 1], min(i, _AROUND))
        usual = float(np.median(around)) if len(around) else sizes[i]
        reason = _broken(path, int(sizes[i]), drive_format)
        if reason is None and sizes[i] < _SHORT * usual:
            reason = f"{int(sizes[i])} bytes, where the files around it have {int(usual)}"
        if reason is not None:
            suspects[i] = reason
    return suspects


def check_short(where: str, shorts: Sequence[tuple[Path, str]]) -> list[Finding]:
    """Files that can be read but hold only a part of a sweep."""
    return [
        problem(
            "sweep-cut", str(path), "A sweep is cut short", f"drive {where}: {reason}",
            "copy this file again; if it stays so, remove the sweep with its pose and time",
        )
        for path, reason in shorts
    ]  # fmt: skip


def check_columns(where: str, paths: Sequence[Path], given: int) -> list[Finding]:
    """Bare files of floats that look like rows of another number of columns: all points would be nonsense."""
    some = [path for path in paths[:: max(1, len(paths) // 3)] if path.name.lower().endswith(".bin")][:3]
    counts = [_columns(path) for path in some]
    if not counts or counts[0] in (None, given) or any(count != counts[0] for count in counts):
        return []
    likely = int(counts[0] or 0)
    return [problem(
        "columns", where, f"The sweep files look like {likely} columns, not {given}",
        f"in {len(some)} files the numbers repeat every {likely}: {listed([path.name for path in some])}",
        f"write `{columns_line(likely)}` in copilot4d.yaml; rename the columns that you know",
    )]  # fmt: skip


def _columns(path: Path) -> int | None:
    try:
        values = np.fromfile(path, dtype="<f4")
    except OSError:
        return None
    count = likely_columns(values)
    return count if count is not None and len(values) % count == 0 else None


def check_numbers(where: str, paths: Sequence[Path], clock_knows: bool) -> list[Finding]:
    """Files numbered 0, 1, 2, ... with numbers left out, where the timestamps do not tell already."""
    stems = [path.name.split(".")[0] for path in paths]
    if clock_knows or len(stems) < 3 or not all(stem.isdecimal() and len(stem) <= 10 for stem in stems):
        return []
    numbers = np.array([int(stem) for stem in stems])
    steps = np.diff(np.sort(numbers))
    usual = int(np.median(steps))
    if usual < 1 or (steps == usual).mean() < 0.5:
        return []
    lost = [int(n) for n in np.setdiff1d(np.arange(numbers.min(), numbers.max() + 1, usual), numbers)]
    if not lost:
        return []
    return [problem(
        "sweeps-missing", where, "Sweeps are missing",
        f"files numbered {listed(lost)} are not there, although the timestamps run on without a gap",
        "copy the missing sweeps again, and check that poses and times belong to the sweeps that are left",
    )]  # fmt: skip


def check_duplicates(where: str, paths: Sequence[Path]) -> list[Finding]:
    """Files with the same content. Sizes and a few kilobytes of each tell them apart; equals are compared in full."""
    groups: dict[tuple[int, bytes], list[int]] = {}
    for i, path in enumerate(paths):
        signature = _signature(path)
        if signature is not None:
            groups.setdefault(signature, []).append(i)
    pairs = []
    for first, *others in groups.values():
        pairs += [(first, i) for i in others if _same(paths[first], paths[i])]
    if not pairs:
        return []
    shown = listed([f"{paths[b].name} is {paths[a].name} (frames {b} and {a})" for a, b in sorted(pairs)], 6)
    return [problem(
        "sweeps-duplicate", where, "The same sweep is there twice", shown,
        "copy the right sweep again, or remove the copy with its pose and time",
    )]  # fmt: skip


def _broken(path: Path, size: int, drive_format: str) -> str | None:
    """Why a file of this size cannot be whole, or None."""
    if size <= 0:
        return "the file is missing" if size < 0 else "the file is empty"
    whole = _BYTES_PER_POINT.get(drive_format)
    if path.suffix == ".bin" and whole and size % whole:
        return f"{size} bytes are no whole number of points of {whole} bytes"
    try:
        if path.suffix == ".feather" and _end(path, size) != _ARROW:
            return "its end is missing (no Arrow footer)"
        if path.suffix == ".npz" and not zipfile.is_zipfile(path):
            return "its end is missing (no table of contents)"
    except OSError as error:
        return f"it cannot be opened ({error.strerror})"
    return None


def _end(path: Path, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, size - len(_ARROW)))
        return file.read()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _signature(path: Path) -> tuple[int, bytes] | None:
    """Size and a digest of a few places; None for a file that is empty or cannot be read: reading it says more."""
    size = _size(path)
    if size <= 0:
        return None
    digest = hashlib.blake2b(digest_size=16)
    try:
        with path.open("rb") as file:
            for start in (0, size // 2, max(0, size - _SAMPLE_BYTES)):
                file.seek(start)
                digest.update(file.read(_SAMPLE_BYTES))
    except OSError:
        return None
    return size, digest.digest()


def _same(one: Path, other: Path) -> bool:
    if one.samefile(other):
        return True
    with one.open("rb") as a, other.open("rb") as b:
        while True:
            left, right = a.read(1 << 20), b.read(1 << 20)
            if left != right:
                return False
            if not left:
                return True
