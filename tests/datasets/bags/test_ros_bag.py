from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from copilot4d import open_dataset
from copilot4d.datasets.bags import bag as bag_module
from copilot4d.datasets.bags import storage
from copilot4d.errors import Copilot4dWarning, DataError, UsageError
from copilot4d.geometry import Drive, se3
from tests.datasets.trees import small_drive
from tests.support.bags import KINDS, START_NS, BagWriter, bag_path, columns_of, write_bag


@pytest.fixture(scope="module")
def drive():
    return small_drive(6)


def check(read, drive, atol=1e-9):
    """Points and intensities bit for bit; poses up to the quaternion's rounding."""
    np.testing.assert_allclose(read.world_from_lidar, drive.world_from_lidar, atol=atol)
    np.testing.assert_array_equal(read.timestamps_ns, drive.timestamps_ns + START_NS)
    for sweep, true in zip(read, drive, strict=True):
        np.testing.assert_array_equal(sweep.points, true.points)
        np.testing.assert_array_equal(sweep.intensity, true.intensity)
        assert sweep.origins is None
        assert sweep.timestamp_ns == true.timestamp_ns + START_NS


@pytest.mark.parametrize("kind", KINDS)
def test_a_bag_gives_the_drive_it_was_made_from(tmp_path, drive, kind):
    path = write_bag(tmp_path, drive, kind)
    dataset = open_dataset(path)
    assert (dataset.format, dataset.names) == ("ros_bag", ("drive",))
    check(dataset["drive"], drive)


@pytest.mark.parametrize(
    ("kind", "compress"), [("bag", "lz4"), ("bag", "bz2"), ("mcap", "storage"), ("db3", "message")]
)
def test_compressed_bags_too(tmp_path, drive, kind, compress):
    check(open_dataset(write_bag(tmp_path, drive, kind, compress=compress))["drive"], drive)


def test_files_that_were_compressed_as_a_whole_get_the_command_that_helps(tmp_path, drive):
    path = write_bag(tmp_path, drive, "db3", compress="file")
    with pytest.raises(DataError, match=r"compression zstd of each file.*zstd -d"):
        open_dataset(path)["drive"]


def test_a_folder_of_bags_is_a_data_set_of_drives(tmp_path, drive):
    for name, kind in (("b", "bag"), ("a", "mcap-file"), ("c", "db3")):
        write_bag(tmp_path, drive, kind, name=name)
    dataset = open_dataset(tmp_path)
    assert dataset.names == ("a", "b", "c")
    for name in dataset:
        check(dataset[name], drive)


@pytest.mark.parametrize("poses", ["tf", "pose"])
@pytest.mark.parametrize("kind", ["bag", "mcap-file"])
def test_other_sources_of_poses(tmp_path, drive, kind, poses):
    path = write_bag(tmp_path, drive, kind, poses=poses)
    if poses == "pose":
        with pytest.warns(Copilot4dWarning, match=r"/pose does not say which frame.*pose_of: FRAME"):
            check(open_dataset(path)["drive"], drive)
    else:
        check(open_dataset(path)["drive"], drive)


def test_poses_are_interpolated_to_the_stamps(tmp_path, drive):
    """Odometry at 20 Hz, between the sweeps: on the straight line between its neighbours."""
    path = bag_path(tmp_path, "mcap-file")
    with BagWriter(path, "mcap-file") as bag:
        for k in range(8):
            stamp = START_NS + 50_000_000 * k
            bag.add("/odom", bag.odometry(stamp, se3.from_yaw(0.02 * k, (1.0 * k, 0, 0))), stamp)
        for i, sweep in enumerate(drive[:3]):
            stamp = START_NS + 100_000_000 * i + 25_000_000
            bag.add("/points", bag.cloud(stamp, columns_of(sweep)), stamp)
    read = open_dataset(path)["drive"]
    np.testing.assert_allclose(read.world_from_lidar[:, 0, 3], [0.5, 2.5, 4.5], atol=1e-9)
    np.testing.assert_allclose(se3.yaw_of(read.world_from_lidar), [0.01, 0.05, 0.09], atol=1e-9)


