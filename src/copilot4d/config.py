"""Typed configuration on disk: keyword-only dataclasses to YAML and back.

A file can hold numbers, texts, lists and mappings, nothing else: tags, class paths, aliases, unknown keys and repeated
keys are errors that name the key, and the nearest one that exists.

    config = load_config(TrainingConfig, "run/config.yaml")
    save_config(config, "run/config.yaml")
"""

from __future__ import annotations

import dataclasses
import difflib
import types
from collections.abc import Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

from copilot4d import plain_yaml
from copilot4d.errors import DataError, UsageError

C = TypeVar("C")

MAX_FILE_BYTES = 1_000_000  # a configuration is a page or two; anything larger is another kind of file


def load_config(cls: type[C], path: str | Path) -> C:
    """Read a dataclass from a YAML file."""
    return from_mapping(cls, read_yaml(path), source=path)


def save_config(config: Any, path: str | Path) -> None:
    """Write a dataclass as YAML, keys in the order of the fields."""
    Path(path).write_text(to_yaml(to_mapping(config)), encoding="utf-8")


def to_yaml(mapping: Mapping[str, Any]) -> str:
    """Plain values -> YAML text."""
    return yaml.safe_dump(dict(mapping), sort_keys=False, allow_unicode=True, width=110)


def read_yaml(path: str | Path) -> dict[str, Any]:
    """The mapping in a YAML file, of plain values only."""
    path = Path(path)
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise _bad(path, "file", f"at most {MAX_FILE_BYTES} bytes of YAML", f"{size} bytes", "pass a config file")
        return parse_yaml(path.read_text(encoding="utf-8"), source=path)
    except OSError as error:
        raise _bad(path, "file", "a readable YAML file", str(error), "check the path") from error
    except UnicodeDecodeError as error:
        raise _bad(path, "file", "UTF-8 text", "other bytes", "save the file as UTF-8") from error


def parse_yaml(text: str, *, source: str | Path = "config") -> dict[str, Any]:
    """YAML text -> a mapping of plain values. Tags, aliases and repeated keys are refused."""
    value = plain_yaml.parse_yaml(text, source=source)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _bad(source, "YAML", "keys and values", f"a {type(value).__name__}", "write `key: value` lines")
    return value


def to_mapping(config: Any) -> dict[str, Any]:
    """A dataclass as plain values: what YAML and JSON can hold."""
    if not dataclasses.is_dataclass(config) or isinstance(config, type):
        raise UsageError(f"a configuration must be a dataclass instance, got {type(config).__name__}")
    return {f.name: _plain(getattr(config, f.name)) for f in dataclasses.fields(config) if f.init}


def from_mapping(cls: type[C], mapping: Mapping[str, Any], *, source: str | Path = "config") -> C:
    """Plain values -> the dataclass, each value checked against its field's type."""
    return _build(cls, mapping, source, "")  # type: ignore[no-any-return]


def default_values(config: Any) -> dict[str, Any]:
    """What the fields of a dataclass, and of those inside it, are by default; plain values."""
    found: dict[str, Any] = {}
    for f in dataclasses.fields(config):
        value = getattr(config, f.name)
        if f.default is not dataclasses.MISSING:
            found[f.name] = _plain(f.default)
        elif f.default_factory is not dataclasses.MISSING:
            found[f.name] = _plain(f.default_factory())
        elif dataclasses.is_dataclass(value):
            found[f.name] = default_values(value)
    return found


