"""ST3DCNN, SPFNet and S2Net through the training engine: samples, overfitting one clip, resuming, the verb, loading."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch

from copilot4d import load_forecaster
from copilot4d.baselines.range_view import RANGE_VIEW, RangeGeometry, RangeViewForecaster, range_view_preset
from copilot4d.cli.main import main
from copilot4d.datasets import write_folder
from copilot4d.errors import ForecastError, UsageError
from copilot4d.geometry import BeamPattern
from copilot4d.training import Recipe, SampleKey, StepCounter
from copilot4d.training.tasks.range_view import RangeViewTask, RangeViewTraining
from tests.support.scenes import beam_directions, make_drive
from tests.training.small_runs import quiet_config, state_after

IMAGE = RangeGeometry.of_pattern(BeamPattern(beam_directions(16, 64), 80.0), columns=64)


def small_drive(frames: int = 26, **properties):
    return make_drive(frames, rings=16, azimuths=64, **properties)


def training_of(name: str, *, frame: str = "own", **changes) -> RangeViewTraining:
    model = dataclasses.replace(range_view_preset(name, "tiny"), geometry=IMAGE, frame=frame)
    return RangeViewTraining(model=model, **{"settings": ("1s",), **changes})


def key(index: int = 0, step: int = 0) -> SampleKey:
    return SampleKey(seed=1, step=step, index=index, batch=2)


@pytest.mark.parametrize("name", list(RANGE_VIEW))
def test_each_overfits_one_clip(name):
    """One clip of a moving ego: after some steps its ranges are off by a quarter of what they were, its mask is nearly
    right, and a forecast of the clip lies near the truth."""
    torch.manual_seed(0)
    task = RangeViewTask(training_of(name, turns=False, mirror_probability=0.0), [small_drive(7)[2:]])
    batch = task.sample(key())
    model = task.build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    history = []
    for step in range(150):
        losses = task.loss(model, batch, StepCounter(seed=0, step=step, indices=(0,)))
        optimizer.zero_grad()
        losses["total"].backward()
        optimizer.step()
        history.append({name: value.item() for name, value in losses.items()})
    assert history[-1]["range"] < history[0]["range"] / 4
    assert history[-1]["mask"] < 0.2
    assert ("kl" in history[0]) == (name == "s2net")
    drive, window = task._item(key())
    clip = task._clip(drive, window)
    scores = task.scores(model.eval(), [("1s", clip)])
    assert scores["frames_not_scored"] == 0
    assert scores["roi_l1_median"] < 3.0


def test_a_standing_street_has_the_same_image_at_every_frame_turned_and_mirrored_alike():
    drive = small_drive(speed=0.0, yaw_rate=0.0, mover=0.0)
    for frame in ("own", "reference"):
        task = RangeViewTask(training_of("spfnet", frame=frame), [drive])
        samples = [task.sample(key(i)) for i in range(6)]
        for sample in samples:
            assert sample.past.shape == (1, 2, 16, 64)
            for image in (sample.past[0, -1], *sample.future[0]):
                torch.testing.assert_close(image, sample.future[0, 0])
        assert any(not torch.equal(samples[0].future, s.future) for s in samples[1:])
    again = RangeViewTask(training_of("spfnet", frame="reference"), [drive]).sample(key(3))
    assert torch.equal(again.past, samples[3].past)


def test_clips_have_a_whole_future_and_may_lack_a_past():
    task = RangeViewTask(training_of("st3dcnn"), [small_drive(10)])
    assert all(len(window.future) >= 2 for _, window in task.items)
    assert {len(window.past) for _, window in task.items} > {1}
    with pytest.raises(UsageError, match="needs a sweep with 2 future ones"):
        RangeViewTask(training_of("st3dcnn"), [small_drive(3)])


def test_sweeps_of_another_sensor_stop_training_with_a_reason():
    with pytest.raises(ForecastError, match="reads 16 beams"):
        RangeViewTask(training_of("spfnet"), [make_drive(10, rings=64, azimuths=180)]).sample(key())


def test_the_chamfer_loss_counts_from_its_step_on():
    task = RangeViewTask(training_of("spfnet", chamfer_weight=2.0, chamfer_from_step=3), [small_drive(12)])
    torch.manual_seed(0)
    model, batch = task.build_model(), task.collate([task.sample(key(i)) for i in range(2)])
    before, after = (task.loss(model, batch, StepCounter(seed=0, step=s, indices=(0, 1))) for s in (2, 3))
    assert "chamfer" not in before
    assert after["total"].item() == pytest.approx(before["total"].item() + 2 * after["chamfer"].item(), rel=1e-4)
    after["total"].backward()


def after_run(run, **changes):
    task = RangeViewTask(training_of("s2net"), [small_drive(12)])
    return state_after(
        task, quiet_config(run, Recipe(batch=2, warmup_steps=1, cosine_steps=3, clip_norm=1.0), **changes)
    )


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(tmp_path):
    whole = after_run(tmp_path / "whole")
    after_run(tmp_path / "parts", max_steps=2)
    resumed = after_run(tmp_path / "parts")
    assert all(torch.equal(resumed[name], value) for name, value in whole.items())


def test_a_network_that_says_nothing_comes_back_has_no_score():
    task = RangeViewTask(training_of("st3dcnn"), [small_drive(12)], [small_drive(30)], held_out_clips=1)
    model = task.build_model().eval()
    with torch.no_grad():
        model.exit.weight.zero_()
        model.exit.bias[1] = -9.0
    drive, setting, window = task.held_out[0]
    scores = task.scores(model, [(setting, task._clip(drive, window))])
    assert np.isnan(scores["chamfer_roi"])
    assert scores["frames_not_scored"] == 2
    assert task.picture(model, task._clip(drive, window), "none").ndim == 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"settings": ("2s",)}, "settings"),
        ({"mirror_probability": 2.0}, "mirror_probability"),
        ({"kl_weight": -1.0}, "kl_weight"),
    ],
)
def test_impossible_settings_are_refused(change, words):
    with pytest.raises(UsageError, match=words):
        training_of("s2net", **change)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    for name in ("a", "b"):
        write_folder(make_drive(26, rings=12, azimuths=60, name=name), folder / name)
    return folder


def train_words(name: str, data, run, *more) -> list[str]:
    words = ["train", "baseline", name, "--preset", "tiny", "--data", data, "--run", run, "--updates", 3, "--held-out",
             "b", "--held-out-clips", 2, "--evaluate-every", 3, "--pictures-every", 3, "--workers", 0, "--precision",
             "fp32", "--log-every", 1, "--settings", "1s", *more]  # fmt: skip
    return [str(word) for word in words]


@pytest.mark.parametrize(("name", "poses"), [("st3dcnn", False), ("spfnet", False), ("s2net", True), ("4d_occ", False)])
def test_the_verb_trains_each_and_its_run_forecasts_under_its_name(name, poses, data, tmp_path, capsys):
    """The data's sensor has 12 beams, the preset's image 16 rows: the image is made for the sensor."""
    more = ["--poses"] if poses else ["--rays-per-frame", "40"] if name == "4d_occ" else []
    assert main(train_words(name, data, tmp_path / "run", *more)) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "copilot4d evaluate --model" in out
    assert ("12 rows" in out) == (name != "4d_occ")
    text = (tmp_path / "run" / "log.jsonl").read_text()
    assert len([json.loads(line) for line in text.splitlines()]) >= 3
    forecaster = load_forecaster(tmp_path / "run")
    assert forecaster.name == (f"{name}_poses" if poses else name)
    drive = make_drive(5, rings=12, azimuths=60)
    if isinstance(forecaster, RangeViewForecaster):
        forecaster.model.config.geometry.check(drive[0])
        assert forecaster.fingerprint == load_forecaster(tmp_path / "run").fingerprint != ""
    forecast = forecaster.forecast([drive[0], drive[2]], drive[4].world_from_lidar[None])
    assert len(forecast.sweeps) == 1


def test_wrong_options_and_names_without_weights_say_what_to_do(data, tmp_path, capsys):
    assert main(train_words("4d_occ", data, tmp_path / "r", "--poses")) == 2
    assert "is always given the poses" in " ".join(capsys.readouterr().err.split())
    assert main(train_words("spfnet", data, tmp_path / "r", "--rays-per-frame", 4)) == 2
    assert "learns whole range images" in " ".join(capsys.readouterr().err.split())
    for name in ("st3dcnn", "spfnet", "s2net", "4d_occ"):
        with pytest.raises(UsageError, match=f"train it .copilot4d train baseline {name}. and"):
            load_forecaster(name)
    assert load_forecaster("4d_occ_ours").name == load_forecaster("occupancy_4d").name
