"""Forecasts, tokens and training steps on a pretended GPU: nothing mixes devices, no compiled CPU loop gets a tensor
from elsewhere, results are those of the CPU, and the sampling loop never waits for the GPU.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from copilot4d import presets
from copilot4d.baselines.occupancy_4d import Occupancy4dConfig
from copilot4d.counter import SampleKey, StepCounter
from copilot4d.forecasting.copilot4d import Copilot4D
from copilot4d.tokenizer import Tokenizer
from copilot4d.training.data import to_device
from copilot4d.training.tasks.occupancy_4d import OccupancyTask, OccupancyTraining
from copilot4d.training.tasks.tokenizer import TokenizerTask, TokenizerTraining
from copilot4d.training.tasks.world_model import WorldModelTask, WorldModelTraining
from copilot4d.world_model import SamplerConfig, WorldModel
from copilot4d.world_model.rollout import Rollout
from tests.support.other_device import OtherDevice
from tests.support.scenes import make_drive
from tests.support.token_clips import random_clips
from tests.world_model.models import small_config


@pytest.fixture(scope="module")
def drive():
    return make_drive(8, rings=8, azimuths=90)


@pytest.fixture
def parts():
    torch.manual_seed(0)
    config = presets.tiny()
    return Tokenizer(config.tokenizer).eval(), WorldModel(config.world_model).eval()


def past_and_future(drive, past_frames: int, future: int = 2):
    sweeps = [drive[i] for i in range(past_frames + future)]
    return sweeps[:past_frames], np.stack([s.world_from_lidar for s in sweeps[past_frames:]])


def test_the_other_device_finds_what_a_gpu_would():
    with OtherDevice() as gpu:
        there = torch.arange(4.0).to(gpu.device)
        assert there.device == gpu.device
        with pytest.raises(RuntimeError, match="expected all tensors on meta"):
            there + torch.ones(4)
        with pytest.raises((TypeError, RuntimeError)):
            there.numpy()
        assert not gpu.waits
        assert float(there.sum()) == 6.0
        assert len(there[there > 1]) == 2
        assert there.cpu().tolist() == [0, 1, 2, 3]
        assert gpu.waits == {"item": 1, "nonzero": 1, "to_cpu": 1}


def test_forecasts_of_several_futures_are_the_cpus(parts, drive):
    tokenizer, world_model = parts
    past, poses = past_and_future(drive, world_model.config.past_frames)
    rays = [drive[i].rays()[0][:200] for i in (1, 2)]
    expected = Copilot4D(tokenizer, world_model).forecast(past, poses, rays, steps=2, futures=2, seed=3)
    with OtherDevice() as gpu:
        model = Copilot4D(tokenizer.to(gpu.device), world_model.to(gpu.device))
        found = model.forecast(past, poses, rays, steps=2, futures=2, seed=3)
    for one, other in zip(found.futures, expected.futures, strict=True):
        for mine, theirs in zip(one.depths, other.depths, strict=True):
            assert np.mean(np.abs(mine - theirs) < 1e-3) > 0.99  # the same tokens; sums in another order
    assert gpu.operations


@pytest.mark.parametrize("changes", [{}, {"token_frame": "reference", "gathered_past": True, "code_dim": 3}], ids=str)
def test_the_sampling_loop_never_waits_for_the_gpu(parts, drive, changes):
    """Ten steps wait no more often than one: nothing inside the loop asks for a value."""
    tokenizer, world_model = parts
    if changes:
        world_model = WorldModel(replace(world_model.config, **changes)).eval()
    config = world_model.config
    past, poses = past_and_future(drive, config.past_frames)
    tokens = tokenizer.encode(past)
    past_poses = np.stack([sweep.world_from_lidar for sweep in past])
    waits = {}
    with OtherDevice() as gpu:
        moved, there = world_model.to(gpu.device), tokens.to(gpu.device)
        for steps in (1, 10):
            gpu.waits.clear()
            run = Rollout(moved, there[None], past_poses[None], config=SamplerConfig(steps=steps), futures=3)
            begun = gpu.waits.copy()
            run.step(poses[:1])
            waits[steps] = gpu.waits - begun
    assert waits[10] == waits[1] == {}, (waits, gpu.places)


def test_tokens_and_rendered_depths_are_the_cpus(parts, drive):
    tokenizer, _ = parts
    sweeps = [drive[0], drive[3]]
    expected = tokenizer.encode(sweeps)
    rays = [sweep.rays()[0] for sweep in sweeps]
    with torch.no_grad():
        depths = tokenizer.render(tokenizer.decode(expected), rays, seed=0).answered_m
    with OtherDevice() as gpu:
        moved = tokenizer.to(gpu.device)
        tokens = moved.encode(sweeps)
        assert tokens.device == gpu.device
        again = moved.render(moved.decode(tokens), rays, seed=0).answered_m.cpu()
        tokens = tokens.cpu()
    assert (tokens == expected).float().mean() > 0.99
    assert ((again - depths).abs() < 1e-2).float().mean() > 0.98


def losses_and_gradients(task, batch, device) -> dict[str, torch.Tensor]:
    """One step of a network: its losses, and the gradient's length of each parameter, on the CPU."""
    torch.manual_seed(0)
    model = task.build_model().to(device)
    counter = StepCounter(seed=0, step=0, indices=tuple(range(2)))
    parts = task.loss(model, to_device(batch, torch.device(device)), counter)
    parts["total"].backward()
    found = {name: value.detach().cpu() for name, value in parts.items()}
    return found | {n: p.grad.norm().cpu() for n, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("network", ["tokenizer", "occupancy_4d", "world_model"])
def test_a_training_step_elsewhere_has_the_cpus_gradients(network, drive):
    if network == "tokenizer":
        training = TokenizerTraining(tokenizer=presets.tiny().tokenizer, rays_per_sweep=128)
        task = TokenizerTask(training, [drive])
    elif network == "world_model":
        task = WorldModelTask(WorldModelTraining(world_model=small_config()), random_clips(6))
    else:
        grid = presets.tiny().tokenizer.grid
        task = OccupancyTask(OccupancyTraining(model=Occupancy4dConfig(grid=grid), settings=("1s",)), [drive])
    keys = [SampleKey(seed=0, step=0, index=i, batch=2) for i in range(2)]
    batch = task.collate([task.sample(key) for key in keys])
    expected = losses_and_gradients(task, batch, "cpu")
    with OtherDevice() as gpu:
        found = losses_and_gradients(task, batch, gpu.device)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=2e-2, atol=1e-4, msg=lambda m, n=name: f"{n}: {m}")