def test_sweeps_without_poses_are_left_out_and_counted(tmp_path, drive):
    path = bag_path(tmp_path, "mcap-file")
    with BagWriter(path, "mcap-file") as bag:
        for i, sweep in enumerate(drive):
            stamp = START_NS + sweep.timestamp_ns
            bag.add("/points", bag.cloud(stamp, columns_of(sweep)), stamp)
            if i >= 2:
                bag.add("/odom", bag.odometry(stamp, sweep.world_from_lidar), stamp)
    with pytest.warns(Copilot4dWarning, match="2 of 6 sweeps of /points have no pose"):
        read = open_dataset(path)["drive"]
    check(read, drive[2:])


def odd(sweep):
    """Fields in another order and other types, among fields of no interest."""
    return {
        "ring": np.arange(len(sweep.points), dtype=np.uint16), "z": sweep.points[:, 2].astype(np.float64),
        "intensity": sweep.intensity, "y": sweep.points[:, 1], "flags": np.ones(len(sweep.points), np.int8),
        "x": sweep.points[:, 0].astype(np.float64),
    }  # fmt: skip


@pytest.mark.parametrize("cloud", [{}, {"padding": 5}, {"big": True, "padding": 3}, {"height": 7, "row_padding": 9}])
@pytest.mark.parametrize("kind", ["bag", "mcap-file"])
def test_fields_of_any_order_type_padding_and_byte_order(tmp_path, drive, kind, cloud):
    check(open_dataset(write_bag(tmp_path, drive, kind, columns=odd, **cloud))["drive"], drive)


def test_rows_that_are_no_returns_are_dropped(tmp_path, drive):
    def organised(sweep):
        points = np.concatenate([sweep.points, [[np.nan] * 3, [0, 0, 0], [1, np.inf, 2]]]).astype(np.float32)
        return columns_of(replace(sweep, points=np.zeros((0, 3), np.float32), intensity=None)) | {
            name: points[:, k] for k, name in enumerate("xyz")
        } | {"intensity": np.append(sweep.intensity, np.zeros(3, np.float32))}  # fmt: skip

    check(open_dataset(write_bag(tmp_path, drive, columns=organised))["drive"], drive)


def test_the_drive_can_be_sent_to_a_worker(tmp_path, drive):
    read = open_dataset(write_bag(tmp_path, drive))["drive"]
    check(pickle.loads(pickle.dumps(read)), drive)


def test_opening_and_reading_touch_only_what_they_need(tmp_path, monkeypatch):
    """A sweep of 1.2 MB: indexing reads a few hundred bytes of each, reading one reads that one."""
    big = small_drive(6, points=100_000)
    for kind in KINDS:
        (tmp_path / kind).mkdir()
        path = write_bag(tmp_path / kind, big, kind)
        read_bytes = []
        real = bag_module.Bag.raw

        def counted(self, place, most=None, real=real, read_bytes=read_bytes):
            data = real(self, place, most)
            read_bytes.append(len(data))
            return data

        monkeypatch.setattr(bag_module.Bag, "raw", counted)
        drive = open_dataset(path)["drive"]
        assert sum(read_bytes) < 20_000, kind
        read_bytes.clear()
        assert len(drive[3].points) == 100_000
        assert 1_600_000 < sum(read_bytes) < 1_700_000, kind
        monkeypatch.undo()


# --- what is ambiguous or wrong


