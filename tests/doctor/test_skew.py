"""Whether the points still hold the lidar's motion, told by the sweeps themselves; and what follows from it."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pytest

from copilot4d import open_dataset
from copilot4d.doctor.drive import examine_drive
from copilot4d.doctor.skew import SkewFacts, check_skew
from copilot4d.simulator import simulate_drive
from tests.datasets.test_deskewing import write_log
from tests.support.argoverse2_tree import FIRST_NS, write_argoverse2


@pytest.fixture(scope="module", params=[False, True], ids=["skewed", "compensated"])
def log(request, tmp_path_factory):
    """A street with times of points, once with the motion left in; and whether it is compensated."""
    drive = simulate_drive(seed=2, seconds=4.0, motion_compensated=request.param)
    return write_log(tmp_path_factory.mktemp("log") / "log", drive, keys=""), request.param


def found_in(log, **options):
    """The findings about motion, by code."""
    report = examine_drive(open_dataset(log, **options)["log"])
    assert report.poses.verdict.startswith("fit")
    return {f.code: f for f in report.findings if f.code in ("skewed", "deskewed-twice", "motion-seen")}


def test_the_doctor_sees_skewed_and_compensated_points(log):
    folder, is_compensated = log
    as_is, deskewed = found_in(folder), found_in(folder, deskew=True)
    if is_compensated:
        assert "they are compensated, and are read so" in as_is["motion-seen"].evidence
        assert as_is["motion-seen"].severity == "remark"
        assert deskewed["deskewed-twice"].severity == "problem"
        assert "`deskew: false` in copilot4d.yaml" in deskewed["deskewed-twice"].remedy
    else:
        assert as_is["skewed"].severity == "problem"
        assert "`deskew: true` in copilot4d.yaml" in as_is["skewed"].remedy
        assert "fit better deskewed, as they are read" in deskewed["motion-seen"].evidence
    assert len(as_is) == len(deskewed) == 1


def test_slices_of_a_drive_are_examined_by_their_own_frames(log):
    folder, is_compensated = log
    drive = open_dataset(folder)["log"][6:]
    codes = {f.code for f in examine_drive(drive).findings}
    assert ("motion-seen" if is_compensated else "skewed") in codes


def test_points_without_times_and_steady_drives_say_nothing_wrong(tmp_path):
    untimed = write_log(tmp_path / "a", simulate_drive(seed=2, seconds=1.0), name="ring", keys="")
    assert found_in(untimed) == {}
    drive = open_dataset(untimed)["log"]
    facts = partial(SkewFacts, pairs=8, recorded_m=0.05, deskewed_m=0.05)
    (told,) = check_skew("a", drive, facts(verdict="cannot tell"))
    assert (told.code, told.severity) == ("motion-seen", "remark")
    assert "do not show" in told.evidence
    assert check_skew("a", drive, None) == []


def test_argoverse_s_times_show_that_its_points_are_compensated(tmp_path):
    """A street as Argoverse 2 publishes it: float16 in the ego frame, compensated, with offset_ns."""
    drive = simulate_drive(seed=2, seconds=3.0)
    log = write_argoverse2(tmp_path / "log", drive)
    for i, path in enumerate(sorted((log / "sensors" / "lidar").glob("*.feather"))):
        table = pa.feather.read_table(path)
        offsets = drive.truth(i).times_ns - drive.timestamps_ns[i]
        at = table.schema.get_field_index("offset_ns")
        pa.feather.write_feather(table.set_column(at, "offset_ns", pa.array(offsets.astype(np.int32))), str(path))
    read = open_dataset(log)["log"]
    assert read.read.recorded(3).times_ns.tolist() == (drive.truth(3).times_ns + FIRST_NS).tolist()
    seen = [f for f in examine_drive(read).findings if f.code == "motion-seen"]
    assert "compensated" in seen[0].evidence
