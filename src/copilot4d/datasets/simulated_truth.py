"""Whether the arrays of a truth file fit together: a file can be whole by its checksums and wrong all the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copilot4d.geometry import se3

_SCALARS = {"truth_version": "i", "moment_frame": "i", "follower": "i", "name": "U", "split": "U", "plan": "U"}
_MOST = 2**31  # of anything that is counted


def check_truth(truth: Mapping[str, NDArray[Any]]) -> None:
    """ValueError that names the first array of a shape, type or value that no simulated drive has."""
    for name, kind in _SCALARS.items():
        _expect(truth[name].shape == () and truth[name].dtype.kind == kind, name, truth[name], f"one value ({kind})")
    for name in ("timestamps_ns", "object_ids", "agent_kinds"):
        _expect(truth[name].ndim == 1, name, truth[name], "a list")
    frames, points, agents = (len(truth[name]) for name in ("timestamps_ns", "object_ids", "agent_kinds"))
    shapes: dict[str, tuple[tuple[int, ...], str]] = {
        "world_from_lidar": ((frames, 4, 4), "f"), "timestamps_ns": ((frames,), "iu"), "ego_box": ((6,), "f"),
        "object_ids": ((points,), "iu"), "moving": ((points,), "b"), "first_point": ((frames + 1,), "iu"),
        "agent_poses": ((frames, agents, 4), "f"), "agent_speeds_m_s": ((frames, agents), "f"),
        "agent_sizes_m": ((agents, 3), "f"), "agent_kinds": ((agents,), "U"), "sweep_sha256": ((frames,), "U"),
    }  # fmt: skip
    for name, (shape, kind) in shapes.items():
        if name in truth and (agents or not name.startswith("agent_")):  # a street without traffic has empty arrays
            fits = truth[name].shape == shape and truth[name].dtype.kind in kind
            _expect(fits, name, truth[name], f"the shape {shape}")
    for name in ("world_from_lidar", "ego_box"):
        _expect(bool(np.isfinite(truth[name]).all()), name, truth[name], "finite numbers")
    first = truth["first_point"].astype(np.int64)
    _expect(bool(first[0] == 0 and first[-1] == points and (np.diff(first) >= 0).all()), "first_point", first,
            f"rising numbers from 0 to {points}")  # fmt: skip
    times = truth["timestamps_ns"]
    _expect(bool((np.diff(times.astype(np.int64)) > 0).all()), "timestamps_ns", times, "rising times")
    _expect(frames == 0 or float(se3.rigidity_error(truth["world_from_lidar"]).max()) < 1e-6, "world_from_lidar",
            truth["world_from_lidar"], "rigid poses")  # fmt: skip
    for name in ("moment_frame", "follower"):
        _expect(-1 <= int(truth[name]) < _MOST, name, truth[name], "a number")


def _expect(holds: bool, name: str, found: NDArray[Any], expected: str) -> None:
    if not holds:
        raise ValueError(f"{name}: expected {expected}, found {found.dtype} of shape {found.shape}")
