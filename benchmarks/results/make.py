"""Make every number of docs/results.md again (docs/make_results.md).

    python benchmarks/results/make.py --work results --kitti path/to/kitti --dry-run   # what would be run
    python benchmarks/results/make.py --work results --kitti path/to/kitti             # everything but the reports
    python benchmarks/results/make.py --work results --only guidance                   # one table, and what it needs
    python benchmarks/results/make.py --work results --only main --report              # the test drives, once

What is done is skipped, what was interrupted goes on. Two processes may share a folder: a step that one is at, the
other waits for.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from plan import results_plan
from records import THERE, Book, State
from steps import Places, Plan, Step

from copilot4d.errors import Copilot4dError, UsageError
from copilot4d.progress import duration

STOPPED = (130, 143, -signal.SIGINT, -signal.SIGTERM)
REFUSED = "looks at drives that are for reporting only: give --report when every choice is made"
AGAIN = (
    "was scored before, with other weights or another command; a second look at the drives for reporting is counted "
    "and told: give --report-again if it must be"
)


def wait_for(command: Sequence[str]) -> int:
    """The exit code of a command. A stop reaches it too, and it is waited for: it saves what it has."""
    process = subprocess.Popen(command)
    before = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                continue
    finally:
        signal.signal(signal.SIGTERM, before)


def main(
    arguments: Sequence[str] | None = None, *, plan: Plan | None = None,
    execute: Callable[[Sequence[str]], int] = wait_for,
) -> int:  # fmt: skip
    options = parse(arguments)
    try:
        plan = plan or results_plan()
        places = Places(work=options.work, kitti=options.kitti)
        return run(plan, Book(plan, places), options, execute)
    except Copilot4dError as error:
        print(f"make.py: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        print("make.py: interrupted; the same command goes on", file=sys.stderr)
        return 130


def run(plan: Plan, book: Book, options: argparse.Namespace, execute: Callable[[Sequence[str]], int]) -> int:
    for name, place in (given.split("=", 1) for given in options.use):
        if name not in plan.steps:
            raise UsageError(f"--use {name}: no such step; --list shows them")
        book.give(plan.steps[name], Path(place))
    wanted = plan.chosen(options.only)
    there = [step.name for step in plan.steps.values() if book.state(step) in THERE]
    ordered = plan.in_order(wanted, there=there)
    if options.list or options.dry_run:
        show(ordered, book, commands=options.dry_run)
        return 0
    refused: dict[str, str] = {}
    failed: dict[str, str] = {}
    for step in ordered:
        missing = [need for need in step.needs if need in refused or need in failed]
        if book.state(step) in THERE:
            continue
        if missing:
            failed[step.name] = f"needs {missing[0]}"
        elif why := refusal(step, book, options):
            refused[step.name] = why
        elif not carry_out(step, book, execute):
            failed[step.name] = "its command failed; the same command goes on"
            if not options.keep_going:
                break
    for name, why in {**refused, **failed}.items():
        print(f"left: {name} {why}", file=sys.stderr)
    return 1 if refused or failed else 0


def refusal(step: Step, book: Book, options: argparse.Namespace) -> str:
    """Why a step must not be run; empty where it may."""
    record = book.record(step)
    if step.report and not (options.report or options.report_again):
        return REFUSED
    if step.report and record is not None and record.looks and not options.report_again:
        return AGAIN
    if step.kind == "run" and book.state(step) == "outdated":
        product = book.product(step)
        return (
            f"was begun by another command or from other weights than the plan's: move {product} away to train it "
            f"anew, or keep it by --use {step.name}={product}"
        )
    return ""


def carry_out(step: Step, book: Book, execute: Callable[[Sequence[str]], int]) -> bool:
    """Run a step's command; whether it is done."""
    with book.held(step) as free:
        if not free and book.state(step) in THERE:
            return True  # another process made it while this one waited
        command = book.places.command(step)
        print(f"\n== {step.name} (about {duration(60 * step.core_minutes)})\n{book.places.shown(step)}", flush=True)
        book.begin(step)
        before = time.monotonic()
        code = execute(command)
        spent = time.monotonic() - before
        book.finish(step, spent, success=code == 0)
        if code in STOPPED:
            raise KeyboardInterrupt
        made = code == 0 and book.state(step) in THERE
        ending = "done" if made else f"exit code {code}" if code else f"ended without making {book.product(step)} whole"
        print(f"== {step.name}: {ending}, after {duration(spent)}", flush=True)
        return made


def show(steps: Sequence[Step], book: Book, *, commands: bool) -> None:
    """What would be done, and what it would cost."""
    left = 0.0
    for step in steps:
        state: State = book.state(step)
        left += 0.0 if state in THERE else step.core_minutes
        marks = [state, f"about {duration(60 * step.core_minutes)}", *(["report"] if step.report else [])]
        print(f"{step.name}  [{', '.join(marks)}]")
        if commands and state not in THERE:
            for place, text in step.files.items():
                print(f"    # {book.places.work / place}: {' '.join(text.split())}")
            print(f"    {book.places.shown(step)}")
    done = sum(book.state(step) in THERE for step in steps)
    print(f"{len(steps)} steps, {done} done; about {duration(60 * left)} of one core are left")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="the folder for runs, tokens, scores and records")
    parser.add_argument("--kitti", type=Path, help="the KITTI Odometry tree with train_0001, ..., val_0005")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these tables or steps, with their needs")
    parser.add_argument("--dry-run", action="store_true", help="print commands with their estimated time")
    parser.add_argument("--list", action="store_true", help="print the steps and their state")
    parser.add_argument("--report", action="store_true", help="allow the first look at test, val_0005 and what-if")
    parser.add_argument("--report-again", action="store_true", help="allow another look; it is counted")
    parser.add_argument("--keep-going", action="store_true", help="after a failure, do what does not depend on it")
    parser.add_argument(
        "--use",
        nargs="+",
        default=[],
        metavar="STEP=PATH",
        help="take a run, tokens or scores made elsewhere (remembered)",
    )
    options = parser.parse_args(arguments)
    for given in options.use:
        if "=" not in given:
            parser.error(f"--use wants STEP=PATH, got {given!r}")
    return options


if __name__ == "__main__":
    sys.exit(main())
