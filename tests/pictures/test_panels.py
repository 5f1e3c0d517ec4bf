from __future__ import annotations

import numpy as np
import pytest

from copilot4d.errors import UsageError
from copilot4d.pictures import (
    Cell,
    Frame,
    Legend,
    Look,
    Story,
    forecast_film,
    forecast_panel,
    forecast_strip,
    panel,
)
from copilot4d.pictures import storyboard as storyboard_module
from copilot4d.pictures.storyboard import clock

RED, GREEN, BLUE = (np.full((60, 60, 3), c, dtype=np.uint8) for c in ([255, 0, 0], [0, 255, 0], [0, 0, 255]))


def places(image: np.ndarray, colour: list[int]) -> np.ndarray:
    return np.argwhere((image == colour).all(axis=2))


def frame(time_s: float, note: str = "") -> Frame:
    return Frame(points=np.array([[5.0, 5, 0]]), time_s=time_s, note=note)


def story(past: int = 3, truth: int = 2, forecast: int = 2) -> Story:
    return Story(
        past=[frame(0.2 * (k + 1 - past)) for k in range(past)],
        truth=[frame(0.2 * (k + 1)) for k in range(truth)],
        forecast=[frame(0.2 * (k + 1), f"score {k}") for k in range(forecast)],
        model="copy_last",
        heading="toy drive",
    )


def words_of(monkeypatch: pytest.MonkeyPatch) -> list[list[list[tuple[str, str]]]]:
    """Record the (title, note) of every cell of every panel, row by row."""
    seen = []

    def record(rows, **options):
        seen.append([[(cell.title, cell.note) for cell in row] for row in rows])
        return panel(rows, **options)

    monkeypatch.setattr(storyboard_module, "panel", record)
    return seen


def test_cells_stand_whole_in_their_rows_and_columns() -> None:
    image = panel([[Cell(RED, "a"), Cell(GREEN, "b", "note")], [Cell(BLUE, "c")]], heading="head", legend=Legend())
    red, green, blue = (places(image, c) for c in ([255, 0, 0], [0, 255, 0], [0, 0, 255]))
    assert len(red) == len(green) == len(blue) == 3600
    assert (red[:, 0].min(), red[:, 0].max()) == (green[:, 0].min(), green[:, 0].max())
    assert red[:, 1].max() < green[:, 1].min()
    assert red[:, 0].max() < blue[:, 0].min()
    assert red[:, 1].min() == blue[:, 1].min()


def test_titles_are_written_above_their_pictures_and_long_ones_do_not_run_over() -> None:
    plain = panel([[Cell(RED, ""), Cell(GREEN, "")]])
    titled = panel([[Cell(RED, "a title that is much too long for so small a picture"), Cell(GREEN, "")]])
    changed = np.argwhere((plain != titled).any(axis=2))
    assert len(changed) > 20
    assert changed[:, 0].max() < places(titled, [255, 0, 0])[:, 0].min()
    assert changed[:, 1].max() <= places(titled, [255, 0, 0])[:, 1].max()


def test_a_panel_refuses_mixed_sizes_and_emptiness() -> None:
    with pytest.raises(UsageError, match="one size"):
        panel([[Cell(RED, "a"), Cell(GREEN[:50], "small one")]])
    with pytest.raises(UsageError, match="at least one cell"):
        panel([[]])
    with pytest.raises(UsageError, match="uint8"):
        panel([[Cell(RED.astype(np.float32), "a")]])


def test_the_panel_pairs_truth_and_forecast_of_one_time_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = words_of(monkeypatch)
    forecast_panel(story(past=1, truth=1, forecast=2), Look(size=64))
    assert seen == [
        [
            [("past  now", ""), ("truth  +0.2 s", ""), ("forecast  +0.2 s", "score 0")],
            [("past", ""), ("truth", ""), ("forecast  +0.4 s", "score 1")],
        ]
    ]


def test_the_strip_runs_through_time_and_leaves_truth_out_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = words_of(monkeypatch)
    forecast_strip(story(truth=0), Look(size=64))
    assert [[title for title, _ in row] for row in seen[0]] == [
        ["past  -0.4 s", "past  -0.2 s", "past  now"],
        ["forecast  +0.2 s", "forecast  +0.4 s"],
    ]


def test_the_film_plays_the_past_and_then_truth_beside_forecast(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = words_of(monkeypatch)
    frames = list(forecast_film(story(past=2, truth=2, forecast=2), Look(size=64)))
    assert len({image.shape for image in frames}) == 1
    assert [[title for title, _ in rows[0]] for rows in seen] == [
        ["past  -0.2 s", "truth", "forecast"],
        ["past  now", "truth", "forecast"],
        ["past  now", "truth  +0.2 s", "forecast  +0.2 s"],
        ["past  now", "truth  +0.4 s", "forecast  +0.4 s"],
    ]


def test_a_story_needs_frames_and_clocks_read_well() -> None:
    with pytest.raises(UsageError, match="at least one"):
        Story(past=[], forecast=[frame(1)])
    assert [clock(t) for t in (-0.8, 0.0, 0.6, 3.0)] == ["-0.8 s", "now", "+0.6 s", "+3.0 s"]
