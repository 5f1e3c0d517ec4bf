"""The documentation holds together: every relative link and anchor leads somewhere, every verb has its page."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from copilot4d.cli.main import VERBS
from tests.support.real_data import REPOSITORY

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
PAGES = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md")])


def anchors(page: Path) -> set[str]:
    """The anchors that a hosting site makes from headings."""
    headings = re.findall(r"^#+ +(.*)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", h)).strip().lower().replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(REPOSITORY).as_posix())
def test_links_lead_somewhere(page):
    broken = []
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            broken.append(target)
        elif anchor and anchor not in anchors(file):
            broken.append(f"{target}: {file.name} has no such heading")
    assert not broken, broken


def test_every_page_is_reached_from_the_index():
    seen, queue = set(), [REPOSITORY / "docs" / "README.md"]
    while queue:
        page = queue.pop()
        if page in seen:
            continue
        seen.add(page)
        targets = (t.partition("#")[0] for t in LINK.findall(FENCE.sub("", page.read_text())))
        queue += [(page.parent / t).resolve() for t in targets if t.endswith(".md") and ":" not in t]
    lost = [p.name for p in REPOSITORY.glob("docs/*.md") if p not in seen]
    assert not lost, f"no link leads to {lost}"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_a_page_and_an_example_in_its_help(verb, capsys):
    from copilot4d.cli.main import main

    page = REPOSITORY / "docs" / f"{verb.replace(' ', '_')}.md"
    assert page.exists(), f"write {page.name}"
    assert f"copilot4d {verb}" in page.read_text()
    with pytest.raises(SystemExit) as stop:
        main([verb, "--help"])
    assert stop.value.code == 0
    help_text = re.sub(r"[│\s]+", " ", re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out))
    assert f"copilot4d {verb} " in help_text.replace(f"usage: copilot4d {verb}", ""), "the help needs an example"


def test_nothing_that_is_committed_names_this_machine():
    listed = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    here = Path(__file__).resolve()
    wrong = []
    for name in listed.stdout.split():
        file = REPOSITORY / name
        if file.suffix in {".py", ".md", ".toml", ".txt", ".yaml", ".cff", ""} and file.is_file() and file != here:
            text = file.read_text(errors="replace")
            wrong += [f"{name}: {word}" for word in ("/work/", "/root/", "/tmp/c4d") if word in text]
    assert not wrong, wrong
