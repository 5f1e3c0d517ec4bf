"""Where on the feature map a feature is."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from copilot4d.errors import UsageError

PositionKind = Literal["sincos", "factorised"]


def sincos_positions(height: int, width: int, dim: int) -> Tensor:
    """(H, W, C) fixed sines and cosines: the first half of the channels tells the row, the second the column.

    Frequencies fall from 1 to 1/10000 per token in a geometric series. Row 0 starts with sin 0 = 0, ..., cos 0 = 1.
    """
    if dim % 4:
        raise UsageError(f"sine-cosine positions need channels that 4 divides, got {dim}")
    frequency = 10000.0 ** -(torch.arange(dim // 4, dtype=torch.float64) / (dim // 4))

    def axis(size: int) -> Tensor:
        angle = torch.arange(size, dtype=torch.float64)[:, None] * frequency
        return torch.cat([angle.sin(), angle.cos()], dim=-1)  # (size, C / 2)

    rows = axis(height)[:, None].expand(height, width, dim // 2)
    columns = axis(width)[None].expand(height, width, dim // 2)
    return torch.cat([rows, columns], dim=-1).to(torch.get_default_dtype())


class SpatialPosition(nn.Module):
    """(..., H, W, C) + an encoding of row and column: fixed sines and cosines, or one learned table per axis."""

    undecayed_parameters: tuple[str, ...] = ()
    table: Tensor

    def __init__(self, size: tuple[int, int], dim: int, kind: PositionKind = "sincos") -> None:
        super().__init__()
        if kind not in get_args(PositionKind):
            raise UsageError(f"spatial positions are one of {', '.join(get_args(PositionKind))}, got {kind!r}")
        self.kind = kind
        if kind == "sincos":
            with torch.device("cpu"):  # also where the model itself is only sketched on the meta device
                table = sincos_positions(*size, dim)
            self.register_buffer("table", table, persistent=False)
        else:
            self.rows = nn.Parameter(torch.randn(size[0], 1, dim) * (3 * dim) ** -0.5)
            self.columns = nn.Parameter(torch.randn(1, size[1], dim) * (3 * dim) ** -0.5)
            self.undecayed_parameters = ("rows", "columns")

    def forward(self, x: Tensor) -> Tensor:
        """(..., H, W, C) -> (..., H, W, C)."""
        return x + (self.table if self.kind == "sincos" else self.rows + self.columns)
