"""Folders that are whole or not there: written beside, fsynced, renamed, and sealed by a manifest.

`manifest.json` names every file with its size and sha256, and carries its own sha256 over its exact bytes, so any
changed byte in the folder is noticed before a file is used. Names in a manifest are plain file names: a folder can
neither reach outside itself nor be read through a symbolic link.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from copilot4d.errors import DataError

MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 16_000_000
PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,200}")
SUFFIXES = (".safetensors", ".json", ".yaml", ".md")
WRITING = ".writing-"


class DamagedError(DataError):
    """The folder's bytes are not the ones that were written."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a manifest says; its own bytes were checked."""

    folder: Path
    content: Mapping[str, Any]
    files: Mapping[str, Mapping[str, Any]]  # name -> bytes, sha256


@dataclass(frozen=True, kw_only=True)
class Sealed:
    """A folder whose every byte was checked, and what its manifest says."""

    path: Path
    content: Mapping[str, Any]
    files: Mapping[str, str]  # name -> sha256


@contextlib.contextmanager
def new_folder(final: Path) -> Iterator[Path]:
    """A folder to fill beside `final`, which takes its name only when all is on the disk; removed on any error."""
    final.parent.mkdir(parents=True, exist_ok=True)
    writing = final.parent / f"{WRITING}{final.name}-{os.getpid()}"
    if writing.exists():
        shutil.rmtree(writing)
    writing.mkdir()
    try:
        yield writing
        for file in sorted(writing.iterdir()):
            fsync(file)
        fsync(writing)
        if final.exists():  # only a folder that could not be used is replaced; its bytes go when the new ones stand
            old = final.parent / f"{WRITING}old-{final.name}-{os.getpid()}"
            final.rename(old)
            writing.rename(final)
            fsync(final.parent)
            shutil.rmtree(old)
        else:
            writing.rename(final)
            fsync(final.parent)
    except BaseException:
        shutil.rmtree(writing, ignore_errors=True)  # frees the space of a save that found the disk full
        raise


def remove_unfinished(parent: Path) -> None:
    """Delete what killed writers left behind."""
    for leftover in parent.glob(f"{WRITING}*"):
        if leftover.is_dir() and not leftover.is_symlink():
            shutil.rmtree(leftover, ignore_errors=True)


def fsync(path: Path) -> None:
    """Force a file's or folder's bytes to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def seal(folder: Path, *, kind: str, version: int, content: Mapping[str, Any]) -> None:
    """Write the manifest over all files that are in the folder now."""
    files = {
        file.name: {"bytes": file.stat().st_size, "sha256": sha256_of(file)}
        for file in sorted(folder.iterdir())
        if file.name.endswith(SUFFIXES) and file.name != MANIFEST
    }
    body = {"kind": kind, "version": version, "files": files, "content": dict(content)}
    writing = folder / f"{MANIFEST}.tmp"
    writing.write_bytes(_sealed_bytes(body))
    writing.replace(folder / MANIFEST)


def open_sealed(folder: str | Path, *, kind: str, version: int) -> Sealed:
    """Check every byte of a sealed folder. Files that its manifest does not name are never opened.

    Raises DamagedError where bytes are missing or changed, DataError where the folder is something else.
    """
    manifest = read_manifest(folder, kind=kind, version=version)
    for name, entry in manifest.files.items():
        _check_file(manifest.folder, name, entry)
    hashes = {name: str(entry["sha256"]) for name, entry in manifest.files.items()}
    return Sealed(path=manifest.folder, content=manifest.content, files=hashes)


def read_manifest(folder: str | Path, *, kind: str, version: int) -> Manifest:
    """Check a manifest and the names in it, but not yet the files: for folders too large to read at each start."""
    folder = Path(folder)
    body = _read_manifest(folder / MANIFEST)
    if body.get("kind") != kind:
        raise _wrong(folder / MANIFEST, "kind", kind, repr(body.get("kind")), f"pass a folder of kind {kind}")
    if not isinstance(body.get("version"), int) or not 1 <= body["version"] <= version:
        remedy = "update copilot4d: the folder is from a newer one"
        raise _wrong(folder / MANIFEST, "version", f"1 to {version}", repr(body.get("version")), remedy)
    files, content = body.get("files"), body.get("content")
    if not isinstance(files, dict) or not isinstance(content, dict):
        raise _damaged(folder / MANIFEST, "structure", "files and content", "something else")
    for name, entry in files.items():
        safe_member(folder, name)
        if not isinstance(entry, dict) or not {"bytes", "sha256"} <= set(entry):
            raise _damaged(folder / MANIFEST, f"files.{name}", "bytes and sha256", repr(entry))
    return Manifest(folder=folder, content=content, files=files)


def safe_member(folder: Path, name: object) -> Path:
    """The path of a file that a manifest names, if the name is plain and the file is a regular one inside."""
    if not isinstance(name, str) or not PLAIN_NAME.fullmatch(name) or not name.endswith(SUFFIXES):
        expected = f"plain names that end in {', '.join(SUFFIXES)}"
        raise _wrong(folder / MANIFEST, "file name", expected, repr(name), "do not use this folder")
    path = folder / name
    if path.is_symlink():
        raise _wrong(path, "file", "a regular file", "a symbolic link", "do not use this folder, or copy the file")
    return path


def sealed_part(folder: Path, name: str) -> Path | None:
    """A folder inside a model folder, which must be sealed and no symbolic link; None where there is none.

    Without its manifest a changed byte would go unnoticed: a part that has lost it is refused, not trusted.
    """
    part = folder / name
    if part.is_symlink():
        raise _wrong(part, "folder", "a folder", "a symbolic link", "do not use this model, or copy the folder")
    if not part.is_dir():
        return None
    if (part / MANIFEST).is_symlink() or not (part / MANIFEST).is_file():
        raise _damaged(part / MANIFEST, "manifest", "the manifest that was written with the folder", "none")
    return part


def sha256_of(path: Path) -> str:
    """The sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else _sha256(file)


