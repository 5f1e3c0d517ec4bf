"""Whether the ego's motion within a sweep was taken out of its points, and by whom."""

from __future__ import annotations

from copilot4d.doctor.finding import Finding, remark
from copilot4d.geometry import Drive

# What the data sets say of themselves; the others leave it open.
COMPENSATED = {
    "argoverse2": "Argoverse 2 moves all points to the sweep's own time before it publishes them",
    "nuscenes": "nuScenes moves all points to the sweep's own time before it publishes them",
    "pandaset": "PandaSet gives all points in its world frame, each from where its sensor was",
    "waymo": "each point was moved to the frame's time by the vehicle's pose at its own pixel",
}


def check_motion(where: str, drive: Drive) -> list[Finding]:
    """A remark on what was done about motion within sweeps, where that is known."""
    tell = getattr(drive.read, "motion", None)
    if callable(tell):
        done, remedy = tell()
        return [remark("motion-in-sweeps", where, "Motion within a sweep", done, remedy)]
    if drive.format in COMPENSATED:
        return [remark(
            "motion-in-sweeps", where, "Motion within a sweep", f"compensated: {COMPENSATED[drive.format]}", "nothing",
        )]  # fmt: skip
    return []
