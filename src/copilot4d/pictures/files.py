"""Images on disk. A file is written beside its place and renamed when whole, so that none is ever half."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import PIL.Image

from copilot4d.pictures.ink import Image, check_image


def encode_png(image: Image) -> bytes:
    """The image as the bytes of a PNG file."""
    buffer = BytesIO()
    PIL.Image.fromarray(check_image(image)).save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def write_png(path: str | Path, image: Image) -> Path:
    """Write one image."""
    return write_bytes(path, encode_png(image))


def write_bytes(path: str | Path, content: bytes) -> Path:
    """Write a whole file at once."""
    with written_beside(path) as part:
        part.write_bytes(content)
    return Path(path)


@contextmanager
def written_beside(path: str | Path) -> Iterator[Path]:
    """A place in the same folder, which becomes `path` when the block ends well and vanishes when it does not."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part{os.getpid()}")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