def no_space_left(error: BaseException) -> bool:
    """Whether a failed write means a full disk, an exhausted quota or a file size limit."""
    codes = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    if isinstance(error, OSError):
        return error.errno in codes
    # safetensors reports the operating system's error inside its own
    return type(error).__name__ == "SafetensorError" and any(f"os error {code})" in str(error) for code in codes)


def _sha256(file: Any) -> str:
    digest = hashlib.sha256()
    while chunk := file.read(1 << 20):
        digest.update(chunk)
    return digest.hexdigest()


def _canonical(body: Mapping[str, Any]) -> bytes:
    return (json.dumps(body, sort_keys=True, indent=1) + "\n").encode("ascii")


def _sealed_bytes(body: Mapping[str, Any]) -> bytes:
    return _canonical({**body, "sha256": hashlib.sha256(_canonical(body)).hexdigest()})


def _read_manifest(path: Path) -> dict[str, Any]:
    if not path.is_file() or path.is_symlink():
        raise _damaged(path, "manifest", "a file", "none")
    if path.stat().st_size > MAX_MANIFEST_BYTES:
        raise _damaged(path, "manifest", f"at most {MAX_MANIFEST_BYTES} bytes", f"{path.stat().st_size}")
    data = path.read_bytes()
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, "manifest", "JSON", str(error)) from error
    if not isinstance(body, dict):
        raise _damaged(path, "manifest", "an object", type(body).__name__)
    claimed = body.pop("sha256", None)
    # The exact bytes count: a changed blank is damage too.
    if _sealed_bytes(body) != data:
        raise _damaged(path, "sha256", str(claimed), hashlib.sha256(_canonical(body)).hexdigest())
    return body


def _check_file(folder: Path, name: str, entry: Mapping[str, Any]) -> None:
    path = safe_member(folder, name)
    if not path.is_file():
        raise _damaged(path, "file", f"{entry['bytes']} bytes", "no file")
    if path.stat().st_size != entry["bytes"]:
        raise _damaged(path, "size", f"{entry['bytes']} bytes", f"{path.stat().st_size} bytes")
    found = sha256_of(path)
    if found != entry["sha256"]:
        raise _damaged(path, "sha256", str(entry["sha256"]), found)


def _wrong(path: Path, field: str, expected: str, found: str, remedy: str) -> DataError:
    return DataError(path, field, expected=expected, found=found, remedy=remedy)


def _damaged(path: Path, field: str, expected: str, found: str) -> DamagedError:
    remedy = "copy the folder again or use another checkpoint"
    return DamagedError(path, field, expected=expected, found=found, remedy=remedy)
