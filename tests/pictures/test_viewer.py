"""The 3D viewer's data: what JavaScript unpacks is what Python put in. Its drawing is tested in tests/browser."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from dataclasses import replace

import numpy as np
import pytest

from copilot4d.errors import UsageError
from copilot4d.geometry import se3
from copilot4d.pictures import Cloud, Horizon, Page, Plan, Viewer, compared
from copilot4d.pictures.viewer import script

RNG = np.random.default_rng(3)


def cloud(count: int = 50, *, errors: bool = False) -> Cloud:
    points = RNG.uniform(-60, 60, (count, 3)).astype(np.float32)
    return Cloud(points=points, error_m=RNG.uniform(0, 4, count) if errors else None)


def viewer(**changes) -> Viewer:
    poses = np.stack([se3.from_yaw(0.1 * k, (k, 2.0 * k, 0)) for k in range(3)])
    plan = Plan(
        name="keep",
        caption="on",
        reference_from_lidar=poses,
        forecasts={"m": [cloud(7, errors=True)]},
        truth=[cloud(9)],
    )
    horizon = Horizon(name="1 s", past_s=[-0.5, 0.0], future_s=[0.5], past=[cloud(5), cloud(0)], plans=[plan])
    return Viewer(**{"horizons": [horizon], "models": ["m"], **changes})


def unpack(html: str) -> tuple[dict, list[tuple[np.ndarray, np.ndarray | None]]]:
    """What data.js does, written a second time: the description, and each cloud's (N, 3) metres and errors."""
    description = json.loads(re.search(r'class="viewer-description">(.*?)</script>', html)[1])
    raw = zlib.decompress(base64.b64decode(re.search(r'class="viewer-clouds">(.*?)</script>', html)[1]))
    counts = description["clouds"]
    total = sum(n for n, _ in counts)
    low, high = np.frombuffer(raw[: 6 * total], np.uint8).reshape(2, 3, total).astype(np.uint16)
    places = np.cumsum((low + 256 * high).astype(np.int16), axis=1, dtype=np.int16).T * 0.01
    errors = np.frombuffer(raw[6 * total :], np.uint8) * description["errorStep"]
    found, start, error = [], 0, 0
    for count, has_error in counts:
        own = errors[error : error + count] if has_error else None
        found.append((places[start : start + count], own))
        start, error = start + count, error + count * has_error
    assert error == len(errors)
    return description, found


def test_clouds_survive_the_page_to_half_a_centimetre():
    shown = viewer()
    (horizon,) = shown.horizons
    description, clouds = unpack(shown.html())
    (described,) = description["horizons"]
    (plan,) = described["plans"]
    pairs = [
        (horizon.past[0], described["past"][0]),
        (horizon.past[1], described["past"][1]),
        (horizon.plans[0].truth[0], plan["truth"][0]),
        (horizon.plans[0].forecasts["m"][0], plan["forecasts"]["m"][0]),
    ]
    assert len(clouds) == 4
    for put, number in pairs:
        places, errors = clouds[number]
        assert places.shape == put.points.shape
        np.testing.assert_allclose(places, put.points, atol=0.00501)
        assert (errors is None) == (put.error_m is None)
        if errors is not None:
            np.testing.assert_allclose(errors, np.minimum(put.error_m, 2.55), atol=0.00501)
    assert described["times"] == [-0.5, 0.0, 0.5]


def test_poses_are_written_column_by_column():
    description, _ = unpack(viewer().html())
    pose = description["horizons"][0]["plans"][0]["poses"][2]
    assert pose[12:15] == [2.0, 4.0, 0.0]
    assert pose[0] == pytest.approx(np.cos(0.2), abs=1e-5)
    assert pose[1] == pytest.approx(np.sin(0.2), abs=1e-5)  # row 1 of column 0


