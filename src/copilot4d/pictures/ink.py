"""Text, lines and colours on arrays of pixels, by pillow. Nothing here touches a plotting library's global state."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import ImageFont

from copilot4d.errors import UsageError

Image: TypeAlias = NDArray[np.uint8]  # (H, W, 3)
Colour: TypeAlias = tuple[int, int, int]
Background: TypeAlias = Literal["dark", "white"]


class Theme(NamedTuple):
    """The colours of one background."""

    ground: Colour
    text: Colour
    faint: Colour  # range rings, frames
    ego: Colour
    path: Colour


THEMES: dict[str, Theme] = {
    "dark": Theme((14, 16, 22), (232, 234, 240), (58, 63, 76), (255, 255, 255), (255, 120, 200)),
    "white": Theme((255, 255, 255), (24, 26, 32), (205, 208, 216), (0, 0, 0), (200, 0, 120)),
}


def theme(background: str) -> Theme:
    """The theme of that name, or a UsageError that lists the names."""
    if background not in THEMES:
        raise UsageError(f"background must be one of {', '.join(THEMES)}, got {background!r}")
    return THEMES[background]


@cache
def colour_table(colormap: str) -> NDArray[np.uint8]:
    """(256, 3) colours of a matplotlib colour map, by its name."""
    if colormap not in matplotlib.colormaps:
        raise UsageError(f"there is no colour map {colormap!r}; for height try turbo or viridis")
    rgba = matplotlib.colormaps[colormap](np.linspace(0, 1, 256))
    return np.round(rgba[:, :3] * 255).astype(np.uint8)


@cache
def font(size_px: int, *, bold: bool = False) -> Any:
    """The font that matplotlib carries: the same on every machine."""
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name), size_px)


def check_image(image: NDArray[Any]) -> Image:
    """The image, if it is (H, W, 3) uint8."""
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
        raise UsageError(f"an image must be (H, W, 3) uint8, got {image.shape} {image.dtype}")
    return image
