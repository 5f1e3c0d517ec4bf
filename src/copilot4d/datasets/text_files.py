"""Reading text tables with errors that name the file, the line and what stood there."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from copilot4d.errors import DataError

_LATEST_S = 1e11  # the year 5138
_LARGEST_NS = 2**62 - 1  # differences of two such times still fit 64 bits; that is 146 years from 1970


def read_text(path: Path, field: str) -> str:
    """The whole file as text; a DataError where it is missing, unreadable or not text."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise DataError(
            path, field, expected="a readable text file", found=describe(error), remedy="restore the file"
        ) from error
    except UnicodeDecodeError as error:
        raise DataError(
            path, field, expected="text", found=f"a byte that is no text at position {error.start}",
            remedy="copy the file again; it is damaged or is not a text file",
        ) from error  # fmt: skip


def describe(error: OSError) -> str:
    """What the operating system said, without its number and path."""
    return (error.strerror or type(error).__name__).lower()


def numbered_lines(path: Path, field: str, *, gapless: bool = False) -> list[tuple[int, str]]:
    """(line number from 1, stripped line) of all lines that are neither blank nor comments (#).

    `gapless` is for files whose n-th line belongs to the n-th sweep: a blank line among them is then an error.
    """
    lines = enumerate((line.strip() for line in read_text(path, field).split("\n")), start=1)
    kept = [(number, line) for number, line in lines if line and not line.startswith("#")]
    if gapless:
        for (before, _), (number, _) in pairwise(kept):
            if number != before + 1:
                raise DataError(
                    path, f"{field}, line {before + 1}", expected="a line per sweep", found="a blank line or a comment",
                    remedy="restore the line; where it is missing, all later lines would belong to other sweeps",
                )  # fmt: skip
    return kept


def parse_floats(path: Path, field: str, number: int, words: list[str], count: int) -> list[float]:
    """Exactly `count` finite numbers from the words of a line."""
    if len(words) != count:
        raise DataError(
            path, f"{field}, line {number}", expected=f"{count} numbers", found=f"{len(words)}",
            remedy="restore that line, or write the file again",
        )  # fmt: skip
    try:
        values = [float(word) for word in words]
    except ValueError as error:
        raise _not_a_number(path, field, number, " ".join(words)) from error
    if not np.isfinite(values).all():
        raise _not_a_number(path, field, number, " ".join(words))
    return values


def parse_nanoseconds(path: Path, field: str, number: int, word: str, unit: str = "s") -> int:
    """A time as decimal text -> whole nanoseconds, without the rounding of a float (Unix times need 19 digits)."""
    try:
        return nanoseconds_from(word, unit)
    except ValueError as error:
        raise _not_a_number(path, field, number, word) from error


def check_seconds(path: Path, field: str, number: int, word: str, line: Callable[[str], str]) -> None:
    """DataError for a time in seconds that lies thousands of years ahead: which unit it looks like, and the line of
    copilot4d.yaml that says so.
    """
    try:
        value = float(word)
    except ValueError:
        return  # another check says so
    if _LATEST_S < value < float("inf"):
        unit = "ms" if value < 1e14 else "us" if value < 1e17 else "ns"
        raise DataError(
            path, f"{field}, line {number}", expected="a time in seconds", found=f"{word}, which looks like {unit}",
            remedy=f"write `{line(unit)}` in copilot4d.yaml, or the times in seconds",
        )  # fmt: skip


UNITS_NS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


def nanoseconds_from(word: str, unit: str) -> int:
    """Decimal text in a unit of UNITS_NS -> whole nanoseconds; ValueError where it is no such number."""
    try:
        value = Decimal(word)
        if not value.is_finite() or abs(value) > _LARGEST_NS:
            raise ValueError(f"{word!r} is out of range")
        result = int((value * UNITS_NS[unit]).to_integral_value())
    except ArithmeticError as error:  # decimal has its own, for no number and for exponents beyond all measure
        raise ValueError(f"{word!r} is not a number") from error
    if abs(result) > _LARGEST_NS:
        raise ValueError(f"{word!r} is out of range")
    return result


def check_increasing(
    path: Path, timestamps_ns: NDArray[np.int64], labels: list[str], field: str = "timestamps"
) -> None:
    """DataError for the first time that is not later than the one before; `labels` say which entry each is."""
    late = timestamps_ns[1:] <= timestamps_ns[:-1]
    if late.any():
        at = int(np.argmax(late)) + 1
        before, here = int(timestamps_ns[at - 1]), int(timestamps_ns[at])
        what = "the same time as" if here == before else "which is before"
        raise DataError(
            path, f"{field}, {labels[at]}", expected=f"a time after {before * 1e-9:.9f} s ({labels[at - 1]})",
            found=f"{here * 1e-9:.9f} s, {what} the entry before", remedy="sort the entries and remove duplicates",
        )  # fmt: skip


def _not_a_number(path: Path, field: str, number: int, found: str) -> DataError:
    shown = found if len(found) <= 60 else found[:57] + "..."
    return DataError(
        path, f"{field}, line {number}", expected="finite numbers", found=repr(shown), remedy="restore that line"
    )
