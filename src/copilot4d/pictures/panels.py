"""Panels: a grid of pictures of one size, each with its title and note, a heading above and a colour legend below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import PIL.Image
from PIL import ImageDraw

from copilot4d.errors import UsageError
from copilot4d.pictures.ink import Background, Colour, Image, check_image, colour_table, font, theme

GAP_PX = 10
SMALLEST_WORDS = 0.7  # of their proper size; what does not fit then is cut
MARGIN: dict[str, Colour] = {"dark": (34, 37, 46), "white": (255, 255, 255)}  # around the pictures


@dataclass(frozen=True)
class Cell:
    """One picture of a panel, with the words above it: a title at the left, a note (a score, say) at the right."""

    image: Image
    title: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Legend:
    """What the colours mean, from the first colour to the last."""

    words: str = "forward is up; colour is height above the lidar"
    low: str = "-2.5 m"
    high: str = "2.5 m"
    colormap: str = "turbo"

    @classmethod
    def of_height(cls, z_range: tuple[float, float], colormap: str = "turbo") -> Legend:
        """The legend of pictures coloured by height."""
        return cls(low=f"{z_range[0]:g} m", high=f"{z_range[1]:g} m", colormap=colormap)


def panel(
    rows: Sequence[Sequence[Cell]],
    *,
    heading: str = "",
    legend: Legend | None = None,
    background: Background = "dark",
) -> Image:
    """(H, W, 3) the labelled grid. All pictures have one size; a row may be shorter than the others."""
    cells = [cell for row in rows for cell in row]
    if not cells:
        raise UsageError("a panel needs at least one cell")
    height, width = check_image(cells[0].image).shape[:2]
    for cell in cells:
        if check_image(cell.image).shape[:2] != (height, width):
            raise UsageError(f"all pictures of a panel need one size, {(height, width)}; {cell.title!r} differs")
    words_px = max(12, width // 22)
    heading_px, title_px, legend_px = round(words_px * 2.4), round(words_px * 1.7), round(words_px * 2.4)
    top = heading_px if heading else 0
    columns = max(map(len, rows))
    total_width = columns * width + (columns + 1) * GAP_PX
    below = top + len(rows) * (title_px + height + GAP_PX) + GAP_PX
    picture = PIL.Image.new("RGB", (total_width, below + (legend_px if legend else 0)), MARGIN[background])
    pen = _Pen(picture, theme(background).text)
    if heading:
        pen.words((GAP_PX, GAP_PX / 2 + top / 2), heading, total_width - 2 * GAP_PX, round(words_px * 1.3), bold=True)
    for i, row in enumerate(rows):
        for j, cell in enumerate(row):
            x, y = GAP_PX + j * (width + GAP_PX), top + GAP_PX + i * (title_px + height + GAP_PX)
            used = pen.words((x, y + title_px / 2), cell.title, width, words_px, bold=True)
            pen.words((x + width, y + title_px / 2), cell.note, width - used - 12, words_px, anchor="rm")
            picture.paste(PIL.Image.fromarray(cell.image), (x, y + title_px))
    if legend:
        pen.legend(legend, (GAP_PX, below - GAP_PX / 2 + legend_px / 2), total_width - 2 * GAP_PX, words_px)
    return np.array(picture)


def blank(size: int, words: str, background: Background = "dark") -> Image:
    """An empty picture that says why it is empty."""
    colours = theme(background)
    picture = PIL.Image.new("RGB", (size, size), colours.ground)
    ImageDraw.Draw(picture).text(
        (size / 2, size / 2), words, fill=colours.text, font=font(max(11, size // 24)), anchor="mm", align="center"
    )
    return np.array(picture)


class _Pen:
    """Writes on one picture in one colour."""

    def __init__(self, picture: PIL.Image.Image, colour: Colour) -> None:
        self.picture, self.colour = picture, colour
        self.draw = ImageDraw.Draw(picture)

    def words(
        self,
        at: tuple[float, float],
        words: str,
        room_px: float,
        size_px: int,
        *,
        bold: bool = False,
        anchor: str = "lm",
    ) -> float:
        """Write one line, smaller and then shorter where it does not fit, and return the width that it took."""
        if not words or room_px < size_px:
            return 0.0
        sizes = range(size_px, round(SMALLEST_WORDS * size_px) - 1, -1)
        fonts: list[Any] = [font(size, bold=bold) for size in sizes]
        letters = next((candidate for candidate in fonts if candidate.getlength(words) <= room_px), fonts[-1])
        if letters.getlength(words) > room_px:
            while words and letters.getlength(words + "…") > room_px:
                words = words[:-1]
            words = words.rstrip() + "…"
        self.draw.text(at, words, fill=self.colour, font=letters, anchor=anchor)
        return float(letters.getlength(words))

    def legend(self, legend: Legend, at: tuple[float, float], room_px: float, size_px: int) -> None:
        """`words  low [colours] high`, as far as there is room."""
        x, y = at
        bar_width, bar_height = int(min(room_px / 4, 24 * size_px)), round(size_px * 0.7)
        for words in (f"{legend.words}:", legend.low):
            x += self.words((x, y), words, room_px - (x - at[0]), size_px) + size_px / 2
        stripe = np.tile(colour_table(legend.colormap)[None, :, :], (bar_height, 1, 1))
        bar = PIL.Image.fromarray(stripe).resize((bar_width, bar_height))
        self.picture.paste(bar, (round(x), round(y - bar_height / 2)))
        x += bar_width + size_px / 2
        self.words((x, y), legend.high, room_px - (x - at[0]), size_px)
