"""`copilot4d forecast` and `evaluate` with a model folder, as with any baseline."""

from __future__ import annotations

import json
import math
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from copilot4d import load_forecaster, open_dataset, presets
from copilot4d.baselines.occupancy_4d import Occupancy4d, occupancy_4d_preset
from copilot4d.checkpoints.depth_parts import depth_parts_in, save_occupancy
from copilot4d.checkpoints.model_folder import ModelCards, save_model
from copilot4d.checkpoints.pretrained import ModelCard
from copilot4d.cli.forecast_pictures import note_of
from copilot4d.cli.main import main
from copilot4d.datasets.folder_writer import write_kitti
from copilot4d.datasets.point_files import read_points
from copilot4d.datasets.windows import read_clip, window_at
from copilot4d.evaluation import ScoreFile
from copilot4d.geometry import Sweep
from copilot4d.tokenizer import Tokenizer
from copilot4d.world_model import WorldModel
from tests.checkpoints.test_model_folder import card
from tests.support.scenes import make_drive


@pytest.fixture(scope="module")
def kitti(tmp_path_factory):
    root = tmp_path_factory.mktemp("data") / "kitti"
    write_kitti(make_drive(20, rings=8, azimuths=60), root, name="00")
    return root


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    config = presets.tiny()
    torch.manual_seed(3)
    tokenizer = Tokenizer(config.tokenizer)
    with torch.no_grad():  # patchy instead of an even fog
        tokenizer.codebook.weight.mul_(20.0)
        tokenizer.feature_grid.occupancy.weight.mul_(60.0)
    card = ModelCard(
        title="t", summary="s", trained_on=["nothing"], steps=0, samples=0, training_s=0.0, hardware="none"
    )
    return save_model(
        tmp_path_factory.mktemp("models") / "toy", tokenizer,
        WorldModel(replace(config.world_model, token_frame="reference")),
        cards=ModelCards(tokenizer=card, world_model=card),
    )  # fmt: skip


def test_forecast_writes_every_future(kitti, model, tmp_path, capsys):
    words = [
        "forecast",
        "--model",
        str(model),
        "--data",
        str(kitti),
        "--frame",
        "8",
        "--sampling-steps",
        "2",
        "--seed",
        "4",
    ]
    out = tmp_path / "out"
    assert (
        main(
            [*words, "--out", str(out), "--futures", "2", "--schedule", "few_first", "--top-k", "0", "--device", "cpu"]
        )
        == 0
    )
    drive = open_dataset(kitti)["00"]
    clip = read_clip(drive, window_at(drive, 8, "1s"))
    expected = (
        load_forecaster(model)
        .with_sampler(schedule="few_first", top_k=None)
        .forecast(clip.past, clip.future_poses, steps=2, seed=4, futures=2)
    )
    told = json.loads((out / "forecast.json").read_text())
    assert told["model"] == "toy"
    assert told["options"]["schedule"] == "few_first"
    assert told["options"]["top_k"] is None
    for prefix, future in zip(("", "alternative_02_"), expected.futures, strict=True):
        for k, sweep in enumerate(future.sweeps):
            points = read_points(out / f"{prefix}future_{k + 1:02d}.ply").points
            np.testing.assert_allclose(points, sweep.points, atol=1e-3)
    assert [entry["file"] for entry in told["alternatives"][0]] == [
        f"alternative_02_future_{k:02d}.ply" for k in range(1, 6)
    ]
    said = capsys.readouterr().out
    assert "1 other futures" in said
    assert "--setting 1s --roi-half 16 --every 10 --out scores.json" in said  # where the model sees, and not for hours
    assert main([*words, "--out", str(out), "--device", "cpu"]) == 0  # one future: the others must not stay behind
    assert not list(out.glob("alternative_*"))


def test_pictures_compare_a_model_with_the_truth_as_far_as_it_sees():
    near = np.array([[3.0, 4.0, 0.0], [-15.0, 15.9, 1.0]], dtype=np.float32)
    far = np.array([[40.0, 0.0, 0.0], [0.0, -16.1, 0.0]], dtype=np.float32)
    shifted = near + np.array([0.1, 0.0, 0.0], dtype=np.float32)
    predicted = Sweep(points=np.concatenate([shifted, far[:1] + 9]), world_from_lidar=np.eye(4), timestamp_ns=0)
    true = Sweep(points=np.concatenate([near, far]), world_from_lidar=np.eye(4), timestamp_ns=0)
    assert note_of(predicted, true, 16.0) == "Chamfer 0.01 m² in ±16 m"
    assert float(note_of(predicted, true, math.inf).split()[1]) > 10


