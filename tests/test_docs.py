"""The documentation holds together: every relative link and anchor leads somewhere, every verb has its page."""

from __future__ import annotations

import importlib
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import tyro
from torch.distributed.run import get_args_parser

from copilot4d.cli.main import VERBS, split_verb
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
        elif anchor and file.suffix == ".md" and anchor not in anchors(file):
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


def commands_of(page: Path) -> list[list[str]]:
    """The words of every command in a page's blocks that begins with `copilot4d` or `torchrun`."""
    found = []
    for block in FENCE.findall(page.read_text()):
        language, *lines = block.splitlines()
        if language not in {"```", "```bash", "```sh"}:
            continue
        for line in "\n".join(lines[:-1]).replace("\\\n", " ").splitlines():
            if re.match(r"\s*(copilot4d (?!VERB|-)|torchrun )", line):
                words = shlex.split(line.partition("; done")[0], comments=True)
                if "..." not in words:
                    found.append(words)
    return found


def without_launcher(words: list[str]) -> list[str]:
    """What reaches our command line, as torchrun itself reads it: its options may not swallow ours."""
    if words[0] == "copilot4d":
        return words[1:]
    launched = get_args_parser().parse_args(words[1:])
    assert launched.module
    assert launched.training_script == "copilot4d.cli.main"
    return list(launched.training_script_args)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(REPOSITORY).as_posix())
def test_every_command_of_a_page_is_one_that_the_command_line_takes(page, capsys):
    """Verbs, options and the kinds of their values; what a variable like $streets stands for is not looked at."""
    wrong = []
    for words in commands_of(page):
        if any(re.fullmatch(r"\$\{?\w+\}?", word) for word in words):
            continue
        try:
            verb, rest = split_verb(without_launcher(words))
            module = importlib.import_module(f"copilot4d.cli.{VERBS[verb].module}")
            tyro.cli(module.Options, args=rest, prog=verb)
        except SystemExit:
            wrong.append(f"{shlex.join(words)}\n{capsys.readouterr().err}")
    assert not wrong, "\n".join(wrong)


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
