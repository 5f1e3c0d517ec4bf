"""A warning before scores and forecasts: a log without `ego_box` whose sweeps hold the vehicle itself."""

from __future__ import annotations

from collections.abc import Iterable

from copilot4d.cli.console import errors_console
from copilot4d.geometry import Drive

_MOST_DRIVES = 3


def tell_own_returns(drives: Iterable[Drive]) -> None:
    """Look at the first few drives that have no ego box, a few sweeps of each, and warn where it is missed."""
    from copilot4d.doctor.own_vehicle import own_returns_of, own_returns_remedy  # here: it imports scipy.ndimage

    looked_at = 0
    for drive in drives:
        if looked_at >= _MOST_DRIVES:
            return
        if drive.ego_box is not None:
            continue
        looked_at += 1
        found = own_returns_of(drive)
        if found is not None:
            errors_console.print(
                f"warning: {found.share:.0%} of the points of drive {drive.name} are returns from the vehicle itself. "
                f"They spoil scores and forecasts. To fix it: {own_returns_remedy(drive, found)}",
                style="yellow", markup=False, highlight=False,
            )  # fmt: skip
            return
