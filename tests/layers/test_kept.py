"""What is kept is what would be computed: anything that changes the weights makes it anew."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from copilot4d.layers.kept import KeptResults


class Doubling(nn.Module):
    """Keeps twice its weights and its buffer's sum, and counts how often that was computed."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(3.0))
        self.register_buffer("shift", torch.ones(1))
        self.kept, self.computed = KeptResults(), 0

    def result(self, name="doubled"):
        def make():
            self.computed += 1
            return 2 * self.weight + self.shift

        return self.kept.get(name, self, make)


@pytest.fixture
def module():
    return Doubling()


def is_current(module):
    with torch.no_grad():
        return torch.equal(module.result(), 2 * module.weight + module.shift)


def test_it_is_computed_once_for_each_name(module):
    with torch.no_grad():
        assert module.result() is module.result()
        module.result("other")
    assert module.computed == 2


def write(module):
    with torch.no_grad():
        module.weight.mul_(3)


def write_buffer(module):
    module.shift.add_(1)


def train(module, **kind):
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.1, **(kind or {"foreach": True}))
    module.weight.square().sum().backward()
    optimizer.step()


def train_fused(module):
    train(module, fused=True)


def load(module):
    module.load_state_dict({"weight": torch.ones(3), "shift": torch.zeros(1)})


def write_behind_autograds_back(module):
    module.weight.data.mul_(3)


def replace(module):
    module.weight = nn.Parameter(torch.full((3,), 7.0))


def round_off(module):
    with torch.no_grad():
        module.weight.fill_(1 / 3)
        module.result()
    module.half().float()


def average(module):
    torch._foreach_lerp_([module.weight.detach()], [torch.ones(3)], 0.5)


@pytest.mark.parametrize(
    "change", [write, write_buffer, train, train_fused, load, write_behind_autograds_back, replace, round_off, average]
)
def test_changed_weights_are_noticed(module, change):
    assert is_current(module)
    change(module)
    assert is_current(module)


def test_nothing_is_kept_where_results_are_others(module):
    module.result()
    assert module.result().requires_grad
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        module.result()
    assert module.computed == 3
    with torch.no_grad():
        assert not module.result().requires_grad
    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.compiler, "is_compiling", lambda: True)
        assert module.result() is not module.result()
    assert module.computed == 6


def test_a_copy_keeps_its_own(module):
    with torch.no_grad():
        module.result()
        other = copy.deepcopy(module)
        other.weight.zero_()
        assert is_current(other)
        assert module.result() is not other.result()


def test_what_inference_mode_computed_serves_elsewhere(module):
    with torch.inference_mode():
        kept = module.result()
    assert not kept.is_inference()
    with torch.no_grad():
        assert module.result() is kept
    torch.ones(3, requires_grad=True).mul(kept).sum().backward()
