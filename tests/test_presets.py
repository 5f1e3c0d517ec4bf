"""Presets are whole configurations that survive the trip through a file."""

from __future__ import annotations

import pytest

from copilot4d import presets
from copilot4d.config import load_config, save_config
from copilot4d.errors import DataError, UsageError


@pytest.mark.parametrize("name", presets.PRESETS)
def test_a_preset_comes_back_from_its_file_with_every_decision(name, tmp_path):
    config = presets.preset(name)
    save_config(config, tmp_path / "config.yaml")
    assert load_config(presets.ModelConfig, tmp_path / "config.yaml") == config
    written = (tmp_path / "config.yaml").read_text()
    for decision in ("token_frame", "process", "spatial_position", "vocabulary", "past_frames"):
        assert f"{decision}:" in written


def test_a_file_is_checked_like_a_call(tmp_path):
    path = tmp_path / "config.yaml"
    save_config(presets.tiny(), path)
    path.write_text(path.read_text().replace("token_frame: own", "token_frame: world"))
    with pytest.raises((UsageError, DataError), match=r"token.frame"):
        load_config(presets.ModelConfig, path)


def test_the_paper_keeps_the_papers_decisions():
    paper = presets.paper().world_model
    assert paper.token_frame == "own"
    assert (paper.vocabulary, paper.tokens, paper.frames, paper.past_frames) == (1024, (128, 128), 10, 5)
    diffusion = paper.diffusion
    assert (diffusion.process, diffusion.eta, diffusion.label_smoothing) == ("absorbing_uniform", 0.2, 0.1)
    assert (diffusion.future_probability, diffusion.joint_probability) == (0.5, 0.4)
