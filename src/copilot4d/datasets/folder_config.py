"""`copilot4d.yaml`: the small file that describes own data (docs/own_data.md)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from copilot4d.datasets.pose_files import rigid_poses
from copilot4d.datasets.text_files import UNITS_NS, read_text
from copilot4d.errors import DataError
from copilot4d.geometry import se3
from copilot4d.geometry.se3 import FloatArray
from copilot4d.plain_yaml import parse_yaml

FILE_NAME = "copilot4d.yaml"
VERSION = 1
UNITS_M = {"m": 1.0, "cm": 0.01, "mm": 0.001}
OUR_AXES = "x forward, y left, z up"
_DIRECTIONS = {
    "forward": (1, 0, 0), "backward": (-1, 0, 0), "left": (0, 1, 0), "right": (0, -1, 0), "up": (0, 0, 1),
    "down": (0, 0, -1),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class FolderConfig:
    """How the files of one or more drives are laid out. Every value is the default of the key of the same name."""

    name: str | None = None  # of the drive; by default the folder's
    sweeps: str | None = None  # the folder of the sweep files, below the drive's folder; by default looked for
    columns: tuple[str, ...] | None = None  # of .bin and .npy files; by default x y z intensity
    units: str = "m"  # of points, poses and ego_from_lidar
    axes: str = OUR_AXES  # of the points
    invalid_points: str = "error"  # or "drop": leave out points that are NaN or infinite
    poses: str | None = None  # the pose file, below the drive's folder; by default looked for
    pose_format: str | None = None  # "tum" or "kitti"; by default told from the numbers in a line
    pose_time_unit: str = "s"  # of the times in a TUM file
    pose_frame: str = "world_from_lidar"  # or "world_from_ego", with ego_from_lidar
    ego_from_lidar: FloatArray | None = None  # (4, 4)
    timestamps: Mapping[str, Any] | None = None  # {file: NAME, unit: s} or {filename: ns} or {rate_hz: 10}
    deskew: bool | None = None  # move points to their sweep's time by their own times; by default not
    time_field: str | None = None  # the column with the times of the points; by default looked for
    time_unit: str | None = None  # its unit; by default told by how long a sweep takes
    ego_box: FloatArray | None = None  # (6,) in our axes, metres, at the lidar
    split: str | None = None  # of this drive
    splits: Mapping[str, tuple[str, ...]] | None = None  # split -> names of drives

    @property
    def lidar_from_file(self) -> FloatArray:
        """(3, 3): from the axes of the point files to ours."""
        return parse_axes(self.axes)


def load_config(path: Path, base: Mapping[str, Any] | None = None) -> tuple[FolderConfig, dict[str, Any]]:
    """Read a copilot4d.yaml; `base` holds keys of the folder above, which this file may repeat otherwise.

    Returns the description and its keys, for the folders below.
    """
    keys = _read_yaml(path)
    version = keys.pop("version", None)
    if version != VERSION or isinstance(version, bool):
        raise _bad(
            path, "version", f"{VERSION}", "none" if version is None else repr(version), f"write `version: {VERSION}`"
        )
    for key in keys:
        if key not in _PARSERS:
            near = difflib.get_close_matches(str(key), _PARSERS, n=1, cutoff=0.5)
            remedy = f"did you mean `{near[0]}`?" if near else f"remove it; there are: {', '.join(_PARSERS)}"
            raise _bad(path, "keys", "known keys only", f"the unknown key {key!r}", remedy)
    return parse_keys(path, {**(base or {}), **keys})


def parse_keys(path: Path, keys: Mapping[str, Any]) -> tuple[FolderConfig, dict[str, Any]]:
    """Known keys as YAML has them -> the description, and the keys again; `path` is for messages."""
    config = FolderConfig(**{key: _PARSERS[key](path, key, value) for key, value in keys.items()})
    if (config.pose_frame == "world_from_ego") != (config.ego_from_lidar is not None):
        raise _bad(
            path, "ego_from_lidar", "it together with `pose_frame: world_from_ego`, or neither", "only one of the two",
            "write where the lidar sits on the vehicle, or give poses of the lidar",
        )  # fmt: skip
    return config, dict(keys)


def parse_axes(text: str) -> FloatArray:
    """ "x right, y forward, z up" -> (3, 3) rotation from those axes to ours; ValueError where it is none.

    Its columns are where x, y and z of the file point, in x forward, y left, z up.
    """
    found = dict(re.findall(r"([xyz])\s*[:=]?\s*([a-z]+)", text.lower()))
    if set(found) != set("xyz") or any(word not in _DIRECTIONS for word in found.values()):
        raise ValueError(f"x, y and z, each with one of {', '.join(_DIRECTIONS)}")
    rotation = np.array([_DIRECTIONS[found[axis]] for axis in "xyz"], dtype=np.float64).T
    if round(float(np.linalg.det(rotation))) != 1:
        raise ValueError("three directions at right angles that form a right-handed system")
    return rotation


def axes_in_words(lidar_from_file: FloatArray) -> str:
    """The text that `parse_axes` reads as this rotation."""
    names = {direction: word for word, direction in _DIRECTIONS.items()}
    columns = np.rint(lidar_from_file).astype(int).T.tolist()
    return ", ".join(f"{axis} {names[tuple(column)]}" for axis, column in zip("xyz", columns, strict=True))


def _read_yaml(path: Path) -> dict[str, Any]:
    keys = parse_yaml(read_text(path, "YAML"), source=path)
    if not isinstance(keys, dict):
        raise _bad(path, "YAML", "`key: value` lines", type(keys).__name__, "see docs/own_data.md")
    return keys


def _bad(path: Path, field: str, expected: str, found: str, remedy: str) -> DataError:
    shown = found if len(found) <= 200 else found[:197] + "..."
    return DataError(path, field, expected=expected, found=shown, remedy=remedy)


def _text(path: Path, key: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _bad(path, key, "a text", repr(value), f"write {key} as a text, in quotes if need be")
    return value


def _file_below(path: Path, key: str, value: Any) -> str:
    """A relative path that stays inside the data set."""
    text = _text(path, key, value)
    if Path(text).is_absolute() or ".." in Path(text).parts or "\0" in text:
        raise _bad(path, key, "a path below this folder", repr(text), "put the file into the folder")
    return text


def _one_of(*choices: str) -> Callable[[Path, str, Any], str]:
    def parse(path: Path, key: str, value: Any) -> str:
        if not isinstance(value, str) or value not in choices:
            raise _bad(path, key, " or ".join(choices), repr(value), f"write one of these for {key}")
        return value

    return parse


def _switch(path: Path, key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _bad(path, key, "true or false", repr(value), f"write `{key}: true` or leave it out")
    return value


def _columns(path: Path, key: str, value: Any) -> tuple[str, ...]:
    names = value.replace(",", " ").split() if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise _bad(
            path, key, "names such as `x y z intensity`", repr(value), "name every column of the files, in order"
        )
    lowered = tuple(name.lower() for name in names)
    real = [name for name in lowered if name != "_"]
    if len(set(real)) != len(real) or not {"x", "y", "z"} <= set(real):
        raise _bad(path, key, "x, y and z and no name twice", " ".join(lowered), "write _ for columns of no interest")
    return lowered


def _axes(path: Path, key: str, value: Any) -> str:
    text = _text(path, key, value)
    try:
        parse_axes(text)
    except ValueError as error:
        raise _bad(path, key, str(error), repr(text), f"write for instance `axes: {OUR_AXES}`") from error
    return text


def _numbers(path: Path, key: str, value: Any, count: int) -> list[float]:
    flat = [x for row in value for x in (row if isinstance(row, list) else [row])] if isinstance(value, list) else []
    if len(flat) != count or not all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in flat):
        raise _bad(path, key, f"{count} numbers", repr(value), f"write {key} as a list of {count} numbers")
    try:
        return [float(x) for x in flat]
    except OverflowError as error:
        raise _bad(path, key, f"{count} numbers", repr(value), "write numbers that a computer can hold") from error


def parse_motion(path: Path, key: str, value: Any) -> FloatArray:
    """A motion as {translation: [x, y, z], quaternion_wxyz: [w, x, y, z]}, or as a 3x4 matrix in rows."""
    motion = se3.identity()
    if isinstance(value, dict) and set(value) == {"translation", "quaternion_wxyz"}:
        quaternion = np.array(_numbers(path, f"{key}.quaternion_wxyz", value["quaternion_wxyz"], 4))
        if not abs(float(np.linalg.norm(np.clip(quaternion, -2, 2))) - 1) < 1e-2:
            raise _bad(path, f"{key}.quaternion_wxyz", "a unit quaternion", repr(quaternion.tolist()), "normalise it")
        motion = se3.from_quaternion(quaternion, np.array(_numbers(path, key, value["translation"], 3)))
    elif isinstance(value, list):
        motion[:3] = np.array(_numbers(path, key, value, 12)).reshape(3, 4)
    else:
        expected = "`translation` and `quaternion_wxyz`, or 12 numbers (3x4, row by row)"
        raise _bad(path, key, expected, repr(value), "see docs/own_data.md")
    rigid: FloatArray = rigid_poses(path, motion[None], [key])[0]
    return rigid


def _timestamps(path: Path, key: str, value: Any) -> dict[str, Any]:
    expected = "one of {file: NAME}, {file: NAME, unit: s}, {filename: UNIT}, {rate_hz: NUMBER}"
    units = f"one of {', '.join(UNITS_NS)}"
    match value:
        case {"file": name, **rest} if set(rest) <= {"unit"}:
            unit = rest.get("unit", "s")
            if not isinstance(unit, str) or unit not in UNITS_NS:
                raise _bad(path, f"{key}.unit", units, repr(unit), "write the unit of the times")
            return {"file": _file_below(path, f"{key}.file", name), "unit": unit}
        case {"filename": unit, **rest} if not rest:
            if not isinstance(unit, str) or unit not in UNITS_NS:
                raise _bad(
                    path, f"{key}.filename", units, repr(unit), "write the unit of the numbers in the file names"
                )
            return {"filename": unit}
        case {"rate_hz": bool()}:
            pass  # a bool is an int too: `true` is no rate of 1 Hz
        case {"rate_hz": rate, **rest} if not rest and isinstance(rate, (int, float)) and 1e-3 <= rate <= 1e6:
            return {"rate_hz": float(rate)}
    raise _bad(path, key, expected, repr(value), "see docs/own_data.md")


def parse_ego_box(path: Path, key: str, value: Any) -> FloatArray:
    """A box as six numbers, the lower corner first."""
    box = np.array(_numbers(path, key, value, 6))
    if np.isnan(box).any() or not (box[:3] <= box[3:]).all():
        raise _bad(path, key, "xmin, ymin, zmin, xmax, ymax, zmax", repr(value), "write the lower corner first")
    return box


def _splits(path: Path, key: str, value: Any) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, dict) or not all(
        isinstance(split, str) and isinstance(names, list) and all(isinstance(name, str) for name in names)
        for split, names in value.items()
    ):
        raise _bad(path, key, "lists of drives, such as {train: [a, b], val: [c]}", repr(value), "quote numeric names")
    members = [name for names in value.values() for name in names]
    twice = [name for name, following in pairwise(sorted(members)) if name == following]
    if twice:
        raise _bad(path, key, "each drive in one split", f"{twice[0]} more than once", "leave it in one of them")
    return {split: tuple(names) for split, names in value.items()}


_PARSERS: dict[str, Callable[[Path, str, Any], Any]] = {
    "name": _text,
    "sweeps": _file_below,
    "columns": _columns,
    "units": _one_of(*UNITS_M),
    "axes": _axes,
    "invalid_points": _one_of("error", "drop"),
    "poses": _file_below,
    "pose_format": _one_of("tum", "kitti"),
    "pose_time_unit": _one_of(*UNITS_NS),
    "pose_frame": _one_of("world_from_lidar", "world_from_ego"),
    "ego_from_lidar": parse_motion,
    "timestamps": _timestamps,
    "deskew": _switch,
    "time_field": _text,
    "time_unit": _one_of(*UNITS_NS),
    "ego_box": parse_ego_box,
    "split": _text,
    "splits": _splits,
}
