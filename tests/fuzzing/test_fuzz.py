"""Mutations are the same for one seed; the fuzzer tells ends apart; 500 damaged inputs end well or in our errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from benchmarks import fuzz

from copilot4d.errors import UsageError
from tests.fuzzing.mutations import KINDS, mutate
from tests.fuzzing.targets import Target, score_file

ROOT = Path(__file__).resolve().parents[2]


def test_a_number_gives_the_same_damage_and_every_kind_occurs():
    content = json.dumps({"a": [1, 2, {"b": 3.5}]}).encode() + b"\nmore\nlines"
    seen = [mutate(content, Random(i)) for i in range(300)]
    assert seen == [mutate(content, Random(i)) for i in range(300)]
    assert set(KINDS) - {"json"} <= {kind for kind, _ in seen}
    assert sum(changed == content for _, changed in seen) < 30
    assert mutate(b"", Random(0)) is not None


def test_headers_of_safetensors_are_changed_and_keep_their_length():
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    content = len(header).to_bytes(8, "little") + header + bytes(8)
    changes = [changed for kind, changed in (mutate(content, Random(i)) for i in range(200)) if kind == "json"]
    assert changes
    for changed in changes:
        length = int.from_bytes(changed[:8], "little")
        json.loads(changed[8 : 8 + length])
        assert changed.endswith(bytes(8))


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (None, "ok"),
        (UsageError("no"), "clear error"),
        (KeyError("x"), "KeyError: 'x'"),
        (MemoryError(), "MemoryError: "),
    ],
)
def test_ends_are_told_apart_and_files_are_put_back(error, end, tmp_path, monkeypatch):
    whole = []

    def read(path):
        if whole and error is not None:
            raise error
        whole.append(path.read_bytes() if path.is_file() else b"")

    monkeypatch.setattr(fuzz, "TARGETS", (Target(name="scores", make=score_file, read=read),))
    fuzzer = fuzz.Fuzzer(tmp_path, seed=0)
    assert [fuzzer.run(number).end for number in range(4)] == [end] * 4
    assert (tmp_path / "scores" / "scores.json").read_bytes() == whole[0]


@pytest.mark.slow
def test_500_damaged_inputs():
    command = [sys.executable, str(ROOT / "benchmarks" / "fuzz.py"), "--inputs", "500", "--seed", "1"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, f"{result.stdout[-4000:]}\n{result.stderr[-4000:]}"
    found = json.loads(result.stdout)
    assert (found["inputs"], found["anything else"]) == (500, 0)
    assert found["ok"] > 20
