from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather

from copilot4d.datasets.point_files import SUFFIXES, read_points, write_points
from copilot4d.errors import DataError, UsageError

RNG = np.random.default_rng(3)
POINTS = RNG.normal(0, 30, (50, 3)).astype(np.float32)
INTENSITY = RNG.random(50, dtype=np.float32)
ORIGINS = RNG.normal(0, 1, (50, 3)).astype(np.float32)
WITH_ORIGINS = (".npz", ".pcd", ".ply", ".feather")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_written_is_read_back_exactly(tmp_path, suffix):
    origins = ORIGINS if suffix in WITH_ORIGINS else None
    write_points(tmp_path / f"a{suffix}", POINTS, INTENSITY, origins)
    file = read_points(tmp_path / f"a{suffix}")
    np.testing.assert_array_equal(file.points, POINTS)
    np.testing.assert_array_equal(file.intensity, INTENSITY)
    assert file.points.dtype == file.intensity.dtype == np.float32
    if origins is None:
        assert file.origins is None
    else:
        np.testing.assert_array_equal(file.origins, ORIGINS)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_points_alone(tmp_path, suffix):
    write_points(tmp_path / f"a{suffix}", POINTS.astype(np.float64))
    file = read_points(tmp_path / f"a{suffix}")
    np.testing.assert_array_equal(file.points, POINTS)
    assert (file.intensity == 0).all() if suffix == ".bin" else file.intensity is None


def test_a_written_bin_is_kittis(tmp_path):
    write_points(tmp_path / "a.bin", POINTS, INTENSITY)
    rows = np.fromfile(tmp_path / "a.bin", dtype="<f4").reshape(-1, 4)
    np.testing.assert_array_equal(rows, np.column_stack([POINTS, INTENSITY]))


@pytest.mark.parametrize("suffix", [".bin", ".npy"])
def test_origins_have_no_place_in_bare_rows(tmp_path, suffix):
    with pytest.raises(UsageError, match="no place for ray origins"):
        write_points(tmp_path / f"a{suffix}", POINTS, origins=ORIGINS)


def test_columns_say_what_a_bin_holds(tmp_path):
    rows = np.column_stack([np.arange(50), POINTS[:, 1], POINTS[:, 0], ORIGINS, POINTS[:, 2]]).astype("<f4")
    rows.tofile(tmp_path / "a.bin")
    columns = ("intensity", "y", "x", "origin_x", "origin_y", "origin_z", "z")
    file = read_points(tmp_path / "a.bin", columns=columns)
    np.testing.assert_array_equal(file.points, POINTS)
    np.testing.assert_array_equal(file.origins, ORIGINS)
    np.testing.assert_array_equal(file.intensity, np.arange(50))


def test_nuscenes_suffix_has_five_columns(tmp_path):
    np.column_stack([POINTS, INTENSITY, np.arange(50)]).astype("<f4").tofile(tmp_path / "a.pcd.bin")
    file = read_points(tmp_path / "a.pcd.bin")
    np.testing.assert_array_equal(file.points, POINTS)
    np.testing.assert_array_equal(file.intensity, INTENSITY)


def test_npy_of_other_types(tmp_path):
    np.save(tmp_path / "a.npy", np.column_stack([POINTS, INTENSITY, INTENSITY]).astype(">f8"))
    file = read_points(tmp_path / "a.npy")
    np.testing.assert_array_equal(file.points, POINTS)
    np.testing.assert_array_equal(file.intensity, INTENSITY)
    structured = np.zeros(2, dtype=[("z", "i2"), ("ring", "u1"), ("x", "f8"), ("y", "f4")])
    structured["x"], structured["y"], structured["z"] = (1, 2), (3, 4), (5, 6)
    np.save(tmp_path / "b.npy", structured)
    np.testing.assert_array_equal(read_points(tmp_path / "b.npy").points, [[1, 3, 5], [2, 4, 6]])


