"""From the keys that errors name to the flags of a verb: layers below the command line know keys, this file knows both.

Errors name a setting by its key: dotted where it lies in a configuration (`world_model.diffusion.eta`,
training.workers), between backticks where it is an argument (`device`). A key that the verb has a flag for gets it
added; all others stay as they are, to be set in a YAML file (`--config`).
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, get_type_hints

# Keys whose flag has another name.
OTHER_NAMES = {
    "sampler.steps": "sampling_steps",
    "protocol.convention": "protocol",
    "protocol.roi_half_m": "roi_half",
    "training.max_steps": "max_updates",
    "training.recipe.cosine_steps": "updates",
    "world_model.diffusion.process": "process",
    "occupancy_4d.depth": "depth",
    "lidar_topics": "lidar_topic",
    "write_estimated_poses.out": "poses_out",
}
BY_LAST_WORD = ("training", "sampler", "protocol")  # their flags are the key's last word; networks are set in YAML
NETWORKS = ("tokenizer", "world_model", "occupancy_4d", "range_view")
FUNCTIONS = {"copilot4d.doctor.write_estimated_poses": "copilot4d doctor --estimate-poses"}
_KEY = re.compile(
    rf"`(?P<quoted>[a-z0-9_.]+)`|\b(?P<dotted>(?:{'|'.join((*BY_LAST_WORD, *NETWORKS))})(?:\.[a-z][a-z0-9_]*)+)\b"
)


def with_flags(message: str, options: type | None = None) -> str:
    """A message with the flags of a verb's options beside the keys that it names.

    >>> from copilot4d.cli.simulate import Options
    >>> with_flags("`count` must lie between 1 and 10, got 0", Options)
    '`count` (--count) must lie between 1 and 10, got 0'
    """
    known = flags_of(options) if options is not None else {}

    def flagged(match: re.Match[str]) -> str:
        key = match["quoted"] or match["dotted"]
        if key in FUNCTIONS:
            return FUNCTIONS[key]
        flag = known.get(_field(key))
        return match[0] if flag is None else f"{match[0]} ({flag})"

    return _KEY.sub(flagged, message)


def flags_of(options: type, prefix: str = "") -> dict[str, str]:
    """The dotted fields of an options class and of those inside it, with their flags, such as --scan.jitter-m."""
    found: dict[str, str] = {}
    hints: dict[str, Any] = get_type_hints(options)
    for field in dataclasses.fields(options):
        name = f"{prefix}{field.name}"
        if dataclasses.is_dataclass(hints[field.name]) and isinstance(hints[field.name], type):
            found |= flags_of(hints[field.name], f"{name}.")
        else:
            found[name] = f"--{name.replace('_', '-')}"
    return found


def _field(key: str) -> str:
    """The name that a key would have among a verb's options."""
    if key in OTHER_NAMES:
        return OTHER_NAMES[key]
    root, _, rest = key.partition(".")
    return rest.rpartition(".")[2] if root in BY_LAST_WORD else key
