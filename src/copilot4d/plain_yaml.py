"""The one YAML reader: numbers, texts, lists and mappings, at a cost that grows with the file and no faster.

Tags, aliases, merge keys and repeated keys are refused, and so are numbers of hundreds of digits and brackets nested a
hundred deep. What looks like a date is a text.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from copilot4d.errors import DataError

MAX_CHARACTERS = 300_000  # a configuration is a page or two; anything larger is another kind of file
MAX_VALUES = 20_000  # and keys: each costs a tenth of a millisecond and more
MAX_DEPTH = 100
MAX_DIGITS = 100

_REMEDY = "write plain keys and values; tags (!...), aliases (*...) and repeated keys are not read"


def parse_yaml(text: str, *, source: str | Path = "config") -> Any:
    """YAML text -> plain values, whatever is at its top; DataError where it holds anything else."""
    if len(text) > MAX_CHARACTERS:
        raise _bad(source, f"at most {MAX_CHARACTERS} characters", f"{len(text)}", "pass a smaller file")
    try:
        return yaml.load(text, Loader=PlainLoader)
    except yaml.YAMLError as error:
        raise _bad(source, "plain values", " ".join(str(error).split()), _REMEDY) from error
    except (ValueError, TypeError, OverflowError, RecursionError, KeyError, AttributeError, IndexError) as error:
        raise _bad(source, "plain values", str(error) or type(error).__name__, _REMEDY) from error


class PlainLoader(yaml.SafeLoader):
    """PyYAML's safe loader without aliases, repeated keys, dates, and without what is large where it looks small."""

    depth = 0
    values = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """One value or key, if it is one that is read."""
        if self.check_event(yaml.AliasEvent):
            event: Any = self.peek_event()  # type: ignore[no-untyped-call]
            raise _refused(f"alias *{event.anchor}", event.start_mark)
        self.depth += 1
        self.values += 1
        if self.depth > MAX_DEPTH or self.values > MAX_VALUES:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            what = f"{MAX_DEPTH} levels" if self.depth > MAX_DEPTH else f"{MAX_VALUES} values"
            raise _refused(f"more than {what}", mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """A mapping whose keys are texts, each of them once."""
        seen: set[str] = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != "tag:yaml.org,2002:str":
                raise _refused("a key that is not a text", key_node.start_mark)
            if key_node.value in seen:
                raise _refused(f"the key {key_node.value[:60]!r} twice", key_node.start_mark)
            seen.add(key_node.value)
        return super().construct_mapping(node, deep)

    def construct_number(self, node: Any) -> Any:
        """A number of a length that a person would write."""
        if len(node.value) > MAX_DIGITS:
            raise _refused(f"a number of {len(node.value)} digits", node.start_mark)
        is_float = node.tag.endswith(":float")
        return self.construct_yaml_float(node) if is_float else self.construct_yaml_int(node)


_PLAIN = ("null", "bool", "str", "seq", "map")
PlainLoader.yaml_constructors = {
    tag: constructor
    for tag, constructor in yaml.SafeLoader.yaml_constructors.items()
    if tag is None or tag.removeprefix("tag:yaml.org,2002:") in _PLAIN
}
PlainLoader.add_constructor("tag:yaml.org,2002:int", PlainLoader.construct_number)
PlainLoader.add_constructor("tag:yaml.org,2002:float", PlainLoader.construct_number)
PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in pairs if tag != "tag:yaml.org,2002:timestamp"]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _refused(problem: str, mark: Any) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, mark)


def _bad(source: str | Path, expected: str, found: str, remedy: str) -> DataError:
    shown = found if len(found) <= 300 else f"{found[:297]}..."
    return DataError(source, "YAML", expected=expected, found=shown, remedy=remedy)
