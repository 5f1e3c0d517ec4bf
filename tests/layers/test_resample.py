from __future__ import annotations

import pytest
import torch

from copilot4d.errors import UsageError
from copilot4d.layers.resample import LevelMerging, PatchMerging, PatchUpsample, fold_patches, unfold_patches


def test_a_patch_is_its_four_neighbours_row_by_row():
    x = torch.arange(2 * 4 * 6).view(2, 4, 6, 1)
    folded = fold_patches(x)
    assert folded.shape == (2, 2, 3, 4)
    assert folded[0, 0, 0].tolist() == [0, 1, 6, 7]
    assert folded[0, 1, 2].tolist() == [16, 17, 22, 23]
    assert folded[1, 0, 0].tolist() == [24, 25, 30, 31]
    with pytest.raises(UsageError, match="even"):
        fold_patches(torch.zeros(3, 4, 1))


def test_unfolding_undoes_folding():
    x = torch.randn(3, 2, 4, 6, 5)
    assert torch.equal(unfold_patches(fold_patches(x)), x)


@pytest.mark.parametrize("layer", [PatchMerging(4, 6), PatchUpsample(4, 6)])
def test_resampling_acts_on_each_patch_alone(layer):
    x = torch.randn(1, 4, 4, 4)
    moved = x.clone()
    moved[0, 1, 1] += torch.randn(4)
    changed = (layer(x) != layer(moved)).any(-1)[0].nonzero().tolist()
    assert changed == ([[0, 0]] if isinstance(layer, PatchMerging) else [[2, 2], [2, 3], [3, 2], [3, 3]])


def test_level_merging_adds_to_the_lower_level():
    torch.manual_seed(0)
    layer = LevelMerging(6, 4)
    upper, lower = torch.randn(1, 2, 2, 6), torch.randn(1, 4, 4, 4)
    moved = upper.clone()
    moved[0, 0, 1] += torch.randn(6)
    changed = (layer(upper, lower) != layer(moved, lower)).any(-1)[0].nonzero().tolist()
    assert changed == [[0, 2], [0, 3], [1, 2], [1, 3]]
    torch.nn.init.zeros_(layer.reduce.weight)
    assert torch.equal(layer(upper, lower), lower)
