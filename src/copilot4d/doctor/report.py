"""The report as text: tables of what was found, each finding with its remedy, and a verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from copilot4d.doctor.drive import DriveReport
from copilot4d.doctor.examine import Report
from copilot4d.doctor.finding import GroupedFinding, grouped

_MOST_CASES = 6
_SIGN = {"problem": "[bold red]PROBLEM[/]", "remark": "[bold yellow]remark[/] "}

_SHORT_UNITS = {"metres": " m", "millimetres": " mm", "centimetres": " cm", "feet": " ft", "kilometres": " km"}

CONTENT_COLUMNS = (
    "drive", "sweeps", "rate", "gaps", "points a sweep", "range: median / 99% / most", "1s windows", "3s windows",
)  # fmt: skip
FRAME_COLUMNS = ("drive", "unit", "up", "origin above ground", "ray origins", "way", "top speed", "drives along")
POSE_QUESTION = "Do the poses fit the sweeps?"
POSE_COLUMNS = ("drive", "as given", "none", "inverted", "one frame later", "one frame earlier", "pairs", "verdict")


def render(report: Report, hint: str = "") -> RenderableType:
    """The whole report, for a rich console. hint: how to read every sweep, where not all were read."""
    parts: list[RenderableType] = [_words(headline(report), "bold"), _words(sample(report, hint)), ""]
    if report.drives:
        parts += [
            *_table("What is there", "", CONTENT_COLUMNS, [content_row(d) for d in report.drives]),
            *_table("How it stands", "wanted: metres, up +z, driving along +x", FRAME_COLUMNS,
                    [frame_row(d) for d in report.drives]),
            *_table(POSE_QUESTION, "how far a point of one sweep is from the next sweep, with the poses ...",
                    POSE_COLUMNS, [pose_row(d) for d in report.drives]),
        ]  # fmt: skip
    for finding in grouped(report.findings):
        parts += [_told(finding), ""]
    style = "bold green" if report.healthy else "bold red"
    return Group(*parts, _words(verdict(report), style))


def headline(report: Report) -> str:
    """One line: what it is."""
    if report.format is None:
        return f"{report.path}: this cannot be opened as a data set"
    splits = ", ".join(f"{count} {split}" for split, count in report.splits.items())
    drives = f"{len(report.names)} drive{'' if len(report.names) == 1 else 's'}"
    return f"{report.path}: {report.format}, {drives}{f' ({splits})' if splits else ''}"


def sample(report: Report, hint: str = "") -> str:
    """One line: how much of it was examined."""
    sweeps = sum(d.sweeps for d in report.drives)
    read = sum(len(d.clouds) for d in report.drives)
    pairs = sum(len(d.poses.pairs) for d in report.drives)
    more = f"; {hint}" if hint and not report.every_sweep else ""
    return (
        f"Examined {len(report.drives)} of {len(report.names)} drives: the files of {sweeps} sweeps, the points of "
        f"{read}, {pairs} pairs compared{more}"
    )


def verdict(report: Report) -> str:
    """One line: healthy or not."""
    problems = [group for group in grouped(report.findings) if group.severity == "problem"]
    remarks = len(grouped(report.findings)) - len(problems)
    also = f" ({remarks} remark{'' if remarks == 1 else 's'})" if remarks else ""
    if not problems:
        return f"Verdict: healthy, nothing to fix{also}."
    titles = "; ".join(group.title for group in problems[:4]) + ("; ..." if len(problems) > 4 else "")
    return f"Verdict: {len(problems)} problem{'' if len(problems) == 1 else 's'} to fix{also}: {titles}."


def content_row(report: DriveReport) -> list[str]:
    """A drive's row under CONTENT_COLUMNS."""
    clock = report.clock
    points = [cloud.points for cloud in report.clouds]
    ranges = [(c.range_median, c.range_far, c.range_max) for c in report.clouds if not c.empty]
    middle, far, most = np.median(ranges, axis=0) if ranges else (math.nan,) * 3
    unit = _SHORT_UNITS.get(report.unit.name or "", "")
    return [
        report.drive.name,
        str(report.sweeps),
        "-" if math.isnan(clock.rate_hz) else f"{clock.rate_hz:.3g} Hz",
        f"{clock.missing} missing" if clock.gaps else "none",
        f"{np.median(points):,.0f} ({min(points):,}..{max(points):,})" if points else "-",
        f"{_length(middle)} / {_length(far)} / {_length(most)}{unit}" if ranges else "-",
        *(str(report.windows[setting]) for setting in ("1s", "3s")),
    ]


def frame_row(report: DriveReport) -> list[str]:
    """A drive's row under FRAME_COLUMNS."""
    ground, trajectory = report.ground, report.trajectory
    origins = sorted({origin for cloud in report.clouds for origin in cloud.origins})
    places = " and ".join(f"({x:.2f}, {y:.2f}, {z:.2f})" for x, y, z in origins[:3]) or "-"
    known = report.has_poses and report.sweeps > 1
    return [
        report.drive.name,
        report.unit.name or "unknown",
        "?" if ground is None else ground.up,
        "?" if ground is None else f"{_length(ground.origin_height)}{_SHORT_UNITS.get(report.unit.name or '', '')}",
        places + (f" and {len(origins) - 3} more" if len(origins) > 3 else ""),
        f"{trajectory.way_m:.4g} m" if known else "-",
        f"{trajectory.speed_max_m_s:.3g} m/s" if known else "-",
        (trajectory.forward or "?") if known else "-",
    ]


def pose_row(report: DriveReport) -> list[str]:
    """A drive's row under POSE_COLUMNS."""
    check = report.poses
    misfits = [check.misfits_m.get(label) for label in POSE_COLUMNS[2:6]]
    return [
        report.drive.name,
        f"{check.given_m:.2f} m" if check.pairs else "-",
        *("-" if misfit is None else f"{misfit:.2f} m" for misfit in misfits),
        str(len(check.pairs)),
        check.verdict,
    ]


def cases(finding: GroupedFinding) -> list[str]:
    """Where a finding was made and how it is known, a line each; the last says how many more there are."""
    lines = [f"{case.where}: {case.evidence}" if case.where else case.evidence for case in finding.cases[:_MOST_CASES]]
    more = len(finding.cases) - _MOST_CASES
    return [*lines, f"... and {more} more"] if more > 0 else lines


def _told(finding: GroupedFinding) -> RenderableType:
    lines = [*(escape(line) for line in cases(finding)), f"[green]To fix it:[/] {escape(finding.remedy)}"]
    title = f"{_SIGN[finding.severity]} [bold]{escape(finding.title)}[/]"
    return Group(title, *(Padding(line, (0, 0, 0, 8)) for line in lines))


def _table(title: str, hint: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[RenderableType, ...]:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    return f"[bold]{escape(title)}[/]{f' ({escape(hint)})' if hint else ''}", table, ""


def _words(words: str, style: str = "") -> str:
    return f"[{style}]{escape(words)}[/]" if style else escape(words)


def _length(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
