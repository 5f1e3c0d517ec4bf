"""Shell completion: `copilot4d --tyro-print-completion bash` prints a script that knows every verb and option."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import make_dataclass
from functools import reduce
from typing import Annotated, Any

import tyro

from copilot4d.errors import UsageError

SHELLS = ("bash", "zsh", "tcsh", "fish")


def print_completion(arguments: Sequence[str], verbs: Mapping[str, Any]) -> int:
    """`--tyro-print-completion SHELL`, or `--tyro-write-completion SHELL FILE`. verbs: verb -> its options' type."""
    if len(arguments) < 2 or arguments[1] not in SHELLS:
        raise UsageError(f"{arguments[0]} needs the name of your shell: {', '.join(SHELLS)}")
    try:
        tyro.cli(_program(verbs), prog="copilot4d", args=list(arguments))
    except SystemExit as done:  # tyro leaves the program once the script is written
        return int(done.code or 0)
    raise UsageError(f"{arguments[0]} {arguments[1]} needs a file to write the script to, or - to print it")


def _program(verbs: Mapping[str, Any]) -> Any:
    """One type that stands for the whole command line: a union of the verbs' options, two-word verbs one level down."""
    groups: dict[str, list[Any]] = {}
    for verb, its_options in verbs.items():
        first, _, second = verb.partition(" ")
        groups.setdefault(first, []).append(Annotated[its_options, tyro.conf.subcommand(second or first)])
    members = []
    for first, options in groups.items():
        if any(verb.startswith(f"{first} ") for verb in verbs):
            nested = make_dataclass(first.capitalize(), [("verb", _one_of(options))])
            members.append(Annotated[nested, tyro.conf.subcommand(first)])
        else:
            members += options
    return _one_of(members)


def _one_of(members: Sequence[Any]) -> Any:
    """Their union, as a type that is made at run time."""
    union: Any = reduce(operator.or_, members)
    return Annotated[union, tyro.conf.OmitSubcommandPrefixes]
