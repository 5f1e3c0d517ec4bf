"""`TokenClips`: the clips of one or several token caches, as a world model trains on them.

Axes: T frames of a clip, H/W tokens of a frame.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from copilot4d.datasets.windows import spaced_frames
from copilot4d.errors import DataError, UsageError
from copilot4d.geometry import Drive, Sweep
from copilot4d.geometry.se3 import FloatArray
from copilot4d.tokens.clip_index import ClipIndex, DriveClips, clip_index
from copilot4d.tokens.token_cache import CachedDrive, TokenCache, open_token_cache
from copilot4d.world_model.actions import TokenFrame

INTERVALS_FROM = 512  # clips
MUST_AGREE = ("tokenizer_sha256", "token_frame", "gathered_past", "vocabulary", "token_shape")


@dataclass(frozen=True, kw_only=True)
class TokenClip:
    """The tokens of one clip and where the lidar was."""

    tokens: Tensor  # (T, H, W) int64
    world_from_lidar: FloatArray  # (T, 4, 4) float64, of the sweeps
    past_frames: int  # the reference is frame past_frames - 1
    drive: str
    reference: int  # frame of the drive
    interval: int  # log frames between two frames of the clip
    interval_s: float = 0.0  # the same in seconds; 0: not known
    expected: Tensor | None = None  # (T, H, W) int64: tokens of the past carried on, MASK in past frames
    columns: Tensor | None = None  # (T, H, W) uint8: what each column holds (`tokens.columns`), where that is cached


class TokenClips:
    """Clips by number. It holds no tokens, and of many drives not even their names: those stay in an index on disk, so
    that a rank's memory does not grow with them, and loader workers can have a copy.
    """

    token_frame: TokenFrame
    gathered_past: bool
    vocabulary: int
    token_shape: tuple[int, int]
    tokenizer_sha256: str
    has_expected: bool  # whether every cache has the tokens of the past carried on
    has_columns: bool  # whether every cache knows what columns hold
    variants: int  # of the folder that has most; one with fewer repeats its own
    fingerprint: str  # changes when the tokens or the selection do

    def __init__(self, caches: Sequence[TokenCache], index: ClipIndex, past_frames: int) -> None:
        config = caches[0].config
        self.token_frame, self.vocabulary = config.token_frame, config.vocabulary
        self.gathered_past = config.gathered_past
        self.token_shape, self.tokenizer_sha256 = config.token_shape, config.tokenizer_sha256
        self.has_expected = all(cache.config.expected for cache in caches)
        self.has_columns = all(cache.config.columns for cache in caches)
        self.variants = max(cache.config.variants for cache in caches)
        self.past_frames = past_frames
        self.fingerprint = index.fingerprint
        self._caches, self._index = tuple(caches), index

    @property
    def drives(self) -> tuple[str, ...]:
        """That clips come from."""
        return tuple(dict.fromkeys(self._index.drives()))

    @property
    def held_out(self) -> tuple[str, ...]:
        """Drives that the caches mark as not to be trained on, whether chosen or not."""
        marked = (name for cache in self._caches for name, drive in cache.drives.items() if drive.held_out)
        return tuple(dict.fromkeys(marked))

    @classmethod
    def open(
        cls,
        folders: Sequence[Path],
        *,
        past_frames: int,
        future_frames: int,
        drives: Sequence[str] | None = None,
        intervals: Sequence[int] | None = None,
    ) -> TokenClips:
        """The clips of `past_frames` + `future_frames` frames in some caches of one tokenizer.

        drives: only these; None: all that are not marked as held out. intervals: in frames of the log; None: those
        that each drive was tokenised for. Tokens in their own frames give every clip that the drives hold; tokens in
        a reference frame give the cached clips, cut where fewer frames are asked for.
        """
        if past_frames < 1 or future_frames < 0:
            raise UsageError(f"a clip needs a past frame, got {past_frames} past and {future_frames} future frames")
        caches = [open_token_cache(folder) for folder in folders]
        if not caches:
            raise UsageError("`tokens` needs at least one folder that `copilot4d tokenize` made")
        _check_agreement(caches)
        index = clip_index(
            caches,
            [past_frames, future_frames, None if drives is None else list(drives), intervals and list(intervals)],
            lambda: _parts(caches, drives, past_frames, future_frames, intervals),
            past_frames=past_frames,
            frames=past_frames + future_frames,
        )
        if not len(index):
            looked_at = ", ".join(drive.name for _, drive in islice(_chosen(caches, drives), 6)) or "none"
            raise UsageError(
                f"no drive has a clip of {past_frames} + {future_frames} frames; take shorter clips, longer drives or "
                f"other intervals. Drives that were looked at: {looked_at}"
            )
        return cls(caches, index, past_frames)

    def __len__(self) -> int:
        return len(self._index)

    def clip(self, item: int, variant: int) -> TokenClip:
        """Clip number `item` of an augmented variant; variant 0 is the drive as it is."""
        if not 0 <= item < len(self):
            raise IndexError(f"there are clips 0 to {len(self) - 1}, not {item}")
        if not 0 <= variant < self.variants:
            raise UsageError(f"there are variants 0 to {self.variants - 1}, not {variant}")
        part = self._index.clip(item)
        cache, frames, row = self._caches[part.cache], part.frames, part.row
        first, last = int(frames[0]), int(frames[-1])
        variant %= cache.config.variants
        with cache.opened(part.drive) as file:
            start = cache.config.past_frames - self.past_frames

            def maps(name: str) -> Tensor:
                stored = file.get_slice(f"{variant}/{name}")
                if row is None:
                    return torch.cat([stored[frame : frame + 1] for frame in frames.tolist()])
                found: Tensor = stored[row : row + 1, start : start + len(frames)][0]
                return found

            tokens = maps("tokens")
            columns = maps("columns") if self.has_columns else None
            expected = maps("expected").long() if self.has_expected else None
            poses = file.get_slice(f"{variant}/world_from_lidar")[first : last + 1].numpy()
            times_ns = file.get_slice(f"{variant}/timestamps_ns")[first : last + 1].numpy()
        return TokenClip(
            tokens=tokens.long(),
            world_from_lidar=poses[frames - first],
            past_frames=self.past_frames,
            drive=part.drive,
            reference=int(frames[self.past_frames - 1]),
            interval=part.interval,
            interval_s=float(times_ns[-1] - times_ns[0]) * 1e-9 / (len(frames) - 1) if len(frames) > 1 else 0.0,
            columns=columns,
            expected=expected,
        )

    @cached_property
    def intervals_s(self) -> tuple[float, ...]:
        """The seconds between two frames of its clips, shortest first; those within 5% of each other count as one.

        Of INTERVALS_FROM clips, evenly spread: with many drives not every one is read.
        """
        chosen = np.unique(np.linspace(0, len(self) - 1, min(INTERVALS_FROM, len(self))).round().astype(int))
        kept: list[float] = []
        for interval_s in sorted(float(f"{self.clip(int(i), 0).interval_s:.3g}") for i in chosen):
            if interval_s > 0 and (not kept or interval_s > 1.05 * kept[-1]):
                kept.append(interval_s)
        return tuple(kept)


def _check_agreement(caches: Sequence[TokenCache]) -> None:
    first = caches[0]
    for other in caches[1:]:
        for name in MUST_AGREE:
            expected, found = getattr(first.config, name), getattr(other.config, name)
            if expected != found:
                raise DataError(other.folder, name, expected=f"{_short(expected)}, as in {first.folder}",
                                found=_short(found), remedy=f"make one of them anew: {other.command}")  # fmt: skip


def _check_clips(
    cache: TokenCache, drives: Sequence[CachedDrive], past: int, future: int, intervals: Sequence[int] | None
) -> None:
    """Whether a cache of clips holds what is asked for."""
    config = cache.config
    if past > config.past_frames or future > config.future_frames:
        longer = f"--past-frames {max(past, config.past_frames)} --future-frames {max(future, config.future_frames)}"
        raise DataError(cache.folder, "clips", expected=f"{past} + {future} frames",
                        found=f"{config.past_frames} + {config.future_frames}",
                        remedy=f"make the cache anew: {cache.command} {longer} --overwrite")  # fmt: skip
    if config.gathered_past and past != config.past_frames:
        raise DataError(cache.folder, "clips", expected=f"{past} past frames, the oldest of them all gathered",
                        found=f"{config.past_frames} past frames gathered",
                        remedy=f"make the cache anew: {cache.command} --past-frames {past} --overwrite")  # fmt: skip
    there = sorted({k for drive in drives for k in drive.intervals})
    lacking = [k for k in intervals or () if k not in there]
    if lacking:
        wanted = " ".join(str(k) for k in sorted({*there, *lacking}))
        raise DataError(cache.folder, "intervals", expected=f"clips of interval {lacking[0]}",
                        found=f"clips of {', '.join(map(str, there)) or 'none'}",
                        remedy=f"make the cache anew: {cache.command} --intervals {wanted} --overwrite")  # fmt: skip


def _short(value: Any) -> str:
    return value[:12] if isinstance(value, str) else str(value)


def _chosen(caches: Sequence[TokenCache], names: Sequence[str] | None) -> Iterator[tuple[int, CachedDrive]]:
    """The drives to take clips from, each with the number of its cache."""
    if names is not None:
        missing = [name for name in names if not any(name in cache.drives for cache in caches)]
        if missing:
            folders = ", ".join(str(cache.folder) for cache in caches)
            known = dict.fromkeys(name for cache in caches for name in cache.drives)
            raise UsageError(f"no drive {', '.join(missing)} in {folders}; there are {', '.join([*known][:12])}")
    wanted = None if names is None else set(names)
    for number, cache in enumerate(caches):
        for drive in cache.drives.values():
            if drive.name in wanted if wanted is not None else not drive.held_out:
                yield number, drive


def _parts(
    caches: Sequence[TokenCache], names: Sequence[str] | None, past: int, future: int, intervals: Sequence[int] | None
) -> Iterator[DriveClips]:
    """The clips of one drive after the other."""
    if caches[0].config.token_frame == "reference":
        for number, cache in enumerate(caches):
            of_cache = [drive for other, drive in _chosen(caches, names) if other == number]
            _check_clips(cache, of_cache, past, future, intervals if of_cache else None)
    of_drive = _own_part if caches[0].config.token_frame == "own" else _cached_part
    for number, drive in _chosen(caches, names):
        yield of_drive(caches, number, drive, past, future, intervals)


def _own_part(
    caches: Sequence[TokenCache], number: int, drive: CachedDrive, past: int, future: int, intervals: Any
) -> DriveClips:
    log = Drive(
        name=drive.name,
        world_from_lidar=np.zeros((drive.frames, 4, 4)),  # only times decide which frames are evenly spaced
        timestamps_ns=caches[number].read(drive.name, 0, "timestamps_ns").numpy(),
        read=_no_points,
        format=drive.format,
    )
    steps = drive.intervals if intervals is None else tuple(intervals)
    frames = [spaced_frames(log, n_in=past, n_out=future, step=k) for k in steps]
    return DriveClips(
        cache=number,
        drive=drive.name,
        frames=np.concatenate([np.zeros((0, past + future), np.int32), *frames]),
        intervals=np.repeat(np.array(steps, np.int32), [len(found) for found in frames]),
        rows=None,
    )


def _cached_part(
    caches: Sequence[TokenCache], number: int, drive: CachedDrive, past: int, future: int, intervals: Any
) -> DriveClips:
    cache = caches[number]
    steps = cache.read(drive.name, 0, "intervals").numpy()
    rows = np.flatnonzero(np.isin(steps, intervals)) if intervals is not None else np.arange(len(steps))
    start = cache.config.past_frames - past
    frames = cache.read(drive.name, 0, "clip_frames").numpy()[rows, start : start + past + future]
    return DriveClips(
        cache=number,
        drive=drive.name,
        frames=frames.astype(np.int32),
        intervals=steps[rows].astype(np.int32),
        rows=rows.astype(np.int32),
    )


def _no_points(frame: int) -> Sweep:
    raise UsageError("a token cache holds no points")
