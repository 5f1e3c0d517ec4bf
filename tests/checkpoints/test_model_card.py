"""Model cards: every section is there, and the code in them is code."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import yaml

from copilot4d.checkpoints.model_card import USE, ModelCard, Score

CARD = ModelCard(
    title="Mine: world model", summary="A lidar world model.", trained_on=["KITTI, 4 drives", "two more"], steps=1000,
    samples=8000, training_s=11_100.0, hardware="2 CPU cores", command="copilot4d train world-model",
    scores=[Score(metric="loss", value=2.5, dataset="val", protocol="own")], license="mit",
)  # fmt: skip


def test_a_card_has_the_sections_that_a_reader_looks_for():
    text = CARD.text("world_model", 1_880_000)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    assert headings == [
        "Mine: world model", "Training", "How to use it", "Scores", "Limits", "Licence", "Citation",
    ]  # fmt: skip
    assert "It has 1.88 million parameters." in text
    assert "1000 steps, 8000 samples, 3 h 05 min on 2 CPU cores" in text
    assert "under `mit`" in text
    assert "@inproceedings{zhang2024copilot4d" in text
    front = yaml.safe_load(text.split("---")[1])
    assert len(front["tags"]) == len(set(front["tags"])), "the kind may be one of the usual tags"


@pytest.mark.parametrize("kind", [*USE, "st3dcnn"])
def test_the_code_of_a_card_runs_up_to_the_users_own_data(kind):
    block = re.search(r"```python\n(.*?)```", CARD.text(kind, 10), re.DOTALL)[1]
    compile(block, "card", "exec")
    imports = [line for line in block.splitlines() if line.startswith("from ")]
    assert imports
    exec("\n".join(imports), {})  # the names that a reader would type


def test_parts_of_a_model_say_which_folder_to_load():
    assert 'load_forecaster("path/to/model/folder")' in CARD.text("depth_selector", 10)
    assert 'load_forecaster("path/to/this/folder")' in CARD.text("occupancy_4d", 10)
    assert "load_tokenizer(" in CARD.text("tokenizer", 10)


def test_a_training_that_is_not_known_has_no_numbers():
    text = replace(CARD, steps=0, command="", scores=()).text("occupancy_4d", 10)
    assert "not recorded in this folder" in text
    assert "0 steps" not in text
    assert "Not scored." in text
