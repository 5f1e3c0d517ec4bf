"""The token cache: every drive through the tokenizer once, in several augmented variants, before a world model trains.

One safetensors file per drive, whose tensors are named `variant/name`:

    tokens             own: (frames, H, W); reference: (clips, T, H, W); int16
    expected           of the same shape, where asked for: tokens of the past carried on; the vocabulary in past frames
    columns            of the same shape, where asked for: what each column holds (`copilot4d.tokens.columns`); uint8
    clip_frames        reference only: (clips, T) which frames of the drive; references, intervals (clips,)
    world_from_lidar   (frames, 4, 4) float64, of the variant
    timestamps_ns      (frames,)

`manifest.json` names the tokenizer's hash, the frame that tokens are in, the drives and their fingerprints. A cache of
another tokenizer or of other data is refused with the command that makes a new one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, get_args

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from copilot4d.checkpoints.sealed_folder import MANIFEST, open_sealed, read_manifest, safe_member, sha256_of
from copilot4d.config import from_mapping, to_mapping
from copilot4d.counter import SampleKey, counter_generator, stream_key
from copilot4d.errors import DataError, UsageError
from copilot4d.geometry import Drive, VoxelGrid
from copilot4d.tokens.augmentation import Augmentation, AugmentationConfig
from copilot4d.tokens.drive_table import DriveTable, write_rows
from copilot4d.tokens.index_file import IndexWriter, kept_index
from copilot4d.world_model.actions import TokenFrame

KIND = "copilot4d.tokens"
VERSION = 1
LARGE_MANIFEST_BYTES = 100_000  # of some 200 drives: from here on an index holds what a manifest says of them
ONLY_CLIPS = ("intervals", "past_frames", "future_frames", "reference_every")  # what tokens in their own frame ignore


@dataclass(frozen=True, kw_only=True)
class TokenCacheConfig:
    """What is cached. Variant 0 is the drive as it is; the others are augmented."""

    tokenizer_sha256: str  # of `load_tokenizer.tokenizer_sha256`
    vocabulary: int
    token_shape: tuple[int, int]  # of a sweep, along x and y
    grid: VoxelGrid  # the tokenizer's
    token_frame: TokenFrame = "own"
    intervals: tuple[str, ...] = ("protocol",)  # between two frames of a clip: "0.2s", "2" frames of the log
    past_frames: int = 5
    future_frames: int = 5
    reference_every: int = 5  # frames of the log from one clip's reference to the next one's
    gathered_past: bool = False  # a clip's oldest frame is of all its past sweeps gathered
    expected: bool = False  # whether tokens of the past carried on (`copilot4d.motion`) are cached, too
    columns: bool = False  # whether what each column holds is cached, too
    variants: int = 1
    augmentation: AugmentationConfig
    seed: int = 0

    def __post_init__(self) -> None:
        if self.token_frame not in get_args(TokenFrame):
            raise UsageError(f"`token_frame` is one of {', '.join(get_args(TokenFrame))}, got {self.token_frame!r}")
        for name in ("variants", "past_frames", "future_frames", "reference_every"):
            if getattr(self, name) < 1:
                raise UsageError(f"`{name}` must be at least 1, got {getattr(self, name)}")
        if self.gathered_past and self.token_frame != "reference":
            raise UsageError("`gathered_past` needs `token_frame` reference: sweeps are gathered in one frame")
        if self.expected and self.token_frame != "reference":
            raise UsageError("`expected` needs `token_frame` reference: what is expected depends on where a clip ends")
        if not self.intervals:
            raise UsageError("`intervals` needs at least one interval, such as 0.2s")

    @property
    def dtype(self) -> torch.dtype:
        """Of the tokens on disk."""
        return torch.int16 if self.vocabulary <= 1 << 15 else torch.int32

    def variant(self, drive_name: str, variant: int) -> Augmentation:
        """The augmentation of one variant of one drive: by the seed, the name and the number alone."""
        if variant == 0:
            return Augmentation()
        return self.augmentation.draw(counter_generator(self.seed, "variant", stream_key(drive_name), variant))

    def identity(self, drive: Drive, intervals: Sequence[int]) -> str:
        """All that decides the tokens of a drive, as a text: a drive whose file says the same is not made again."""
        stated = to_mapping(self)
        stated["intervals"] = list(intervals)
        if not self.gathered_past:
            del stated["gathered_past"]  # caches from before it could be asked for say the same
        if not self.columns:
            del stated["columns"]
        if not self.expected:
            del stated["expected"]
        if self.token_frame == "own":
            stated = {name: value for name, value in stated.items() if name not in ONLY_CLIPS}
        return json.dumps({"drive": drive.name, "data": drive_fingerprint(drive), **stated}, sort_keys=True)


class DriveEncoder(Protocol):
    """Makes the tokens of a drive. `tokenize_drives.ClipEncoder` is the real one."""

    def intervals(self, drive: Drive) -> tuple[int, ...]:
        """The intervals of its clips, in frames of this drive's log."""
        ...

    def count(self, drive: Drive) -> int:
        """How many sweeps `encode` will go through."""
        ...

    def encode(self, drive: Drive) -> Generator[None, None, Mapping[str, torch.Tensor]]:
        """Yields once per sweep, for the progress bar, and returns the tensors to keep."""
        ...