def two_lidars(tmp_path, drive):
    path = bag_path(tmp_path, "mcap-file")
    with BagWriter(path, "mcap-file") as bag:
        for sweep in drive:
            stamp = START_NS + sweep.timestamp_ns
            bag.add("/front", bag.cloud(stamp, columns_of(sweep), frame="front"), stamp)
            bag.add("/rear", bag.cloud(stamp + 20_000_000, columns_of(sweep), frame="rear"), stamp + 20_000_000)
            bag.add("/odom", bag.odometry(stamp, sweep.world_from_lidar, child="base"), stamp)
        mounts = ("base", "front", se3.from_yaw(0.0, (1, 0, 0))), ("base", "rear", se3.from_yaw(np.pi, (-1, 0, 0)))
        bag.add("/tf_static", bag.tf(START_NS, *mounts), START_NS)
    return path


def test_several_lidars_are_listed_chosen_or_merged(tmp_path):
    still = small_drive(3)
    still = Drive.from_sweeps("s", [replace(s, world_from_lidar=se3.identity()) for s in still])
    path = two_lidars(tmp_path, still)
    with pytest.raises(UsageError, match=r"several lidar topics: /front \(3 messages\); /rear.*`lidar_topics`"):
        open_dataset(path)["drive"]
    rear = open_dataset(path, lidar_topics=["/rear"])["drive"]
    np.testing.assert_allclose(rear.world_from_lidar[0], se3.from_yaw(np.pi, (-1, 0, 0)), atol=1e-12)
    merged = open_dataset(path, lidar_topics=["/front", "/rear"])["drive"][1]
    points = still[1].points
    np.testing.assert_allclose(merged.points[:7], points, atol=1e-6)
    np.testing.assert_allclose(merged.points[7:], points * [-1, -1, 1] + [-2, 0, 0], atol=1e-5)
    np.testing.assert_allclose(merged.origins, [[0, 0, 0]] * 7 + [[-2, 0, 0]] * 7, atol=1e-6)
    (tmp_path / "drive.copilot4d.yaml").write_text("version: 1\nlidar: [/rear]\nego_box: [-1, -1, -1, 1, 1, 1]\n")
    described = open_dataset(path)["drive"]
    assert described.ego_box.tolist() == [-1, -1, -1, 1, 1, 1]
    np.testing.assert_array_equal(described.world_from_lidar, rear.world_from_lidar)


def test_a_lidar_that_moved_between_the_two_stamps_is_merged_where_it_was(tmp_path):
    """The rear lidar fires 20 ms later: at 10 m/s its points lie 0.2 m further ahead than the mount alone says."""
    moving = Drive.from_sweeps("m", [
        replace(s, world_from_lidar=se3.from_yaw(0.0, (1.0 * i, 0, 0))) for i, s in enumerate(small_drive(3))
    ])  # fmt: skip
    merged = open_dataset(two_lidars(tmp_path, moving), lidar_topics=["/front", "/rear"])["drive"][0]
    expected = moving[0].points * [-1, -1, 1] + [-2 + 0.2, 0, 0]
    np.testing.assert_allclose(merged.points[7:], expected, atol=1e-4)
    np.testing.assert_allclose(merged.origins[7:, 0], -1.8, atol=1e-6)


def test_missing_topics(tmp_path, drive):
    path = bag_path(tmp_path, "mcap-file")
    with BagWriter(path, "mcap-file") as bag:
        bag.add("/odom", bag.odometry(START_NS, se3.identity()), START_NS)
    with pytest.raises(DataError, match=r"topics: expected a topic of .*PointCloud2.*/odom \(Odometry, 1\)"):
        open_dataset(path)["drive"]
    without = write_bag(tmp_path, drive, name="without", poses="none")
    with pytest.raises(DataError, match=r"poses: expected odometry.*write_estimated_poses"):
        open_dataset(without)["without"]
    loose = open_dataset(without, require_poses=False)
    assert not loose.has_poses("without")
    np.testing.assert_array_equal(loose["without"].world_from_lidar, se3.identity((6,)))
    good = write_bag(tmp_path, drive, name="good")
    with pytest.raises(UsageError, match=r"`lidar_topics` /point: there is none.*did you mean /points\?"):
        open_dataset(good, lidar_topics=["/point"])["good"]
    with pytest.raises(UsageError, match=r"`pose_topic` /points: it holds sensor_msgs/msg/PointCloud2"):
        open_dataset(good, pose_topic="/points")["good"]


