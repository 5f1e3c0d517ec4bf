"""`copilot4d doctor`: look at a data set and say what is wrong with it, and how to fix it."""

from __future__ import annotations

import dataclasses
import shlex

from copilot4d.cli.console import console, next_step, track
from copilot4d.cli.data_options import given_flags, open_data
from copilot4d.cli.flags import with_flags
from copilot4d.cli.options.doctor import Options
from copilot4d.cli.outputs import check_output_file, check_output_folder
from copilot4d.doctor import Report, examine
from copilot4d.errors import UsageError


def run(options: Options) -> int:
    """Run the verb."""
    if options.sweeps < 1 or options.most_drives < 1:
        raise UsageError("--sweeps and --most-drives must be at least 1")
    if options.poses_out is not None and not options.estimate_poses:
        raise UsageError("--poses-out says where estimated poses go: add --estimate-poses")
    if options.html is not None:
        check_output_file("--html", options.html, "report.html")
    if options.poses_out is not None:
        check_output_folder("--poses-out", options.poses_out)
    if options.estimate_poses:
        _estimate(options)
    report = examine(
        options.path,
        drives=options.drives,
        most_drives=options.most_drives,
        sweeps=options.sweeps,
        every_sweep=options.all,
        track=track,
        open_data=lambda path: open_data(path, options, require_poses=False),
    )
    told = [dataclasses.replace(finding, remedy=with_flags(finding.remedy, Options)) for finding in report.findings]
    report = dataclasses.replace(report, findings=tuple(told))
    show(report)
    if options.html is not None:
        from copilot4d.doctor.html import write_page

        console.print(f"\nWrote {write_page(report, options.html, track)}", markup=False, highlight=False)
    next_step(next_command(options, report))
    return 0 if report.healthy else 1


def show(report: Report) -> None:
    """Print a report."""
    from copilot4d.doctor.report import render

    console.print(render(report, "--all reads every sweep"), soft_wrap=False, highlight=False)


def next_command(options: Options, report: Report) -> str:
    """What to try now: score a baseline on healthy data, look at pictures, or come back when it is fixed."""
    path = shlex.join([str(options.path), *given_flags(options)])
    if report.healthy:
        setting = next((s for s in ("1s", "3s") if any(d.windows[s] for d in report.drives)), None)
        if setting is not None:
            return (
                f"copilot4d evaluate --model ray_tracing --data {path} --setting {setting} --every 10 --out scores.json"
            )
        return f"copilot4d doctor {path} --all"
    if any(finding.code == "poses-missing" for finding in report.problems) and not options.estimate_poses:
        return f"copilot4d doctor --estimate-poses {path}"
    if options.html is None and report.drives:
        return f"copilot4d doctor {path} --html report.html   # pictures of what is wrong"
    return f"copilot4d doctor {path}   # once it is fixed"


def _estimate(options: Options) -> None:
    from copilot4d.doctor.estimate import estimate_and_compare

    for made in estimate_and_compare(options.path, names=options.drives, out=options.poses_out, track=track):
        lines = [f"Wrote {made.file}"]
        if made.comparison is not None:
            lines.append(
                f"  drive {made.drive} has poses: the estimate is NOT used, and the report below is about the log's own"
            )
            lines.append(f"  {made.comparison.verdict}")
            lines.append(f"  to use the estimate in own data: `poses: {made.file.name}` in copilot4d.yaml")
        for line in lines:
            console.print(line, markup=False, highlight=False)