def test_npz_of_columns(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", x=POINTS[:, 0], y=POINTS[:, 1], z=POINTS[:, 2], ring=np.arange(50))
    np.testing.assert_array_equal(read_points(tmp_path / "a.npz").points, POINTS)


@pytest.mark.parametrize("byte_order", ["<", ">"])
def test_ply_of_other_writers(tmp_path, byte_order):
    """An element before the vertices, doubles, unused properties, comments, Windows line ends in the header."""
    dtype = [("x", byte_order + "f8"), ("red", "u1"), ("y", byte_order + "f4"), ("z", byte_order + "i2")]
    rows = np.array([(1.5, 9, 2.5, -3), (4.5, 9, 5.5, 6)], dtype=dtype)
    name = "little" if byte_order == "<" else "big"
    header = (
        f"ply\r\nformat binary_{name}_endian 1.0\r\ncomment made by hand\r\nelement camera 1\r\nproperty uint id\r\n"
        "element vertex 2\r\nproperty double x\r\nproperty uchar red\r\nproperty float y\r\nproperty short z\r\n"
        "element face 0\r\nproperty list uchar int vertex_indices\r\nend_header\r\n"
    )
    (tmp_path / "a.ply").write_bytes(header.encode() + b"\0\0\0\1" + rows.tobytes())
    np.testing.assert_array_equal(read_points(tmp_path / "a.ply").points, [[1.5, 2.5, -3], [4.5, 5.5, 6]])


def test_ascii_ply(tmp_path):
    (tmp_path / "a.ply").write_text(
        "ply\nformat ascii 1.0\nelement strip 1\nproperty list uchar int vertex_indices\n"
        "element vertex 2\nproperty float x\nproperty float y\nproperty float z\n"
        "property float reflectance\nelement face 1\nproperty list uchar int vertex_indices\nend_header\n"
        "3 7 8 9\n1 2 3 0.5\n4 5 6e0 0.25\n3 0 1 0\n"
    )
    file = read_points(tmp_path / "a.ply")
    np.testing.assert_array_equal(file.points, [[1, 2, 3], [4, 5, 6]])
    np.testing.assert_array_equal(file.intensity, [0.5, 0.25])


def test_feather_of_other_types_and_batches(tmp_path):
    columns = {name: pa.array(POINTS[:, k].astype(np.float16)) for k, name in enumerate("xyz")}
    table = pa.table(
        {"offset_ns": pa.array(np.arange(50)), **columns, "intensity": pa.array(np.arange(50, dtype="u1"))}
    )
    feather.write_feather(table, str(tmp_path / "a.feather"), chunksize=13)
    file = read_points(tmp_path / "a.feather")
    np.testing.assert_array_equal(file.points, POINTS.astype(np.float16))
    np.testing.assert_array_equal(file.intensity, np.arange(50))


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_points_that_are_no_numbers(tmp_path, suffix, bad):
    points = POINTS.copy()
    points[17, 1] = bad
    write_points(tmp_path / f"a{suffix}", points, INTENSITY)
    with pytest.raises(DataError, match=r"1 of 50 points with NaN or infinity, the first at row 17"):
        read_points(tmp_path / f"a{suffix}")
    file = read_points(tmp_path / f"a{suffix}", drop_invalid=True)
    np.testing.assert_array_equal(file.points, np.delete(POINTS, 17, axis=0))
    np.testing.assert_array_equal(file.intensity, np.delete(INTENSITY, 17))


@pytest.mark.parametrize("has_readv", [True, False])
def test_reads_that_come_in_pieces(tmp_path, monkeypatch, has_readv):
    """Network file systems may answer a read with fewer bytes than were asked for; Windows has no readv."""
    write_points(tmp_path / "a.bin", POINTS, INTENSITY)
    readv, read = os.readv, os.read
    monkeypatch.setattr("copilot4d.datasets.numpy_files._HAS_READV", has_readv)
    monkeypatch.setattr(os, "readv", lambda descriptor, buffers: readv(descriptor, (buffers[0][:101],)))
    monkeypatch.setattr(os, "read", lambda descriptor, count: read(descriptor, min(count, 101)))
    file = read_points(tmp_path / "a.bin")
    np.testing.assert_array_equal(file.points, POINTS)
    np.testing.assert_array_equal(file.intensity, INTENSITY)


def test_a_file_that_shrinks_while_it_is_read(tmp_path, monkeypatch):
    write_points(tmp_path / "a.bin", POINTS, INTENSITY)
    monkeypatch.setattr(os, "readv", lambda descriptor, buffers: 0)
    with pytest.raises(DataError, match="only 0 bytes could be read"):
        read_points(tmp_path / "a.bin")


def test_numbers_too_large_to_square_are_still_numbers(tmp_path):
    points = POINTS.copy()
    points[3] = 1e30
    write_points(tmp_path / "a.bin", points)
    np.testing.assert_array_equal(read_points(tmp_path / "a.bin").points, points)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_no_points_is_an_error(tmp_path, suffix):
    write_points(tmp_path / f"a{suffix}", np.zeros((0, 3)))
    with pytest.raises(DataError, match="at least one point"):
        read_points(tmp_path / f"a{suffix}")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_truncated_file_is_named(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    write_points(path, POINTS, INTENSITY)
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(DataError) as caught:
        read_points(path)
    assert caught.value.path == path
    assert "copy the file again" in caught.value.remedy


def test_missing_columns_are_named(tmp_path):
    feather.write_feather(pa.table({"x": [1.0], "y": [2.0]}), str(tmp_path / "a.feather"))
    with pytest.raises(DataError, match="expected x, y and z, found x, y"):
        read_points(tmp_path / "a.feather")
    feather.write_feather(pa.table({"x": ["1"], "y": [2.0], "z": [2.0]}), str(tmp_path / "a.feather"))
    with pytest.raises(DataError, match="column x: expected numbers, found the type string"):
        read_points(tmp_path / "a.feather")
    np.savez(tmp_path / "a.npz", x=POINTS[:, 0])
    with pytest.raises(DataError, match="expected x, y and z, found x"):
        read_points(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": [1.0, 2.0], "y": [1.0], "z": [1.0, 2.0]}, "column y: expected 2 numbers, as x has, found 1"),
        ({"x": [[1.0]], "y": [[1.0]], "z": [[1.0]]}, "expected one number per point, found shape"),
        ({"points": [[1.0, 2.0]]}, r"points: expected shape \(1, 3\), found shape \(1, 2\)"),
        ({"points": 1.0}, r"points: expected shape \(0, 3\), found shape \(\)"),
        (
            {"points": [[1.0, 2.0, 3.0]], "intensity": [1.0, 2.0]},
            r"intensity: expected shape \(1,\), found shape \(2,\)",
        ),
        ({"points": [[1.0, 2.0, 3.0]], "origins": [1.0, 2.0, 3.0]}, r"origins: expected shape \(1, 3\)"),
        ({"points": [["a", "b", "c"]]}, "points: expected an array of real numbers"),
    ],
)
def test_npz_of_wrong_shapes(tmp_path, arrays, message):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(DataError, match=message):
        read_points(tmp_path / "a.npz")


def test_npy_of_wrong_shapes(tmp_path):
    for values in (np.zeros(3), np.zeros((4, 2)), np.zeros(2, dtype=[("x", "f4", 2), ("y", "f4"), ("z", "f4")])):
        np.save(tmp_path / "a.npy", values)
        with pytest.raises(DataError, match=r"expected (an array|one number per point)"):
            read_points(tmp_path / "a.npy")


def test_pickles_are_not_loaded(tmp_path):
    np.save(tmp_path / "a.npy", np.array([{"x": 1}], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "a.npz", points=np.array([{"x": 1}], dtype=object))
    for name in ("a.npy", "a.npz"):
        with pytest.raises(DataError, match="allow_pickle"):
            read_points(tmp_path / name)


def test_other_suffixes_and_folders(tmp_path):
    with pytest.raises(DataError, match=r"expected one of \.bin"):
        read_points(tmp_path / "a.las")
    with pytest.raises(UsageError, match=r"cannot write \.las"):
        write_points(tmp_path / "a.las", POINTS)
    with pytest.raises(DataError, match="no such file"):
        read_points(tmp_path / "a.bin")
    (tmp_path / "b.bin").mkdir()
    with pytest.raises(DataError, match="directory"):
        read_points(tmp_path / "b.bin")


def test_pyarrow_is_not_imported_for_other_formats(tmp_path):
    write_points(tmp_path / "a.bin", POINTS)
    code = (
        "import sys; from copilot4d.datasets.point_files import read_points; "
        f"read_points({str(tmp_path / 'a.bin')!r}); sys.exit('pyarrow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