def test_poses_of_another_frame_need_to_be_joined(tmp_path, drive):
    path = bag_path(tmp_path, "mcap-file")
    with BagWriter(path, "mcap-file") as bag:
        for sweep in drive:
            stamp = START_NS + sweep.timestamp_ns
            bag.add("/points", bag.cloud(stamp, columns_of(sweep)), stamp)
            bag.add("/odom", bag.odometry(stamp, sweep.world_from_lidar, child="base_link"), stamp)
    with pytest.raises(DataError, match=r"transforms from base_link.*lidar's frame lidar.*pose_of: lidar"):
        open_dataset(path)["drive"]
    (tmp_path / "drive.copilot4d.yaml").write_text("version: 1\npose_of: lidar\n")
    check(open_dataset(path)["drive"], drive)
    (tmp_path / "drive.copilot4d.yaml").write_text(
        "version: 1\nego_from_lidar: {translation: [1, 0, 2], quaternion_wxyz: [1, 0, 0, 0]}\n"
    )
    read = open_dataset(path)["drive"]
    np.testing.assert_allclose(read.world_from_lidar[0, :3, 3], drive.world_from_lidar[0, :3, 3] + [1, 0, 2])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("keep", [0.0, 0.3, 0.7, 0.98])
def test_truncated_files_get_one_clear_error(tmp_path, drive, kind, keep):
    path = write_bag(tmp_path, small_drive(6, points=3000), kind)
    file = path if path.is_file() else next(f for f in path.iterdir() if f.suffix in (".db3", ".mcap"))
    data = file.read_bytes()
    file.write_bytes(data[: int(keep * len(data))])
    with pytest.raises(DataError, match=r"expected .*found .*To fix it"):
        list(open_dataset(path)["drive"])


def test_a_clock_that_jumps_is_told_with_topic_and_time(tmp_path, drive):
    path = bag_path(tmp_path, "mcap-file")
    with BagWriter(path, "mcap-file") as bag:
        for i, sweep in enumerate(drive):
            time = START_NS + sweep.timestamp_ns
            stamp = time - (10**9 if i >= 3 else 0)
            bag.add("/points", bag.cloud(stamp, columns_of(sweep)), time)
            bag.add("/odom", bag.odometry(stamp, sweep.world_from_lidar), time)
    with pytest.raises(
        DataError, match=r"topic /points, message recorded at 1700000000\.300000000 s.*stamps that incre"
    ):
        open_dataset(path)["drive"]
    (tmp_path / "drive.copilot4d.yaml").write_text("version: 1\nclock: recorder\n")
    check(open_dataset(path)["drive"], drive)


def test_clouds_that_contradict_themselves_are_told_with_topic_and_time(tmp_path, drive):
    path = bag_path(tmp_path, "bag")
    with BagWriter(path, "bag") as bag:
        for i, sweep in enumerate(drive):
            stamp = START_NS + sweep.timestamp_ns
            message = bag.cloud(stamp, columns_of(sweep))
            if i == 1:
                message.data = message.data[:-4]
            elif i == 2:
                message.fields[0].datatype = 11
            elif i == 3:
                message.fields[1].name = "why"
            elif i == 4:
                message.point_step = 8
            bag.add("/points", message, stamp)
            bag.add("/odom", bag.odometry(stamp, sweep.world_from_lidar), stamp)
    read = open_dataset(path)["drive"]
    for frame, words in ((1, "108 bytes of data"), (2, "datatype 11"), (3, "no field y"), (4, "ends beyond")):
        with pytest.raises(DataError, match=rf"topic /points, message recorded at 1700000000\.{frame}0+ s.*{words}"):
            read[frame]
    np.testing.assert_array_equal(read[5].points, drive[5].points)


