"""The error family. Every message says what was expected, what was found, where, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path


class Copilot4dError(Exception):
    """Base of everything that copilot4d raises on purpose. The command line prints it as one paragraph and exits 1."""


class Copilot4dWarning(UserWarning):
    """Something a user should know that does not stop the work."""


class UsageError(Copilot4dError):
    """The caller asked for something that cannot be (wrong option, unknown name). The command line exits 2."""


class ForecastError(Copilot4dError):
    """A forecast cannot be made or used: no past sweeps, NaN in a prediction, a frame without points."""


class ProtocolError(Copilot4dError):
    """Scores that must not be mixed, or a protocol that cannot be applied to this data."""


class TrainingError(Copilot4dError):
    """Training cannot go on: a number that is not finite, no memory, a full disk, a dead loader worker."""


class DataError(Copilot4dError):
    """A file or table on disk is not what its format promises.

    >>> print(DataError("000003.bin", "points", expected="a multiple of 16 bytes", found="1601 bytes",
    ...                 remedy="copy the file again"))
    000003.bin: points: expected a multiple of 16 bytes, found 1601 bytes. To fix it: copy the file again.
    """

    def __init__(self, path: str | Path, field: str, *, expected: str, found: str, remedy: str) -> None:
        self.path = Path(path)
        self.field = field
        self.expected = expected
        self.found = found
        self.remedy = remedy.rstrip(".")
        super().__init__(f"{path}: {field}: expected {expected}, found {found}. To fix it: {self.remedy}.")

    def __reduce__(self) -> tuple[object, ...]:
        """Survive the trip out of a worker process, with every field."""
        return (_rebuild_data_error, (self.path, self.field, self.expected, self.found, self.remedy))


def did_you_mean(name: str, known: Sequence[str], before: str = "") -> str:
    """A suggestion for a mistyped name, to put behind a message; empty where nothing is near.

    >>> did_you_mean("docter", ["doctor", "demo"])
    ' (did you mean doctor?)'
    """
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f" (did you mean {before}{near[0]}?)" if near else ""


def check_range(key: str, value: float | Sequence[float], low: float, high: float) -> None:
    """UsageError that names the key where a number, or one of several, does not lie in [low, high]; NaN never does.

    >>> check_range("tokenizer.codebook.codes", 1024, 1, 2**17)
    """
    for number in value if isinstance(value, Sequence) else (value,):
        if not low <= number <= high:
            raise UsageError(f"{key} must lie in [{low:g}, {high:g}], got {str(number)[:60]}")


def _rebuild_data_error(path: Path, field: str, expected: str, found: str, remedy: str) -> DataError:
    return DataError(path, field, expected=expected, found=found, remedy=remedy)
