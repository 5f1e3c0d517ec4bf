"""What may stand at the cursor: verbs, flags, choices, models, drives and splits. Paths are left to the shell.

`copilot4d completion bash` prints the few lines of shell that ask this on every TAB.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from copilot4d.baselines import BASELINES
from copilot4d.errors import Copilot4dError
from copilot4d.forecasting.load import SHIPPED_BASELINES, SHIPPED_MODELS

SCRIPTS = {
    "bash": """_copilot4d() {
  local IFS=$'\\n'
  COMPREPLY=($(copilot4d __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _copilot4d copilot4d
""",
}
SCRIPTS["zsh"] = "autoload -U +X bashcompinit && bashcompinit\n" + SCRIPTS["bash"]
_DRIVES = ("drive", "drives", "held_out")


def candidates(words: Sequence[str], verbs: Sequence[str], options_of: Callable[[str], type]) -> list[str]:
    """The words that may replace the last of `words`; none where the shell's own completion of paths should answer."""
    *before, typed = words or [""]
    verb = next((v for n in (2, 1) if (v := " ".join(before[:n])) in verbs and len(before) >= n), None)
    if verb is None:
        return _starting(typed, _next_words(before, verbs))
    options = options_of(verb)
    fields = {field.name: field for field in dataclasses.fields(options)}
    if typed.startswith("-"):
        return _starting(typed, [f"--{name.replace('_', '-')}" for name in fields] + ["--help"])
    flag = next((word for word in reversed(before) if word.startswith("--")), "")
    name = flag.removeprefix("--").replace("-", "_")
    return _starting(typed, _values(options, name, before))


def _next_words(before: Sequence[str], verbs: Sequence[str]) -> list[str]:
    depth = len(before)
    rows = [verb.split() for verb in verbs]
    return list(dict.fromkeys(row[depth] for row in rows if len(row) > depth and row[:depth] == list(before)))


def _values(options: type, name: str, before: Sequence[str]) -> list[str]:
    if name == "model":
        return [*SHIPPED_MODELS, *BASELINES, *SHIPPED_BASELINES]
    if name in _DRIVES or name == "split":
        return _of_data(name, before)
    hint = typing.get_type_hints(options).get(name)
    return [str(choice) for choice in _choices(hint)]


def _choices(hint: Any) -> tuple[Any, ...]:
    if typing.get_origin(hint) is typing.Literal:
        return typing.get_args(hint)
    found = (_choices(part) for part in typing.get_args(hint))
    return next((choices for choices in found if choices), ())


def _of_data(name: str, before: Sequence[str]) -> list[str]:
    """The drives or splits of the data set that the line names already."""
    from copilot4d.datasets import open_dataset

    flagged = [after for flag, after in pairwise(before) if flag == "--data"]
    leading = [word for word in before if Path(word).is_dir()]
    for place in (*flagged, *leading):
        try:
            dataset = open_dataset(place, require_poses=False)
        except Copilot4dError:
            continue
        return list(dataset.splits if name == "split" else dataset.names)
    return []


def _starting(typed: str, words: Sequence[str]) -> list[str]:
    return [word for word in words if word.startswith(typed)]
