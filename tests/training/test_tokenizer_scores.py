"""Scores of reconstructions: errors that are known, and how the codebook's use is counted."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from copilot4d.presets import tiny
from copilot4d.tokenizer.reconstruction import reconstruct
from copilot4d.training.tokenizer_scores import ReconstructionTally, score_reconstructions
from tests.support.scenes import make_drive
from tests.tokenizer.clouds import sweep_of, tiny_tokenizer

TINY = tiny().tokenizer


def test_a_perfect_reconstruction_scores_zero_and_a_shifted_one_its_shift():
    tokenizer = tiny_tokenizer()
    sweep = make_drive(1, rings=12, azimuths=90)[0]
    made = reconstruct(tokenizer, sweep)
    tally = ReconstructionTally(codes=32)
    assert tally.add(tokenizer, dataclasses.replace(made, points=sweep.points)).chamfer_roi == pytest.approx(
        0, abs=1e-9
    )
    longer = sweep.points * (1 + 0.1 / np.linalg.norm(sweep.points, axis=-1, keepdims=True))
    assert tally.add(tokenizer, dataclasses.replace(made, points=longer)).roi_l1_median == pytest.approx(0.1, abs=1e-4)
    assert tally.summary()["codebook_used"] == len(np.unique(made.tokens)) / 32


@pytest.mark.parametrize("mode", ["full", "no_skipping", "voxel_centres"])
def test_every_mode_is_scored(mode):
    tokenizer = tiny_tokenizer(dataclasses.replace(TINY, mode=mode))
    if tokenizer.coarse_branch is not None:
        torch.nn.init.constant_(tokenizer.coarse_branch.linear.bias, 0.0)  # some voxels are predicted
    scores = score_reconstructions(tokenizer, [make_drive(1, rings=12, azimuths=60)[0], sweep_of([])])
    assert np.isfinite(list(scores.values())).all()
    assert ("mask_recall" in scores) == (mode != "no_skipping")
    assert ("samples_per_ray" in scores) == (mode != "voxel_centres")


def test_codes_of_all_sweeps_are_counted_together():
    """Shares 1/2, 1/4, 1/4: exp of their entropy is the product of 2^(1/2), 4^(1/4), 4^(1/4)."""
    tally = ReconstructionTally(codes=8)
    tally.count(np.array([[5, 5], [5, 5]]))
    assert (tally.summary()["codebook_used"], tally.summary()["perplexity"]) == (1 / 8, 1.0)
    tally.count(np.array([[0, 0], [7, 7]]))
    summary = tally.summary()
    assert summary["codebook_used"] == 3 / 8
    assert summary["perplexity"] == pytest.approx(2**1.5)
    assert tally.counted == 2
    assert np.isnan(summary["chamfer_roi"])  # nothing was scored
