"""The property tests with examples that nobody has tried yet, for two minutes; a failure says how to repeat it."""

from __future__ import annotations

import re
import secrets
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import settings

TESTS = Path(__file__).parent
BUDGET_S = 120


def property_tests() -> list[str]:
    """The files that hold property tests."""
    given = re.compile(r"^\s*@given\(", re.MULTILINE)
    files = (path for path in TESTS.rglob("test_*.py") if given.search(path.read_text(encoding="utf-8")))
    return [str(path.relative_to(TESTS.parent)) for path in sorted(files)]


def test_property_tests_try_the_same_examples_on_every_run():
    """A test that is red by chance helps nobody: chance has its own test below."""
    for name in property_tests():
        assert "derandomize" not in (TESTS.parent / name).read_text(encoding="utf-8"), name
    assert settings().derandomize == (settings.get_current_profile_name() != "random")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_property_tests_hold_for_random_examples():
    started = time.monotonic()
    while True:
        seed = secrets.randbelow(2**32)
        arguments = ["--hypothesis-profile=random", f"--hypothesis-seed={seed}", *property_tests()]
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow and not browser", *arguments]
        result = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True)
        repeat = f"python -m pytest -m 'not slow and not browser' {' '.join(arguments)}"
        assert result.returncode == 0, f"{result.stdout[-8000:]}\nTo repeat it:\n    {repeat}"
        if time.monotonic() - started > BUDGET_S:
            return