def test_large_clouds_are_thinned_evenly_and_the_page_knows():
    line = np.zeros((1000, 3), np.float32)
    line[:, 0] = np.arange(1000) / 10
    (horizon,) = viewer().horizons
    shown = viewer(
        horizons=[replace(horizon, past=[Cloud(points=line), Cloud(points=line[:100])])],
        max_points=100,
    )
    description, clouds = unpack(shown.html())
    first, second = description["horizons"][0]["past"]
    assert description["thinned"] == 900
    assert clouds[first][0].shape == (100, 3)
    assert np.diff(clouds[first][0][:, 0]).max() < 1.2  # about a metre apart, from the first to the last
    assert clouds[first][0][[0, -1], 0].tolist() == pytest.approx([0.0, 99.9])
    np.testing.assert_allclose(clouds[second][0], line[:100], atol=0.006)
    assert unpack(viewer().html())[0]["thinned"] == 0


def test_points_that_cannot_be_drawn_are_left_out_with_their_errors():
    points = np.array([[1, 2, 3], [np.nan, 0, 0], [400, 0, 0], [-5, 0, 1]], np.float32)
    (horizon,) = viewer().horizons
    odd = Cloud(points=points, error_m=np.array([0.1, 0.2, 0.3, np.inf]))
    shown = viewer(horizons=[replace(horizon, past=[odd, odd])])
    description, clouds = unpack(shown.html())
    first, again = description["horizons"][0]["past"]
    assert first == again, "the same cloud travels once"
    places, errors = clouds[first]
    np.testing.assert_allclose(places, [[1, 2, 3], [-5, 0, 1]], atol=1e-6)
    np.testing.assert_allclose(errors, [0.1, 2.55], atol=1e-6)


def test_truth_may_be_unknown_or_have_gaps():
    (horizon,) = viewer().horizons
    (plan,) = horizon.plans
    for truth, expected in (((), []), ([None], [None])):
        changed = replace(plan, truth=truth)
        shown = viewer(horizons=[replace(horizon, plans=[changed])])
        assert unpack(shown.html())[0]["horizons"][0]["plans"][0]["truth"] == expected


def test_errors_are_distances_to_the_nearest_true_point():
    true = np.array([[0.0, 0, 0], [10, 0, 0]])
    made = compared(np.array([[3.0, 4, 0], [9, 0, 0], [10, 0, 0]]), true)
    assert made.error_m.tolist() == pytest.approx([5.0, 1.0, 0.0])
    assert np.isinf(compared(true, np.zeros((0, 3))).error_m).all()
    assert compared(np.zeros((0, 3)), true).error_m.shape == (0,)


def test_wrong_shapes_are_named():
    (horizon,) = viewer().horizons
    (plan,) = horizon.plans
    with pytest.raises(UsageError, match="one error per point"):
        Cloud(points=np.zeros((3, 3)), error_m=np.zeros(2))
    with pytest.raises(UsageError, match=r"\(N, 3\)"):
        Cloud(points=np.zeros((3, 2)))
    short = replace(plan, reference_from_lidar=plan.reference_from_lidar[:2])
    with pytest.raises(UsageError, match="plan keep: 3 poses"):
        replace(horizon, plans=[short])
    long = replace(plan, forecasts={"m": [cloud(), cloud()]})
    with pytest.raises(UsageError, match="m has 2 clouds for 1 future times"):
        replace(horizon, plans=[long])
    with pytest.raises(UsageError, match="1 past clouds for 2"):
        replace(horizon, past=horizon.past[:1])


def test_a_page_runs_its_own_script_only_and_no_name_can_end_it_early():
    (horizon,) = viewer().horizons
    nasty = replace(horizon.plans[0], name="</script><script>alert(1)</script>")
    page = Page("t")
    page.viewer(viewer(horizons=[replace(horizon, plans=[nasty])], label='"><script>'))
    html = page.html()
    scripts = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    assert scripts == [script()]
    digest = base64.b64encode(hashlib.sha256(script().encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in html
    assert "'unsafe-inline'\"" not in html.split("script-src")[1][:80]
    assert len(re.findall("<script", html)) == 3  # two of data, one that runs
    assert unpack(html)[0]["horizons"][0]["plans"][0]["name"] == nasty.name
    assert not re.search(r"https?:|//[a-z]+\.", script()), "the script names no host"