@dataclass(frozen=True, kw_only=True)
class CachedDrive:
    """One drive in a cache."""

    name: str
    file: str
    frames: int
    clips: int  # cached ones; 0 where every sweep is in its own frame
    intervals: tuple[int, ...]  # in frames of the log: those of its clips, or those to train with
    format: str  # of the data set: it decides which sweeps are neighbours
    split: str | None
    held_out: bool  # not to be trained on
    fingerprint: str


@dataclass(frozen=True, kw_only=True)
class CacheContent:
    """What the manifest of a cache says."""

    config: TokenCacheConfig
    command: str  # that made it
    drives: tuple[CachedDrive, ...]


@dataclass(frozen=True, kw_only=True)
class TokenCache:
    """A finished token cache."""

    folder: Path
    config: TokenCacheConfig
    command: str
    drives: Mapping[str, CachedDrive]  # by name, in the order of the cache
    sha256: Mapping[str, str]  # of each drive's file, by the drive's name
    manifest_sha256: str  # names everything in it

    @property
    def data_fingerprint(self) -> str:
        """Names, times and poses of all drives."""
        return hashlib.sha256("".join(d.fingerprint for d in self.drives.values()).encode()).hexdigest()

    def variant_of(self, key: SampleKey) -> int:
        """Which variant a sample uses: by the counter."""
        return int(key.generator("variant").integers(0, self.config.variants))

    def read(self, drive: str, variant: int, name: str, frames: slice = slice(None)) -> torch.Tensor:
        """Some rows of one tensor of a drive's variant; no more than these are read from the disk."""
        if not 0 <= variant < self.config.variants:
            raise UsageError(f"{self.folder} has variants 0 to {self.config.variants - 1}, not {variant}")
        with self.opened(drive) as file:
            result: torch.Tensor = file.get_slice(f"{variant}/{name}")[frames]
            return result

    @contextlib.contextmanager
    def opened(self, drive: str) -> Iterator[Any]:
        """The safetensors file of a drive; what it lacks becomes a DataError."""
        if drive not in self.drives:
            raise UsageError(f"{self.folder} has no drive {drive!r}; its drives: {', '.join([*self.drives][:12])}")
        path = self.folder / self.drives[drive].file
        try:
            with safe_open(path, framework="pt") as file:
                yield file
        except (SafetensorError, OSError) as error:
            raise DataError(path, "tokens", expected="the tensors of a token cache", found=str(error),
                            remedy=f"make the cache anew: {self.command}") from error  # fmt: skip

    def verify(self) -> None:
        """Check every byte against the manifest."""
        open_sealed(self.folder, kind=KIND, version=VERSION)


