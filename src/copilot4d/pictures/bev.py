"""A point cloud from above, coloured by height: x (forward) is up, y (left) is left."""

from __future__ import annotations

import numpy as np
import PIL.Image
from numpy.typing import NDArray
from PIL import ImageDraw

from copilot4d.errors import UsageError
from copilot4d.geometry.se3 import FloatArray
from copilot4d.pictures.ink import Background, Image, Theme, colour_table, font, theme

EGO_LENGTH_M, EGO_WIDTH_M = 4.6, 1.9
SCALE_STEPS_M = (1, 2, 5, 10, 20, 50, 100, 200)


def bev_image(
    points: FloatArray,
    *,
    half: float = 40.0,
    size: int = 512,
    z_range: tuple[float, float] = (-2.5, 2.5),
    centre: tuple[float, float] = (0.0, 0.0),
    values: FloatArray | None = None,
    colormap: str = "turbo",
    background: Background = "dark",
    point_px: int | None = None,
    ego: bool = True,
    rings: bool = True,
    scale_bar: bool = True,
    path: FloatArray | None = None,
) -> Image:
    """(N, 3) points in a lidar frame -> (size, size, 3) uint8, of the square that reaches `half` metres from `centre`.

    Where several points share a pixel the highest is seen, as from above. z_range: the heights, in metres, that get the
    first and the last colour; others are clamped. values: (N,) to be coloured instead of height (`z_range` is then
    their range, and the highest value is seen). point_px: how wide a point is drawn; None chooses from the size.
    path: (M, 2) or (M, 3), a line to draw, such as the way the ego takes.
    """
    points = np.asarray(points)
    if points.ndim != 2 or points.shape[1] != 3:
        raise UsageError(f"bev_image draws points of shape (N, 3), got {points.shape}")
    if not half > 0 or size < 8 or not z_range[0] < z_range[1]:
        raise UsageError(f"bev_image needs half > 0, size >= 8 and z_range rising, got {half}, {size}, {z_range}")
    colours = theme(background)
    image = np.empty((size, size, 3), dtype=np.uint8)
    image[:] = colours.ground
    view = _View(half=half, size=size, centre=centre)
    if rings:
        image = _with_rings(image, view, colours)
    shown = points[:, 2] if values is None else np.asarray(values)
    width = point_px if point_px is not None else max(1, round(size / 400))
    level = _levels(view.pixels(points[:, :2]), shown, z_range, size, width)
    drawn = level >= 0
    image[drawn] = colour_table(colormap)[level[drawn]]
    return _with_marks(image, view, colours, ego=ego, scale_bar=scale_bar, path=path)


class _View:
    """Which square of the ground is seen, and on which pixel a place lands."""

    def __init__(self, *, half: float, size: int, centre: tuple[float, float]) -> None:
        self.half, self.size, self.centre = half, size, np.asarray(centre, dtype=np.float64)
        self.px_per_m = size / (2 * half)

    def place(self, xy: FloatArray) -> FloatArray:
        """(M, 2) metres -> (M, 2) column, row: x up, y left, the image's upper left corner at 0, 0."""
        forward_left = np.asarray(xy, dtype=np.float64) - self.centre
        return (self.half - forward_left[:, ::-1]) * self.px_per_m

    def pixels(self, xy: FloatArray) -> NDArray[np.int64]:
        """(M,) row * size + column, or -1 outside the view (or where a coordinate is not finite)."""
        column_row = np.floor(self.place(xy))
        inside = np.all((column_row >= 0) & (column_row < self.size), axis=1)
        column_row = np.where(inside[:, None], column_row, 0).astype(np.int64)
        return np.where(inside, column_row[:, 1] * self.size + column_row[:, 0], -1)


def _levels(
    pixels: NDArray[np.int64], values: FloatArray, value_range: tuple[float, float], size: int, width: int
) -> NDArray[np.int64]:
    """(size, size) the colour index 0..255 of the highest value in each pixel, -1 where there is none."""
    low, high = value_range
    use = (pixels >= 0) & np.isfinite(values)
    index = np.clip((values[use] - low) / (high - low) * 256, 0, 255).astype(np.int64)
    flat = np.full(size * size, -1, dtype=np.int64)
    np.maximum.at(flat, pixels[use], index)
    level: NDArray[np.int64] = flat.reshape(size, size)
    for axis in (0, 1):  # widen every point, still letting the highest win
        grown = level.copy()
        for step in range(1, width):
            shift = step // 2 + 1 if step % 2 else -(step // 2)
            moved = np.roll(level, shift, axis=axis)
            edge = [slice(None), slice(None)]
            edge[axis] = slice(None, shift) if shift > 0 else slice(shift, None)
            moved[tuple(edge)] = -1  # what rolled around belongs to the other side
            np.maximum(grown, moved, out=grown)
        level = grown
    return level


def _scale_step_m(half: float) -> int:
    """A round length of about a quarter of the view."""
    return max((step for step in SCALE_STEPS_M if step <= half / 2), default=SCALE_STEPS_M[0])


def _with_rings(image: Image, view: _View, colours: Theme) -> Image:
    """Circles around the sensor, one every scale step."""
    picture = PIL.Image.fromarray(image)
    draw = ImageDraw.Draw(picture)
    step = _scale_step_m(view.half)
    [[x, y]] = view.place(np.zeros((1, 2)))
    for k in range(1, int(2 * view.half * 1.5 / step) + 1):
        radius = k * step * view.px_per_m
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), outline=colours.faint)
    return np.array(picture)


def _with_marks(
    image: Image, view: _View, colours: Theme, *, ego: bool, scale_bar: bool, path: FloatArray | None
) -> Image:
    picture = PIL.Image.fromarray(image)
    draw = ImageDraw.Draw(picture)
    if path is not None and len(path) > 1:
        line = [tuple(corner) for corner in view.place(np.asarray(path)[:, :2])]
        draw.line(line, fill=colours.path, width=max(2, view.size // 250))
    if ego:
        tail, nose, side = -EGO_LENGTH_M / 2, EGO_LENGTH_M / 2, EGO_WIDTH_M / 2
        body = np.array([[tail, side], [nose * 0.55, side], [nose, 0], [nose * 0.55, -side], [tail, -side]])
        outline = [tuple(corner) for corner in view.place(body)]
        draw.polygon(outline, outline=colours.ego, fill=colours.ground, width=max(1, view.size // 400))
    if scale_bar:
        step = _scale_step_m(view.half)
        length, margin, thick = step * view.px_per_m, view.size // 32, max(2, view.size // 200)
        bottom = view.size - margin
        draw.rectangle((margin, bottom - thick, margin + length, bottom), fill=colours.text)
        draw.text(
            (margin, bottom - thick - 2), f"{step} m", fill=colours.text, font=font(max(10, view.size // 32)),
            anchor="ls", stroke_width=2, stroke_fill=colours.ground,
        )  # fmt: skip
    return np.array(picture)
