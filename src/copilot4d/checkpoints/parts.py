"""Whether the parts of a model fit together."""

from __future__ import annotations

from copilot4d.baselines.occupancy_4d import Occupancy4d
from copilot4d.depth_selection import DepthSelector
from copilot4d.errors import UsageError
from copilot4d.tokenizer import Tokenizer
from copilot4d.world_model import WorldModel


def check_fit(
    tokenizer: Tokenizer, world_model: WorldModel, depth_selector: DepthSelector | None, occupancy: Occupancy4d | None
) -> None:
    """Raise UsageError where a tokenizer, a world model and what selects depths cannot forecast together."""
    made, read = tokenizer.config, world_model.config
    if (made.vocabulary, made.tokens) != (read.vocabulary, read.tokens):
        raise UsageError(
            f"the tokenizer makes {made.tokens} tokens of {made.vocabulary} codes, but the world model reads "
            f"{read.tokens} of {read.vocabulary}: take the tokenizer that the world model was trained with"
        )
    if made.mode == "voxel_centres":
        raise UsageError("a tokenizer of mode 'voxel_centres' renders no rays, so it cannot forecast sweeps")
    if depth_selector is not None and depth_selector.config.needs_occupancy_depths != (occupancy is not None):
        trained = "with" if depth_selector.config.needs_occupancy_depths else "without"
        raise UsageError(
            f"this depth selector was trained {trained} occupancy depths: give it the same, or train it again"
        )