def open_token_cache(
    folder: str | Path,
    *,
    tokenizer_sha256: str | None = None,
    data_fingerprint: str | None = None,
    command: str | None = None,
) -> TokenCache:
    """Open a cache, unless it is unfinished, damaged, stale (other tokenizer) or foreign (other data).

    command: makes a new one; by default the one that the cache was made with.
    """
    folder = Path(folder)
    general = command or f"copilot4d tokenize --tokenizer RUN --data PATH --out {folder}"
    if not (folder / MANIFEST).is_file():
        raise DataError(folder, "token cache", expected="a finished token cache", found="no manifest",
                        remedy=f"make or finish the cache: {general}")  # fmt: skip
    cache, sizes = _large_cache(folder) if _is_large(folder) else _small_cache(folder)
    config, remedy = cache.config, f"make the cache anew: {command or cache.command or general}"
    for file, expected in sizes:
        path = safe_member(folder, file)
        found = path.stat().st_size if path.is_file() else "none"
        if found != expected:
            raise DataError(path, "bytes", expected=str(expected), found=str(found), remedy=remedy)
    cache = replace(cache, command=cache.command or general)
    if tokenizer_sha256 not in (None, config.tokenizer_sha256):
        raise DataError(folder, "tokenizer", expected=f"tokens of tokenizer {str(tokenizer_sha256)[:12]}",
                        found=f"tokens of {config.tokenizer_sha256[:12]}", remedy=remedy)  # fmt: skip
    if data_fingerprint not in (None, cache.data_fingerprint):
        raise DataError(folder, "data", expected=f"tokens of the data {str(data_fingerprint)[:12]}",
                        found=f"tokens of {cache.data_fingerprint[:12]}", remedy=remedy)  # fmt: skip
    return cache


_Sizes = Iterable[tuple[str, int | None]]  # files and the bytes that the manifest says they have


def _is_large(folder: Path) -> bool:
    return (folder / MANIFEST).stat().st_size > LARGE_MANIFEST_BYTES


def _small_cache(folder: Path) -> tuple[TokenCache, _Sizes]:
    content, rows = _read_content(folder)
    cache = TokenCache(
        folder=folder,
        config=content.config,
        command=content.command,
        drives={drive.name: drive for drive in content.drives},
        sha256={str(row["name"]): _sha256_of_row(row) for row in rows},
        manifest_sha256=sha256_of(folder / MANIFEST),
    )
    return cache, [_size_of_row(row) for row in rows]


def _large_cache(folder: Path) -> tuple[TokenCache, _Sizes]:
    """The same, of an index of the manifest: the drives stay on disk. A changed manifest has another index."""

    def write(writer: IndexWriter) -> Mapping[str, Any]:
        content, rows = _read_content(folder)
        write_rows(writer, iter(rows))
        return {"config": to_mapping(content.config), "command": content.command}

    manifest_sha256 = sha256_of(folder / MANIFEST)
    index = kept_index("drives", f"{KIND} {VERSION} {manifest_sha256}", write)
    cache = TokenCache(
        folder=folder,
        config=from_mapping(TokenCacheConfig, index.header["config"], source=folder / MANIFEST),
        command=str(index.header["command"]),
        drives=DriveTable(index, _drive_of_row),
        sha256=DriveTable(index, _sha256_of_row),
        manifest_sha256=manifest_sha256,
    )
    return cache, DriveTable(index, _size_of_row).rows()


def _read_content(folder: Path) -> tuple[CacheContent, list[dict[str, object]]]:
    """What the manifest says, and a row for each drive with the bytes and the hash of its file."""
    manifest = read_manifest(folder, kind=KIND, version=VERSION)
    content = from_mapping(CacheContent, manifest.content, source=folder / MANIFEST)
    rows = []
    for drive in content.drives:
        sealed = manifest.files.get(drive.file, {})
        rows.append({**to_mapping(drive), "bytes": sealed.get("bytes"), "sha256": str(sealed.get("sha256"))})
    return content, rows


def _drive_of_row(row: dict[str, Any]) -> CachedDrive:
    given = {name: value for name, value in row.items() if name not in ("bytes", "sha256", "intervals")}
    return CachedDrive(**given, intervals=tuple(row["intervals"]))


def _sha256_of_row(row: dict[str, Any]) -> str:
    return str(row["sha256"])


def _size_of_row(row: dict[str, Any]) -> tuple[str, int | None]:
    return row["file"], row["bytes"]


def drive_fingerprint(drive: Drive) -> str:
    """Name, times and poses of a drive, and which returns are the ego's own."""
    digest = hashlib.sha256(drive.name.encode())
    digest.update(np.ascontiguousarray(drive.timestamps_ns, np.int64).tobytes())
    digest.update(np.ascontiguousarray(drive.world_from_lidar, np.float64).tobytes())
    if drive.ego_box is not None:
        digest.update(np.ascontiguousarray(drive.ego_box, np.float64).tobytes())
    return digest.hexdigest()
