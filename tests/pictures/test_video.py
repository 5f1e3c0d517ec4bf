from __future__ import annotations

import subprocess
from io import BytesIO
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import PIL.Image
import pytest

from copilot4d.errors import UsageError
from copilot4d.pictures import encode_gif, encode_png, write_gif, write_mp4, write_png


def frames(count: int = 4, height: int = 48, width: int = 64) -> list[np.ndarray]:
    """A bright bar that moves to the right by 10 pixels a frame."""
    film = np.zeros((count, height, width, 3), dtype=np.uint8)
    for k in range(count):
        film[k, :, 10 * k : 10 * k + 8] = (255, 200, 40)
    return list(film)


def decode_mp4(path: Path) -> np.ndarray:
    """(T, H, W, 3) by ffmpeg itself."""
    reader = imageio_ffmpeg.read_frames(str(path))
    width, height = next(reader)["size"]
    return np.stack([np.frombuffer(raw, np.uint8).reshape(height, width, 3) for raw in reader])


def test_png_gives_the_pixels_back(tmp_path: Path) -> None:
    image = np.random.default_rng(0).integers(0, 256, (13, 7, 3), dtype=np.uint8)
    read = np.array(PIL.Image.open(write_png(tmp_path / "new" / "a.png", image)))
    np.testing.assert_array_equal(read, image)
    np.testing.assert_array_equal(np.array(PIL.Image.open(BytesIO(encode_png(image)))), image)


def test_gif_keeps_frames_their_order_and_the_speed(tmp_path: Path) -> None:
    film = PIL.Image.open(write_gif(tmp_path / "a.gif", frames(), fps=4))
    assert film.n_frames == 4
    assert film.info["duration"] == 250
    assert film.info["loop"] == 0
    for k, expected in enumerate(frames()):
        film.seek(k)
        shown = np.array(film.convert("RGB")).astype(int)
        assert np.abs(shown - expected).mean() < 5


@pytest.mark.parametrize(("height", "width"), [(48, 64), (47, 63)])
def test_mp4_plays_the_frames_also_of_odd_sizes(tmp_path: Path, height: int, width: int) -> None:
    film = decode_mp4(write_mp4(tmp_path / "a.mp4", iter(frames(height=height, width=width)), fps=5))
    assert film.shape == (4, 48, 64, 3)
    for k, expected in enumerate(frames(height=height, width=width)):
        brightness = film[k, :, :, 0].mean(axis=0)
        assert abs(int(np.argmax(np.convolve(brightness, np.ones(8), "valid"))) - 10 * k) <= 1
        assert np.abs(film[k, :height, :width].astype(int) - expected).mean() < 12


def test_mp4_is_of_a_kind_that_browsers_play(tmp_path: Path) -> None:
    path = write_mp4(tmp_path / "a.mp4", frames())
    words = subprocess.run(
        [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(path)], capture_output=True, text=True, check=False
    ).stderr
    assert "h264" in words
    assert "yuv420p" in words


@pytest.mark.parametrize("write", [write_gif, write_mp4])
def test_bad_films_are_refused_and_leave_nothing_behind(tmp_path: Path, write: object) -> None:
    with pytest.raises(UsageError, match="at least one frame"):
        write(tmp_path / "a.film", [])
    with pytest.raises(UsageError, match="frame 2"):
        write(tmp_path / "a.film", [*frames(2), frames(1, height=50)[0]])
    with pytest.raises(UsageError, match="fps"):
        write(tmp_path / "a.film", frames(), fps=0)
    assert list(tmp_path.iterdir()) == []


def test_gif_of_one_frame() -> None:
    assert PIL.Image.open(BytesIO(encode_gif(frames(1)))).size == (64, 48)
