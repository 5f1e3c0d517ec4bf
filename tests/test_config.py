"""Configuration files: what is written comes back, and everything else is an error that names the key."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
import yaml

from copilot4d.config import (
    completed,
    default_values,
    differences,
    from_mapping,
    load_config,
    parse_yaml,
    save_config,
    to_mapping,
)
from copilot4d.errors import DataError, UsageError


@dataclass(frozen=True, kw_only=True)
class Inner:
    rate: float = 1e-3
    shape: tuple[int, int] = (2, 3)
    widths: tuple[int, ...] = (64, 96, 128)


@dataclass(frozen=True, kw_only=True)
class Outer:
    name: str
    inner: Inner = field(default_factory=Inner)
    mode: Literal["own", "reference"] = "own"
    folder: Path | None = None
    limits: dict[str, float] = field(default_factory=dict)
    flag: bool = False
    count: int = 4
    either: int | str = 1

    def __post_init__(self) -> None:
        if self.count < 1:
            raise UsageError(f"--count must be at least 1, got {self.count}")


FULL = Outer(
    name="ä: [x] !tag", inner=Inner(rate=math.inf, shape=(5, 7), widths=()), mode="reference", folder=Path("a/b"),
    limits={"x": 1.5}, flag=True, count=9, either="all",
)  # fmt: skip


@pytest.mark.parametrize("config", [Outer(name="d"), FULL])
def test_what_is_saved_is_loaded(config, tmp_path):
    save_config(config, tmp_path / "c.yaml")
    assert load_config(Outer, tmp_path / "c.yaml") == config


def test_scientific_notation_without_a_dot_is_a_number():
    assert yaml.safe_load("1e-3") == "1e-3"  # the trap that this guards against
    assert from_mapping(Inner, parse_yaml("rate: 1e-3")).rate == 0.001


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("name: a\ncuont: 3", ["cuont", "'count'"]),
        ("name: a\ninner: {rat: 1}", ["inner.rat", "'rate'"]),
        ("count: 3", ["name", "no such key"]),
        ("name: 3", ["name", "str"]),
        ("name: a\ncount: true", ["count", "int"]),
        ("name: a\ncount: 3.0", ["count", "int"]),
        ("name: a\nflag: 1", ["flag", "bool"]),
        ("name: a\nmode: other", ["mode", "'own'", "'reference'", "'other'"]),
        ("name: a\ninner: {shape: [1, 2, 3]}", ["inner.shape", "2 values"]),
        ("name: a\ninner: {widths: [1, x]}", ["inner.widths[1]", "int"]),
        ("name: a\ninner: {rate: fast}", ["inner.rate", "float"]),
        ("name: a\ninner: 3", ["inner", "rate"]),
        ("name: a\nlimits: {x: y}", ["limits.x"]),
        ("name: a\neither: [1]", ["either", "int or str"]),
        ("name: a\nname: b", ["'name' twice"]),
        ("name: &x a\nfolder: *x", ["alias"]),
        ("3: a", ["not a text"]),
        ("[1, 2]", ["list"]),
        ("name: [", ["YAML"]),
    ],
)
def test_wrong_values_are_named(text, names, tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(DataError) as caught:
        load_config(Outer, path)
    for name in [*names, str(path)]:
        assert name in str(caught.value)


@pytest.mark.parametrize(
    "payload",
    [
        "!!python/object/apply:os.system ['touch {path}']",
        "!!python/object/new:os.system ['touch {path}']",
        "!!python/name:os.system",
        "!!python/module:os",
        "!Outer {{name: a}}",
    ],
)
def test_tags_never_execute(payload, tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("name: " + payload.format(path=tmp_path / "owned"))
    with pytest.raises(DataError, match="tag"):
        load_config(Outer, path)
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("key", ["_target_", "class_path", "__class__", "py/object"])
def test_class_paths_are_unknown_keys(key):
    with pytest.raises(DataError, match="field of Outer"):
        from_mapping(Outer, {"name": "a", key: "os.system"})


def test_a_classes_own_check_is_heard():
    with pytest.raises(UsageError, match="--count"):
        from_mapping(Outer, {"name": "a", "count": 0})


def test_huge_missing_and_binary_files(tmp_path):
    (tmp_path / "huge.yaml").write_text("#" * 1_000_001)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    for name, word in (("huge.yaml", "at most"), ("absent.yaml", "readable"), ("binary.yaml", "UTF-8")):
        with pytest.raises(DataError, match=word):
            load_config(Outer, tmp_path / name)


def test_only_plain_values_are_written():
    with pytest.raises(UsageError, match="set is none of them"):
        to_mapping(Outer(name="a", limits={"x": {1}}))
    with pytest.raises(UsageError, match="dataclass"):
        to_mapping({"name": "a"})


def test_differences_are_dotted_keys():
    a = to_mapping(Outer(name="a"))
    b = to_mapping(Outer(name="b", inner=Inner(rate=2.0)))
    assert differences(a, b) == ["name", "inner.rate"]
    assert differences(a, a) == []
    assert differences({"x": None}, {}) == ["x"]


@dataclass(frozen=True, kw_only=True)
class Grown:
    """As a class looks after a version that added settings."""

    name: str
    must: Inner  # without a default of its own
    inner: Inner = field(default_factory=Inner)
    added: bool = False


def test_a_setting_that_was_not_known_yet_had_its_default():
    config = Grown(name="a", must=Inner(rate=0.5))
    defaults = default_values(config)
    assert "name" not in defaults
    old = {"name": "a", "must": {"rate": 0.5, "shape": [2, 3]}, "inner": to_mapping(Inner())}
    assert differences(completed(old, defaults), to_mapping(config)) == []
    changed = Grown(name="a", must=Inner(rate=0.5, widths=(1,)), added=True)
    assert differences(completed(old, defaults), to_mapping(changed)) == ["must.widths", "added"]
    assert differences(completed({**old, "gone": 1}, defaults), to_mapping(config)) == ["gone"]
    assert differences(completed({"must": old["must"], "inner": old["inner"]}, defaults), to_mapping(config)) == [
        "name"
    ]