def test_evaluate_tells_of_several_futures(kitti, model, tmp_path, capsys):
    out = tmp_path / "scores.json"
    words = [
        "evaluate",
        "--model",
        str(model),
        "--data",
        str(kitti),
        "--setting",
        "1s",
        "--limit",
        "2",
        "--sampling-steps",
        "2",
    ]
    words += ["--roi-half", "16", "--device", "cpu"]
    assert main([*words, "--out", str(out), "--futures", "3", "--guidance", "0.5"]) == 0
    scores = ScoreFile.read(out)
    assert scores.model == "toy"
    assert scores.options["futures"] == 3
    assert scores.options["schedule"] == "paper"
    assert scores.several["futures"] == 3
    assert scores.several["frames"] == scores.frames_scored
    assert scores.several["best"]["chamfer_roi"] <= scores.several["mean"]["chamfer_roi"]
    assert scores.several["spread_chamfer_roi"] > 0
    assert "3 futures" in capsys.readouterr().out
    assert main([*words, "--out", str(tmp_path / "one.json"), "--guidance", "0.5"]) == 0
    alone = ScoreFile.read(tmp_path / "one.json")
    assert alone.several == {}
    assert alone.metrics["chamfer_roi"] == pytest.approx(scores.metrics["chamfer_roi"], rel=1e-3)


def test_what_is_stored_with_a_model_needs_no_flags_and_stands_in_its_scores(kitti, model, tmp_path):
    stored = tmp_path / "stored"
    shutil.copytree(model, stored)
    said = json.loads((stored / "copilot4d.json").read_text())
    chosen = {"steps": 2, "guidance": 0.5, "schedule": "few_first", "top_k": None}
    (stored / "copilot4d.json").write_text(json.dumps(said | {"sampling": chosen}))

    def scores(folder, *flags):
        out = tmp_path / "scores.json"
        words = ["evaluate", "--model", str(folder), "--data", str(kitti), "--setting", "1s", "--limit", "1"]
        assert main([*words, "--roi-half", "16", "--device", "cpu", "--out", str(out), *flags]) == 0
        return ScoreFile.read(out)

    by_store = scores(stored)
    assert chosen.items() <= by_store.options.items()
    flags = ("--sampling-steps", "2", "--guidance", "0.5", "--schedule", "few_first", "--top-k", "0")
    by_flags = scores(model, *flags)
    assert by_flags.options == by_store.options
    assert by_flags.metrics == by_store.metrics
    fast = scores(stored, "--fast", "--top-k", "1").options
    assert {"steps": 2, "guidance": 0.0, "schedule": "few_first", "top_k": 1}.items() <= fast.items()


def test_scores_beyond_what_the_model_sees_are_told(kitti, model, tmp_path, capsys):
    words = [
        "evaluate",
        "--model",
        str(model),
        "--data",
        str(kitti),
        "--setting",
        "1s",
        "--limit",
        "1",
        "--sampling-steps",
        "1",
    ]
    words += ["--device", "cpu", "--out", str(tmp_path / "scores.json")]
    assert main(words) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "toy predicts within 16 m of the ego's starting position; farther out it predicts nothing." in said
    assert (
        "up to 70 m to each side, also where the model predicts nothing: --roi-half 16 scores only the region" in said
    )
    assert main([*words, "--roi-half", "16"]) == 0
    said = capsys.readouterr().out
    assert "toy predicts within 16 m" in said
    assert "--roi-half 16 scores" not in said


@pytest.mark.parametrize("verb", ["forecast", "evaluate"])
def test_wrong_numbers_are_refused(verb, kitti, model, tmp_path, capsys):
    words = [verb, "--model", str(model), "--data", str(kitti), "--out", str(tmp_path / "x"), "--setting", "1s"]
    for flag, value in (("--futures", "0"), ("--top-k", "-1")):
        assert main([*words, flag, value, "--device", "cpu"]) == 2
        assert flag in capsys.readouterr().err


@pytest.mark.slow
def test_a_selector_is_trained_into_the_model_and_can_be_left_out(kitti, model, tmp_path, capsys):
    selecting = tmp_path / "selecting"
    shutil.copytree(model, selecting)
    learn = [
        "train",
        "depth-selector",
        "--model",
        str(selecting),
        "--data",
        str(kitti),
        "--settings",
        "1s",
        "--updates",
        "300",
    ]
    learn += ["--forecasts", "5", "--sampling-steps", "2", "--rays-per-frame", "400", "--device", "cpu"]
    assert main(learn) == 0
    said = capsys.readouterr().out
    by_selector, rendered, measured = map(float, re.findall(r"(\d+\.\d+)(?: m2)? with", said))
    assert by_selector < rendered  # a fog that learned nothing; the street of this drive stands still
    assert by_selector < 1.2 * measured
    assert load_forecaster(selecting).depth_selector is not None
    assert "depth selector" in (selecting / "depth_selector" / "README.md").read_text()
    words = [
        "evaluate",
        "--model",
        str(selecting),
        "--data",
        str(kitti),
        "--setting",
        "1s",
        "--limit",
        "2",
        "--sampling-steps",
        "2",
    ]
    words += ["--roi-half", "16", "--device", "cpu"]
    assert main([*words, "--out", str(tmp_path / "selecting.json")]) == 0
    assert main([*words, "--out", str(tmp_path / "alone.json"), "--no-depth-selection"]) == 0
    with_selector, alone = (ScoreFile.read(tmp_path / f"{name}.json") for name in ("selecting", "alone"))
    assert with_selector.options["depth_selection"] is True
    assert "depth_selection" not in alone.options
    assert with_selector.metrics["chamfer_roi"] < alone.metrics["chamfer_roi"]


