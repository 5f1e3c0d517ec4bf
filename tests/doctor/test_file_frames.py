"""Mistakes in files whose axes are not ours are named as they were made; each remedy, applied, makes the log sound."""

import re

import numpy as np
import pytest

from copilot4d.datasets import open_dataset
from copilot4d.datasets.folder_config import axes_in_words, parse_axes
from copilot4d.doctor import examine
from copilot4d.doctor.explanations import axis_changes
from copilot4d.geometry import se3
from tests.doctor.logs import degrees_as_radians
from tests.doctor.own_logs import NUSCENES_AXES, describe, tum_rows, write_own, write_tum_rows


def problems(folder):
    return [f for f in examine(folder).findings if f.severity == "problem"]


def test_every_right_handed_axes_has_words_that_read_back():
    for change in axis_changes():
        if np.linalg.det(change) > 0:
            np.testing.assert_array_equal(parse_axes(axes_in_words(change)), change)


def test_a_healthy_log_in_other_axes_is_healthy(tmp_path):
    report = examine(write_own(tmp_path / "log", axes=NUSCENES_AXES))
    assert report.problems == ()
    assert report.drives[0].poses.verdict == "fit"


def test_inverted_poses_in_other_axes_are_named_and_the_remedy_works(tmp_path):
    folder = write_own(tmp_path / "log", axes=NUSCENES_AXES, poses=se3.invert)
    (finding,) = problems(folder)
    assert finding.code == "poses-inverted"
    again = write_own(tmp_path / "again", axes=NUSCENES_AXES, poses=lambda p: se3.invert(se3.invert(p)))
    assert problems(again) == []


def test_quaternions_with_w_first_in_other_axes_are_named_and_the_remedy_works(tmp_path):
    folder = write_own(tmp_path / "log", axes=NUSCENES_AXES)
    rows = tum_rows(folder)
    write_tum_rows(folder, rows[:, [0, 1, 2, 3, 7, 4, 5, 6]])
    (finding,) = problems(folder)
    assert finding.code == "poses-quaternion-order"
    assert "move column 5 behind column 8" in finding.remedy
    damaged = tum_rows(folder)
    write_tum_rows(folder, damaged[:, [0, 1, 2, 3, 5, 6, 7, 4]])
    assert problems(folder) == []


def test_degrees_in_other_axes_are_named(tmp_path):
    (finding,) = problems(write_own(tmp_path / "log", axes=NUSCENES_AXES, poses=degrees_as_radians))
    assert finding.code == "poses-degrees-for-radians"


def test_mirrored_columns_are_told_as_columns_of_the_file_and_the_remedy_works(tmp_path):
    folder = write_own(tmp_path / "log", axes=NUSCENES_AXES, points=lambda p: p * [1, -1, 1])
    (finding,) = problems(folder)
    assert finding.code == "axes-mirrored"
    formula = dict(re.findall(r"([xyz]) = (-?[xyz])", finding.remedy))

    def corrected(p):
        damaged = p * [1, -1, 1]
        return np.stack([damaged[:, "xyz".index(formula[a][-1])] * (-1 if "-" in formula[a] else 1) for a in "xyz"], 1)

    assert problems(write_own(tmp_path / "again", axes=NUSCENES_AXES, points=corrected)) == []


@pytest.mark.parametrize("said", ["x forward, y left, z up", "x left, y backward, z up", "x right, y down, z forward"])
def test_a_wrong_axes_line_is_replaced_by_one_that_works(tmp_path, said):
    folder = write_own(tmp_path / "log", axes=NUSCENES_AXES)
    times = "timestamps: {filename: ns}"
    describe(folder, f"axes: {said}\n{times}")
    findings = [f for f in examine(folder).findings if f.code.startswith("axes")]
    line = re.search(r"`(axes: [^`]*)`", findings[0].remedy)
    assert line is not None
    describe(folder, f"{line[1]}\n{times}")
    assert problems(folder) == []
    assert line[1] == f"axes: {NUSCENES_AXES}"


def test_poses_of_the_vehicle_that_are_inverted_are_named(tmp_path):
    ego_from_lidar = se3.from_yaw(0.3, (1.0, 0.0, 1.9))
    folder = write_own(
        tmp_path / "log", poses=lambda p: se3.invert(se3.compose(p, se3.invert(ego_from_lidar))),
        lines="pose_frame: world_from_ego\nego_from_lidar: "
        + str([[float(v) for v in row] for row in ego_from_lidar[:3]]),
    )  # fmt: skip
    assert open_dataset(folder).names == ("log",)
    assert [f.code for f in problems(folder)] == ["poses-inverted"]


def test_poses_that_the_sweeps_cannot_judge_are_not_said_to_fit():
    """A ground plane and one endless wall look the same from every place along them."""
    from copilot4d.doctor import examine_drive
    from copilot4d.geometry import Drive, Sweep
    from tests.support.scenes import SENSOR_HEIGHT, beam_directions, cast

    walls = np.array([[-500, 6, 0, 500, 7, 8.0], [-500, -9, 0, 500, -8, 8.0]])
    sweeps = []
    for i in range(12):
        pose = se3.from_yaw(0.0, (1.2 * i, 0.0, SENSOR_HEIGHT))
        points = cast(pose, walls, beam_directions(24, 360))
        sweeps.append(Sweep(points=points, world_from_lidar=pose, timestamp_ns=i * 200_000_000))
    report = examine_drive(Drive.from_sweeps("tunnel", sweeps))
    assert report.poses.verdict.startswith("cannot tell")
    assert "poses-untested" in [f.code for f in report.findings]