def completed(stated: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values with defaults where they say nothing."""
    full = {**defaults, **stated}
    for key, default in defaults.items():
        if isinstance(default, Mapping) and isinstance(full[key], Mapping):
            full[key] = completed(full[key], default)
    return full


def differences(a: Mapping[str, Any], b: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Dotted keys at which two mappings of plain values differ."""
    changed: list[str] = []
    for key in dict.fromkeys((*a, *b)):
        left, right = a.get(key), b.get(key)
        if isinstance(left, Mapping) and isinstance(right, Mapping):
            changed += differences(left, right, f"{prefix}{key}.")
        elif left != right or (key in a) != (key in b):
            changed.append(f"{prefix}{key}")
    return changed


def _bad(source: str | Path, field: str, expected: str, found: str, remedy: str) -> DataError:
    shown = found if len(found) <= 300 else f"{found[:297]}..."
    return DataError(source, field, expected=expected, found=shown, remedy=remedy)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return to_mapping(value)
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    raise UsageError(
        f"a configuration holds numbers, texts, lists and mappings; {type(value).__name__} is none of them"
    )


@cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _build(cls: type, value: Any, source: str | Path, where: str) -> Any:
    if not isinstance(value, Mapping):
        names = ", ".join(f.name for f in dataclasses.fields(cls) if f.init)
        remedy = f"write the fields of {cls.__name__}: {names}"
        raise _bad(source, where.rstrip(".") or "config", "keys and values", repr(value), remedy)
    fields = {f.name: f for f in dataclasses.fields(cls) if f.init}
    value = _under_present_names(cls, value)
    for key in value:
        if key not in fields:
            near = difflib.get_close_matches(str(key), fields, n=1, cutoff=0.0)
            hint = f"the nearest is {near[0]!r}; " if near else ""
            expected = f"a field of {cls.__name__} ({hint}all: {', '.join(fields)})"
            raise _bad(source, f"{where}{key}", expected, f"{key!r}", "correct or remove the key")
    hints, arguments = _hints(cls), {}
    for name, field in fields.items():
        if name in value:
            arguments[name] = _convert(hints[name], value[name], source, f"{where}{name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise _bad(source, f"{where}{name}", "a value", "no such key", "add the key")
    return cls(**arguments)


def _under_present_names(cls: type, value: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """Fields that had another name when a file was written: `renamed` of the class says which (old to present)."""
    renamed: Mapping[str, str] = getattr(cls, "renamed", {})
    old = [key for key in value if key in renamed and renamed[key] not in value]
    return {renamed.get(key, key): value[key] for key in value} if old else value


def _convert(hint: Any, value: Any, source: str | Path, where: str) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _convert_union(args, value, source, where)
    if origin is Literal:
        if any(value == a and type(value) is type(a) for a in args):
            return value
        raise _bad(source, where, "one of " + ", ".join(map(repr, args)), repr(value), "choose one of them")
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _build(hint, value, source, f"{where}.")
    if origin in (list, tuple):
        return _convert_sequence(origin, args, value, source, where)
    if origin in (dict, Mapping):
        if not isinstance(value, Mapping):
            raise _bad(source, where, "keys and values", repr(value), "write `key: value` lines")
        return {k: _convert(args[1], v, source, f"{where}.{k}") for k, v in value.items()}
    if isinstance(hint, type) and issubclass(hint, Enum):
        values = [member.value for member in hint]
        if value in values:
            return hint(value)
        raise _bad(source, where, "one of " + ", ".join(map(repr, values)), repr(value), "choose one of them")
    return _convert_scalar(hint, value, source, where)


def _convert_scalar(hint: Any, value: Any, source: str | Path, where: str) -> Any:
    if hint is Any:
        return value
    if hint is float and not isinstance(value, bool):
        if isinstance(value, (int, float)):
            try:
                return float(value)
            except OverflowError:
                raise _bad(source, where, "a number below 1e308", "one of hundreds of digits", "correct it") from None
        try:  # YAML 1.1 reads 1e-3, without a dot, as a text
            return float(value)
        except (TypeError, ValueError):
            pass
    elif hint is Path and isinstance(value, str):
        return Path(value)
    elif hint is int and isinstance(value, bool):
        pass  # True is an int to Python, not to a person
    elif hint in (bool, int, str, type(None)) and isinstance(value, hint):
        return value
    name = "null" if hint is type(None) else getattr(hint, "__name__", str(hint))
    raise _bad(source, where, f"a value of type {name}", repr(value), "correct the value")


def _convert_union(args: tuple[Any, ...], value: Any, source: str | Path, where: str) -> Any:
    if value is None and type(None) in args:
        return None
    options = [a for a in args if a is not type(None)]
    for option in options:
        if len(options) == 1:  # Optional[X]: X's own message is the clearest
            return _convert(option, value, source, where)
        try:
            return _convert(option, value, source, where)
        except DataError:
            continue
    names = " or ".join(getattr(a, "__name__", str(a)) for a in args)
    raise _bad(source, where, names, repr(value), "correct the value")


def _convert_sequence(origin: Any, args: tuple[Any, ...], value: Any, source: str | Path, where: str) -> Any:
    if not isinstance(value, (list, tuple)):
        raise _bad(source, where, "a list", repr(value), "write [a, b, ...]")
    if origin is tuple and not (len(args) == 2 and args[1] is Ellipsis):
        if len(value) != len(args):
            raise _bad(source, where, f"{len(args)} values", f"{len(value)}: {list(value)!r}", "correct the list")
        hints = list(args)
    else:
        hints = [args[0]] * len(value)
    return origin(_convert(h, v, source, f"{where}[{i}]") for i, (h, v) in enumerate(zip(hints, value, strict=True)))
