"""What a run survives: kills of training and of `copilot4d evaluate`, stalled workers, full disks, full /dev/shm.

    python benchmarks/faults.py                                    # 50 kills of each
    python benchmarks/faults.py --kills 5 --evaluations 5          # a short look

Training: `copilot4d train occupancy-4d` on the command line is killed by SIGKILL at random moments, and a toy run
inside its saves; both must end with weights, moments and sample order bit-identical to a run that was left alone.
Evaluation: killed by SIGKILL or SIGTERM, its scores must be those of an undisturbed one. Faults: the process must end
within 10 s of the moment at which it can know, say why, and leave a checkpoint from which the same command goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the repository: its tests are no installed package

from safetensors.torch import load_file
from tests.support.scenes import make_drive
from tests.training import killing

from copilot4d.datasets.folder_writer import write_kitti

ROOT = Path(__file__).resolve().parents[1]
COMMAND = [sys.executable, "-m", "copilot4d.cli.main"]
FAULTY = [sys.executable, "-m", "tests.training.fault_run"]
WITHIN_S = 10.0
TIMES = ("seconds", "seconds_forecasting")  # in score files: all else must be the same


def start(words: list[str], log: Path, **options: Any) -> subprocess.Popen[bytes]:
    """A command in a session of its own."""
    with log.open("ab") as file:
        return subprocess.Popen(
            words, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, start_new_session=True, **options
        )  # fmt: skip


def to_end(words: list[str], log: Path) -> None:
    code = start(words, log).wait()
    if code != 0:
        raise SystemExit(f"{' '.join(words)} ended with code {code}:\n{log.read_text()[-2000:]}")


def kill_again_and_again(
    words: list[str], log: Path, kills: int, seed: int, signals: list[int], done: Path, longest_s: float
) -> dict[str, int]:
    """Start and kill a command; counts kills by signal. Ends early where the command is done."""
    rng, counts = random.Random(seed), {signal.Signals(number).name: 0 for number in signals}
    for _ in range(kills):
        process = start(words, log)
        try:
            process.wait(timeout=rng.uniform(0.2 * longest_s, longest_s))
        except subprocess.TimeoutExpired:
            number = rng.choice(signals)
            os.killpg(process.pid, number)
            counts[signal.Signals(number).name] += 1
            process.wait()
        if done.exists():
            break
    return counts


def train_on_the_command_line(folder: Path, kills: int, seed: int, longest_s: float) -> dict[str, Any]:
    data = folder / "kitti"
    write_kitti(make_drive(24, rings=8, azimuths=60), data, name="train_a")
    updates = 10 + 4 * kills
    steps = folder / "killed" / "checkpoints" / f"step_{updates:09d}"

    def words(run: str) -> list[str]:
        return [*COMMAND, "train", "occupancy-4d", "--preset", "tiny", "--data", str(data), "--run", str(folder / run),
                "--updates", str(updates), "--save-every", "2", "--device", "cpu", "--precision", "fp32"]  # fmt: skip

    log = folder / "train.log"
    to_end(words("calm"), log)
    counts = kill_again_and_again(words("killed"), log, kills, seed, [int(signal.SIGKILL)], steps, longest_s)
    to_end(words("killed"), log)
    compared = 0
    for name in ("model", "optimizer"):
        a, b = (
            load_file(folder / run / "checkpoints" / steps.name / f"{name}.safetensors") for run in ("calm", "killed")
        )
        assert a.keys() == b.keys()
        assert all((a[key] == b[key]).all() for key in a), name
        compared += len(a)
    return {"updates": updates, "kills": counts["SIGKILL"], "tensors_compared": compared, "bit_identical": True}


def evaluate_on_the_command_line(folder: Path, kills: int, seed: int, longest_s: float) -> dict[str, Any]:
    data = folder / "kitti_to_score"
    write_kitti(make_drive(60, rings=16, azimuths=180), data, name="val_a")

    def words(out: str) -> list[str]:
        return [*COMMAND, "evaluate", "--model", "ray_tracing", "--data", str(data), "--setting", "1s",
                "--out", str(folder / out)]  # fmt: skip

    log = folder / "evaluate.log"
    to_end(words("calm.json"), log)
    signals = [int(signal.SIGKILL), int(signal.SIGTERM)]
    out = folder / "killed.json"
    total: dict[str, int] = {}
    rounds = 0
    while (left := kills - sum(total.values())) > 0:  # short evaluations are over before many kills: several of them
        rounds += 1
        counts = kill_again_and_again(words("killed.json"), log, left, seed + rounds, signals, out, longest_s)
        total = {name: total.get(name, 0) + count for name, count in counts.items()}
        if not out.exists():
            to_end(words("killed.json"), log)
        a, b = (json.loads((folder / name).read_text()) for name in ("calm.json", "killed.json"))
        different = [key for key in a if a[key] != b[key] and key not in TIMES]
        assert not different, {key: (a[key], b[key]) for key in different}
        left_over = sorted(p.name for p in folder.iterdir() if p.name.startswith(("killed.json.", ".killed.json")))
        assert not left_over, left_over
        out.unlink()
        if rounds > 20 * kills:
            raise SystemExit("evaluations end before they can be killed: make --longest-s smaller")
    return {"kills": total, "evaluations": rounds, "same_scores": True}


def fault(folder: Path, name: str, *, timeout_s: float = 600.0, limit: int | None = None, shm: str | None = None,
          send: int | None = None) -> dict[str, Any]:  # fmt: skip
    """One fault: how the process ends, after how many seconds, what it says, and whether it goes on afterwards."""
    run, log = folder / name, folder / f"{name}.log"
    if limit is not None or shm is not None:  # a checkpoint to come back to
        to_end([*FAULTY, str(run), "none", "600"], log)
        shutil.rmtree(run / "checkpoints" / "step_000000020")
    words = [*FAULTY, str(run), "stop" if send or timeout_s < 600 else "large", str(timeout_s)]
    if shm is not None:
        words = [
            "unshare",
            "--mount",
            "sh",
            "-c",
            f'mount -t tmpfs -o size={shm} tmpfs /dev/shm && exec "$@"',
            "sh",
            *words,
        ]
    before = None if limit is None else (lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    began = time.monotonic()
    process = start(words, log, preexec_fn=before)
    if send or timeout_s < 600:  # from when the worker stopped
        while "stopping" not in log.read_text() and process.poll() is None:
            time.sleep(0.02)
        time.sleep(0.5)
        began = time.monotonic()
        if send:
            os.kill(process.pid, send)
    try:
        code = process.wait(timeout=120)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return {"ended": False}
    seconds = time.monotonic() - began - (timeout_s if timeout_s < 600 else 0.0)
    said = log.read_text().strip().splitlines()[-1]
    to_end([*FAULTY, str(run), "none", "600"], log)
    assert (run / "checkpoints" / "step_000000020").is_dir()
    return {"exit_code": code, "seconds": round(seconds, 1), "said": said[:160], "went_on": True}


def can_mount() -> bool:
    probe = ["unshare", "--mount", "sh", "-c", "mount -t tmpfs -o size=1m tmpfs /dev/shm"]
    return shutil.which("unshare") is not None and subprocess.run(probe, capture_output=True).returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="of training: on the command line, and of the toy run")
    parser.add_argument("--evaluations", type=int, default=50, help="kills of evaluate")
    parser.add_argument("--longest-s", type=float, default=15.0, help="before a kill; give more on a busy machine")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    result: dict[str, Any] = {}
    began = time.monotonic()

    def note(name: str, found: dict[str, Any]) -> None:
        result[name] = found
        print(json.dumps({name: found}), file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        note("worker stopped, then SIGTERM", fault(folder, "sigterm", send=signal.SIGTERM))
        note("worker stopped, then Ctrl-C", fault(folder, "sigint", send=signal.SIGINT))
        note("worker stopped, no signal", fault(folder, "watchdog", timeout_s=3.0))
        note("limit on file sizes", fault(folder, "limit", limit=100_000))
        note("full /dev/shm", fault(folder, "shm", shm="1m") if can_mount() else {"skipped": "needs to be root"})
        if options.kills:
            steps = killing.steps_for(options.kills)
            if code := killing.run_to_end(folder / "toy_calm", workers=0, steps=steps):
                raise SystemExit(f"the undisturbed run ended with code {code}")
            tally = killing.train_and_kill(folder / "toy", options.kills, options.seed)
            compared = killing.assert_same_end(folder / "toy", folder / "toy_calm", steps)
            note("toy run killed", {"steps": steps, "kills": tally.kills, "inside_a_save": tally.in_save,
                                    "tensors_compared": compared, "bit_identical": True})  # fmt: skip
            note("train killed", train_on_the_command_line(folder, options.kills, options.seed, options.longest_s))
        if options.evaluations:
            found = evaluate_on_the_command_line(folder, options.evaluations, options.seed, options.longest_s)
            note("evaluate killed", found)
    result["seconds"] = round(time.monotonic() - began)
    print(json.dumps(result, indent=1))
    late = [name for name, found in result.items() if isinstance(found, dict) and found.get("seconds", 0) > WITHIN_S]
    stuck = [name for name, found in result.items() if isinstance(found, dict) and found.get("ended") is False]
    for name in (*late, *stuck):
        print(f"{name}: did not end within {WITHIN_S:g} s")
    return 1 if late or stuck else 0


if __name__ == "__main__":
    sys.exit(main())
