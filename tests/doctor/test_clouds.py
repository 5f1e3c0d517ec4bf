"""What single sweeps tell: counts, ranges, ray origins, unusable points."""

import numpy as np
import pytest

from copilot4d.doctor.clouds import check_clouds, check_origins, read_cloud
from copilot4d.geometry import Sweep


def sweep(points, origins=None):
    return Sweep(
        points=np.array(points, dtype=np.float32).reshape(-1, 3), world_from_lidar=np.eye(4), timestamp_ns=0,
        origins=None if origins is None else np.array(origins, dtype=np.float32),
    )  # fmt: skip


def test_ranges_are_measured_from_each_rays_own_origin():
    cloud = read_cloud(0, sweep([[5, 0, 0], [0, 7, 1]], origins=[[2, 0, 0], [0, 0, 1]]))
    assert (cloud.range_median, cloud.range_max) == (5.0, 7.0)
    assert cloud.origins == ((0.0, 0.0, 1.0), (2.0, 0.0, 0.0))


def test_empty_and_padded_sweeps():
    empty = read_cloud(1, sweep(np.zeros((10, 3))))
    padded = read_cloud(2, sweep(np.concatenate([np.zeros((10, 3)), np.full((90, 3), 6.0)])))
    healthy = read_cloud(3, sweep(np.full((90, 3), 6.0)))
    assert [f.code for f in check_clouds("d", [empty])] == ["sweep-empty"]
    (finding,) = check_clouds("d", [padded, healthy])
    assert finding.code == "points-at-origin"
    assert "10%" in finding.evidence
    assert "frame 2" in finding.evidence
    assert check_clouds("d", [healthy]) == []


@pytest.mark.parametrize(("height", "codes"), [(1.7, []), (0.05, ["origins-on-ground"]), (None, [])])
def test_an_origin_on_the_ground_is_no_lidar(height, codes):
    cloud = read_cloud(0, sweep(np.full((9, 3), 6.0)))
    assert [f.code for f in check_origins("d", [cloud], height)] == codes


def test_origins_given_per_point_may_be_anywhere_on_the_vehicle_but_not_farther():
    near = read_cloud(0, sweep([[9, 0, 0], [8, 0, 0]], origins=[[1.3, 0, 1.6], [1.3, 0, 1.4]]))
    far = read_cloud(0, sweep([[900, 0, 0]], origins=[[880, 0, 0]]))
    assert check_origins("d", [near], 0.0) == []
    assert [f.code for f in check_origins("d", [far], 1.7)] == ["origins-far"]
