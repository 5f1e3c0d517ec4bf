"""What the site is built from: generated pages, navigation, links out of docs/. The build itself: `make docs`."""

from __future__ import annotations

import re
import shlex

import command_line
import pytest
import site_hooks
import yaml

from copilot4d.cli.main import VERBS
from tests.support.real_data import REPOSITORY

DOCS = REPOSITORY / "docs"
MOST_LINES = 300


@pytest.mark.parametrize("verb", VERBS)
def test_the_reference_has_every_option_of_the_verb_and_its_example(verb):
    text = command_line.page(verb)
    options = [a for group in command_line.parser_of(verb)._action_groups for a in group._group_actions]
    assert len(options) > 1
    for action in options:
        for name in action.option_strings:
            assert (f"`{name}`" in text) == (name not in ("--help", "-h")), name
    assert f"copilot4d {verb}" in text.partition("```text")[2].partition("```")[0]
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| option")]
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 5 for row in rows), "a cell may not hold a bare |"


def test_defaults_and_required_options_have_their_own_column():
    text = command_line.page("evaluate")
    assert re.search(r"\| `--seed` \| `INT` \| `0` \|", text)
    assert re.search(r"\| `--setting` \| `\{1s,3s\}` \| \*\*required\*\* \|", text)
    assert "(default:" not in text
    assert "(required)" not in text


def test_the_overview_leads_to_every_verb():
    text = command_line.overview(["forecast"])
    for verb in VERBS:
        assert f"]({command_line.file_name(verb).removeprefix('command_line/')})" in text
    assert "[guide](../forecast.md)" in text
    assert "[guide](../compare.md)" not in text


def test_links_out_of_docs_lead_to_pages_of_the_site():
    assert site_hooks.site_links("[a](../CONTRIBUTING.md#x)") == "[a](contributing.md#x)"
    assert site_hooks.site_links("[a](../src/copilot4d/a.py)") == "a (`src/copilot4d/a.py`)"
    assert site_hooks.site_links("[a](own_data.md)") == "[a](own_data.md)"
    assert site_hooks.site_links(site_hooks.outside_page("[a](docs/own_data.md) [b](CHANGELOG.md)")) == (
        "[a](own_data.md) [b](changes.md)"
    )


class _Config:
    def __init__(self, nav):
        self.nav = nav


def navigation():
    text = re.sub(r"!!python\S+", "", (REPOSITORY / "mkdocs.yml").read_text())
    return yaml.safe_load(text)["nav"]


def test_every_page_has_a_place_in_the_navigation_and_every_place_a_page():
    nav = site_hooks.on_config(_Config(navigation())).nav
    named = site_hooks._paths(nav)
    made = {"command_line/README.md", "api/README.md", *site_hooks.OUTSIDE.values()}
    made |= {command_line.file_name(verb) for verb in VERBS} | {site_hooks.api_file(name) for name in site_hooks.API}
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert set(named) == pages | made
    assert len(named) == len(set(named)), "a page stands in two places"


def test_a_page_that_nobody_named_goes_to_the_guides():
    nav = navigation()
    before = site_hooks._paths(nav)
    for section in nav:
        section.update({k: [e for e in v if "forecast.md" not in str(e)] for k, v in section.items() if k == "Guides"})
    after = site_hooks.on_config(_Config(nav)).nav
    assert "forecast.md" in before
    assert "forecast.md" in next(section["Guides"] for section in after if "Guides" in section)


@pytest.mark.parametrize("name", site_hooks.API)
def test_every_package_of_the_reference_can_be_imported_and_is_documented(name):
    module = __import__(name, fromlist=["_"])
    assert module.__doc__


def test_the_build_is_strict_and_part_of_what_ci_runs():
    make = (REPOSITORY / "Makefile").read_text()
    assert re.search(r"^test-browser: docs$", make, re.MULTILINE)
    assert "mkdocs build --strict" in make
    assert "make check test test-slow test-browser" in (REPOSITORY / ".ci" / "run").read_text()


def test_examples_in_help_texts_are_code():
    assert command_line._description("A. Example: copilot4d a --b Example, of c: copilot4d c") == (
        "A. Example:\n\n```text\ncopilot4d a --b\n```\n\nExample, of c:\n\n```text\ncopilot4d c\n```"
    )
    assert command_line._description("A\n\n    copilot4d a\n    copilot4d b\n\nB") == (
        "A\n\n```text\ncopilot4d a\ncopilot4d b\n```\n\nB"
    )


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda p: p.relative_to(DOCS).as_posix())
def test_no_page_is_too_long(page):
    assert len(page.read_text().splitlines()) <= MOST_LINES, "split it, or put a long table into a .csv beside it"


def test_examples_of_the_reference_can_be_split_into_words():
    for verb in VERBS:
        for block in re.findall(r"```text\n(.*?)```", command_line.page(verb), re.DOTALL):
            assert shlex.split(block)
