"""Dependencies point down the levels and never in circles. The table below is the law: extend it on purpose."""

from __future__ import annotations

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

import copilot4d

SOURCE = Path(copilot4d.__file__).parent
BASE = {"errors", "plain_yaml", "progress", "version", "compiled", "counter", "geometry"}
NETWORKS = {"tokenizer", "world_model"}
ALLOWED = {
    "errors": set(),
    "version": set(),
    "progress": set(),
    "compiled": set(),
    "counter": set(),
    "config": {"errors", "plain_yaml"},
    "geometry": {"errors"},
    "forecaster": {"errors", "geometry"},
    "plain_yaml": {"errors"},
    "simulator": BASE,
    "datasets": BASE | {"simulator"},
    "evaluation": BASE | {"forecaster", "datasets", "simulator"},
    "pictures": {"errors", "geometry"},
    "layers": {"errors", "compiled"},
    "rendering": BASE,
    "tokenizer": BASE | {"layers", "rendering"},
    "world_model": BASE | {"layers"},
    "presets": {"errors", "geometry"} | NETWORKS,
    "baselines": BASE | {"forecaster", "rendering", "motion"},
    "motion": BASE,
    "depth_selection": BASE | {"baselines", "motion"},
    "checkpoints": BASE | NETWORKS | {"config", "baselines", "depth_selection"},
    "forecasting": BASE | NETWORKS | {"config", "forecaster", "baselines", "depth_selection", "checkpoints", "motion"},
    "tokens": BASE | NETWORKS | {"config", "datasets", "checkpoints", "simulator", "motion"},
    "training": BASE
    | NETWORKS
    | {"config", "datasets", "forecaster", "baselines", "rendering", "evaluation", "pictures"}
    | {"depth_selection", "checkpoints", "forecasting", "tokens", "motion"},
    "environment": BASE | {"forecaster", "forecasting", "datasets", "simulator", "world_model", "pictures"},
    "studio": BASE | {"forecaster", "forecasting", "datasets", "simulator", "evaluation", "pictures"},
    "doctor": BASE | {"datasets", "evaluation", "pictures"},
}
KNOW_DATA_SETS = {
    "evaluation.runner",
    "evaluation.sweep_cache",
    "evaluation.moving_rays",
    "evaluation.workers",
}  # the rest of evaluation sees points only
FREE = {"cli", "__init__", "__main__"}  # the top: may import everything


def imports_of(file: Path) -> set[str]:
    """The modules of this package that a file imports anywhere, as dotted names below copilot4d."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import; write it out from copilot4d"
            found |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.removeprefix("copilot4d.") for name in found if name.startswith("copilot4d.")}


def modules() -> dict[str, Path]:
    """Every module below copilot4d by its dotted name; a package's __init__ is the package itself."""
    files = sorted(SOURCE.rglob("*.py"))
    return {
        ".".join(f.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): f
        for f in files
        if f != SOURCE / "__init__.py"
    }


def test_every_import_is_in_the_table():
    wrong = []
    for name, file in modules().items():
        part = name.split(".")[0]
        if part in FREE:
            continue
        assert part in ALLOWED, f"{part} is new: give it a row in the layering table"
        used = {imported.split(".")[0] for imported in imports_of(file)} - {part}
        if part == "evaluation" and name not in KNOW_DATA_SETS and "datasets" in used:
            wrong.append(f"{name} imports datasets: only {', '.join(sorted(KNOW_DATA_SETS))} may")
        wrong += [f"{name} imports {other}" for other in sorted(used - ALLOWED[part])]
    assert not wrong, "\n".join(wrong)


def test_no_import_cycles():
    known = modules()
    graph = {}
    for name, file in known.items():
        imported = {i if i in known else i.rpartition(".")[0] for i in imports_of(file)} & set(known)
        # `from package import module` names both; the package's __init__ is not what is used then
        precise = {i for i in imported if not any(other.startswith(f"{i}.") for other in imported)}
        graph[name] = {i for i in precise if i != name and not name.startswith(f"{i}.")}
    TopologicalSorter(graph).prepare()  # raises CycleError with the circle


def test_the_levels_of_the_table_have_no_circles():
    TopologicalSorter(ALLOWED).prepare()


# Flags belong to the command line: layers below name keys, and `cli/flags.py` adds the flag where a verb has one.
FLAG = re.compile(r"(?<![\w-])--[a-z{]")
MAY_NAME_FLAGS = ("cli.", "tokens.token_c", "tokens.write_token_cache.")  # the last ones in whole commands


def flags_in(file: Path) -> list[str]:
    """Lines of a file whose texts, f-strings and docstrings included, name a command-line flag."""
    nodes = ast.walk(ast.parse(file.read_text()))
    texts = (n for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str))
    return [f"{file.relative_to(SOURCE)}:{n.lineno}: {n.value.strip()[:80]}" for n in texts if FLAG.search(n.value)]


def test_layers_below_the_command_line_know_no_flag():
    found = [line for name, file in modules().items() if not f"{name}.".startswith(MAY_NAME_FLAGS)
             for line in flags_in(file)]  # fmt: skip
    assert not found, "name the key, not the flag (see cli/flags.py):\n" + "\n".join(found)


def test_a_flag_is_found_in_plain_and_in_filled_texts(tmp_path):
    file = SOURCE / "cli" / "flags.py"
    assert any("--estimate-poses" in line for line in flags_in(file))
    assert all(FLAG.search(text) for text in ("--eta must", "(--eta", "look at --{name}"))
    assert not any(FLAG.search(text) for text in ("a--b", "a -- b", "---", "-e"))
