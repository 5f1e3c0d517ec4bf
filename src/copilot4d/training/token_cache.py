"""The token cache: every drive through the tokenizer once, in several augmented variants, before a world model trains.

One safetensors file per drive, whose tensors are named `variant/name`: whatever the encoder gives for a drive (tokens),
and the variant's poses and timestamps. `manifest.json` names the tokenizer's hash, the data's fingerprint and the
augmentations; a cache made by another tokenizer or from other data is refused with the command that makes a new one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from copilot4d.config import from_mapping, to_mapping
from copilot4d.errors import DataError, TrainingError, UsageError
from copilot4d.geometry import Drive
from copilot4d.progress import Track, silent
from copilot4d.training.augmentation import Augmentation, AugmentationConfig
from copilot4d.training.counter import SampleKey, counter_generator, stream_key
from copilot4d.training.distributed import World
from copilot4d.training.sealed_folder import (
    MANIFEST,
    fsync,
    no_space_left,
    open_sealed,
    read_manifest,
    safe_member,
    seal,
)

KIND = "copilot4d.tokens"
VERSION = 1

EncodeDrive = Callable[[Drive], Mapping[str, torch.Tensor]]


@dataclass(frozen=True, kw_only=True)
class TokenCacheConfig:
    """What is cached. Variant 0 is the drive as it is; the others are augmented."""

    tokenizer_sha256: str  # of the tokenizer's model.safetensors
    data_fingerprint: str
    variants: int = 1
    augmentation: AugmentationConfig
    seed: int = 0

    def __post_init__(self) -> None:
        if self.variants < 1:
            raise UsageError(f"--variants must be at least 1, got {self.variants}")

    def variant(self, drive_name: str, variant: int) -> Augmentation:
        """The augmentation of one variant of one drive: by the seed, the name and the number alone."""
        if variant == 0:
            return Augmentation()
        return self.augmentation.draw(counter_generator(self.seed, "variant", stream_key(drive_name), variant))


@dataclass(frozen=True, kw_only=True)
class CachedDrive:
    """One drive in a cache."""

    name: str
    file: str
    frames: int


@dataclass(frozen=True, kw_only=True)
class _Content:
    """What the manifest of a cache says."""

    config: TokenCacheConfig
    drives: tuple[CachedDrive, ...]


def write_token_cache(
    folder: Path, drives: Sequence[Drive], encode: EncodeDrive, config: TokenCacheConfig, world: World,
    *, track: Track = silent,
) -> Path:  # fmt: skip
    """Tokenise drives into a folder. An interrupted run goes on with the drives that are missing.

    Under torchrun each rank takes every n-th drive; the folder must be one that all ranks see.
    """
    names = [drive.name for drive in drives]
    if len(set(names)) != len(names):
        raise UsageError("two drives have the same name; a token cache needs one name per drive")
    folder.mkdir(parents=True, exist_ok=True)
    mine = list(range(world.rank, len(drives), world.size))
    for i in track(mine, "tokenising drives", len(mine)):
        path = folder / file_name(i)
        if not _is_done(path, _identity(config, drives[i].name)):
            _write_drive(path, drives[i], encode, config)
    world.barrier()
    if world.is_first:
        for leftover in folder.glob("*.safetensors"):  # drives of an older, longer list would be sealed otherwise
            if leftover.name not in {file_name(i) for i in range(len(drives))}:
                leftover.unlink()
        entries = [CachedDrive(name=d.name, file=file_name(i), frames=len(d)) for i, d in enumerate(drives)]
        content = _Content(config=config, drives=tuple(entries))
        seal(folder, kind=KIND, version=VERSION, content=to_mapping(content))
        fsync(folder / MANIFEST)
    world.barrier()
    return folder


def file_name(index: int) -> str:
    """Drives are named in the manifest alone: their names may hold any character."""
    return f"drive_{index:05d}.safetensors"


@dataclass(frozen=True, kw_only=True)
class TokenCache:
    """A token cache that fits its tokenizer and data."""

    folder: Path
    config: TokenCacheConfig
    files: Mapping[str, str]  # drive name -> file name
    frames: Mapping[str, int]

    @property
    def drives(self) -> tuple[str, ...]:
        """Names of the drives, in the order of the cache."""
        return tuple(self.files)

    def variant_of(self, key: SampleKey) -> int:
        """Which variant a sample uses: by the counter."""
        return int(key.generator("variant").integers(0, self.config.variants))

    def read(self, drive: str, variant: int, name: str, frames: slice = slice(None)) -> torch.Tensor:
        """Some frames of one tensor of a drive's variant; no more than these are read from the disk.

        name: what the encoder gave, or "world_from_lidar" (frames, 4, 4), or "timestamps_ns" (frames,).
        """
        if drive not in self.files:
            raise UsageError(f"{self.folder} has no drive {drive!r}; its drives: {', '.join(self.drives[:12])}")
        if not 0 <= variant < self.config.variants:
            raise UsageError(f"{self.folder} has variants 0 to {self.config.variants - 1}, not {variant}")
        path = safe_member(self.folder, self.files[drive])
        try:
            with safe_open(path, framework="pt") as file:
                result: torch.Tensor = file.get_slice(f"{variant}/{name}")[frames]
                return result
        except (SafetensorError, OSError) as error:
            raise DataError(path, f"{variant}/{name}", expected="a tensor", found=str(error),
                            remedy="run copilot4d tokenize again") from error  # fmt: skip

    def verify(self) -> None:
        """Check every byte against the manifest."""
        open_sealed(self.folder, kind=KIND, version=VERSION)


def open_token_cache(folder: str | Path, *, tokenizer_sha256: str, data_fingerprint: str, command: str) -> TokenCache:
    """Open a cache, unless it is stale (other tokenizer) or foreign (other data); `command` makes a new one."""
    folder = Path(folder)
    remedy = f"make the cache anew: {command}"
    if not (folder / MANIFEST).is_file():
        raise DataError(folder, "token cache", expected="a finished token cache", found="no manifest", remedy=remedy)
    manifest = read_manifest(folder, kind=KIND, version=VERSION)
    content = from_mapping(_Content, manifest.content, source=folder / MANIFEST)
    config = content.config
    if config.tokenizer_sha256 != tokenizer_sha256:
        raise DataError(folder, "tokenizer", expected=f"tokens of tokenizer {tokenizer_sha256[:12]}",
                        found=f"tokens of {config.tokenizer_sha256[:12]}", remedy=remedy)  # fmt: skip
    if config.data_fingerprint != data_fingerprint:
        raise DataError(folder, "data", expected=f"tokens of the data {data_fingerprint}",
                        found=f"tokens of {config.data_fingerprint}", remedy=remedy)  # fmt: skip
    for drive in content.drives:
        path = safe_member(folder, drive.file)
        found = path.stat().st_size if path.is_file() else "none"
        expected = manifest.files.get(drive.file, {}).get("bytes")
        if found != expected:
            raise DataError(path, "bytes", expected=str(expected), found=str(found), remedy=remedy)
    return TokenCache(
        folder=folder,
        config=config,
        files={drive.name: drive.file for drive in content.drives},
        frames={drive.name: drive.frames for drive in content.drives},
    )


def _identity(config: TokenCacheConfig, drive: str) -> str:
    return json.dumps({"drive": drive, **to_mapping(config)}, sort_keys=True)


def _is_done(path: Path, identity: str) -> bool:
    """Whether a killed run finished this drive with the same tokenizer and settings."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
    except (SafetensorError, OSError):
        return False
    return metadata.get("identity") == identity


def _write_drive(path: Path, drive: Drive, encode: EncodeDrive, config: TokenCacheConfig) -> None:
    tensors: dict[str, torch.Tensor] = {}
    for variant in range(config.variants):
        augmented = config.variant(drive.name, variant).drive(drive)
        encoded: dict[str, Any] = dict(encode(augmented))
        encoded["world_from_lidar"] = torch.from_numpy(np.ascontiguousarray(augmented.world_from_lidar, np.float64))
        encoded["timestamps_ns"] = torch.from_numpy(np.ascontiguousarray(augmented.timestamps_ns, np.int64))
        for name, tensor in encoded.items():  # copies: variants may share memory, which safetensors refuses
            tensors[f"{variant}/{name}"] = tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
    temporary = path.with_name(f"writing_{path.stem}.tmp")
    try:
        save_file(tensors, temporary, metadata={"identity": _identity(config, drive.name)})
        fsync(temporary)
        temporary.replace(path)
    except (OSError, SafetensorError) as error:
        temporary.unlink(missing_ok=True)
        if no_space_left(error):
            raise TrainingError(f"{path}: the disk is full; make room and start the same command again") from error
        raise
