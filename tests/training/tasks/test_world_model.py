"""The world model through the training engine: randomness, splits, ranks, resuming, actions, conventions, loading."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from copilot4d.checkpoints.load_world_model import load_world_model
from copilot4d.errors import UsageError
from copilot4d.forecasting.copilot4d import Copilot4D
from copilot4d.geometry import Sweep, se3
from copilot4d.training import (
    CheckpointStore,
    Recipe,
    SampleKey,
    StepCounter,
    TrainingConfig,
    World,
    open_checkpoint,
    train,
)
from copilot4d.training.clip_batch import batch_of, newest_past
from copilot4d.training.optimizer import undecayed_names
from copilot4d.training.tasks.world_model import (
    WorldModelTask,
    WorldModelTraining,
    evenly_spread,
)
from copilot4d.training.world_model_classes import position_weights
from copilot4d.world_model import DiffusionConfig, Objective, SamplerConfig, WorldModel, rollout
from tests.support.token_clips import random_clips
from tests.tokenizer.clouds import tiny_tokenizer
from tests.training.processes import run_ranks
from tests.training.small_runs import quiet_config, state_after
from tests.training.toy import Heard, ToyTask, toy_config
from tests.world_model.models import random_poses, small_config, small_model


def small_task(held_out: bool = False, token_frame: str = "own", **changes) -> WorldModelTask:
    training = WorldModelTraining(world_model=small_config(token_frame=token_frame, **changes))
    clips = random_clips(6, token_frame=token_frame, variants=2, intervals=(2, 6))
    scored = random_clips(3, seed=9, token_frame=token_frame, intervals=(2, 6)) if held_out else None
    return WorldModelTask(training, clips, scored, held_out_clips=3)


def config_of(run, **changes) -> TrainingConfig:
    return quiet_config(
        run, Recipe(batch=4, warmup_steps=2, cosine_steps=3, clip_norm=5.0, learning_rate=1e-2), **changes
    )


def after(run, **changes) -> dict[str, torch.Tensor]:
    return state_after(small_task(), config_of(run, **changes))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return after(tmp_path_factory.mktemp("whole"))


def assert_close(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if name.endswith("qkv.bias"):
            continue  # a key's bias moves no softmax: its gradient is rounding, which AdamW makes large
        torch.testing.assert_close(found[name], value, rtol=1e-3, atol=1e-4, msg=lambda m, n=name: f"{n}: {m}")


def test_two_passes_per_update_give_the_same_weights(whole, tmp_path):
    assert_close(after(tmp_path, accumulation=2), whole)


def test_two_ranks_give_the_same_weights_and_the_same_scores(whole, tmp_path):
    def work(rank: int):
        heard = Heard()
        train(small_task(held_out=True), config_of(tmp_path, evaluate_every=5), heard)
        return heard.messages

    said = run_ranks(2, work)
    assert_close(CheckpointStore(folder=tmp_path / "checkpoints").newest().tensors("model"), whole)
    model = small_task().build_model()
    model.load_state_dict(whole)
    alone = small_task(held_out=True).evaluate(model.eval(), World(device=torch.device("cpu")))
    told = next(line for line in said[0] if line.startswith("step 5: loss "))
    assert float(told.split()[3]) == pytest.approx(alone["loss"], rel=1e-3)


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(whole, tmp_path):
    after(tmp_path, max_steps=2)
    resumed = after(tmp_path)
    assert all(torch.equal(resumed[name], value) for name, value in whole.items())


def test_every_pass_visits_every_clip_once_in_changing_variants():
    task = small_task()
    keys = [SampleKey(seed=5, step=step, index=index, batch=3) for step in range(20) for index in range(3)]
    places = [task.describe(key) for key in keys]
    for epoch in range(10):
        assert len({place["drive"] for place in places[6 * epoch : 6 * epoch + 6]}) == 6
    seen = {(place["drive"], place["variant"]) for place in places}
    assert len(seen) == 12  # each clip in both variants
    for key, place in zip(keys[:6], places, strict=False):
        expected = task.clips.clip(int(place["drive"].split("_")[1]), place["variant"])
        assert torch.equal(task.sample(key).tokens, expected.tokens)


def objective_at(step: int, indices: tuple[int, ...], config: DiffusionConfig) -> Objective:
    counter = StepCounter(seed=1, step=step, indices=indices)
    return config.objective(float(counter.step_generator("objective").random()))


def test_objectives_have_their_shares_and_are_equal_on_all_ranks():
    config = DiffusionConfig()
    drawn = [objective_at(step, (0, 1), config) for step in range(2000)]
    for objective, share in zip(Objective, (0.5, 0.4, 0.1), strict=True):
        assert config.share(objective) == pytest.approx(share)
        assert drawn.count(objective) / 2000 == pytest.approx(share, abs=0.035)
    assert drawn[:50] == [objective_at(step, (2, 3), config) for step in range(50)]


@pytest.mark.parametrize("process", ["absorbing_uniform", "maskgit"])
def test_a_batchs_loss_is_the_mean_of_its_samples_losses(process):
    diffusion = DiffusionConfig(process=process)
    task, model = small_task(diffusion=diffusion), small_model(diffusion=diffusion)
    clips = [task.clips.clip(i, 0) for i in range(3)]
    for step in range(6):  # several objectives
        together = task.loss(model, task.collate(clips), StepCounter(seed=0, step=step, indices=(4, 5, 6)))["total"]
        alone = [
            task.loss(model, task.collate([clip]), StepCounter(seed=0, step=step, indices=(i,)))["total"]
            for i, clip in zip((4, 5, 6), clips, strict=True)
        ]
        torch.testing.assert_close(together, torch.stack(alone).mean())
        again = task.loss(model, task.collate(clips), StepCounter(seed=0, step=step, indices=(0, 1, 2)))["total"]
        assert (again - together).abs().item() > 1e-6  # other slots, other noise


def spied_actions(monkeypatch) -> list:
    """The actions of every pass through the network from now on."""
    seen, inner = [], WorldModel.features

    def features(self, tokens, actions, **rest):
        seen.append(actions)
        return inner(self, tokens, actions, **rest)

    monkeypatch.setattr(WorldModel, "features", features)
    return seen


@pytest.mark.parametrize("token_frame", ["own", "reference"])
def test_training_sampling_and_evaluation_attach_the_same_motion_to_a_frame(token_frame, monkeypatch):
    past, frames = 2, 4
    poses = random_poses(1, frames, seed=4)[0]
    if token_frame == "own":  # frame t: the motion t-1 -> t
        expected = {t: np.linalg.inv(poses[t - 1]) @ poses[t] for t in range(1, frames)}
    else:  # frame t: where its lidar is, seen from the newest past frame
        expected = {t: np.linalg.inv(poses[past - 1]) @ poses[t] for t in range(frames)}

    def check(actions, frames_seen) -> None:
        for column, t in enumerate(frames_seen):
            assert bool(actions.known[0, column]) == (t in expected)
            if t in expected:
                np.testing.assert_allclose(actions.motion[0, column].numpy(), expected[t], atol=1e-6)

    config = dataclasses.replace(small_config(token_frame=token_frame), vocabulary=32, tokens=(16, 16))
    model = WorldModel(config).eval()
    seen = spied_actions(monkeypatch)

    clips = random_clips(1, side=16, vocabulary=32, token_frame=token_frame)
    clips.poses = poses[None]
    task = WorldModelTask(WorldModelTraining(world_model=config), clips)
    batch = task.collate([task.sample(SampleKey(seed=0, step=0, index=0, batch=1))])
    task.loss(model, batch, StepCounter(seed=0, step=0, indices=(0,)))
    check(seen.pop(), range(frames))  # training

    def check_passes() -> None:
        """The past, then the new frame, in the second step with an unconditional copy, then the frame kept, ..."""
        check(seen[0], range(past))
        made = [actions for actions in seen[1:] if actions.known.shape[1] == 2]
        for t, actions in zip(range(past, frames), made, strict=True):
            check(actions, [t])
        seen.clear()

    sampler = {"steps": 2, "guidance": 1.0}
    rollout(model, clips.tokens[:, :past], poses[None, :past], poses[None, past:], config=SamplerConfig(**sampler))
    check_passes()  # sampling

    rng = np.random.default_rng(0)
    sweeps = [
        Sweep(points=rng.uniform(-9, 9, (50, 3)).astype(np.float32), world_from_lidar=pose, timestamp_ns=t * 10**8)
        for t, pose in enumerate(poses[:past])
    ]
    Copilot4D(tiny_tokenizer(), model).forecast(sweeps, poses[past:], **sampler)
    check_passes()  # evaluation


def test_clips_of_both_intervals_share_a_batch():
    clips = random_clips(2, intervals=(2, 6))
    clips.poses[1] = np.stack([se3.from_yaw(0.0, (3.0 * t, 0.0, 0.0)) for t in range(4)])  # three times the motion
    clips.poses[0] = np.stack([se3.from_yaw(0.0, (1.0 * t, 0.0, 0.0)) for t in range(4)])
    batch = batch_of([clips.clip(0, 0), clips.clip(1, 0)], "own")
    assert batch.actions.motion[0, 1:, 0, 3].tolist() == [1.0] * 3
    assert batch.actions.motion[1, 1:, 0, 3].tolist() == [3.0] * 3


def test_embeddings_biases_norms_positions_and_the_null_action_are_not_decayed():
    model = small_task().build_model()
    spared = undecayed_names(model)
    assert {"tokens.table.weight", "temporal_position", "actions.null", "norm.weight"} <= spared
    assert any(name.endswith("relative_position_bias") for name in spared)
    assert any(name.endswith("qkv.bias") for name in spared)
    assert not any(name.endswith(("qkv.weight", "project.weight", "leave.weight")) for name in spared)


def test_conventions_say_what_tokens_and_actions_are(tmp_path):
    result = train(small_task(token_frame="reference"), config_of(tmp_path, max_steps=1), Heard())
    stated = open_checkpoint(result.checkpoint).content["conventions"]
    assert stated["token_frame"] == "reference"
    assert stated["actions"].startswith("reference_from_t")
    assert (stated["vocabulary"], stated["token_shape"]) == (11, [8, 8])
    assert stated["tokenizer_sha256"] == "a" * 64
    assert stated["intervals_s"] == [0.2, 0.6]
    loaded = load_world_model(tmp_path)
    assert loaded.world_model.config == small_task(token_frame="reference").training.world_model
    assert not loaded.world_model.training
    assert (loaded.tokenizer_sha256, loaded.step, loaded.intervals_s) == ("a" * 64, 1, (0.2, 0.6))


def test_the_averaged_weights_are_loaded(tmp_path):
    config = config_of(tmp_path)
    config = dataclasses.replace(config, recipe=dataclasses.replace(config.recipe, ema_decay=0.9))
    train(small_task(), config, Heard())
    loaded = load_world_model(tmp_path)
    averaged = loaded.checkpoint.tensors("ema")
    state = loaded.world_model.state_dict()
    assert averaged
    assert all(torch.equal(state[name], value) for name, value in averaged.items())


def test_other_models_are_not_loaded_as_world_models(tmp_path):
    train(ToyTask(), toy_config(tmp_path, max_steps=1))
    with pytest.raises(UsageError, match="is of task 'toy', not 'world_model': pass a run of"):
        load_world_model(tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"vocabulary": 12}, "vocabulary 12, but the tokens were made with 11"),
        ({"token_frame": "reference"}, "token_frame reference, but the tokens were made with own"),
        ({"frames": 3}, r"learns from 2 \+ 1 frames, but the clips have 2 \+ 2"),
        ({"past_frames": 1}, r"learns from 1 \+ 3 frames, but the clips have 2 \+ 2"),
    ],
)
def test_tokens_that_do_not_fit_are_refused(changes, words):
    with pytest.raises(UsageError, match=words):
        WorldModelTask(WorldModelTraining(world_model=small_config(**changes)), random_clips(2))


def test_tokens_of_two_tokenizers_are_not_mixed():
    other = random_clips(2)
    other.tokenizer_sha256 = "b" * 64
    with pytest.raises(UsageError, match="same tokenizer"):
        WorldModelTask(WorldModelTraining(world_model=small_config()), random_clips(2), other)


def test_held_out_clips_are_spread_from_the_first_to_the_last():
    assert evenly_spread(10, 4) == [0, 3, 6, 9]
    assert evenly_spread(3, 8) == [0, 1, 2]
    assert evenly_spread(0, 8) == []


def test_weights_of_the_loss_follow_what_columns_hold():
    """By hand: something moves through two cells; the third is empty, the fourth ground."""
    columns = torch.tensor([[3, 1, 0, 1], [1, 3, 0, 1], [1, 1, 0, 1], [1, 1, 0, 1]], dtype=torch.uint8).view(1, 4, 2, 2)
    found = position_weights(columns, DiffusionConfig(moving_weight=9.0, empty_weight=0.5)).view(4, 4).tolist()
    assert found == [[9, 1, 0.5, 1], [9, 9, 0.5, 1], [9, 9, 0.5, 1], [1, 9, 0.5, 1]]


def test_the_newest_past_keeps_tokens_actions_and_columns_together():
    config = small_config(past_frames=2)
    clips = random_clips(2)
    batch = batch_of([clips.clip(i, 0) for i in range(2)], "own")
    short = newest_past(batch, config, 1)
    assert torch.equal(short.tokens, batch.tokens[:, 1:])
    assert torch.equal(short.actions.motion, batch.actions.motion[:, 1:])
    assert not short.actions.known[:, 0].any()
    assert short.actions.known[:, 1:].all()
    assert newest_past(batch, config, 2) is batch
