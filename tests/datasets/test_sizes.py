"""Small files that unpack to gigabytes, and one number as long as a book: refused before anything is allocated."""

from __future__ import annotations

import struct
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pytest

from copilot4d.datasets.point_files import read_points
from copilot4d.datasets.text_files import nanoseconds_from
from copilot4d.errors import DataError, UsageError

ROWS = 4_000_000  # 48 MB of zeros: the limit is lowered to meet it


@pytest.fixture
def limit(monkeypatch):
    monkeypatch.setenv("COPILOT4D_MAX_SWEEP_MB", "20")


def refused(path, match):
    """The error, and that no more than twice the file was allocated on the way to it."""
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=match):
            read_points(path)
        assert tracemalloc.get_traced_memory()[1] < 2 * path.stat().st_size + 20_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_feather_file_that_unpacks_to_too_much(tmp_path, limit, compression):
    column = pa.array(np.zeros(ROWS, dtype=np.float32))
    path = tmp_path / "a.feather"
    pa.feather.write_feather(pa.table({"x": column, "y": column, "z": column}), str(path), compression=compression)
    assert path.stat().st_size < 1_000_000
    before = pa.total_allocated_bytes()
    refused(path, r"at most 20 MB once unpacked.*COPILOT4D_MAX_SWEEP_MB")
    assert pa.total_allocated_bytes() <= before + 1_000_000


def test_an_npz_file_that_unpacks_to_too_much(tmp_path, limit):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, points=np.zeros((ROWS, 3), dtype=np.float32))
    assert path.stat().st_size < 1_000_000
    refused(path, r"at most 20 MB once unpacked, found 48 MB.*COPILOT4D_MAX_SWEEP_MB")


def test_a_compressed_pcd_file_that_unpacks_to_too_much(tmp_path, limit):
    header = f"FIELDS x y z\nSIZE 4 4 4\nTYPE F F F\nCOUNT 1 1 1\nPOINTS {ROWS}\nDATA binary_compressed\n"
    path = tmp_path / "a.pcd"
    path.write_bytes(header.encode() + struct.pack("<II", 8, ROWS * 12) + bytes(8))
    refused(path, "at most 20 MB once unpacked, found 48 MB")


@pytest.mark.parametrize("suffix", [".ply", ".pcd"])
def test_one_endless_number_in_an_ascii_file(tmp_path, suffix):
    count = 2000
    head = {
        ".ply": f"ply\nformat ascii 1.0\nelement vertex {count}\n"
        + "".join(f"property float {n}\n" for n in "xyz") + "end_header\n",
        ".pcd": f"FIELDS x y z\nSIZE 4 4 4\nTYPE F F F\nCOUNT 1 1 1\nPOINTS {count}\nDATA ascii\n",
    }[suffix]  # fmt: skip
    path = tmp_path / f"a{suffix}"
    path.write_text(head + f"1 2 {'3' * 500_000}\n" + "1 2 3\n" * (count - 1))
    refused(path, "numbers of at most 60 digits.*one of 500000")


def test_a_feather_file_with_two_columns_of_one_name(tmp_path):
    column = pa.array(np.ones(5, dtype=np.float32))
    path = tmp_path / "a.feather"
    table = pa.Table.from_arrays([column] * 4, names=["x", "y", "z", "x"])
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(DataError, match="2 columns x"):
        read_points(path)


def test_the_limit_can_be_raised_and_must_be_a_number(tmp_path, monkeypatch):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, points=np.ones((10, 3), dtype=np.float32))
    monkeypatch.setenv("COPILOT4D_MAX_SWEEP_MB", "4000")
    assert len(read_points(path).points) == 10
    monkeypatch.setenv("COPILOT4D_MAX_SWEEP_MB", "much")
    with pytest.raises(UsageError, match="whole number of megabytes"):
        read_points(path)


@pytest.mark.parametrize("word", ["1e9999999", "-1e999999999999", "9" * 40, "nan", "inf", "x", ""])
def test_times_beyond_all_measure_are_no_numbers(word):
    with pytest.raises(ValueError, match=r"not a number|out of range"):
        nanoseconds_from(word, "s")


def test_a_time_of_many_digits_is_exact():
    assert nanoseconds_from("1531884156.948944123", "s") == 1531884156948944123
    assert nanoseconds_from("1e-999999", "s") == 0
