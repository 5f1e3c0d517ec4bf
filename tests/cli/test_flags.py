"""Errors below the command line name keys; the command line adds the flags that the verb has."""

from __future__ import annotations

import dataclasses
import importlib

import pytest

from copilot4d.cli.flags import FUNCTIONS, OTHER_NAMES, flags_of, with_flags
from copilot4d.cli.main import VERBS, main


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inner:
    max_shift_m: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    workers: int = 1
    sampling_steps: int = 10
    depth: str = "median"
    augmentation: Inner = dataclasses.field(default_factory=Inner)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("training.workers must not be negative", "training.workers (--workers) must not be negative"),
        ("sampler.steps must be at least 1.", "sampler.steps (--sampling-steps) must be at least 1."),
        ("`workers` must be", "`workers` (--workers) must be"),
        ("`augmentation.max_shift_m` must", "`augmentation.max_shift_m` (--augmentation.max-shift-m) must"),
        ("world_model.diffusion.eta must", "world_model.diffusion.eta must"),  # no flag: it is set in a YAML file
        ("training.recipe.clip_norm must", "training.recipe.clip_norm must"),
        ("tokenizer.rendering.depth is", "tokenizer.rendering.depth is"),  # --depth means another one
        ("the workers of `nobody`", "the workers of `nobody`"),
        ("lower training.workers. Then", "lower training.workers (--workers). Then"),
        ("`copilot4d.doctor.write_estimated_poses` a/b", "copilot4d doctor --estimate-poses a/b"),
    ],
)
def test_keys_get_the_flags_that_the_verb_has(message, expected):
    assert with_flags(message, Options) == expected


def test_without_a_verb_there_are_no_flags():
    assert with_flags("`device` must be") == "`device` must be"


def test_every_name_in_the_tables_is_real():
    fields = set()
    for verb in VERBS.values():
        fields |= set(flags_of(importlib.import_module(f"copilot4d.cli.{verb.module}").Options))
    assert set(OTHER_NAMES.values()) <= fields
    for function, command in FUNCTIONS.items():
        module, _, name = function.rpartition(".")
        assert callable(getattr(importlib.import_module(module), name))
        verb, flag = command.split()[1:]
        assert flag in flags_of(importlib.import_module(f"copilot4d.cli.{VERBS[verb].module}").Options).values()


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["simulate", "--out", "x", "--count", "0"], "`count` (--count) must lie between 1 and"),
        (["evaluate", "--model", "copy_last", "--data", "x", "--setting", "1s", "--out", "y", "--every", "0"],
         "protocol.every (--every) must be at least 1, got 0"),
        (["evaluate", "--model", "copy_last", "--data", "x", "--setting", "1s", "--out", "y", "--roi-half", "-1"],
         "protocol.roi_half_m (--roi-half) must be a positive number"),
    ],
)  # fmt: skip
def test_the_command_line_adds_the_flag(words, answer, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert answer in " ".join(capsys.readouterr().err.split())
