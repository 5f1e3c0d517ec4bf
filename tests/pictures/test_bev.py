from __future__ import annotations

import matplotlib
import numpy as np
import pytest

from copilot4d.errors import UsageError
from copilot4d.pictures import bev_image
from copilot4d.pictures.ink import THEMES, colour_table

BARE = {"ego": False, "rings": False, "scale_bar": False, "point_px": 1}


def drawn(image: np.ndarray, background: str = "dark") -> np.ndarray:
    """(M, 2) row, column of the pixels that are not background."""
    return np.argwhere((image != THEMES[background].ground).any(axis=2))


def draw(points: object, **options: object) -> np.ndarray:
    return bev_image(np.asarray(points, dtype=np.float32), **{"half": 40.0, "size": 80, **BARE, **options})


def test_forward_is_up_and_left_is_left() -> None:
    # 80 pixels for 80 m: one pixel a metre, the sensor at the corner of the four middle pixels.
    assert drawn(draw([[10.5, 0.5, 0]])).tolist() == [[29, 39]]  # ahead: above the centre
    assert drawn(draw([[0.5, 10.5, 0]])).tolist() == [[39, 29]]  # left: left of the centre
    assert drawn(draw([[-20.5, -5.5, 0]])).tolist() == [[60, 45]]  # behind, right


def test_the_view_follows_its_centre_and_leaves_out_what_it_does_not_reach() -> None:
    assert drawn(draw([[110.5, -19.5, 0], [0, 0, 0]], centre=(100, -20))).tolist() == [[29, 39]]
    assert len(drawn(draw([[40.1, 0, 0], [0, -40.1, 0], [-41, 0, 0], [np.nan, 0, 0]]))) == 0


def test_colour_is_height_clamped_to_the_range_and_the_highest_point_is_seen() -> None:
    table = colour_table("turbo")
    image = draw([[5.5, 0.5, 2.4], [5.5, 0.5, -1], [0.5, 5.5, -9], [-5.5, 0.5, 99], [0.5, -5.5, 0]])
    assert image[34, 39].tolist() == table[int(4.9 / 5 * 256)].tolist()
    assert image[39, 34].tolist() == table[0].tolist()
    assert image[45, 39].tolist() == table[255].tolist()
    assert image[39, 45].tolist() == table[128].tolist()


def test_other_values_can_be_coloured_instead_of_height() -> None:
    image = draw([[5.5, 0.5, -2], [0.5, 5.5, 2]], values=np.array([1.0, 0.0]), z_range=(0, 1), colormap="viridis")
    assert image[34, 39].tolist() == colour_table("viridis")[255].tolist()
    assert image[39, 34].tolist() == colour_table("viridis")[0].tolist()


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_points_are_as_wide_as_asked_and_never_reach_around_the_edge(width: int) -> None:
    assert len(drawn(draw([[0.5, 0.5, 0]], point_px=width))) == width**2
    corner = drawn(draw([[39.5, 39.5, 0], [-39.5, -39.5, 0]], point_px=width))
    assert ((corner < 4).all(axis=1) | (corner > 75).all(axis=1)).all()


def test_the_ego_points_forward_and_the_scale_bar_has_its_length() -> None:
    ego = drawn(draw(np.zeros((0, 3)), size=800, ego=True))
    rows = ego[:, 0]
    assert 20 < 400 - rows.min() <= 24  # 2.3 m at 10 pixels a metre
    assert 20 < rows.max() - 400 <= 24
    nose, tail = ego[rows < 385], ego[rows > 420]
    assert np.ptp(nose[:, 1]) < np.ptp(tail[:, 1])
    bar = draw(np.zeros((0, 3)), size=800, scale_bar=True)
    longest = max((row == THEMES["dark"].text).all(axis=1).sum() for row in bar)
    assert abs(longest - 200) <= 2  # 20 m


def test_a_path_is_drawn_where_the_ego_goes() -> None:
    seen = drawn(draw(np.zeros((0, 3)), path=np.array([[0, 0, 0], [20, 0, 0], [20, 15, 0]])))
    assert seen[:, 0].min() in (18, 19, 20)  # 20 m ahead
    assert seen[:, 1].min() in (24, 25, 26)  # 15 m left
    assert seen[:, 1].max() <= 42  # never to the right


def test_white_background_and_no_points() -> None:
    image = draw(np.zeros((0, 3)), background="white")
    assert (image == 255).all()
    assert image.shape == (80, 80, 3)
    assert image.dtype == np.uint8


@pytest.mark.parametrize(
    ("points", "options", "message"),
    [
        (np.zeros((3, 2)), {}, r"\(N, 3\)"),
        (np.zeros((0, 3)), {"half": 0}, "half > 0"),
        (np.zeros((0, 3)), {"z_range": (1, 1)}, "z_range"),
        (np.zeros((0, 3)), {"background": "pink"}, "dark, white"),
        (np.zeros((1, 3)), {"colormap": "no such map"}, "turbo"),
    ],
)
def test_wrong_arguments_say_what_is_wanted(points: np.ndarray, options: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        draw(points, **options)


def test_drawing_leaves_matplotlib_as_it_was() -> None:
    before = dict(matplotlib.rcParams)
    draw(np.ones((5, 3)), scale_bar=True, ego=True)
    assert dict(matplotlib.rcParams) == before