def test_a_selector_is_trained_with_an_occupancy_network_which_goes_along(kitti, model, tmp_path, capsys):
    both, occupancy = tmp_path / "both", tmp_path / "network"
    shutil.copytree(model, both)
    network = Occupancy4d(occupancy_4d_preset("tiny"))
    save_occupancy(occupancy, network, card("an occupancy network"))
    learn = [
        "train",
        "depth-selector",
        "--model",
        str(both),
        "--data",
        str(kitti),
        "--settings",
        "1s",
        "--updates",
        "20",
    ]
    learn += ["--forecasts", "4", "--sampling-steps", "2", "--rays-per-frame", "200", "--device", "cpu"]
    assert main([*learn, "--occupancy", str(tmp_path / "nowhere")]) == 2
    assert "no such folder" in capsys.readouterr().err
    assert main([*learn, "--occupancy", str(occupancy)]) == 0
    first = load_forecaster(both)
    assert first.depth_selector.config.needs_occupancy_depths
    for name, weight in network.state_dict().items():
        torch.testing.assert_close(first.occupancy.state_dict()[name], weight)
    shutil.rmtree(occupancy)  # the model has its own copy, and learns with it again unless told otherwise
    assert main([*learn, "--seed", "1", "--from-scratch"]) == 0
    again = load_forecaster(both)
    assert again.depth_selector.config.needs_occupancy_depths
    assert again.fingerprint != first.fingerprint
    elsewhere = tmp_path / "elsewhere" / "depth_selector"  # never without the network that it needs
    assert main([*learn, "--out", str(elsewhere)]) == 0
    assert depth_parts_in(elsewhere.parent).occupancy is not None
    out = tmp_path / "shared"
    words = ["--tokenizer", str(both / "tokenizer"), "--world-model", str(both / "world_model"), "--out", str(out)]
    assert main(["export", *words]) == 0
    assert load_forecaster(out).fingerprint == again.fingerprint
    assert "voxels of 50 x 50 x 50 cm" in (out / "occupancy" / "README.md").read_text()


def test_a_4d_occ_can_be_read_by_medians_and_nothing_else_can(kitti, model, tmp_path, capsys):
    place = tmp_path / "occupancy"
    network = Occupancy4d(replace(occupancy_4d_preset("tiny"), future_frames=5))
    save_occupancy(place, network, card("an occupancy network"))
    words = ["evaluate", "--data", str(kitti), "--setting", "1s", "--limit", "1", "--roi-half", "16", "--device", "cpu"]
    made = {}
    for depth in ("expected", "median"):
        out = tmp_path / f"{depth}.json"
        assert main([*words, "--model", str(place), "--depth", depth, "--out", str(out)]) == 0
        made[depth] = ScoreFile.read(out)
    assert made["median"].model == "occupancy_4d_median"
    assert made["median"].metrics["chamfer_roi"] != made["expected"].metrics["chamfer_roi"]
    capsys.readouterr()
    for other in (str(model), "ray_tracing"):
        assert main([*words, "--model", other, "--depth", "median", "--out", str(tmp_path / "x.json")]) == 2
        assert "--depth says how the densities of a 4D-Occ are read" in capsys.readouterr().err


def test_a_selector_cannot_be_trained_from_too_little_or_for_a_baseline(kitti, model, capsys):
    words = ["train", "depth-selector", "--data", str(kitti), "--settings", "1s", "--device", "cpu"]
    assert main([*words, "--model", str(model), "--forecasts", "1"]) == 2
    assert "one forecast of the 1s setting is not enough" in capsys.readouterr().err
    assert main([*words, "--model", str(model), "--forecasts", "5", "5"]) == 2
    assert "--forecasts takes one number for all settings or one for each of 1s; got 2" in capsys.readouterr().err
    assert main([*words, "--model", str(model), "--rays-per-frame", "0"]) == 2
    assert main([*words, "--model", "ray_tracing"]) == 2
    assert "no rendered depths to choose" in capsys.readouterr().err
    assert not (model / "depth_selector").exists()
