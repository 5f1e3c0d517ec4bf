"""What training data was: a text that changes when the drives do."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

from copilot4d.geometry import Drive


def drives_fingerprint(drives: Iterable[Drive]) -> str:
    """sha256 over names, times and poses; the points are not read."""
    digest = hashlib.sha256()
    for drive in drives:
        digest.update(drive.name.encode())
        digest.update(np.ascontiguousarray(drive.timestamps_ns).tobytes())
        digest.update(np.ascontiguousarray(drive.world_from_lidar).tobytes())
    return digest.hexdigest()
