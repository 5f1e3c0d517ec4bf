"""A forecast as a story: the past, then what came (truth) and what was forecast, each with its time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from copilot4d.errors import UsageError
from copilot4d.geometry.se3 import FloatArray
from copilot4d.pictures.bev import bev_image
from copilot4d.pictures.ink import Background, Image
from copilot4d.pictures.panels import Cell, Legend, blank, panel


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One point cloud in its own lidar frame, `time_s` seconds after the moment of the forecast (past: negative)."""

    points: FloatArray
    time_s: float
    note: str = ""  # a score, say
    path: FloatArray | None = None  # (M, 2+) the ego's way in this frame, drawn as a line


@dataclass(frozen=True, kw_only=True)
class Story:
    """What is known of one forecast. `truth` may lack frames at its end, or be empty: then the log has no future there.

    past: oldest first. truth and forecast: the first step first.
    """

    past: Sequence[Frame]
    forecast: Sequence[Frame]
    truth: Sequence[Frame] = ()
    model: str = ""
    heading: str = ""

    def __post_init__(self) -> None:
        if not self.past or not self.forecast:
            raise UsageError("a story needs at least one past frame and one forecast frame")

    def truth_at(self, k: int) -> Frame | None:
        """The true frame of step k, where the log has it."""
        return self.truth[k] if k < len(self.truth) else None


@dataclass(frozen=True, kw_only=True)
class Look:
    """How all pictures of a story are drawn: half the width of the view in metres, pixels, colours."""

    half: float = 40.0
    size: int = 360
    z_range: tuple[float, float] = (-2.5, 2.5)
    background: Background = "dark"

    def cell(self, role: str, frame: Frame | None, otherwise: str = "") -> Cell:
        """The frame under its role and time; or, where there is none, the words that say why."""
        if frame is None:
            return Cell(blank(self.size, otherwise, self.background), role)
        image = bev_image(
            frame.points, half=self.half, size=self.size, z_range=self.z_range, background=self.background,
            path=frame.path,
        )  # fmt: skip
        return Cell(image, f"{role}  {clock(frame.time_s)}", frame.note)

    def panel(self, rows: Sequence[Sequence[Cell]], heading: str) -> Image:
        """The cells as one picture."""
        return panel(rows, heading=heading, legend=Legend.of_height(self.z_range), background=self.background)


NO_TRUTH = "the log has\nno true sweep here"


def clock(time_s: float) -> str:
    """+0.6 s, -0.2 s, or now."""
    return "now" if abs(time_s) < 1e-3 else f"{time_s:+.1f} s"


def forecast_panel(story: Story, look: Look | None = None) -> Image:
    """Past | truth | forecast side by side, one row per step of the forecast.

    The past stands beside the future step by step: its newest sweep is in the first row, older ones below.
    """
    look = look or Look()
    newest_first = list(reversed(story.past))
    rows = []
    for k, predicted in enumerate(story.forecast):
        seen = newest_first[k] if k < len(newest_first) else None
        rows.append(
            [
                look.cell("past", seen, "no older sweep"),
                look.cell("truth", story.truth_at(k), NO_TRUTH),
                look.cell("forecast", predicted),
            ]
        )
    return look.panel(rows, _heading(story))


def forecast_strip(story: Story, look: Look | None = None) -> Image:
    """Three rows, past over truth over forecast, with time running to the right."""
    look = look or Look()
    rows = [[look.cell("past", frame) for frame in story.past]]
    if story.truth:
        rows.append([look.cell("truth", story.truth_at(k), NO_TRUTH) for k in range(len(story.forecast))])
    rows.append([look.cell("forecast", frame) for frame in story.forecast])
    return look.panel(rows, _heading(story))


def forecast_film(story: Story, look: Look | None = None) -> Iterator[Image]:
    """The frames of a film, past | truth | forecast: first the past plays, then truth and forecast together."""
    look = look or Look(size=420)
    heading = _heading(story)
    for seen in story.past:
        waiting = "truth and forecast\nfollow the past"
        yield look.panel(
            [[look.cell("past", seen), look.cell("truth", None, waiting), look.cell("forecast", None, waiting)]],
            heading,
        )
    newest = look.cell("past", story.past[-1])
    for k, predicted in enumerate(story.forecast):
        truth = look.cell("truth", story.truth_at(k), NO_TRUTH)
        yield look.panel([[newest, truth, look.cell("forecast", predicted)]], heading)


def _heading(story: Story) -> str:
    model = f"forecast by {story.model}" if story.model else ""
    drawn = any(frame.path is not None for frame in (*story.past, *story.truth, *story.forecast))
    return " · ".join(part for part in (story.heading, model, "pink line: the ego's way" if drawn else "") if part)