def test_a_pose_that_is_none_is_told_with_topic_and_time(tmp_path, drive):
    path = bag_path(tmp_path, "mcap-file")
    with BagWriter(path, "mcap-file") as bag:
        for i, sweep in enumerate(drive):
            stamp = START_NS + sweep.timestamp_ns
            bag.add("/points", bag.cloud(stamp, columns_of(sweep)), stamp)
            message = bag.odometry(stamp, sweep.world_from_lidar)
            if i == 2:
                message.pose.pose.orientation.w = message.pose.pose.orientation.z = 0.0
            bag.add("/odom", message, stamp)
    with pytest.raises(DataError, match=r"topic /odom, message recorded at 1700000000\.2.*quaternion of length 0"):
        open_dataset(path)["drive"]


@pytest.mark.parametrize(("text", "words"), [
    ("lidar: /points", "version: expected 1"), ("version: 1\nlidars: /points", "did you mean `lidar`"),
    ("version: 1\nlidar: 7", "a topic or a list"), ("version: 1\nclock: gps", "header or recorder"),
    ("version: 1\ntime_unit: min", "one of ns, us, ms, s"), ("version: 1\ndeskew: maybe", "true or false"),
    ("- a", "`key: value` lines"),
])  # fmt: skip
def test_descriptions_that_are_wrong(tmp_path, drive, text, words):
    path = write_bag(tmp_path, drive)
    (tmp_path / "drive.copilot4d.yaml").write_text(text)
    with pytest.raises(DataError, match=words):
        open_dataset(path)["drive"]


def test_topics_are_for_bags_only(tmp_path, drive):
    from copilot4d.datasets import write_folder

    with pytest.raises(UsageError, match="topics are chosen for bags"):
        open_dataset(write_folder(drive, tmp_path / "f"), pose_topic="/odom")


def test_satellite_fixes_and_an_imu(tmp_path, drive):
    """North at 10 m/s, looking north: x of the lidar points north, y west."""
    path = bag_path(tmp_path, "bag")
    north = se3.from_yaw(np.pi / 2)
    with BagWriter(path, "bag") as bag:
        for i, sweep in enumerate(drive):
            stamp = START_NS + sweep.timestamp_ns
            bag.add("/points", bag.cloud(stamp, columns_of(sweep)), stamp)
            bag.add("/fix", bag.fix(stamp, 49.0 + i / 111_208.9, 8.4, 100.0 + i), stamp)
            bag.add("/imu", bag.imu(stamp, north), stamp)
    read = open_dataset(path)["drive"]
    np.testing.assert_allclose(read.world_from_lidar[:, :3, 3], np.outer(np.arange(6), [0, 1, 1]), atol=2e-3)
    np.testing.assert_allclose(se3.yaw_of(read.world_from_lidar), np.pi / 2, atol=1e-9)


def test_without_the_extra_the_error_is_one_sentence(tmp_path, drive):
    path = write_bag(tmp_path, drive, "bag")
    program = (
        "import sys; sys.modules['rosbags'] = sys.modules['rosbags.rosbag1'] = None\n"
        "from copilot4d import open_dataset\nfrom copilot4d.errors import UsageError\n"
        f"try:\n    open_dataset({str(path)!r})['drive']\nexcept UsageError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"reading bags needs rosbags, which is not installed: {storage.INSTALL}"


def test_a_bag_that_was_replaced_is_read_anew(tmp_path, drive):
    path = write_bag(tmp_path, drive)
    assert len(open_dataset(path)["drive"]) == 6
    path.unlink()
    shutil.move(write_bag(tmp_path, drive[:4], name="other"), path)
    assert len(open_dataset(path)["drive"]) == 4
