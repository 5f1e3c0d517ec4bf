"""Writing a token cache: drive by drive, resumable, over several ranks, sealed at the end."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from copilot4d.checkpoints.sealed_folder import MANIFEST, fsync, no_space_left, seal
from copilot4d.config import differences, to_mapping
from copilot4d.errors import DataError, TrainingError, UsageError
from copilot4d.geometry import Drive
from copilot4d.progress import Track, silent
from copilot4d.tokens.token_cache import (
    KIND,
    VERSION,
    CacheContent,
    CachedDrive,
    DriveEncoder,
    TokenCacheConfig,
    drive_fingerprint,
)
from copilot4d.tokens.variant_file import VariantFile

DRIVE_FILE = re.compile(r"drive_[0-9a-f]{16}\.safetensors")
UNFINISHED_FILE = re.compile(r"writing_drive_[0-9a-f]{16}\.tmp|manifest\.json\.tmp")


class Ranks(Protocol):
    """The processes that share the work, as training's `World` has them."""

    @property
    def rank(self) -> int:
        """Of this process."""
        ...

    @property
    def size(self) -> int:
        """How many there are."""
        ...

    @property
    def is_first(self) -> bool:
        """Whether this one seals the cache."""
        ...

    def barrier(self) -> None:
        """Wait for all."""
        ...

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Over all processes."""
        ...


@dataclass(frozen=True, kw_only=True)
class WrittenCache:
    """What a run of `write_token_cache` did."""

    folder: Path
    made: tuple[str, ...]  # drives
    kept: tuple[str, ...]  # that an earlier run had made
    sweeps: int  # that were encoded, over all ranks


def write_token_cache(
    folder: Path,
    drives: Sequence[Drive],
    encoder: DriveEncoder,
    config: TokenCacheConfig,
    world: Ranks,
    *,
    held_out: Sequence[str] = (),
    command: str = "",
    overwrite: bool = False,
    track: Track = silent,
) -> WrittenCache:
    """Tokenise drives into a folder. Drives that an earlier run finished with the same tokenizer and settings are kept.

    Under torchrun each rank takes every n-th of the others; the folder must be one that all ranks see. A folder that
    holds anything else is refused, unless `overwrite`, which replaces tokens (and never touches other files).
    held_out: names of drives that are marked as not to be trained on. command: what to type to make the cache again.
    """
    names = [drive.name for drive in drives]
    if len(set(names)) != len(names):
        raise UsageError("two drives have the same name; a token cache needs one name per drive")
    if drives and not any(encoder.count(drive) for drive in drives):
        raise _too_short(drives, config)
    folder.mkdir(parents=True, exist_ok=True)
    identities = {file_name(d.name): config.identity(d, encoder.intervals(d)) for d in drives}
    found = _found(folder)
    foreign = {file: said for file, said in found.items() if said != identities.get(file)}
    if foreign and not overwrite:
        raise _refusal(folder, foreign, identities, command)
    missing = [d for d in drives if found.get(file_name(d.name)) != identities[file_name(d.name)]]
    world.barrier()  # every rank has seen the folder as it was
    if world.is_first and (foreign or missing):
        (folder / MANIFEST).unlink(missing_ok=True)  # from here on the folder is unfinished
        for file in foreign:
            (folder / file).unlink(missing_ok=True)
    world.barrier()
    mine = missing[world.rank :: world.size]

    def work() -> Iterator[None]:
        for drive in mine:
            path = folder / file_name(drive.name)
            yield from _write_drive(path, drive, encoder, config, identities[path.name])

    total = sum(encoder.count(drive) for drive in mine) * config.variants
    for _ in (track if mine else silent)(work(), "tokenising sweeps", total):
        pass
    everything = int(world.sum(torch.tensor([float(total)]))[0])  # a barrier, too
    if world.is_first:
        for leftover in folder.iterdir():
            if UNFINISHED_FILE.fullmatch(leftover.name):
                leftover.unlink()
        entries = tuple(_entry(folder, drive, encoder, drive.name in held_out) for drive in drives)
        content = CacheContent(config=config, command=command, drives=entries)
        seal(folder, kind=KIND, version=VERSION, content=to_mapping(content))
        fsync(folder / MANIFEST)
    world.barrier()
    made = tuple(drive.name for drive in missing)
    kept = tuple(name for name in names if name not in set(made))
    return WrittenCache(folder=folder, made=made, kept=kept, sweeps=everything)


def file_name(drive_name: str) -> str:
    """Drives are named in the manifest alone, because their names may hold any character."""
    return f"drive_{hashlib.sha256(drive_name.encode()).hexdigest()[:16]}.safetensors"


def _found(folder: Path) -> dict[str, str]:
    """The finished drives in a folder: file name -> identity. Raises where the folder holds other things."""
    found = {}
    for path in sorted(folder.iterdir()):
        if DRIVE_FILE.fullmatch(path.name) and path.is_file() and not path.is_symlink():
            try:
                with safe_open(path, framework="pt") as file:
                    found[path.name] = (file.metadata() or {}).get("identity", "{}")
            except (SafetensorError, OSError):
                continue  # a damaged file is made again
        elif path.name != MANIFEST and not UNFINISHED_FILE.fullmatch(path.name):
            raise UsageError(f"`out` {folder} holds {path.name}, which is no part of a token cache; name a new folder")
    return found


def _refusal(folder: Path, foreign: Mapping[str, str], wanted: Mapping[str, str], command: str) -> DataError:
    """Says in what the tokens that are there differ from those that were asked for."""
    stated = {file: json.loads(said) for file, said in foreign.items()}
    names = ", ".join(sorted(str(said.get("drive")) for said in stated.values())[:6])
    expected, found = "only the drives that were asked for", f"also {len(foreign)} others ({names})"
    changed = next((file for file in foreign if file in wanted), None)
    if changed is not None:
        asked = json.loads(wanted[changed])
        keys = differences(asked, stated[changed])
        expected = f"tokens of these settings: {_shown(asked, keys)}"
        found = f"{len(foreign)} drives with {_shown(stated[changed], keys)}"
    remedy = "choose another `out`, or replace what is there"
    return DataError(folder, "token cache", expected=expected, found=found,
                     remedy=f"{remedy}: {command} --overwrite" if command else remedy)  # fmt: skip


def _too_short(drives: Sequence[Drive], config: TokenCacheConfig) -> DataError:
    longest = max(drives, key=len)
    wanted = f"a clip of {config.past_frames} + {config.future_frames} frames, intervals {', '.join(config.intervals)}"
    found = f"none of the {len(drives)} drives is long enough; the longest, {longest.name}, has {len(longest)}"
    return DataError(longest.source or longest.name, "sweeps", expected=wanted, found=found,
                     remedy="take longer drives, or smaller --intervals, --past-frames or --future-frames")  # fmt: skip


def _shown(stated: Mapping[str, Any], keys: Sequence[str]) -> str:
    parts = []
    for key in keys:
        value: Any = stated
        for name in key.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        if value is not None:
            parts.append(f"{key} {value[:12] if isinstance(value, str) else value}")
    return ", ".join(parts[:6]) or "others"


def _write_drive(
    path: Path, drive: Drive, encoder: DriveEncoder, config: TokenCacheConfig, identity: str
) -> Iterator[None]:
    temporary = path.with_name(f"writing_{path.stem}.tmp")
    try:
        with VariantFile(temporary, config.variants, metadata={"identity": identity}) as file:
            for variant in range(config.variants):
                augmented = config.variant(drive.name, variant).drive(drive)
                encoded = dict((yield from encoder.encode(augmented)))
                poses, times = augmented.world_from_lidar, augmented.timestamps_ns
                encoded["world_from_lidar"] = torch.from_numpy(np.ascontiguousarray(poses, np.float64))
                encoded["timestamps_ns"] = torch.from_numpy(np.ascontiguousarray(times, np.int64))
                file.add(encoded)
                del encoded  # before the next variant is made
        fsync(temporary)
        temporary.replace(path)
    except OSError as error:
        if no_space_left(error):
            raise TrainingError(f"{path}: the disk is full; make room and start the same command again") from error
        raise
    finally:
        temporary.unlink(missing_ok=True)  # what was not finished; a finished file has its own name by now


def _entry(folder: Path, drive: Drive, encoder: DriveEncoder, held_out: bool) -> CachedDrive:
    with safe_open(folder / file_name(drive.name), framework="pt") as file:
        shape = file.get_slice("0/tokens").get_shape()
    return CachedDrive(
        name=drive.name,
        file=file_name(drive.name),
        frames=len(drive),
        clips=shape[0] if len(shape) == 4 else 0,
        intervals=encoder.intervals(drive),
        format=drive.format,
        split=drive.split,
        held_out=held_out,
        fingerprint=drive_fingerprint(drive),
    )
