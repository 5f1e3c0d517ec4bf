"""Dependencies point down the levels and never in circles. The table below is the law: extend it on purpose."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import copilot4d

SOURCE = Path(copilot4d.__file__).parent
BASE = {"errors", "progress", "version", "compiled", "geometry"}
ALLOWED = {
    "errors": set(),
    "version": set(),
    "progress": set(),
    "compiled": set(),
    "geometry": {"errors"},
    "forecaster": {"errors", "geometry"},
    "imagination": {"errors", "geometry", "forecaster"},
    "config": {"errors"},
    "simulator": BASE,
    "datasets": BASE | {"simulator"},
    "evaluation": BASE | {"forecaster", "datasets"},
    "pictures": {"errors", "geometry"},
    "baselines": BASE | {"forecaster", "rendering"},
    "layers": {"errors", "compiled"},
    "rendering": BASE,
    "tokenizer": BASE | {"layers", "rendering"},
    "world_model": BASE | {"layers"},
    "presets": {"errors", "geometry", "tokenizer", "world_model"},
    "copy_path": BASE | {"baselines"},
    "model_seen": {"geometry", "imagination", "copy_path"},
    "model_imagination": {"errors", "geometry", "forecaster", "imagination", "tokenizer", "world_model", "copy_path"}
    | {"baselines", "model_seen"},
    "model_forecaster": {"errors", "geometry", "config", "forecaster", "tokenizer", "world_model", "copy_path"}
    | {"baselines", "model_imagination"},
    "model_folder": BASE
    | {"config", "baselines", "tokenizer", "world_model", "copy_path", "training", "model_forecaster"},
    "copy_learning": BASE | {"datasets", "evaluation", "copy_path", "model_forecaster"},
    "forecast": BASE
    | {"config", "forecaster", "imagination", "baselines", "rendering", "tokenizer", "world_model", "training"}
    | {"model_forecaster", "model_folder"},
    "environment": BASE | {"forecaster", "imagination", "forecast", "datasets", "simulator", "world_model", "pictures"},
    "studio": BASE | {"forecaster", "imagination", "forecast", "datasets", "simulator", "evaluation", "pictures"},
    "doctor": BASE | {"datasets", "evaluation", "pictures"},
    "training": BASE
    | {
        "config",
        "datasets",
        "forecaster",
        "baselines",
        "tokenizer",
        "world_model",
        "rendering",
        "evaluation",
        "pictures",
    },
}
KNOW_DATA_SETS = {"evaluation.runner", "evaluation.sweep_cache"}  # the rest of evaluation sees points only
FREE = {"cli", "__init__"}  # the top: may import everything


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
