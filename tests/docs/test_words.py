"""Plain words: a short list of what the documentation does not say, and what it says instead."""

from __future__ import annotations

import re

import pytest

from tests.support.real_data import REPOSITORY

PLAIN = {
    r"\bhears?\b": "uses",
    r"\bmend(s|ed|ing)?\b": "fix",
    r"\bnobody\b": "name who or what",
    r"\bsecond opinion\b": "occupancy depths",
    r"\bcopy (gate|path)\b": "depth selector, depth selection",
    r"\bfore(saw|seen|see|sees)\b": "predict",
    r"\bha(s|d|ve) 0\.\d+ of\b": "0.54x ray tracing",
    r"\byardstick\b": "reference, baseline or measure",
}
PAGES = sorted(
    [
        REPOSITORY / "README.md",
        REPOSITORY / "CONTRIBUTING.md",
        *REPOSITORY.glob("docs/*.md"),
        *REPOSITORY.glob("docs/*/*.md"),
    ]
)


def found_in(text: str) -> list[str]:
    prose = re.sub(r"^```.*?^```|`[^`\n]*`|\]\([^)]*\)", "", text, flags=re.MULTILINE | re.DOTALL)
    return [
        f"{match[0]!r}: say {instead!r}"
        for pattern, instead in PLAIN.items()
        for match in re.finditer(pattern, prose, re.IGNORECASE)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_the_page_uses_plain_words(page):
    assert not found_in(page.read_text())


def test_the_list_finds_words_in_prose_and_leaves_code_and_links_alone():
    assert found_in("It hears 4D-Occ, and nobody can mend that; it has 0.54 of its error.") == [
        "'hears': say 'uses'", "'mend': say 'fix'", "'nobody': say 'name who or what'",
        "'has 0.54 of': say '0.54x ray tracing'",
    ]  # fmt: skip
    assert found_in("`mend()` and [a link](mend.md)\n```\nnobody\n```\nThe recommended way is heard.") == []
