"""The picture of the architecture is that of the source."""

from __future__ import annotations

import importlib.util

from tests.support.real_data import REPOSITORY

SPEC = importlib.util.spec_from_file_location("draw_architecture", REPOSITORY / "docs" / "draw_architecture.py")
draw_architecture = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(draw_architecture)


def test_the_picture_is_of_the_imports_as_they_are():
    drawn = draw_architecture.drawing(draw_architecture.import_graph())
    assert draw_architecture.PICTURE.read_text() == drawn, "run `python docs/draw_architecture.py`"


def test_rows_and_arrows_of_a_small_graph():
    graph = {"a": set(), "b": {"a"}, "c": {"a", "b"}}
    assert draw_architecture.levels(graph) == {"a": 0, "b": 1, "c": 2}
    assert draw_architecture.direct(graph) == [("b", "a"), ("c", "b")]  # c -> a follows


def test_forecasting_needs_no_training_and_nothing_needs_the_command_line():
    graph = draw_architecture.import_graph()
    assert "training" not in graph["forecasting"] | graph["checkpoints"] | graph["tokens"]
    assert not [part for part, used in graph.items() if "cli" in used]
