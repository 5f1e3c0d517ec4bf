"""Damage 10,000 inputs of every format and every kind of folder, and read them: a right answer or a clear error.

    python benchmarks/fuzz.py                    # 10,000 inputs
    python benchmarks/fuzz.py --inputs 500       # as the slow set does
    python benchmarks/fuzz.py --only 4711        # one of them again, with its traceback

An input ends well (`ok`), with an error of ours (`clear error`), or with anything else, of which there must be none:
another exception, a changed byte of a sealed folder that was not noticed, more than 4 GB, more than 20 s of computing,
no end at all. Each number gives the same damage on every machine. Linux only: it caps memory with RLIMIT_DATA.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import json
import multiprocessing
import multiprocessing.connection
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the repository: its tests are no installed package

import torch
from tests.fuzzing.mutations import mutate
from tests.fuzzing.targets import TARGETS, Target, seal_again

from copilot4d.errors import Copilot4dError, Copilot4dWarning

MEMORY = 4_000_000_000
COMPUTING_S = 20.0
HANGS_S = 300.0  # by the wall: a busy machine may be twenty times slower than one that is not
OK, CLEAR = "ok", "clear error"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of one input."""

    number: int
    target: str
    damage: str
    end: str  # OK, CLEAR, or what else happened
    seconds: float = 0.0
    gigabytes: float = 0.0


class Fuzzer:
    """Writes each target once, and damages one file of it at a time."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder, seed
        self.made: dict[str, Path] = {}

    def run(self, number: int, *, show: bool = False) -> Outcome:
        """Damage and read the input of a number."""
        random = Random(f"{self.seed}/{number}")
        target = TARGETS[number % len(TARGETS)]
        what = self._make(target)
        files = sorted(path for path in (what.rglob("*") if what.is_dir() else [what]) if path.is_file())
        path = random.choice(files)
        whole = path.read_bytes()
        damage, changed = mutate(whole, random)
        again = target.sealed and random.random() < 0.5
        manifest = path.parent / "manifest.json"
        sealed = manifest.read_bytes() if target.sealed and manifest.is_file() else None
        try:
            path.unlink() if changed is None else path.write_bytes(changed)
            if again:
                seal_again(path.parent)
            _forget_peak()
            before, start = _peak(), time.process_time()
            end = self._read(target, what, show)
            seconds, gigabytes = time.process_time() - start, (_peak() - before) / 1e9
        finally:
            path.write_bytes(whole)
            if sealed is not None:
                manifest.write_bytes(sealed)
        if end == OK and sealed is not None and not again and changed != whole:
            end = "a change that was not noticed"
        if seconds > COMPUTING_S and end in (OK, CLEAR):
            end = f"more than {COMPUTING_S:g} s"
        if gigabytes > MEMORY / 1e9 and end in (OK, CLEAR):
            end = "more than 4 GB"
        where = f"{path.relative_to(what.parent)}: {damage}{', sealed again' if again else ''}"
        return Outcome(number=number, target=target.name, damage=where, end=end, seconds=seconds, gigabytes=gigabytes)

    def _make(self, target: Target) -> Path:
        if target.name not in self.made:
            root = self.folder / target.name.replace(" ", "_")
            self.made[target.name] = target.make(root)
            target.read(self.made[target.name])  # whole, it must be readable
        return self.made[target.name]

    def _read(self, target: Target, what: Path, show: bool) -> str:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", RuntimeWarning)
                warnings.simplefilter("ignore", Copilot4dWarning)
                target.read(what)
        except Copilot4dError as error:
            if show:
                print(error)
            return CLEAR
        except BaseException as error:
            if show:
                traceback.print_exc()
            return f"{type(error).__name__}: {error}"[:300]
        return OK


def _peak() -> int:
    """The most memory that this process has had since `_forget_peak`, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def _forget_peak() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _work(numbers: list[int], seed: int, pipe: multiprocessing.connection.Connection) -> None:
    """In a process of its own: tell of each input before it is read, and after."""
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    try:
        fuzzer = Fuzzer(folder, seed)
        for target in TARGETS:
            fuzzer._make(target)
        lines = Path("/proc/self/status").read_text().splitlines()
        data = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData"))
        resource.setrlimit(resource.RLIMIT_DATA, (data + MEMORY, data + MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for number in numbers:
            pipe.send(number)
            pipe.send(fuzzer.run(number))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    pipe.send(None)


def fuzz(numbers: list[int], seed: int) -> list[Outcome]:
    """All outcomes; a process that crashes or hangs costs its input, and another goes on after it."""
    outcomes: list[Outcome] = []
    left = list(numbers)
    context = multiprocessing.get_context("fork")
    while left:
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(left, seed, theirs), daemon=True)
        process.start()
        theirs.close()
        at, end = None, ""
        try:
            while ours.poll(HANGS_S):
                told = ours.recv()
                if told is None:
                    left = []
                    break
                if isinstance(told, int):
                    at = told
                    continue
                outcomes.append(told)
                left.remove(told.number)
                at = None
                if told.end not in (OK, CLEAR):
                    print(f"{told.number}: {told.target}, {told.damage}: {told.end}", flush=True)
                if len(outcomes) % 500 == 0:
                    print(f"{len(outcomes)} inputs", file=sys.stderr, flush=True)
            else:
                end = f"no end within {HANGS_S:g} s"
        except EOFError:
            process.join()
            end = f"the process ended with code {process.exitcode}"
        process.kill()
        process.join()
        if end and at is None:
            raise SystemExit(f"the fuzzer itself failed before an input: {end}")
        if end and at is not None:
            target = TARGETS[at % len(TARGETS)].name
            outcomes.append(Outcome(number=at, target=target, damage="", end=end))
            left.remove(at)
            print(f"{at}: {target}: {end}", flush=True)
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first input")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="one input again, with its traceback")
    options = parser.parse_args()
    if options.only is not None:
        with tempfile.TemporaryDirectory() as folder:
            print(Fuzzer(Path(folder), options.seed).run(options.only, show=True))
        return 0
    start = time.monotonic()
    outcomes = fuzz(list(range(options.first, options.first + options.inputs)), options.seed)
    others = [outcome for outcome in outcomes if outcome.end not in (OK, CLEAR)]
    by_target = collections.Counter((o.target, o.end if o.end in (OK, CLEAR) else "anything else") for o in outcomes)
    table = {t.name: {end: by_target[t.name, end] for end in (OK, CLEAR, "anything else")} for t in TARGETS}
    result = {
        "inputs": len(outcomes),
        **{end: sum(row[end] for row in table.values()) for end in (OK, CLEAR, "anything else")},
        "most_seconds": round(max(o.seconds for o in outcomes), 2),
        "most_gigabytes": round(max(o.gigabytes for o in outcomes), 2),
        "seconds": round(time.monotonic() - start),
        "by_target": table,
    }
    print(json.dumps(result, indent=1))
    return 1 if others else 0


if __name__ == "__main__":
    sys.exit(main())
