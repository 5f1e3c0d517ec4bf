"""Kill a training process with SIGKILL at 50 random moments, many of them inside a save, and compare its end.

    python benchmarks/faults.py

The run that was killed must end with weights, optimizer state, moving average and sample order bit-identical to a run
that was left alone. Uses the toy model and the killer of the tests (`tests/training/killing.py`).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the repository: its tests are no installed package

from tests.training import killing


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        reference, killed = Path(folder) / "reference", Path(folder) / "killed"
        steps = killing.steps_for(options.kills)
        if code := killing.run_to_end(reference, workers=0, steps=steps):
            print(f"the undisturbed run ended with code {code}")
            return 1
        tally = killing.train_and_kill(killed, options.kills, options.seed)
        compared = killing.assert_same_end(killed, reference, steps)
    result = {
        "steps": steps,
        "kills": tally.kills,
        "inside_a_save": tally.in_save,
        "elsewhere": tally.elsewhere,
        "tensors_compared": compared,
        "bit_identical": True,  # `assert_same_end` raised otherwise
        "seconds": round(time.monotonic() - start),
    }
    print(json.dumps(result, indent=1))
    return 0 if tally.kills == options.kills else 1


if __name__ == "__main__":
    sys.exit(main())
