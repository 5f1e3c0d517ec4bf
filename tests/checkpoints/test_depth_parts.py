"""What selects depths, on disk: by its present names, and as it was written before it had them."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from copilot4d import load_forecaster
from copilot4d.baselines.occupancy_4d import Occupancy4d, occupancy_4d_preset
from copilot4d.checkpoints.depth_parts import (
    DEPTH_SELECTOR,
    FORMER,
    OCCUPANCY,
    DepthParts,
    depth_parts_in,
    depth_selector_training,
    save_depth_selector,
    save_occupancy,
    with_present_names,
)
from copilot4d.checkpoints.model_folder import ModelCards, save_model
from copilot4d.checkpoints.pretrained import KIND, VERSION
from copilot4d.checkpoints.sealed_folder import MANIFEST, seal
from copilot4d.depth_selection.selector import names_of
from tests.checkpoints.test_model_folder import card, depths_of, models  # noqa: F401  (models is a fixture)
from tests.support.selectors import always
from tests.support.shipped import shipped_mini

FORMER_CANDIDATES = [
    "imagined", "snapped", "unseen", "recent", "nearest", "farthest", "second", "second_snapped", "second_mean",
]  # fmt: skip


def as_it_was_written(folder):
    """Give the folders of a model or a run their former names, kind and names of features."""
    for part, former in FORMER.items():
        (folder / part).rename(folder / former)
    place = folder / FORMER[DEPTH_SELECTOR]
    stated = json.loads((place / "config.json").read_text())
    stated["kind"] = FORMER[DEPTH_SELECTOR]
    config = stated["config"]
    config["candidates"] = FORMER_CANDIDATES
    words = {"rendered": "imagined", "unobserved": "unseen", "occupancy": "second"}
    config["features"] = ["_".join(words.get(word, word) for word in name.split("_")) for name in config["features"]]
    (place / "config.json").write_text(json.dumps(stated))
    (place / MANIFEST).unlink()  # its sums are of the present names
    seal(place, kind=KIND, version=VERSION, content={"kind": FORMER[DEPTH_SELECTOR]})


def test_former_names_of_features_and_candidates_are_those_of_today():
    former = {"candidates": FORMER_CANDIDATES, "features": ["second_mean_against_second", "unseen_before_imagined_log"]}
    present = with_present_names(former)
    assert tuple(present["candidates"]) == names_of(occupancy=True, motion=False)[1]
    assert present["features"] == ["occupancy_mean_against_occupancy", "unobserved_before_rendered_log"]
    assert with_present_names(present) == present


def test_the_shipped_model_has_its_depth_parts():
    parts = depth_parts_in(shipped_mini())
    assert parts.depth_selector is not None
    assert parts.depth_selector.config.needs_occupancy_depths
    assert parts.occupancy is not None
    assert depth_selector_training(shipped_mini())["steps"] > 0


@pytest.mark.parametrize("candidate", ["recent", "occupancy"])
def test_a_model_folder_with_former_names_forecasts_the_same(models, tmp_path, candidate):  # noqa: F811
    torch.manual_seed(0)
    parts = DepthParts(
        depth_selector=always(candidate, occupancy=True), occupancy=Occupancy4d(occupancy_4d_preset("tiny"))
    )
    cards = ModelCards(tokenizer=card("A"), world_model=card("B"), depth_selector=card("C"), occupancy=card("D"))
    folder = save_model(tmp_path / "toy", *models, cards=cards, depth_parts=parts)
    expected = depths_of(load_forecaster(folder))
    as_it_was_written(folder)
    np.testing.assert_array_equal(depths_of(load_forecaster(folder)), expected)


def test_a_run_with_former_names_is_read_until_it_has_the_present_ones(tmp_path):
    save_depth_selector(tmp_path / DEPTH_SELECTOR, always("occupancy"), card("C"))
    save_occupancy(tmp_path / OCCUPANCY, Occupancy4d(occupancy_4d_preset("tiny")), card("D"))
    as_it_was_written(tmp_path)
    assert depth_parts_in(tmp_path).occupancy is not None
    save_depth_selector(tmp_path / DEPTH_SELECTOR, always("recent"), card("C"))
    parts = depth_parts_in(tmp_path)
    assert parts.depth_selector is not None
    assert not parts.depth_selector.config.needs_occupancy_depths
    assert parts.occupancy is None
