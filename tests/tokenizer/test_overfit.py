"""Does it learn at all, end to end? Two synthetic sweeps by heart, told apart by their tokens; one real sweep."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from copilot4d import open_dataset
from copilot4d.presets import mini, tiny
from copilot4d.training.tokenizer_scores import score_reconstructions
from tests.support.real_data import unpack_drive
from tests.support.scenes import make_drive
from tests.tokenizer.overfitting import overfit


@pytest.mark.slow
def test_two_sweeps_are_learnt_by_heart_and_told_apart():
    drive = make_drive(30)
    sweeps = [drive[0], drive[29]]
    tokenizer = overfit(tiny().tokenizer, sweeps, steps=480, rays=512, learning_rate=3e-3)  # 0.02 to 0.07 m2 by chance
    for sweep in sweeps:
        scores = score_reconstructions(tokenizer, [sweep])
        assert scores["chamfer_roi"] < 0.1
        assert scores["roi_l1_median"] < 0.06
        assert scores["mask_recall"] > 0.9
    assert tokenizer.codebook.made >= 2  # from data at the start, and when most codes had died at step 256
    assert score_reconstructions(tokenizer, sweeps)["codebook_used"] > 0.4
    # The decoder knows places by heart, too: only tokens can say which of the two sweeps it is.
    truth, depths = sweeps[0].rays()
    inside = np.abs(sweeps[0].points).max(axis=-1) < 15
    errors = [
        np.abs(tokenizer.render(tokenizer.decode(tokenizer.encode([s])), [truth]).answered_m.numpy() - depths)[inside]
        for s in sweeps
    ]
    assert np.mean(errors[0]) < 0.5 * np.mean(errors[1])


@pytest.mark.slow
def test_one_real_sweep_is_learnt_by_heart_in_the_mini_preset(tmp_path):
    drive = open_dataset(unpack_drive("train_0011", tmp_path, sweeps=51))["train_0011"]
    sweep = drive[50].without_box(drive.ego_box)
    config = mini().tokenizer
    config = replace(config, codebook=replace(config.codebook, warm_up=166))
    tokenizer = overfit(config, [sweep], steps=500, rays=2048, learning_rate=2e-3)
    scores = score_reconstructions(tokenizer, [sweep])
    assert scores["chamfer_roi"] < 0.05
    assert scores["roi_l1_median"] < 0.1
