"""Times of points as drivers write them, from recorded conventions; and a bag of a moving lidar, deskewed."""

from __future__ import annotations

import numpy as np
import pytest

from copilot4d import open_dataset
from copilot4d.datasets.point_times import TimesError, point_times_ns, time_field
from copilot4d.errors import DataError
from copilot4d.simulator import simulate_drive
from tests.support.bags import START_NS, write_bag

STAMP = 1_700_000_000_123_456_789
OFFSETS = np.array([0, 1_000_000, 50_000_000, 99_999_000])  # ns


@pytest.mark.parametrize(("values", "within_ns"), [
    (OFFSETS.astype(np.uint32), 0),  # Ouster: t
    ((OFFSETS * 1e-9).astype(np.float32), 10),  # Velodyne: time
    ((OFFSETS // 1000).astype(np.uint32), 0),  # microseconds
    ((OFFSETS * 1e-6).astype(np.float32), 10),  # milliseconds
    (((STAMP + OFFSETS) * 1e-9).astype(np.float64), 300),  # Hesai, Robosense: timestamp, Unix seconds
    ((STAMP + OFFSETS).astype(np.uint64), 0),  # Livox: timestamp, Unix nanoseconds
    ((STAMP + OFFSETS).astype(np.float64), 300),  # the same as a float
])  # fmt: skip
def test_each_convention(values, within_ns):
    times = point_times_ns(values, STAMP)
    assert np.abs(times - (STAMP + OFFSETS)).max() <= within_ns


def test_offsets_before_the_stamp():
    times = point_times_ns((OFFSETS * 1e-9 - 0.1).astype(np.float32), STAMP)
    assert np.abs(times - (STAMP + OFFSETS - 100_000_000)).max() <= 10


def test_what_is_no_time_is_told():
    assert point_times_ns(np.zeros(5, np.float32), STAMP) is None
    with pytest.raises(TimesError, match="in no unit"):
        point_times_ns(np.array([0.0, 5.0]), STAMP)
    with pytest.raises(TimesError, match="neither offsets nor the stamp's own clock"):
        point_times_ns(np.array([100.0, 100.1]), STAMP)
    assert point_times_ns(np.array([0, 5_000_000], np.uint32), STAMP, unit="ns")[-1] == STAMP + 5_000_000


def test_the_field_by_its_usual_names():
    assert time_field(["x", "y", "z", "Timestamp"]) == "Timestamp"
    assert time_field(["x", "time", "t"]) == "t"
    assert time_field(["x", "ring"]) is None


@pytest.fixture(scope="module")
def drives():
    options = {"seed": 5, "seconds": 1.2}
    return simulate_drive(**options, motion_compensated=False), simulate_drive(**options)


@pytest.mark.parametrize("how", ["t", "timestamp"])
def test_a_bag_of_a_moving_lidar_is_deskewed_to_its_stamps(tmp_path, drives, how):
    skewed, true = drives
    by_stamp = {s.timestamp_ns: skewed.truth(i).times_ns for i, s in enumerate(skewed)}

    def columns(sweep):
        times = by_stamp[sweep.timestamp_ns]
        offsets = times - times.min()
        written = offsets.astype(np.uint32) if how == "t" else (times + START_NS) * 1e-9
        return {"x": sweep.points[:, 0], "y": sweep.points[:, 1], "z": sweep.points[:, 2], how: written}

    # An Ouster's stamp is the sweep's start: written so, the poses of the bag say where the lidar was then.
    path = write_bag(tmp_path, skewed, columns=columns)
    read = open_dataset(path)["drive"]
    sweep, expected = read[6], true[6]
    if how == "timestamp":
        assert np.abs(sweep.points - expected.points).max() < 0.02
        assert np.abs(sweep.origins[:, 0]).max() > 0.1, "the origins follow the lidar"
    raw = open_dataset(path, deskew=False)["drive"][6]
    np.testing.assert_array_equal(raw.points, skewed[6].points)
    assert raw.origins is None


def test_times_that_make_no_sense_are_told_with_topic_and_time(tmp_path, drives):
    skewed, _ = drives

    def columns(sweep):
        wrong = np.linspace(0, 5, len(sweep.points)).astype(np.float32)
        return {"x": sweep.points[:, 0], "y": sweep.points[:, 1], "z": sweep.points[:, 2], "time": wrong}

    path = write_bag(tmp_path, skewed[:3], columns=columns)
    with pytest.raises(DataError, match=r"topic /points, message recorded at .*in no unit.*deskew: false"):
        open_dataset(path)["drive"][1]
    assert len(open_dataset(path, deskew=False)["drive"][1].points)
