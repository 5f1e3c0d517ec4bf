"""`CopyGate`: which of a ray's candidates to believe. Some thousand weights, learned from forecasts of a model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from copilot4d.copy_path.candidates import CANDIDATES, FEATURES, Candidates
from copilot4d.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class CopyGateConfig:
    """How wide the two hidden layers are, and the names that the weights go by: a gate of other ones is refused."""

    widths: tuple[int, int] = (128, 64)
    features: tuple[str, ...] = FEATURES
    candidates: tuple[str, ...] = CANDIDATES

    def __post_init__(self) -> None:
        if min(self.widths) < 1:
            raise UsageError(f"widths of a copy gate must be at least 1, got {self.widths}")
        if self.features != FEATURES or self.candidates != CANDIDATES:
            raise UsageError(
                "this copy gate reads other features or chooses among other candidates than this version of copilot4d "
                "makes; train it again (copilot4d train copy-gate)"
            )


class CopyGate(nn.Module):
    """Features of rays (R, F) -> logits of their candidates (R, C)."""

    def __init__(self, config: CopyGateConfig | None = None) -> None:
        super().__init__()
        self.config = config or CopyGateConfig()
        first, second = self.config.widths
        self.layers = nn.Sequential(
            nn.Linear(len(FEATURES), first), nn.ReLU(), nn.Linear(first, second), nn.ReLU(),
            nn.Linear(second, len(CANDIDATES)),
        )  # fmt: skip

    def forward(self, features: Tensor) -> Tensor:
        """(R, F) -> (R, C)."""
        return self.layers(features)  # type: ignore[no-any-return]

    @torch.no_grad()
    def choose(self, candidates: Candidates) -> NDArray[np.int64]:
        """(R,) the candidate of each ray."""
        features = torch.from_numpy(candidates.features).to(next(self.parameters()).device)
        return self(features).argmax(dim=1).cpu().numpy()  # type: ignore[no-any-return]

    @torch.no_grad()
    def absorb_scale(self, mean: Tensor, deviation: Tensor) -> None:
        """After training on (features - mean) / deviation: read plain features from now on."""
        layer = self.layers[0]
        assert isinstance(layer, nn.Linear)
        layer.weight.div_(deviation)
        layer.bias.sub_(layer.weight @ mean)
