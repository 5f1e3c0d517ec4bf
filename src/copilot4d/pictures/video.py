"""Films: GIF by pillow, MP4 by the ffmpeg that imageio-ffmpeg carries."""

from __future__ import annotations

import itertools
import subprocess
import tempfile
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import PIL.Image

from copilot4d.errors import Copilot4dError, UsageError
from copilot4d.pictures.files import write_bytes, written_beside
from copilot4d.pictures.ink import Image, check_image


def encode_gif(frames: Iterable[Image], *, fps: float = 5.0, colours: int = 128) -> bytes:
    """A film that repeats for ever, as the bytes of a GIF file. All frames share one size and one palette."""
    images = _same_size(frames)
    if not fps > 0:
        raise UsageError(f"a film needs fps > 0, got {fps}")
    # One palette, made from all frames: a palette per frame makes still parts flicker.
    every = PIL.Image.fromarray(np.concatenate([image[::2, ::2] for image in images], axis=0))
    palette = every.quantize(colors=colours, dither=PIL.Image.Dither.NONE)
    pictures = [PIL.Image.fromarray(image).quantize(palette=palette, dither=PIL.Image.Dither.NONE) for image in images]
    buffer = BytesIO()
    pictures[0].save(
        buffer, format="GIF", save_all=True, append_images=pictures[1:], duration=max(20, round(1000 / fps)), loop=0,
        optimize=False,
    )  # fmt: skip
    return buffer.getvalue()


def write_gif(path: str | Path, frames: Iterable[Image], *, fps: float = 5.0, colours: int = 128) -> Path:
    """Write a film that repeats for ever."""
    return write_bytes(path, encode_gif(frames, fps=fps, colours=colours))


def write_mp4(path: str | Path, frames: Iterable[Image], *, fps: float = 5.0, quality: int = 20) -> Path:
    """Write an H.264 film that browsers and slides play. quality: 0 (best) ... 51, as x264's crf.

    Frames are taken one by one and piped: a long film needs no memory. H.264 wants even sizes, so an odd width or
    height grows by one pixel that repeats the edge.
    """
    if not fps > 0:
        raise UsageError(f"a film needs fps > 0, got {fps}")
    stream = iter(frames)
    first = next(stream, None)
    if first is None:
        raise UsageError("a film needs at least one frame, got none")
    first = _even(check_image(first))
    height, width = first.shape[:2]
    with written_beside(path) as part:
        command = [
            imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24",
            "-s", f"{width}x{height}", "-r", f"{fps:g}", "-i", "-", "-an", "-c:v", "libx264", "-pix_fmt", "yuv420p",
            "-crf", str(quality), "-movflags", "+faststart", "-f", "mp4", str(part),
        ]  # fmt: skip
        with tempfile.TemporaryFile() as complaints:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=complaints)
            assert process.stdin is not None
            try:
                for number, frame in enumerate(itertools.chain([first], stream)):
                    even = _even(check_image(frame))
                    _check_same_size(number, even, first)
                    process.stdin.write(even.tobytes())
                process.stdin.close()
            except BrokenPipeError:
                pass  # ffmpeg has ended early: its own words say why
            except BaseException:
                process.kill()
                raise
            finally:
                process.wait()
            if process.returncode != 0:
                complaints.seek(0)
                words = complaints.read().decode(errors="replace").strip()[-500:]
                raise Copilot4dError(f"ffmpeg could not write {path}: {words}; write a .gif instead")
    return Path(path)


def _same_size(frames: Iterable[Image]) -> list[Image]:
    images = [check_image(frame) for frame in frames]
    if not images:
        raise UsageError("a film needs at least one frame, got none")
    for number, image in enumerate(images):
        _check_same_size(number, image, images[0])
    return images


def _check_same_size(number: int, image: Image, first: Image) -> None:
    if image.shape != first.shape:
        raise UsageError(f"all frames of a film need one size: frame {number} is {image.shape}, not {first.shape}")


def _even(image: Image) -> Image:
    height, width = image.shape[:2]
    return np.pad(image, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
