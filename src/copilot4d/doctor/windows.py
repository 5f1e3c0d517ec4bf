"""Which of the protocol's forecasting windows a drive has."""

from __future__ import annotations

from copilot4d.datasets.windows import SETTINGS, explain_missing, protocol_windows
from copilot4d.doctor.finding import Finding, remark
from copilot4d.errors import ProtocolError
from copilot4d.geometry import Drive


def count_windows(drive: Drive) -> dict[str, int]:
    """Complete windows of each setting; 0 where the drive's rate does not fit it."""
    counts = {}
    for setting in SETTINGS:
        try:
            counts[setting] = sum(window.complete for window in protocol_windows({drive.name: drive}, setting))
        except ProtocolError:
            counts[setting] = 0
    return counts


def check_windows(where: str, drive: Drive, counts: dict[str, int]) -> list[Finding]:
    """A remark for each setting that has no complete window, with what is missing."""
    return [
        remark(
            f"windows-{setting}", where, f"No complete window of the {setting} setting",
            explain_missing(drive, setting),
            f"nothing is damaged; take longer drives to score in the {setting} setting",
        )
        for setting, count in counts.items()
        if not count
    ]  # fmt: skip
