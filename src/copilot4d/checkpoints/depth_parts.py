"""What selects depths, on disk: `depth_selector/`, and `occupancy/` beside a selector that was trained with one.

They lie in a model folder, or in the run of a world model. Folders that were written as `copy_gate/` and
`second_opinion/` are read as well.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from copilot4d.baselines.occupancy_4d import Occupancy4d
from copilot4d.checkpoints.load_occupancy_4d import KIND as OCCUPANCY_4D
from copilot4d.checkpoints.load_occupancy_4d import load_occupancy_4d_network
from copilot4d.checkpoints.pretrained import ModelCard, Pretrained, load_pretrained, save_pretrained, stated_config
from copilot4d.checkpoints.sealed_folder import sealed_part
from copilot4d.config import from_mapping, to_mapping
from copilot4d.depth_selection import DepthSelector, DepthSelectorConfig
from copilot4d.errors import DataError

DEPTH_SELECTOR, OCCUPANCY = "depth_selector", "occupancy"
FORMER = {DEPTH_SELECTOR: "copy_gate", OCCUPANCY: "second_opinion"}  # folders, and the kind in config.json
FORMER_WORDS = {"imagined": "rendered", "unseen": "unobserved", "second": "occupancy"}  # in names of features


@dataclass(frozen=True, kw_only=True)
class DepthParts:
    """What selects depths: nothing, a selector, or a selector and the occupancy network that it was trained with."""

    depth_selector: DepthSelector | None = None
    occupancy: Occupancy4d | None = None


RENDERED_ALONE = DepthParts()


def place_in(folder: Path, part: str) -> Path | None:
    """Where a folder has this part: under its name, or under its former name; None where it has none."""
    places = (sealed_part(folder, name) for name in (part, FORMER[part]))
    return next((place for place in places if place is not None), None)


def save_depth_selector(folder: str | Path, selector: DepthSelector, card: ModelCard) -> None:
    """Write a depth selector, as a pretrained folder; how it was trained is kept for the cards of other folders."""
    trained = {"steps": card.steps, "samples": card.samples, "training_s": card.training_s}
    save_pretrained(
        folder, selector, kind=DEPTH_SELECTOR, config=to_mapping(selector.config), card=card, conventions=trained
    )  # fmt: skip


def depth_selector_in(folder: Path) -> DepthSelector | None:
    """The depth selector that a model folder or a run has; None where it has none."""
    place = place_in(folder, DEPTH_SELECTOR)
    if place is None:
        return None
    shared = _load_selector(place)
    config = with_present_names(shared.config)
    return shared.build(DepthSelector, from_mapping(DepthSelectorConfig, config, source=place / "config.json")).eval()


def with_present_names(config: Mapping[str, Any]) -> dict[str, Any]:
    """A selector's configuration with the names that features and candidates have now.

    >>> with_present_names({"candidates": ["imagined", "recent"], "features": ["second_against_imagined"]})
    {'candidates': ['rendered', 'recent'], 'features': ['occupancy_against_rendered']}
    """
    former = re.compile(rf"(?<![a-z])({'|'.join(FORMER_WORDS)})(?![a-z])")

    def present(names: Any) -> Any:
        is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
        return [former.sub(lambda word: FORMER_WORDS[word[1]], name) for name in names] if is_list else names

    return {key: present(value) if key in ("features", "candidates") else value for key, value in config.items()}


def save_occupancy(
    folder: str | Path, network: Occupancy4d, card: ModelCard, *, dtype: torch.dtype = torch.float32
) -> None:
    """Write the occupancy network of a depth selector, as `copilot4d export` does."""
    save_pretrained(
        folder, network, kind=OCCUPANCY_4D, config=to_mapping(network.config), card=card, dtype=dtype
    )  # fmt: skip


def occupancy_in(folder: Path) -> Occupancy4d | None:
    """The occupancy network that a model folder or a run has; None where it has none."""
    place = place_in(folder, OCCUPANCY)
    return None if place is None else load_occupancy_4d_network(place).model


def depth_parts_in(folder: Path) -> DepthParts:
    """What a model folder or a run selects depths with; an occupancy network that its selector needs not is left."""
    selector = depth_selector_in(folder)
    if selector is None or not selector.config.needs_occupancy_depths:
        return DepthParts(depth_selector=selector)
    occupancy = occupancy_in(folder)
    if occupancy is None:
        raise DataError(
            folder / OCCUPANCY, "folder", expected="the occupancy network that the depth selector was trained with",
            found="none", remedy="copy the whole folder, or train again (copilot4d train depth-selector)",
        )  # fmt: skip
    return DepthParts(depth_selector=selector, occupancy=occupancy)


def copy_depth_parts(source: Path, target: Path) -> bool:
    """Copy the depth selector and occupancy network of a model folder or run into another that has no selector yet;
    whether there was one to copy.
    """
    place = place_in(source, DEPTH_SELECTOR)
    if place is None or place_in(target, DEPTH_SELECTOR) is not None:
        return False
    for part in (DEPTH_SELECTOR, OCCUPANCY):
        found = place_in(source, part)
        if found is not None and place_in(target, part) is None:
            shutil.copytree(found, target / part)
    return True


def depth_selector_training(folder: Path) -> Mapping[str, float]:
    """How the selector of a model folder or a run was trained: steps, samples, training_s; 0 where it is not known."""
    place = place_in(folder, DEPTH_SELECTOR)
    stated = {} if place is None else _load_selector(place).conventions
    return {name: float(stated.get(name, 0)) for name in ("steps", "samples", "training_s")}


def _load_selector(place: Path) -> Pretrained:
    is_former = (place / "config.json").is_file() and stated_config(place).get("kind") == FORMER[DEPTH_SELECTOR]
    return load_pretrained(place, kind=FORMER[DEPTH_SELECTOR] if is_former else DEPTH_SELECTOR)
