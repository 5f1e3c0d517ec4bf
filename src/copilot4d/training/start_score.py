"""What a fine-tuned run started from: its held-out score, and whether training made it better."""

from __future__ import annotations

import json
from pathlib import Path

from copilot4d.checkpoints.checkpoint import CheckpointStore
from copilot4d.training.journal import Observer

FILE_NAME = "start_score.json"  # in the run


def note_start(run: Path, score: str | None, value: float) -> None:
    """Write down the score of the weights that a run starts from; `value` is signed so that lower is better."""
    (run / FILE_NAME).write_text(json.dumps({"score": score, "value": value}) + "\n", encoding="utf-8")


def compare_with_start(run: Path, store: CheckpointStore | None, observer: Observer) -> None:
    """Say whether the best weights of a run are better than those that it started from; nothing for runs from nothing,
    and nothing on ranks other than the first, which have no store.
    """
    best, place = None if store is None else store.best_score(), run / FILE_NAME
    if store is None or best is None or not place.is_file():
        return
    told = json.loads(place.read_text(encoding="utf-8"))
    start, step = float(told["value"]), store.best_step()
    numbers = f"held-out {told['score']}: {abs(start):.5g} at the start, {abs(best):.5g} at best (step {step})"
    if best < start:
        observer.on_message(f"{numbers}: BETTER than where it started")
        return
    observer.on_message(
        f"{numbers}: NOT BETTER than where it started. The checkpoint of step {step} holds the start weights and is "
        "the one that forecasts use; try a lower learning_rate, more data or more updates"
    )
