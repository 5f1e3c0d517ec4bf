"""Sweeps in .pcd files (Point Cloud Library): ascii, binary and binary_compressed are read, binary is written.

The header's VIEWPOINT is not used: points are taken to be in the lidar's own frame, as the sweep's pose expects.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from copilot4d.datasets.point_fields import (
    USED_NAMES,
    Array,
    PointFile,
    ascii_rows,
    binary_rows,
    damaged,
    from_fields,
)
from copilot4d.datasets.sizes import check_decoded_size

_KINDS = {"F": {"4", "8"}, "I": {"1", "2", "4", "8"}, "U": {"1", "2", "4", "8"}}
_LONGEST_HEADER = 1 << 16


def read_pcd(path: Path, time_names: Sequence[str] = ()) -> PointFile:
    """The fields x, y, z and, where there, intensity, origin_x, origin_y, origin_z, and one of `time_names`."""
    content = path.read_bytes()
    header, start = _parse_header(path, content)
    names, dtype, count = _layout(path, header)
    match header["DATA"]:
        case ["ascii"]:
            columns = [name for name, width in names for _ in range(width)]
            unique = [name if columns.index(name) == k else f"{name}#{k}" for k, name in enumerate(columns)]
            fields = ascii_rows(path, content[start:].split(b"\n"), unique, count)
        case ["binary"]:
            fields = _named(binary_rows(path, content, start, dtype, count), names)
        case ["binary_compressed"]:
            fields = _uncompressed(path, content, start, dtype, count, names)
        case other:
            raise damaged(path, "DATA ascii, binary or binary_compressed", f"DATA {' '.join(other)}")
    used = {*USED_NAMES, *time_names}
    return from_fields(path, {name: values for name, values in fields.items() if name.lower() in used}, time_names)


def write_pcd(path: Path, fields: Mapping[str, Array]) -> None:
    """Version 0.7, binary, one float32 field per column."""
    rows = np.empty(len(fields["x"]), dtype=[(name, "<f4") for name in fields])
    for name, values in fields.items():
        rows[name] = values
    n = len(fields)
    header = (
        f"# .PCD v0.7 - Point Cloud Data file format\nVERSION 0.7\nFIELDS {' '.join(fields)}\n"
        f"SIZE {' '.join(['4'] * n)}\nTYPE {' '.join(['F'] * n)}\nCOUNT {' '.join(['1'] * n)}\n"
        f"WIDTH {len(rows)}\nHEIGHT 1\nVIEWPOINT 0 0 0 1 0 0 0\nPOINTS {len(rows)}\nDATA binary\n"
    )
    path.write_bytes(header.encode("ascii") + rows.tobytes())


def lzf_decompress(data: bytes, size: int) -> bytes:
    """Undo LZF, the compression of binary_compressed; ValueError where the data does not give `size` bytes.

    A control byte below 32 announces that many + 1 literal bytes. Any other starts a copy of earlier output: its three
    high bits are the length - 2 (7: another byte is added), its five low bits and the next byte the distance - 1.
    """
    out, at, end = bytearray(), 0, len(data)
    try:
        while at < end and len(out) <= size:
            control = data[at]
            at += 1
            if control < 32:
                out += data[at : at + control + 1]
                at += control + 1
                continue
            length = control >> 5
            if length == 7:
                length += data[at]
                at += 1
            begin = len(out) - ((control & 31) << 8) - data[at] - 1
            at += 1
            length += 2
            if begin < 0:
                raise ValueError("a copy from before the start")
            piece = out[begin : begin + length]
            while len(piece) < length:  # the copy overlaps what it writes: it repeats
                piece += piece[: length - len(piece)]
            out += piece
    except IndexError as error:
        raise ValueError("it ends within a copy") from error
    if len(out) != size:
        raise ValueError(f"{len(out)} bytes came out where {size} were promised")
    return bytes(out)


def _parse_header(path: Path, content: bytes) -> tuple[dict[str, list[str]], int]:
    header: dict[str, list[str]] = {}
    start = 0
    while "DATA" not in header:
        end = content.find(b"\n", start, _LONGEST_HEADER)
        if end < 0:
            raise damaged(path, "a .pcd header that ends with a line DATA", "no such line")
        words = content[start:end].decode("latin-1").split()
        start = end + 1
        if words and not words[0].startswith("#"):
            header[words[0].upper()] = words[1:]
    return header, start


def _layout(path: Path, header: dict[str, list[str]]) -> tuple[list[tuple[str, int]], np.dtype[np.void], int]:
    """(field name, values per point) in order, the type of one point, and the number of points."""
    fields = header.get("FIELDS", [])
    sizes, kinds = header.get("SIZE", []), header.get("TYPE", [])
    counts = header.get("COUNT", ["1"] * len(fields))
    if not fields or not len(fields) == len(sizes) == len(kinds) == len(counts):
        raise damaged(path, "FIELDS, SIZE, TYPE and COUNT of one length in the header", "other lengths")
    for size, kind in zip(sizes, kinds, strict=True):
        if size not in _KINDS.get(kind, set()):
            raise damaged(path, "fields of TYPE F, I or U with a SIZE of 1, 2, 4 or 8", f"TYPE {kind} SIZE {size}")
    points = header.get("POINTS") or [str(_number(path, header, "WIDTH") * _number(path, header, "HEIGHT"))]
    widths = [_number(path, {"COUNT": [count]}, "COUNT") for count in counts]
    if sum(widths) > 1024:
        raise damaged(path, "at most 1024 values per point", f"a COUNT of {sum(widths)} in all")
    parts = [
        (f"{k}", f"<{kind.lower()}{size}", (w,))
        for k, (kind, size, w) in enumerate(zip(kinds, sizes, widths, strict=True))
    ]
    return list(zip(fields, widths, strict=True)), np.dtype(parts), _number(path, {"POINTS": points}, "POINTS")


def _number(path: Path, header: dict[str, list[str]], key: str) -> int:
    word = " ".join(header.get(key, []))
    if not (word.isascii() and word.isdecimal() and len(word) < 13):
        raise damaged(path, f"a number after {key} in the header", repr(word[:40]))
    return int(word)


def _named(rows: Array, names: list[tuple[str, int]]) -> dict[str, Array]:
    """The first value of each field, by the field's name. Padding fields (_) may repeat."""
    return {name: rows[str(k)][:, 0] for k, (name, width) in enumerate(names) if width}


def _uncompressed(
    path: Path, content: bytes, start: int, dtype: np.dtype[np.void], count: int, names: list[tuple[str, int]]
) -> dict[str, Array]:
    """The compressed block holds each field's values for all points, one field after the other."""
    if len(content) < start + 8:
        raise damaged(path, "the sizes of the compressed data", "the end of the file")
    compressed, size = struct.unpack_from("<II", content, start)
    if size != count * dtype.itemsize or len(content) - start - 8 < compressed:
        raise damaged(
            path, f"{count * dtype.itemsize} bytes of points", f"{size} bytes in {len(content) - start - 8} compressed"
        )
    check_decoded_size(path, size)
    try:
        data = lzf_decompress(content[start + 8 : start + 8 + compressed], size)
    except ValueError as error:
        raise damaged(path, "LZF-compressed points", error) from error
    fields, at = {}, 0
    for k, (name, width) in enumerate(names):
        kind = dtype[str(k)].base
        if width:
            fields[name] = np.frombuffer(data, kind, count * width, at).reshape(count, width)[:, 0]
        at += count * width * kind.itemsize
    return fields
