"""The one YAML reader: small files that would cost minutes or gigabytes are refused at once, in words."""

from __future__ import annotations

import pytest

from copilot4d.config import parse_yaml as parse_config
from copilot4d.datasets import open_dataset
from copilot4d.errors import DataError
from copilot4d.plain_yaml import MAX_CHARACTERS, MAX_VALUES, parse_yaml

ALIASES = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 40))
MERGES = "m0: &m0 {x: 1}\n" + "".join(f"m{i}: &m{i}\n  <<: [*m{i - 1}, *m{i - 1}]\n" for i in range(1, 40))
BAD = {
    "alias bomb": ALIASES, "merge bomb": MERGES, "merge key": "<<: {a: 1}", "digits": "a: " + "1" * 5000,
    "hexadecimal": "a: 0x" + "f" * 6000, "base 60": "a: " + "1:" * 3000 + "1", "float": "a: " + "1" * 400 + ".5",
    "brackets": "[" * 5000, "braces": "{a: " * 5000, "tag": "!!python/object:os.system x", "set": "!!set {1}",
    "binary": "a: !!binary =", "key": "? [1]\n: 2", "twice": "a: 1\na: 2", "many": "a: [" + "1," * MAX_VALUES + "]",
    "long": "a: " + "x" * MAX_CHARACTERS, "control": "a: \x01", "half": "a: [1",
    "timestamp": "a: !!timestamp 2020-13-45",
    "int tag": "a: !!int x", "float tag": "a: !!float [1]", "pairs": "a: !!pairs [1]",
    "omap": "a: !!omap [1, 2]",
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_not_plain_is_refused(name):
    with pytest.raises(DataError):
        parse_yaml(BAD[name])


@pytest.mark.parametrize("name", BAD)
def test_own_data_is_read_by_the_same_reader(name, tmp_path):
    (tmp_path / "copilot4d.yaml").write_text(f"version: 1\n{BAD[name]}", encoding="utf-8")
    with pytest.raises(DataError):
        open_dataset(tmp_path)


@pytest.mark.parametrize("text", ["2011-09-26", "2020-13-45", "2001-01-01 99:99:99"])
def test_dates_are_texts(text):
    """A drive may be called by its day, and an impossible day is no traceback."""
    assert parse_yaml(f"name: {text}") == {"name": text}


def test_plain_values_come_out():
    text = "a: [1, 2.5, 1e-3, true, null, 'x']\nb:\n  c: 0x1f\n"
    assert parse_config(text) == {"a": [1, 2.5, "1e-3", True, None, "x"], "b": {"c": 31}}
