"""What a person sees."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from copilot4d.progress import duration
from copilot4d.training import LogRecord, train
from copilot4d.training.journal import Journal, Stopwatch
from tests.training.toy import ToyTask, toy_config

RECORD = LogRecord(
    step=120, steps=404_000, losses={"total": 0.51234, "depth": 0.4}, numbers={"perplexity": 812.3},
    learning_rate=3e-5, gradient_norm=0.09, samples_per_s=12.34, waiting=0.021, eta_s=11_100.0,
)  # fmt: skip


def test_the_progress_line_has_step_losses_rate_and_time_left():
    assert RECORD.line() == (
        "step    120/404000  total 0.5123  depth 0.4  perplexity 812.3  lr 3.00e-05  12.3 samples/s  waiting 2%  "
        "left 3 h 05 min"
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59, "59 s"), (60, "1 min"), (3540, "59 min"), (3600, "1 h 00 min"), (86_399, "23 h 59 min"),
     (187_200, "2 d 04 h"), (float("nan"), "?"), (float("inf"), "?")],
)  # fmt: skip
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_jsonl_is_strict_json(tmp_path):
    journal = Journal(tmp_path, first_step=0, tensorboard=False)
    journal.log(RECORD)
    journal.scores(120, {"chamfer": float("nan"), "l1": 2.0}, best=False)
    journal.close()
    train_line, score_line = (
        json.loads(line, parse_constant=lambda name: pytest.fail(name))
        for line in (tmp_path / "log.jsonl").read_text().splitlines()
    )
    assert train_line["kind"] == "train"
    assert train_line["losses"] == {"total": 0.51234, "depth": 0.4}
    assert train_line["numbers"] == {"perplexity": 812.3}
    assert score_line == {"kind": "evaluation", "step": 120, "scores": {"chamfer": None, "l1": 2.0}, "best": False}


def test_pictures_are_the_tasks_pixels(tmp_path):
    journal = Journal(tmp_path, first_step=0, tensorboard=False)
    image = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    (path,) = journal.pictures(7, {"bev": image})
    journal.close()
    assert path == tmp_path / "pictures" / "step_000000007_bev.png"
    assert (np.asarray(Image.open(path)) == image).all()


def test_tensorboard_gets_losses_scores_and_pictures(tmp_path):
    config = toy_config(tmp_path, tensorboard=True, evaluate_every=3, pictures_every=3, max_steps=3)
    train(ToyTask(), config)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    logged = [line["losses"]["total"] for line in lines if line["kind"] == "train"]
    scalars = events.Scalars("loss/total")
    assert [s.step for s in scalars] == [1, 2, 3]
    assert [s.value for s in scalars] == pytest.approx(logged)
    assert {"loss/vq", "task/used", "score/error", "run/waiting", "run/learning_rate"} <= set(events.Tags()["scalars"])
    assert events.Images("codebook")[0].step == 3


def test_the_stopwatch_stands_still_while_paused(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("copilot4d.training.journal.time.perf_counter", lambda: now[0])
    watch = Stopwatch()
    now[0] += 2
    watch.pause()
    now[0] += 50
    assert watch.seconds == 2
    watch.resume()
    now[0] += 1
    assert watch.seconds == 3
    watch.restart()
    assert watch.seconds == 0
