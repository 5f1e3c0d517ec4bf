"""Where a verb is to write is checked before the work: hours must not end at a folder that cannot be written."""

from __future__ import annotations

import os
from pathlib import Path

from copilot4d.errors import UsageError


def check_output_file(option: str, path: Path, example: str) -> None:
    """UsageError where the file of `option` (say "--out") cannot be written; `example` is a file name to suggest.

    Folders that are missing are fine: they are made when the file is written.
    """
    try:
        if path.is_dir():
            raise UsageError(f"{option} {path} is a folder; name the file to write, e.g. {path / example}")
        if path.exists() and not os.access(path, os.W_OK):
            raise UsageError(f"{option} {path} cannot be written: you may not change this file; name another one")
        _check_nearest_folder(option, path, path.parent)
    except OSError as error:  # a name that is too long, or a folder that may not be looked into
        raise UsageError(f"{option} {path} cannot be written: {error.strerror}") from error


def check_output_folder(option: str, path: Path) -> None:
    """UsageError where files cannot be written into the folder of `option`, which is made if it is missing."""
    try:
        if path.exists() and not path.is_dir():
            raise UsageError(f"{option} {path} is a file; name a folder")
        _check_nearest_folder(option, path, path)
    except OSError as error:
        raise UsageError(f"{option} {path} cannot be written: {error.strerror}") from error


def _check_nearest_folder(option: str, path: Path, folder: Path) -> None:
    """The nearest folder that exists is the one in which something has to be made."""
    nearest = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise UsageError(f"{option} {path} cannot be written: {nearest} is not a folder that you may write to")
