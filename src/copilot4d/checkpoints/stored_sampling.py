"""How a model is sampled, as its folder says it: the block `sampling` of copilot4d.json.

    "sampling": {"steps": 2, "guidance": 1.0, "schedule": "few_first", "top_k": 1}

A key that is left out has the sampler's default; a folder without the block has all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from copilot4d.config import from_mapping
from copilot4d.errors import DataError, UsageError
from copilot4d.world_model import SamplerConfig
from copilot4d.world_model.schedule import Schedule

BLOCK = "sampling"


@dataclass(frozen=True, kw_only=True)
class StoredSampling:
    """What was chosen for a model, on data that it was not trained on."""

    steps: int = SamplerConfig.steps
    guidance: float = SamplerConfig.guidance
    schedule: Schedule = SamplerConfig.schedule
    top_k: int | None = SamplerConfig.top_k  # None (null in the file): all of the vocabulary

    def __post_init__(self) -> None:
        self.sampler()

    def sampler(self) -> SamplerConfig:
        """The sampler's configuration; UsageError where a value cannot be."""
        return SamplerConfig(steps=self.steps, guidance=self.guidance, schedule=self.schedule, top_k=self.top_k)


@dataclass(frozen=True, kw_only=True)
class _Stated:
    sampling: StoredSampling | None = None


def stated_sampling(path: Path, description: Mapping[str, Any]) -> StoredSampling | None:
    """The block of a description that was read from `path`; None without one, DataError where it is not as above."""
    try:
        return from_mapping(_Stated, {BLOCK: description.get(BLOCK)}, source=path).sampling
    except UsageError as error:
        raise DataError(
            path, BLOCK, expected="values that the sampler takes", found=str(error),
            remedy="correct the value, or export the model again",
        ) from error  # fmt: skip
