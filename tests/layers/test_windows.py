"""Orders of tokens: windows hold neighbours, shifted windows do not mix what the roll brought together."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from copilot4d.errors import UsageError
from copilot4d.layers.windows import WindowGrid, relative_position_index, reorder, shift_mask

CPU = torch.device("cpu")


def test_windows_of_a_four_by_six_map():
    grid = WindowGrid(height=4, width=6, window=2)
    assert grid.order().reshape(6, 4).tolist() == [
        [0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11], [12, 13, 18, 19], [14, 15, 20, 21], [16, 17, 22, 23],
    ]  # fmt: skip


def test_shifted_windows_start_one_token_down_and_right():
    grid = WindowGrid(height=4, width=4, window=2, shift=1)
    windows = grid.order().reshape(4, 4).tolist()
    assert windows[0] == [5, 6, 9, 10]
    assert windows[3] == [15, 12, 3, 0]  # the four corners of the map


def test_tokens_attend_to_each_other_only_if_they_are_near_on_the_unrolled_map():
    grid = WindowGrid(height=8, width=8, window=4, shift=2)
    order = grid.order().reshape(grid.windows, -1)
    mask = shift_mask(grid, CPU)[:, 0]
    for window in range(grid.windows):
        rows, columns = np.divmod(order[window], 8)
        near = (abs(rows[:, None] - rows) < 4) & (abs(columns[:, None] - columns) < 4)
        assert torch.equal(mask[window] == 0, torch.from_numpy(near))
        assert mask[window][~torch.from_numpy(near)].eq(float("-inf")).all()


def test_no_window_is_larger_than_the_map_and_a_single_window_does_not_shift():
    assert WindowGrid.fitted(4, 4, 16, shifted=True) == WindowGrid(height=4, width=4, window=4)
    assert WindowGrid.fitted(4, 8, 16, shifted=True) == WindowGrid(height=4, width=8, window=4, shift=2)
    assert WindowGrid.fitted(32, 32, 8, shifted=True).shift == 4
    assert shift_mask(WindowGrid.fitted(4, 4, 16, shifted=True), CPU) is None
    with pytest.raises(UsageError, match="divides"):
        WindowGrid.fitted(12, 12, 8, shifted=False)


def test_reorder_goes_there_and_back_through_any_order():
    plain = WindowGrid(height=8, width=4, window=2)
    shifted = WindowGrid(height=8, width=4, window=2, shift=1)
    x = torch.arange(32.0)[None, :, None]
    ordered = reorder(x, None, plain)
    assert ordered.flatten().long().tolist() == plain.order().tolist()
    across = reorder(ordered, plain, shifted)
    assert across.flatten().long().tolist() == shifted.order().tolist()
    assert torch.equal(reorder(across, shifted, None), x)


def test_the_gradient_of_reorder_finds_its_way_back():
    grid = WindowGrid(height=4, width=4, window=2, shift=1)
    x = torch.randn(2, 16, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: reorder(t, None, grid) * torch.arange(16.0)[:, None], x)
    upstream = torch.randn(2, 16, 3, dtype=torch.float64)
    plain = x[:, torch.from_numpy(grid.order()).flatten()]  # what reorder does, by indexing
    assert torch.equal(reorder(x, None, grid), plain)
    found, expected = (torch.autograd.grad((y * upstream).sum(), x)[0] for y in (reorder(x, None, grid), plain))
    assert torch.equal(found, expected)


def test_relative_positions_depend_on_the_offset_alone():
    window = 3
    index = relative_position_index(window, CPU).view(9, 9)
    rows, columns = np.divmod(np.arange(9), 3)
    offsets = {}
    for i in range(9):
        for j in range(9):
            offsets.setdefault((rows[i] - rows[j], columns[i] - columns[j]), set()).add(int(index[i, j]))
    assert all(len(found) == 1 for found in offsets.values())
    assert len({min(found) for found in offsets.values()}) == 25
    assert int(index.min()) == 0
    assert int(index.max()) == 24


def test_what_sampling_made_first_can_be_used_in_training():
    grid = WindowGrid(height=6, width=6, window=3, shift=1)
    with torch.inference_mode():
        reorder(torch.zeros(1, 36, 1), None, grid)
    x = torch.randn(1, 36, 1, requires_grad=True)
    reorder(x, None, grid).sum().backward()
    assert (x.grad == 1).all()
