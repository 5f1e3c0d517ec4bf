"""What files tell without being read."""

from pathlib import Path

from copilot4d.doctor.files import check_duplicates, check_numbers, suspicious_sizes


def write(folder: Path, sizes: list[int], suffix: str = ".bin") -> list[Path]:
    paths = [folder / f"{i:06d}{suffix}" for i in range(len(sizes))]
    for i, (path, size) in enumerate(zip(paths, sizes, strict=True)):
        path.write_bytes(bytes([i % 251]) * size)
    return paths


def test_broken_points_and_sudden_drops_are_suspicious_and_slow_changes_are_not(tmp_path):
    sizes = [1600, 1504, 1440, 1301, 1200, 640, 1104, 1008, 912, 800, 0]
    suspects = suspicious_sizes(write(tmp_path, sizes), "kitti_odometry")
    assert set(suspects) == {3, 5, 10}
    assert "1301 bytes" in suspects[3]
    assert "640 bytes" in suspects[5]
    assert suspects[10] == "the file is empty"


def test_the_size_of_a_point_depends_on_the_format(tmp_path):
    paths = write(tmp_path, [1600, 1620])
    assert set(suspicious_sizes(paths, "kitti_odometry")) == {1}
    assert suspicious_sizes(paths, "nuscenes") == {}
    assert suspicious_sizes(paths, "folder") == {}  # its columns are not known here


def test_a_file_that_is_gone_is_suspicious(tmp_path):
    paths = write(tmp_path, [1600, 1600, 1600])
    paths[1].unlink()
    assert suspicious_sizes(paths, "kitti_odometry") == {1: "the file is missing"}
    assert check_duplicates("d", paths) == []


def test_cut_feather_and_npz(tmp_path):
    feather = write(tmp_path, [500], ".feather") + write(tmp_path, [500], ".npz")
    assert set(suspicious_sizes(feather, "folder")) == {0, 1}


def test_left_out_numbers_are_told_unless_the_clock_knows(tmp_path):
    paths = [Path(f"{i:06d}.bin") for i in (0, 1, 2, 5, 6, 7)]
    (finding,) = check_numbers("d", paths, clock_knows=False)
    assert "3, 4" in finding.evidence
    assert check_numbers("d", paths, clock_knows=True) == []
    assert check_numbers("d", [Path(f"{i:06d}.bin") for i in range(0, 20, 2)], clock_knows=False) == []
    assert check_numbers("d", [Path(f"15339{i * 7919:014d}.bin") for i in range(5)], clock_knows=False) == []


def test_equal_sizes_are_no_duplicates_and_a_byte_in_between_tells(tmp_path):
    paths = write(tmp_path, [40_000] * 3)
    assert check_duplicates("d", paths) == []
    content = bytearray(paths[0].read_bytes())
    paths[2].write_bytes(content)
    assert "000002.bin is 000000.bin" in check_duplicates("d", paths)[0].evidence
    content[10_000] ^= 1  # between the places that the first look samples
    paths[2].write_bytes(content)
    assert check_duplicates("d", paths) == []
