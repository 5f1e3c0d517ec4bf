"""Large JSON tables (a list of flat records), one record at a time: nuScenes' sample_data.json is over a gigabyte."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from copilot4d.datasets.text_files import describe
from copilot4d.errors import DataError

Record = dict[str, Any]

_CHUNK = 1 << 22  # characters read at a time
_LONGEST_RECORD = 1 << 20  # what is longer than this and still does not parse is damaged, not cut by a chunk's end
_SEPARATORS = " \t\r\n,"
_RESTORE = "unpack that table again from the data set's archive"


@dataclass(frozen=True)
class Table:
    """A table on disk, and access to its records with errors that name table, record and field."""

    path: Path

    def __iter__(self) -> Iterator[Record]:
        return read_records(self.path)

    def error(self, record: Record, field: str, *, expected: str, found: str, remedy: str = _RESTORE) -> DataError:
        """A DataError about one field of one record."""
        token = record.get("token")
        where = f"record {token}, {field}" if isinstance(token, str) else f"a record without token, {field}"
        return DataError(self.path, where, expected=expected, found=found, remedy=remedy)

    def text(self, record: Record, field: str) -> str:
        """A field that must be text, such as a token."""
        value = record.get(field)
        if type(value) is not str:
            raise self.error(record, field, expected="text", found=_shown(record, field))
        return value

    def integer(self, record: Record, field: str) -> int:
        """A field that must be a whole number that fits 52 bits, such as a count or a time in microseconds."""
        value = record.get(field)
        if type(value) is not int or not 0 <= value < 1 << 52:
            raise self.error(record, field, expected="a whole number", found=_shown(record, field))
        return value

    def flag(self, record: Record, field: str) -> bool:
        """A field that must be true or false."""
        value = record.get(field)
        if type(value) is not bool:
            raise self.error(record, field, expected="true or false", found=_shown(record, field))
        return value

    def numbers(self, record: Record, field: str, count: int) -> list[float]:
        """A field that must be a list of `count` finite numbers."""
        value = record.get(field)
        if not isinstance(value, list) or len(value) != count or not all(_is_number(v) for v in value):
            raise self.error(record, field, expected=f"{count} finite numbers", found=_shown(record, field))
        return [float(v) for v in value]

    def by_token(self) -> dict[str, Record]:
        """The whole table by token; for the small ones."""
        found: dict[str, Record] = {}
        for record in self:
            token = self.text(record, "token")
            if token in found:
                raise self.duplicate(token)
            found[token] = record
        return found

    def duplicate(self, token: str) -> DataError:
        """A DataError about a token that occurs twice."""
        return DataError(
            self.path, f"record {token}, token", expected="each token once", found="it twice", remedy=_RESTORE
        )


def read_records(path: Path) -> Iterator[Record]:
    """The records of a JSON list, in order, holding only a few megabytes of the file at a time."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            yield from _parse(path, file)
    except OSError as error:
        raise DataError(
            path, "table", expected="a readable JSON table", found=describe(error), remedy=_RESTORE
        ) from error
    except UnicodeDecodeError as error:
        raise _damaged(path, "bytes that are no UTF-8 text") from error


def _parse(path: Path, file: Any) -> Iterator[Record]:
    decode = json.JSONDecoder().raw_decode
    buffer, at, ended = _more(file, "", 0)
    at = _skip(buffer, at, " \t\r\n")
    if buffer[at : at + 1] != "[":
        raise _damaged(path, f"{buffer[at : at + 20]!r} at its start, not [")
    at += 1
    while True:
        at = _skip(buffer, at, _SEPARATORS)
        if at == len(buffer) and not ended:
            buffer, at, ended = _more(file, buffer, at)
            continue
        if buffer[at : at + 1] == "]":
            return
        try:
            record, at = decode(buffer, at)
        except (ValueError, RecursionError) as error:  # JSONDecodeError, or a number too long to be one
            if not ended and len(buffer) - at < _LONGEST_RECORD:
                buffer, at, ended = _more(file, buffer, at)
                continue
            what = "an end in the middle of a record" if ended and len(buffer) - at < _LONGEST_RECORD else str(error)
            raise _damaged(path, what) from error
        if not isinstance(record, dict):
            raise _damaged(path, f"{str(record)[:40]!r} in the place of a record")
        yield record


def _more(file: Any, buffer: str, at: int) -> tuple[str, int, bool]:
    """The rest of the buffer with the next chunk behind it, the new position, and whether the file has ended."""
    chunk = file.read(_CHUNK)
    return buffer[at:] + chunk, 0, not chunk


def _skip(buffer: str, at: int, characters: str) -> int:
    while at < len(buffer) and buffer[at] in characters:
        at += 1
    return at


def _damaged(path: Path, found: str) -> DataError:
    return DataError(path, "table", expected="a whole JSON list of records", found=found, remedy=_RESTORE)


def _is_number(value: object) -> bool:
    if type(value) is int:
        return abs(value) < 1 << 53
    return type(value) is float and math.isfinite(value)


def _shown(record: Record, field: str) -> str:
    if field not in record:
        return f"no such field (fields: {', '.join(str(name) for name in list(record)[:12])})"
    shown = repr(record[field])
    return shown if len(shown) <= 60 else shown[:57] + "..."
