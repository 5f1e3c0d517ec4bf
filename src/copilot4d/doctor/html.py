"""The report as one HTML page with pictures: what a sweep looks like, and what the poses make of several."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from copilot4d.doctor.axes import turned_points, upright
from copilot4d.doctor.drive import DriveReport
from copilot4d.doctor.examine import Report, spread
from copilot4d.doctor.finding import grouped
from copilot4d.doctor.report import (
    CONTENT_COLUMNS,
    FRAME_COLUMNS,
    POSE_COLUMNS,
    POSE_QUESTION,
    cases,
    content_row,
    frame_row,
    headline,
    pose_row,
    sample,
    verdict,
)
from copilot4d.errors import DataError
from copilot4d.geometry import Sweep, se3
from copilot4d.geometry.se3 import FloatArray
from copilot4d.pictures import Page, bev_image
from copilot4d.progress import Track, silent

_MOST_DRIVES = 6
_GATHERED = 8  # sweeps in a map
_SIDE_HALF_M = 20.0


def write_page(report: Report, path: str | Path, track: Track = silent) -> Path:
    """Write the report as a self-contained page."""
    page = Page("copilot4d doctor")
    page.text(headline(report))
    page.note(verdict(report), "good" if report.healthy else "bad")
    page.text(sample(report))
    for finding in grouped(report.findings):
        words = "\n".join([finding.title, *cases(finding), f"To fix it: {finding.remedy}"])
        page.note(words, "bad" if finding.severity == "problem" else "warning")
    if report.drives:
        page.heading("What is there")
        page.table(CONTENT_COLUMNS, [content_row(d) for d in report.drives],
                   caption="Ranges are in the points' own unit.")  # fmt: skip
        page.heading("How it stands")
        page.table(FRAME_COLUMNS, [frame_row(d) for d in report.drives],
                   caption="Wanted: metres, +z up, driving along +x, the origin at the lidar.")  # fmt: skip
        page.heading(POSE_QUESTION)
        page.table(
            POSE_COLUMNS, [pose_row(d) for d in report.drives],
            caption="How far points above the ground are from the surfaces of the other sweep of their pair (70% are "
            "nearer; 1 m at most). Right poses give the smallest number in their row.",
        )  # fmt: skip
    names = spread([d.drive.name for d in report.drives], _MOST_DRIVES)
    shown = [d for d in report.drives if d.drive.name in names]
    for drive in track(shown, "drawing", len(shown)):
        _draw(page, drive)
    return page.write(path)


def _draw(page: Page, report: DriveReport) -> None:
    drive, scale = report.drive, report.unit.metres_per_unit
    page.heading(f"Drive {drive.name}")
    middle = [cloud.frame for cloud in report.clouds if not cloud.empty]
    if not middle:
        page.text("No sweep of this drive could be read.")
        return
    frame = middle[len(middle) // 2]
    sweep = _read(report, frame)
    if sweep is None:
        return
    points = sweep.points[np.isfinite(sweep.points).all(axis=1)] * np.float32(scale)
    pictures = [
        (bev_image(points), f"Sweep {frame} from above: x points up, y left. A street should run up the picture."),
        (
            bev_image(points[:, [2, 0, 1]], half=_SIDE_HALF_M, z_range=(-20, 20), ego=False, rings=False),
            "The same sweep from the side: z points up, x left. The ground should be a level line below the centre.",
        ),
    ]
    gathered = _gathered(report, frame) if report.has_poses else None
    if gathered is not None:
        near, count, path = gathered
        pictures.append((
            bev_image(near, path=path),
            f"{count} sweeps around it, laid together by the poses as given. Right poses make sharp walls; blurred or "
            "doubled ones mean that the poses do not fit.",
        ))  # fmt: skip
    page.images(pictures)


def _gathered(report: DriveReport, frame: int) -> tuple[FloatArray, int, FloatArray] | None:
    """Points above the ground of some sweeps around a frame, in its own axes, by the poses as given; and the way."""
    drive, scale = report.drive, report.unit.metres_per_unit
    if len(drive) < 2 or not np.isfinite(drive.world_from_lidar).all():
        return None
    first = int(np.clip(frame - _GATHERED // 2, 0, max(0, len(drive) - _GATHERED)))
    frames = range(first, min(first + _GATHERED, len(drive)))
    turn = upright(report.ground)
    level = -np.inf if report.ground is None else 0.4 - report.ground.origin_height * scale
    clouds = []
    for i in frames:
        sweep = _read(report, i)
        if sweep is None:
            continue
        points = sweep.points * np.float32(scale)
        standing = points[turned_points(points, turn)[:, 2] > level]
        motion = se3.relative_motion(drive.world_from_lidar[frame], drive.world_from_lidar[i])
        clouds.append(se3.transform_points(motion, standing.astype(np.float64)))
    way = se3.relative_motion(drive.world_from_lidar[frame], drive.world_from_lidar[list(frames)])[:, :3, 3]
    return (np.concatenate(clouds), len(clouds), way) if clouds else None


def _read(report: DriveReport, frame: int) -> Sweep | None:
    try:
        sweep: Sweep = report.drive[frame]
    except DataError:
        return None  # a finding says so already
    return sweep
