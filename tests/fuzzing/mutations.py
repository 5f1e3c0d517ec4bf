"""Damage by number: `mutate(content, generator)` changes bytes as accidents and attackers do, the same for one seed."""

from __future__ import annotations

import json
import struct
from random import Random
from typing import Any

WORDS = [
    b"nan", b"inf", b"-1", b"1e400", b"0", b"x y", b"\xff\xfe", b"\0", b"#", b": [", b"9" * 25, b"9" * 5000, b"\n\n",
    b"[" * 5000, b"&a [*a, *a]", b"<<: *a", b"!!python/object:os.system x", b"2020-13-45", b"1:" * 300, b"../../x",
]  # fmt: skip
NUMBERS = [0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**40, 10**9, 255]
VALUES: list[Any] = [
    None, True, [], {}, [None], "", "x", "../x", -1, 0, 1, 2, 10**9, 10**18, 10**400, 1e308, 1e-9, float("nan"),
    float("inf"), [1], [[]], ["x"] * 50, {"a": 1}, 3.5, "1" * 400, [10**9, 10**9], [0, 0], [-1, 4, 4],
]  # fmt: skip
KINDS = (
    "truncate", "flip", "drop line", "swap lines", "word", "append", "empty", "delete", "number", "zeros", "repeat",
    "digits", "json", "json",
)  # fmt: skip


def mutate(content: bytes, random: Random) -> tuple[str, bytes | None]:
    """What was done, and the changed bytes; None: the file is deleted."""
    kind = random.choice(KINDS)
    if kind == "json" and (changed := _mutate_json(content, random)) is not None:
        return kind, changed
    at, end = sorted(random.randrange(len(content) + 1) for _ in range(2))
    lines = content.split(b"\n")
    line = random.randrange(len(lines))
    match kind:
        case "truncate":
            return kind, content[:at]
        case "drop line":
            return kind, b"\n".join(lines[:line] + lines[line + 1 :])
        case "swap lines":
            return kind, b"\n".join(lines[line:] + lines[:line])
        case "word":
            return kind, content[:at] + random.choice(WORDS) + content[at:]
        case "append":
            return kind, content + random.choice(WORDS)
        case "empty":
            return kind, b""
        case "delete":
            return kind, None
        case "number":
            packed = struct.pack(random.choice(["<Q", ">Q"]), random.choice(NUMBERS))
            return kind, content[:at] + packed[: random.choice([4, 8])] + content[at + 8 :]
        case "zeros":
            return kind, content[:at] + bytes(end - at) + content[end:]
        case "repeat":
            return kind, content[:end] + content[at : at + 100_000] + content[end:]
        case "digits":
            return kind, _mutate_digits(content, random)
    changed = bytearray(content)
    for _ in range(random.choice([1, 1, 2, 8])):
        if changed:
            changed[random.randrange(len(changed))] ^= random.randrange(1, 256)
    return "flip", bytes(changed)


def _mutate_digits(content: bytes, random: Random) -> bytes:
    """One number of a text becomes another."""
    places = [i for i in range(len(content)) if content[i : i + 1].isdigit()][:5000]
    if not places:
        return content + b"9"
    at = random.choice(places)
    return content[:at] + random.choice([b"99999999", b"-", b"e99", b"4294967296", b"0.000000001"]) + content[at + 1 :]


def _mutate_json(content: bytes, random: Random) -> bytes | None:
    """One value of a JSON text, or of a safetensors file's header, becomes another; None where there is none."""
    length = int.from_bytes(content[:8], "little") if content[8:9] == b"{" else 0
    text = content[8 : 8 + length] if 0 < length < len(content) else content
    try:
        tree = json.loads(text)
    except ValueError:
        return None
    node, places = tree, []
    while isinstance(node, (dict, list)) and node:
        key = random.choice(list(node)) if isinstance(node, dict) else random.randrange(len(node))
        places.append((node, key))
        node = node[key]
    if not places:
        return None
    inner, key = random.choice(places)
    if random.random() < 0.15:
        del inner[key]
    else:
        inner[key] = random.choice(VALUES)
    written = json.dumps(tree).encode()
    return len(written).to_bytes(8, "little") + written + content[8 + length :] if text is not content else written
