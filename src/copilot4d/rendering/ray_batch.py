"""Rays of several scenes in one batch of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from copilot4d.errors import UsageError
from copilot4d.geometry import Rays, VoxelGrid


@dataclass(frozen=True, kw_only=True)
class RayBatch:
    """R rays: origins and unit directions (R, 3) float32 in their scene's frame, and the scene (R,) of each."""

    origins: Tensor
    directions: Tensor
    scenes: Tensor

    def __post_init__(self) -> None:
        if self.origins.shape != self.directions.shape or self.origins.shape[-1:] != (3,):
            raise UsageError(f"rays need (R, 3) twice, got {self.origins.shape} and {self.directions.shape}")
        if self.scenes.shape != self.origins.shape[:1]:
            raise UsageError(f"each ray needs its scene: {self.scenes.shape} for {len(self.origins)} rays")

    def __len__(self) -> int:
        return len(self.origins)

    def __getitem__(self, selection: slice | Tensor) -> RayBatch:
        return RayBatch(
            origins=self.origins[selection], directions=self.directions[selection], scenes=self.scenes[selection]
        )

    @classmethod
    def of(cls, rays: Sequence[Rays], device: torch.device | str = "cpu") -> RayBatch:
        """One `Rays` per scene."""

        def stacked(parts: list[np.ndarray]) -> Tensor:
            whole = np.concatenate(parts) if parts else np.zeros((0, 3))
            return torch.from_numpy(np.ascontiguousarray(whole, dtype=np.float32)).to(device)

        counts = torch.tensor([len(r) for r in rays], dtype=torch.int64)
        return cls(
            origins=stacked([r.origins for r in rays]),
            directions=stacked([r.directions for r in rays]),
            scenes=torch.repeat_interleave(torch.arange(len(rays)), counts).to(device),
        )

    def points_at(self, depths_m: Tensor) -> Tensor:
        """(R,) -> (R, 3)."""
        return self.origins + self.directions * depths_m[:, None]

    def span(self, grid: VoxelGrid) -> tuple[Tensor, Tensor]:
        """(R,) depths where each ray enters and leaves the grid's box; an entry of 0 starts inside.

        Where a ray misses the box, its exit is not behind its entry.
        """
        low = self.origins.new_tensor(grid.minimum)
        high = self.origins.new_tensor(grid.maximum)
        # A direction of exactly 0 never meets a face: it stays inside for ever, or outside for ever.
        tiny = torch.finfo(self.directions.dtype).tiny
        direction = torch.where(self.directions.abs() < tiny, torch.full_like(self.directions, tiny), self.directions)
        first, second = (low - self.origins) / direction, (high - self.origins) / direction
        entry = torch.minimum(first, second).amax(dim=-1).clamp(min=0)
        return entry, torch.maximum(first, second).amin(dim=-1)
