"""The prose linter finds what it bans, leaves code alone, and has nothing to say about what `make check` reads."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parent.parent
spec = importlib.util.spec_from_file_location("prose", ROOT / "tools" / "prose.py")
prose = importlib.util.module_from_spec(spec)
spec.loader.exec_module(prose)


def test_banned_phrases_are_found_with_their_line_and_a_replacement():
    (found,) = prose.findings_in("A log\nthat must be mended first")
    assert found == (2, "mended", "fix")
    assert [phrase for _, phrase, _ in prose.findings_in("mini has 0.54 of it, and nobody\nhears it")] == [
        "has 0.54 of", "nobody", "hears",
    ]  # fmt: skip
    assert list(prose.findings_in("We recommend amending commendable shears")) == []


def test_a_phrase_may_run_over_a_line_end():
    assert [line for line, _, _ in prose.findings_in("it is a second\nopinion")] == [1]


def test_code_in_markdown_is_left_alone():
    text = "`copy gate` and\n```\nnobody\n```\n[a](nobody.md) copy gate"
    assert [line for line, _, _ in prose.findings_in(prose.prose_of_markdown(text))] == [5]


def test_strings_docstrings_and_comments_of_python_are_read(tmp_path):
    file = tmp_path / "a.py"
    file.write_text(
        '"""Nobody."""\nnobody = 1  # nobody\nx = f"so many {nobody} sweeps"\ny = "kept aside"  # prose: quoted\n'
    )
    assert [line.split(":")[1] for line in prose.check_file(file)] == ["1", "2"]


def test_the_repository_passes():
    assert prose.main([]) == 0
