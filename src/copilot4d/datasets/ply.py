"""Sweeps in .ply files: ascii and binary of either byte order are read, binary little-endian is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from copilot4d.datasets.point_fields import Array, PointFile, ascii_rows, binary_rows, damaged, from_fields
from copilot4d.errors import DataError

_TYPES = {
    "char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4", "float": "f4",
    "double": "f8", "int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4", "uint32": "u4",
    "float32": "f4", "float64": "f8",
}  # fmt: skip
_BYTE_ORDERS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
_LONGEST_HEADER = 1 << 16


@dataclass
class _Element:
    name: str
    count: int
    properties: dict[str, str] = field(default_factory=dict)  # name -> numpy type without byte order
    has_lists: bool = False

    def dtype(self, byte_order: str) -> np.dtype[np.void]:
        return np.dtype([(name, byte_order + kind) for name, kind in self.properties.items()])


def read_ply(path: Path, time_names: Sequence[str] = ()) -> PointFile:
    """The `vertex` element's x, y, z and, where there, intensity, origin_x, origin_y, origin_z and a time."""
    content = path.read_bytes()
    byte_order, elements, start = _parse_header(path, content)
    skipped_bytes = skipped_lines = 0
    for element in elements:
        if element.has_lists and (byte_order or element.name == "vertex"):
            raise DataError(
                path, f"element {element.name}", expected="plain properties in and before the element vertex",
                found="a list property", remedy="write the vertices first and without lists",
            )  # fmt: skip
        if element.name != "vertex":
            skipped_lines += element.count
            skipped_bytes += element.count * (element.dtype(byte_order).itemsize if byte_order else 0)
            continue
        if not byte_order:
            lines = content[start:].split(b"\n")[skipped_lines:]
            return from_fields(path, ascii_rows(path, lines, list(element.properties), element.count), time_names)
        rows = binary_rows(path, content, start + skipped_bytes, element.dtype(byte_order), element.count)
        return from_fields(path, {name: rows[name] for name in element.properties}, time_names)
    raise DataError(
        path, "header", expected="an element `vertex`", found=", ".join(e.name for e in elements) or "no element",
        remedy="write the points as the element vertex",
    )  # fmt: skip


def write_ply(path: Path, fields: Mapping[str, Array]) -> None:
    """Binary little-endian, one float property per field."""
    rows = np.empty(len(fields["x"]), dtype=[(name, "<f4") for name in fields])
    for name, values in fields.items():
        rows[name] = values
    properties = "".join(f"property float {name}\n" for name in fields)
    header = f"ply\nformat binary_little_endian 1.0\nelement vertex {len(rows)}\n{properties}end_header\n"
    path.write_bytes(header.encode("ascii") + rows.tobytes())


def _parse_header(path: Path, content: bytes) -> tuple[str, list[_Element], int]:
    """The byte order ("" for ascii), the elements in order, and where the data starts."""
    head = content[:_LONGEST_HEADER]
    end = head.find(b"end_header")
    line_end = head.find(b"\n", end)
    if not head.startswith(b"ply") or end < 0 or line_end < 0:
        raise damaged(path, "a .ply file (`ply` ... `end_header`)", "no such header")
    byte_order: str | None = None
    elements: list[_Element] = []
    for line in head[:end].decode("latin-1").splitlines()[1:]:
        match line.split():
            case ["format", name, *_] if name in _BYTE_ORDERS:
                byte_order = _BYTE_ORDERS[name]
            case ["element", name, count] if count.isascii() and count.isdecimal() and len(count) < 13:
                elements.append(_Element(name, int(count)))
            case ["property", "list", _, _, _] if elements:
                elements[-1].has_lists = True
            case ["property", kind, name] if elements and kind in _TYPES and name not in elements[-1].properties:
                elements[-1].properties[name] = _TYPES[kind]
            case [] | ["comment" | "obj_info", *_]:
                pass
            case _:
                raise damaged(path, "lines of a .ply header", f"the line {line[:60]!r}")
    if byte_order is None:
        raise damaged(path, "a line `format` in the header", "none that is ascii or binary")
    return byte_order, elements, line_end + 1
