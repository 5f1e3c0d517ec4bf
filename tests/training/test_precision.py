"""Precision by what a child process survives."""

from __future__ import annotations

import json

import pytest
import torch

from copilot4d.errors import UsageError
from copilot4d.training import open_checkpoint, precision, train
from copilot4d.training.precision import Probe, choose_precision, probe_bf16, run_probe
from tests.training.toy import Heard, ToyTask, toy_config

CPU = torch.device("cpu")
KILLED = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
FAILED = "raise RuntimeError('could not create a primitive')"
SLOW = 'print(\'{"error": 0.01, "speedup": 0.5}\')'
FAST = "print('a warning of some library'); print('{\"error\": 0.01, \"speedup\": 3.0}')"
WRONG = 'print(\'{"error": 0.7, "speedup": 3.0}\')'
NAN = 'print(\'{"error": NaN, "speedup": 3.0}\')'


@pytest.fixture(autouse=True)
def forget():
    probe_bf16.cache_clear()
    yield
    probe_bf16.cache_clear()


@pytest.mark.parametrize(
    ("code", "works", "words"),
    [
        (KILLED, False, "kills the process (SIGILL)"),
        (FAILED, False, "could not create a primitive"),
        (WRONG, False, "wrong by 70%"),
        (NAN, False, "wrong by nan%"),
        (SLOW, True, "within 1.0%"),
        (FAST, True, "within 1.0%"),
    ],
)
def test_what_the_child_does_is_the_answer(code, works, words):
    probe = run_probe("cpu", code)
    assert probe.works is works
    assert words in probe.detail


def test_a_child_that_hangs_is_an_answer_too(monkeypatch):
    monkeypatch.setattr(precision, "PROBE_SECONDS", 0.2)
    assert "did not end" in run_probe("cpu", "import time; time.sleep(60)").detail


@pytest.mark.parametrize(
    ("wanted", "probe", "name"),
    [
        ("fp32", None, "fp32"),
        ("auto", Probe(works=True, speedup=3.0, detail=""), "bf16"),
        ("auto", Probe(works=True, speedup=1.1, detail=""), "fp32"),
        ("auto", Probe(works=False, speedup=0.0, detail="it kills"), "fp32"),
        ("bf16", Probe(works=True, speedup=0.5, detail=""), "bf16"),
    ],
)
def test_the_choice(wanted, probe, name, monkeypatch, tmp_path):
    def asked(device_type):
        assert probe is not None, "fp32 needs no probe"
        return probe

    monkeypatch.setattr(precision, "run_probe", asked)
    chosen = choose_precision(wanted, CPU, cache=tmp_path / "c.json")
    assert chosen.name == name
    with chosen.autocast(CPU):
        product = torch.ones(2, 2) @ torch.ones(2, 2)
    assert product.dtype == chosen.dtype


def test_bf16_where_it_kills_is_refused_with_the_reason(monkeypatch, tmp_path):
    monkeypatch.setattr(
        precision, "run_probe", lambda device: Probe(works=False, speedup=0.0, detail="it kills (SIGILL)")
    )
    with pytest.raises(UsageError, match=r"training.precision bf16 does not work.*SIGILL"):
        choose_precision("bf16", CPU, cache=tmp_path / "c.json")
    with pytest.raises(UsageError, match="fp16"):
        choose_precision("fp16", CPU)


def test_the_answer_is_kept_between_processes(monkeypatch, tmp_path):
    calls = []
    answer = Probe(works=True, speedup=2.0, detail="fine")
    monkeypatch.setattr(precision, "run_probe", lambda device: (calls.append(device), answer)[1])
    cache = tmp_path / "deep" / "c.json"
    for _ in range(3):
        probe_bf16.cache_clear()  # as in a new process
        assert probe_bf16("cpu", cache) == answer
    assert calls == ["cpu"]
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")  # another environment is another question
    probe_bf16.cache_clear()
    probe_bf16("cpu", cache)
    assert calls == ["cpu", "cpu"]
    for rubbish in ("not json", "[1]", '{"x": 3}', json.dumps({precision.machine_key("cpu"): {"works": True}})):
        cache.write_text(rubbish)
        probe_bf16.cache_clear()
        assert probe_bf16("cpu", cache) == answer


def test_a_resumed_run_keeps_its_precision(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    answers = [Probe(works=True, speedup=9.0, detail=""), Probe(works=True, speedup=0.1, detail="")]
    monkeypatch.setattr(precision, "run_probe", lambda device: answers.pop(0))
    first = train(ToyTask(), toy_config(tmp_path / "run", precision="auto", max_steps=2))
    assert open_checkpoint(first.checkpoint).state["precision"] == "bf16"
    heard = Heard()
    second = train(ToyTask(), toy_config(tmp_path / "run", precision="auto", max_steps=4), heard)
    assert open_checkpoint(second.checkpoint).state["precision"] == "bf16"
    assert "precision bf16: as this run began" in heard.messages
    heard = Heard()
    train(ToyTask(), toy_config(tmp_path / "run", precision="fp32", max_steps=6), heard)
    assert any("bf16 so far and goes on in fp32" in m for m in heard.messages)


@pytest.mark.slow
def test_the_real_probe_comes_back():
    """Whatever this machine can do, asking does not hurt."""
    probe = run_probe("cpu")
    assert probe.detail
    assert (probe.speedup > 0) is probe.works
