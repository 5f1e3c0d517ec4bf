"""The page of promises names tests that exist and have tests in them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_every_promise_names_a_test_that_is_there():
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    promises = [line for line in page.splitlines() if line.startswith("| ") and "`tests/" in line]
    assert len(promises) > 15
    for line in promises:
        files = re.findall(r"`(tests/\S+?\.py)`", line)
        assert files, line
        for file in files:
            assert (ROOT / file).is_file(), file
            assert "def test_" in (ROOT / file).read_text(encoding="utf-8"), file
