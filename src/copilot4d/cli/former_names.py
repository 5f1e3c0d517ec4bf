"""Verbs, flags and values that had another name: using one is answered with the present name. This table is all."""

from __future__ import annotations

from collections.abc import Sequence

from copilot4d.errors import UsageError

# (where: a verb or its first words, "" is everywhere; the former words; the present ones)
FORMER_NAMES: tuple[tuple[str, str, str], ...] = (
    ("", "train copy-gate", "train depth-selector"),
    ("", "--copy-path", "--depth-selection"),
    ("", "--no-copy-path", "--no-depth-selection"),
    ("", "--second-opinion", "--occupancy"),
    ("", "--schedule maskgit", "--schedule few_first"),
    ("train", "--steps", "--updates"),
    ("train", "--max-steps", "--max-updates"),
    ("", "--steps", "--sampling-steps"),
    ("simulate", "--drives", "--count"),
)


def present_verb(verb: str) -> str | None:
    """What a former verb is called now; None for all others.

    >>> present_verb("train copy-gate")
    'train depth-selector'
    """
    return next((present for _, former, present in FORMER_NAMES if former == verb), None)


def refuse_former_words(verb: str, arguments: Sequence[str]) -> None:
    """UsageError with the present name where a flag, or a flag with its value, has another one now."""
    words = [
        part for argument in arguments for part in (argument.split("=", 1) if argument[:2] == "--" else [argument])
    ]
    words = [word.replace("_", "-") if word[:2] == "--" else word for word in words]  # tyro reads both
    for where, former, present in FORMER_NAMES:
        parts = former.split()
        found = any(words[i : i + len(parts)] == parts for i in range(len(words)))
        if parts[0][:2] == "--" and found and f"{verb} ".startswith(f"{where} " if where else ""):
            raise UsageError(f"{former} is called {present} now")
