"""What tokens decode to, and what rays see in it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from copilot4d.rendering import RayBatch, answered_depths


@dataclass(frozen=True, kw_only=True)
class Scene:
    """B decoded scenes: the map under the feature grid, and the coarse branch's logits (None: it was left out)."""

    features: Tensor  # (B, 2 H, 2 W, C), H along x
    coarse_logits: Tensor | None = None  # (B, 2 H, 2 W, u, u, Z); `skipping.to_grid` makes it (B, X, Y, Z)
    empty: Tensor | None = None  # (B, H, W) bool: columns that are known to be free space; None: nothing is known

    def __len__(self) -> int:
        return len(self.features)


@dataclass(frozen=True, kw_only=True)
class Rendering:
    """What R rays see: depths (R,), opacities (R,), and where each leaves the volume (R,)."""

    rays: RayBatch
    depth_m: Tensor
    opacity: Tensor
    exit_m: Tensor
    returned: Tensor  # (R,) bool: opaque enough, and inside the volume
    answered: Tensor  # (R,) bool: where a ray that is known to have come back was stopped inside the volume
    missed: Tensor  # (R,) bool: rays that never enter the volume; no answer, and an exit of 0 m
    samples: int  # looked at, over all rays

    @property
    def answered_m(self) -> Tensor:
        """(R,) a depth for every ray: where nothing stopped it, just behind the volume's exit.

        A ray that never enters the volume ends just in front of its own origin: nothing is known along it.
        """
        return answered_depths(self.depth_m, self.answered, self.exit_m)

    @property
    def points(self) -> Tensor:
        """(R, 3) the answered depths as points."""
        return self.rays.points_at(self.answered_m)
