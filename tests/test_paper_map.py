"""The pages that lead from the paper to the code name what exists, and the presets' departures as they are."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
import yaml

from copilot4d import presets
from copilot4d.config import differences, to_mapping
from tests.support.real_data import REPOSITORY

PACKAGE = REPOSITORY / "src" / "copilot4d"
PAGES = ["paper_map.md", "decisions.md", "limits.md", "costs.md"]
NAMED = re.compile(r"`([\w/]+\.py)(?::([\w.]+))?`")
PAPER = REPOSITORY.parent / "shared" / "paper" / "copilot4d.tex"


def find(path: str) -> Path:
    """A file as the pages name it: below the package, or in the repository's own folders."""
    outside = path.split("/")[0] in {"tests", "benchmarks", "examples"}
    return (REPOSITORY if outside else PACKAGE) / path


@cache
def names_in(file: Path) -> frozenset[str]:
    """Functions, classes, constants; `Class.name` for methods and fields, also those of a base class in the file."""
    found: set[str] = set()
    for node in ast.parse(file.read_text()).body:
        found |= _own_names(node)
        if isinstance(node, ast.ClassDef):
            for member in node.body:
                found |= {f"{node.name}.{name}" for name in _own_names(member)}
    return frozenset(found)


def _own_names(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return {node.target.id}
    if isinstance(node, ast.Assign):
        return {target.id for target in node.targets if isinstance(target, ast.Name)}
    return set()


@pytest.mark.parametrize("page", PAGES)
def test_every_name_of_the_page_exists(page):
    lost = []
    for path, name in NAMED.findall((REPOSITORY / "docs" / page).read_text()):
        file = find(path)
        if not file.is_file():
            lost.append(path)
        elif name and name not in names_in(file):
            lost.append(f"{path}:{name}")
    assert not lost, f"docs/{page} names what is not there: {lost}"


def test_a_name_that_is_gone_would_be_noticed():
    assert "corrupt" in names_in(find("world_model/noise.py"))
    assert "Rollout.step" in names_in(find("world_model/rollout.py"))
    assert "SamplerConfig.top_k" in names_in(find("world_model/sampler.py"))
    assert "Rollout.leap" not in names_in(find("world_model/rollout.py"))
    assert "step" not in names_in(find("world_model/rollout.py")), "a method counts by its class"


def test_every_row_of_the_map_leads_to_code_and_tests_only_where_tests_are():
    """Second column: code; third: tests. A row may say in words why it has none, but a test never stands for code."""
    rows = re.findall(r"^\| (?!paper|---)(.*?) \| (.*?) \| ?(.*?) ?\|$", _text("paper_map.md"), re.MULTILINE)
    assert len(rows) > 60
    for paper, code, test in rows:
        assert code, paper
        assert not any(path.startswith("tests/") for path, _ in NAMED.findall(code)), paper
        assert all(path.startswith("tests/") for path, _ in NAMED.findall(test)), paper


def test_both_algorithms_and_all_equations_are_in_the_map():
    text = _text("paper_map.md")
    assert {int(n) for n in re.findall(r"\bEq\. (\d+)", text)} == set(range(1, 8))
    assert set(re.findall(r"\*\*(Algorithm \d)\*\*", text)) == {"Algorithm 1", "Algorithm 2"}


@pytest.mark.skipif(not PAPER.is_file(), reason="the paper's source is not beside the repository")
def test_the_paper_has_as_many_numbered_equations_as_the_map():
    numbered = re.findall(r"\\begin\{align\}", PAPER.read_text())
    in_the_appendix = 1  # the posterior
    assert len(numbered) - in_the_appendix == 7


def test_the_table_of_presets_is_what_the_presets_are_and_is_whole():
    """Every option in which `mini` departs from `paper` has a row with both values, and no row is out of date."""
    rows = re.findall(
        r"^\| `((?:tokenizer|world_model)\.[\w.]+)` \| `(.*?)` \| `(.*?)` \|", _text("decisions.md"), re.M
    )
    paper, mini = to_mapping(presets.paper()), to_mapping(presets.mini())
    assert sorted(name for name, *_ in rows) == sorted(differences(paper, mini))
    for name, in_paper, in_mini in rows:
        assert yaml.safe_load(in_paper) == _value(paper, name), name
        assert yaml.safe_load(in_mini) == _value(mini, name), name


def test_every_option_that_the_decisions_name_exists():
    """`tokenizer.a.b` or `world_model.a.b` anywhere on the page is an option of a preset."""
    paper = to_mapping(presets.paper())
    for name in re.findall(r"`((?:tokenizer|world_model)(?:\.[a-z_]+)+)`", _text("decisions.md")):
        _value(paper, name)


def _text(page: str) -> str:
    return (REPOSITORY / "docs" / page).read_text()


def _value(mapping: object, name: str) -> object:
    for key in name.split("."):
        assert isinstance(mapping, dict), name
        assert key in mapping, f"there is no option {name}"
        mapping = mapping[key]
    return mapping
