from __future__ import annotations

import struct

import numpy as np
import pytest

from copilot4d.datasets.pcd import lzf_decompress
from copilot4d.datasets.point_files import read_points


def pcd_header(data: str, points: int) -> bytes:
    return (
        "# .PCD v.7\nVERSION .7\nFIELDS x y _ z ring intensity\nSIZE 4 8 1 4 2 4\nTYPE F F U F U F\nCOUNT 1 1 3 1 1 1\n"
        f"WIDTH {points}\nHEIGHT 1\nVIEWPOINT 0 0 0 1 0 0 0\nPOINTS {points}\nDATA {data}\n"
    ).encode()


PCD_ROWS = np.array(
    [(1, 2, (7, 7, 7), 3, 11, 0.5), (4, 5, (7, 7, 7), 6, 12, 0.25)],
    dtype=[("x", "<f4"), ("y", "<f8"), ("_", "u1", (3,)), ("z", "<f4"), ("ring", "<u2"), ("intensity", "<f4")],
)


def check_pcd(path):
    file = read_points(path)
    np.testing.assert_array_equal(file.points, [[1, 2, 3], [4, 5, 6]])
    np.testing.assert_array_equal(file.intensity, [0.5, 0.25])


def test_pcd_in_its_three_encodings(tmp_path):
    path = tmp_path / "a.pcd"
    path.write_bytes(pcd_header("ascii", 2) + b"1 2 7 7 7 3 11 0.5\n4 5 7 7 7 6 12 0.25\n")
    check_pcd(path)
    path.write_bytes(pcd_header("binary", 2) + PCD_ROWS.tobytes())
    check_pcd(path)
    by_field = b"".join(np.ascontiguousarray(PCD_ROWS[name]).tobytes() for name in PCD_ROWS.dtype.names)
    literals = b"".join(
        bytes([len(piece) - 1]) + piece for piece in (by_field[k : k + 32] for k in range(0, len(by_field), 32))
    )
    sizes = struct.pack("<II", len(literals), len(by_field))
    path.write_bytes(pcd_header("binary_compressed", 2) + sizes + literals)
    check_pcd(path)


def test_lzf_by_hand():
    # literal "abc"; copy 2 + 1 bytes from 3 back; copy 2 + 7 + 3 bytes from 1 back, which repeats one byte
    data = bytes([2]) + b"abc" + bytes([1 << 5, 2]) + bytes([7 << 5, 3, 0])
    assert lzf_decompress(data, 18) == b"abcabc" + b"c" * 12
    far = (
        bytes([31]) + bytes(range(32)) + b"".join(bytes([31]) + bytes(32) for _ in range(9)) + bytes([(1 << 5) | 1, 63])
    )
    assert lzf_decompress(far, 323)[-3:] == bytes([0, 1, 2])  # the distance has 13 bits: 256 + 63 + 1 = 320
    content = bytes(k % 251 for k in range(4100))
    runs = b"".join(bytes([len(run) - 1]) + run for run in (content[k : k + 32] for k in range(0, 4100, 32)))
    assert lzf_decompress(runs + bytes([(1 << 5) | 16, 0]), 4103) == content + content[3:6]  # 16 * 256 + 0 + 1 back
    for damaged in (data[:-1], data[:2], bytes([1 << 5, 9])):
        with pytest.raises(ValueError, match=r"ends|promised|before the start"):
            lzf_decompress(damaged, 18)
