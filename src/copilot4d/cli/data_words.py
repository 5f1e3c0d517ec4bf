"""Every verb takes its data in two ways: `copilot4d evaluate DATA ...` and `copilot4d evaluate --data DATA ...`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence


def with_data_flag(options: type, arguments: Sequence[str]) -> list[str]:
    """The arguments as the verb's own options have them.

    Words before the first flag are the data; where the verb takes its data as a word (doctor), so is --data.
    """
    fields = {field.name for field in dataclasses.fields(options)} if dataclasses.is_dataclass(options) else set()
    arguments = list(arguments)
    if "data" in fields:
        first_flag = next((i for i, word in enumerate(arguments) if word.startswith("-")), len(arguments))
        leading = arguments[:first_flag]
        if leading and not any(word == "--data" or word.startswith("--data=") for word in arguments):
            return [*arguments[first_flag:], "--data", *leading]
    elif "path" in fields:
        for i, word in enumerate(arguments):
            if word.startswith("--data="):
                return [word.removeprefix("--data="), *arguments[:i], *arguments[i + 1 :]]
            if word == "--data" and i + 1 < len(arguments):
                return [arguments[i + 1], *arguments[:i], *arguments[i + 2 :]]
    return arguments
