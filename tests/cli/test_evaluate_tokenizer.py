"""`copilot4d evaluate-tokenizer`: which sweeps are scored, and over which the codes are counted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from copilot4d.checkpoints.load_tokenizer import load_tokenizer
from copilot4d.checkpoints.pretrained import ModelCard, save_pretrained
from copilot4d.cli.main import main
from copilot4d.config import to_mapping
from copilot4d.datasets import open_dataset
from copilot4d.datasets.folder_writer import write_folder
from copilot4d.presets import tiny
from copilot4d.tokenizer import Tokenizer
from copilot4d.tokenizer.codebook import EMPTY_TOKEN
from copilot4d.tokenizer.reconstruction import clean_sweep
from tests.support.scenes import make_drive
from tests.tokenizer.clouds import sweep_of, tiny_tokenizer

CARD = ModelCard(
    title="tiny", summary="Random weights.", trained_on=["nothing"], steps=0, samples=0, training_s=0.0, hardware="none"
)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A data set of two drives of 5 and 4 sweeps, and a shared tokenizer whose codes are features of some of them."""
    folder = tmp_path_factory.mktemp("evaluate_tokenizer")
    for name, frames in (("a", 5), ("b", 4)):
        write_folder(make_drive(frames, rings=12, azimuths=60, name=name), folder / "data" / name)
    tokenizer = tiny_tokenizer()
    with torch.no_grad():
        features = tokenizer.encode_features([open_dataset(folder / "data")["a"][2]]).flatten(0, 2)
        tokenizer.codebook.weight.copy_(features[:: len(features) // 32][:32])
    save_pretrained(folder / "model", tokenizer, kind="tokenizer", config=to_mapping(tokenizer.config), card=CARD)
    return folder


def scores_of(place: Path, out: Path, *more: str) -> dict:
    words = ["evaluate-tokenizer", "--model", place / "model", "--data", place / "data", "--pictures", 0, "--out", out]
    assert main([str(word) for word in [*words, *more]]) == 0
    return json.loads((out / "scores.json").read_text())


def usage_by_hand(tokenizer: Tokenizer, place: Path, frames: list[tuple[str, int]]) -> tuple[float, float]:
    """The share of codes that are used, and exp of the entropy of their shares, over sweeps of a data set."""
    dataset = open_dataset(place / "data")
    sweeps = [clean_sweep(dataset[name][i].without_box(dataset[name].ego_box)) for name, i in frames]
    tokens = torch.cat([tokenizer.encode([sweep]).flatten() for sweep in sweeps])
    _, counts = np.unique(tokens.numpy(), return_counts=True)
    share = counts / counts.sum()
    return len(counts) / 32, float(np.prod(share**-share))


def test_codes_are_counted_over_the_scored_sweeps_or_over_all(place, tmp_path, capsys):
    from copilot4d.checkpoints.load_tokenizer import load_tokenizer

    tokenizer = load_tokenizer(place / "model").tokenizer
    assert tokenizer.config == tiny().tokenizer
    some, every = [("a", 0), ("a", 4), ("b", 0)], [("a", i) for i in range(5)] + [("b", i) for i in range(4)]
    found = scores_of(place, tmp_path / "some", "--every", "4")
    assert "over 9 sweeps" not in capsys.readouterr().out
    counted = scores_of(place, tmp_path / "all", "--every", "4", "--count-all-codes")
    assert "codes and their perplexity: over 9 sweeps" in capsys.readouterr().out
    for report, frames in ((found, some), (counted, every)):
        assert [(sweep["drive"], sweep["frame"]) for sweep in report["sweeps"]] == some
        assert report["sweeps_counted"] == len(frames)
        used, perplexity = usage_by_hand(tokenizer, place, frames)
        assert report["scores"]["codebook_used"] == pytest.approx(used)
        assert report["scores"]["perplexity"] == pytest.approx(perplexity)
    assert counted["scores"]["perplexity"] != found["scores"]["perplexity"]
    for name in ("chamfer_roi", "roi_l1_median", "mask_recall", "samples_per_ray"):  # rendered sweeps alone
        assert counted["scores"][name] == found["scores"][name]


def test_a_limit_keeps_the_first_and_pictures_are_of_scored_sweeps(place, tmp_path):
    report = scores_of(place, tmp_path, "--every", "2", "--limit", "2", "--count-all-codes", "--pictures", "2")
    assert [(sweep["drive"], sweep["frame"]) for sweep in report["sweeps"]] == [("a", 0), ("a", 2)]
    assert report["sweeps_counted"] == 9
    assert sorted(path.name for path in tmp_path.glob("*.png")) == ["a_000000.png", "a_000002.png"]


@pytest.mark.parametrize("words", [["--every", "0"], ["--limit", "0"], ["--pictures", "-1"]])
def test_numbers_that_make_no_sense_are_refused(words, place, tmp_path, capsys):
    given = [
        "evaluate-tokenizer",
        "--model",
        place / "model",
        "--data",
        place / "data",
        "--out",
        tmp_path / "o",
        *words,
    ]
    assert main([str(word) for word in given]) == 2
    assert "at least 1" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


def test_the_tokenizer_that_comes_with_the_package_is_found_by_its_name():
    loaded = load_tokenizer("street_tokenizer")
    assert loaded.tokenizer.config.codebook.empty_columns == "reserved"
    assert loaded.tokenizer.config.rendering.training_mask == "union"
    empty = loaded.tokenizer.encode([sweep_of(np.zeros((0, 3)))])
    assert (empty == EMPTY_TOKEN).all()
