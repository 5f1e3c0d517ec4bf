"""How much one sweep may hold once it is unpacked: checked before it is allocated, whatever a small file promises."""

from __future__ import annotations

import os
from pathlib import Path

from copilot4d.errors import DataError, UsageError

VARIABLE = "COPILOT4D_MAX_SWEEP_MB"
DEFAULT_MB = 512  # 30 million points with intensity: a hundred times a large lidar's sweep


def check_decoded_size(path: Path, size: int) -> None:
    """DataError where unpacking a file would take more bytes than a sweep may have."""
    limit_mb = _limit_mb()
    if size > limit_mb * 1_000_000:
        raise DataError(
            path, "size", expected=f"at most {limit_mb} MB once unpacked", found=f"{size / 1e6:.0f} MB",
            remedy=f"leave this sweep out, or allow more by the environment variable {VARIABLE}",
        )  # fmt: skip


def _limit_mb() -> int:
    text = os.environ.get(VARIABLE, "")
    if not text:
        return DEFAULT_MB
    if not (text.isascii() and text.isdecimal() and 0 < len(text) < 10):
        raise UsageError(f"{VARIABLE} must be a whole number of megabytes, got {text[:40]!r}")
    return int(text)
