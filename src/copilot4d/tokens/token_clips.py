"""`TokenClips`: the clips of one or several token caches, as a world model trains on them.

Axes: T frames of a clip, H/W tokens of a frame.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from copilot4d.datasets.windows import spaced_windows
from copilot4d.errors import DataError, UsageError
from copilot4d.geometry import Drive, Sweep
from copilot4d.geometry.se3 import FloatArray
from copilot4d.tokens.token_cache import CachedDrive, TokenCache, open_token_cache
from copilot4d.world_model.actions import TokenFrame

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


@dataclass(frozen=True)
class _Part:
    """The clips of one drive of one cache."""

    cache: TokenCache
    drive: str
    frames: NDArray[np.int32]  # (n, T) of the drive
    intervals: NDArray[np.int32]  # (n,)
    rows: NDArray[np.int32] | None  # (n,) which of the cached clips; None: tokens are read frame by frame


class TokenClips:
    """Clips by number. It holds no tokens and no open file, so that loader workers can have a copy."""

    token_frame: TokenFrame
    gathered_past: bool
    vocabulary: int
    token_shape: tuple[int, int]
    tokenizer_sha256: str
    has_expected: bool  # whether every cache has the tokens of the past carried on
    has_columns: bool  # whether every cache knows what columns hold
    variants: int  # of the folder that has most; one with fewer repeats its own
    fingerprint: str  # changes when the tokens or the selection do
    drives: tuple[str, ...]  # that clips come from
    held_out: tuple[str, ...]  # that the caches mark as not to be trained on, whether chosen or not

    def __init__(self, caches: Sequence[TokenCache], parts: Sequence[_Part], past_frames: int) -> None:
        config = caches[0].config
        self.token_frame, self.vocabulary = config.token_frame, config.vocabulary
        self.gathered_past = config.gathered_past
        self.token_shape, self.tokenizer_sha256 = config.token_shape, config.tokenizer_sha256
        self.has_expected = all(cache.config.expected for cache in caches)
        self.has_columns = all(cache.config.columns for cache in caches)
        self.variants = max(cache.config.variants for cache in caches)
        self.drives = tuple(dict.fromkeys(part.drive for part in parts))
        self.held_out = tuple(
            dict.fromkeys(name for cache in caches for name, drive in cache.drives.items() if drive.held_out)
        )
        self.past_frames = past_frames
        self._parts = tuple(parts)
        self._ends = np.cumsum([len(part.frames) for part in parts])
        self.fingerprint = self._fingerprint()

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
        chosen = _chosen(caches, drives)
        if caches[0].config.token_frame == "reference":
            for cache in caches:
                of_cache = [drive for other, drive in chosen if other is cache]
                _check_clips(cache, of_cache, past_frames, future_frames, intervals if of_cache else None)
        parts = [
            _own_part(cache, drive, past_frames, future_frames, intervals)
            if cache.config.token_frame == "own"
            else _cached_part(cache, drive, past_frames, future_frames, intervals)
            for cache, drive in chosen
        ]
        parts = [part for part in parts if len(part.frames)]
        if not parts:
            looked_at = ", ".join(drive.name for _, drive in chosen[:6]) or "none"
            raise UsageError(
                f"no drive has a clip of {past_frames} + {future_frames} frames; take shorter clips, longer drives or "
                f"other intervals. Drives that were looked at: {looked_at}"
            )
        return cls(caches, parts, past_frames)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def clip(self, item: int, variant: int) -> TokenClip:
        """Clip number `item` of an augmented variant; variant 0 is the drive as it is."""
        if not 0 <= item < len(self):
            raise IndexError(f"there are clips 0 to {len(self) - 1}, not {item}")
        if not 0 <= variant < self.variants:
            raise UsageError(f"there are variants 0 to {self.variants - 1}, not {variant}")
        n = int(np.searchsorted(self._ends, item, side="right"))
        part = self._parts[n]
        row = item - int(self._ends[n]) + len(part.frames)
        frames = part.frames[row]
        first, last = int(frames[0]), int(frames[-1])
        variant %= part.cache.config.variants
        with part.cache.opened(part.drive) as file:
            start = part.cache.config.past_frames - self.past_frames

            def maps(name: str) -> Tensor:
                stored = file.get_slice(f"{variant}/{name}")
                if part.rows is None:
                    return torch.cat([stored[frame : frame + 1] for frame in frames.tolist()])
                clip = int(part.rows[row])
                found: Tensor = stored[clip : clip + 1, start : start + len(frames)][0]
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
            interval=int(part.intervals[row]),
            interval_s=float(times_ns[-1] - times_ns[0]) * 1e-9 / (len(frames) - 1) if len(frames) > 1 else 0.0,
            columns=columns,
            expected=expected,
        )

    @cached_property
    def intervals_s(self) -> tuple[float, ...]:
        """The seconds between two frames of its clips, shortest first; those within 5% of each other count as one."""
        found: list[float] = []
        for part in self._parts:
            times_ns = part.cache.read(part.drive, 0, "timestamps_ns").numpy()
            last = max(1, part.frames.shape[1] - 1)
            seconds = (times_ns[part.frames[:, -1]] - times_ns[part.frames[:, 0]]) * 1e-9 / last
            found += [float(np.median(seconds[part.intervals == k])) for k in np.unique(part.intervals)]
        kept: list[float] = []
        for interval_s in sorted(float(f"{seconds:.3g}") for seconds in found if seconds > 0):
            if not kept or interval_s > 1.05 * kept[-1]:
                kept.append(interval_s)
        return tuple(kept)

    def _fingerprint(self) -> str:
        digest = hashlib.sha256(json.dumps([self.past_frames, self.tokenizer_sha256]).encode())
        for part in self._parts:
            file = part.cache.drives[part.drive].file
            digest.update(json.dumps([part.drive, part.cache.sha256[file], part.frames.shape]).encode())
            digest.update(part.frames.tobytes())
        return digest.hexdigest()


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


def _chosen(caches: Sequence[TokenCache], names: Sequence[str] | None) -> list[tuple[TokenCache, CachedDrive]]:
    pairs = [(cache, drive) for cache in caches for drive in cache.drives.values()]
    if names is None:
        return [(cache, drive) for cache, drive in pairs if not drive.held_out]
    known = dict.fromkeys(drive.name for _, drive in pairs)
    missing = [name for name in names if name not in known]
    if missing:
        folders = ", ".join(str(cache.folder) for cache in caches)
        raise UsageError(f"no drive {', '.join(missing)} in {folders}; there are {', '.join([*known][:12])}")
    return [(cache, drive) for cache, drive in pairs if drive.name in set(names)]


def _own_part(
    cache: TokenCache, drive: CachedDrive, past: int, future: int, intervals: Sequence[int] | None
) -> _Part:  # fmt: skip
    log = Drive(
        name=drive.name,
        world_from_lidar=np.zeros((drive.frames, 4, 4)),  # only times decide which frames are evenly spaced
        timestamps_ns=cache.read(drive.name, 0, "timestamps_ns").numpy(),
        read=_no_points,
        format=drive.format,
    )
    steps = drive.intervals if intervals is None else tuple(intervals)
    windows = [(w, k) for k in steps for w in spaced_windows(log, n_in=past, n_out=future, step=k)]
    return _Part(
        cache,
        drive.name,
        _frames((*w.past, *w.future) for w, _ in windows).reshape(-1, past + future),
        _frames(k for _, k in windows),
        None,
    )


def _cached_part(
    cache: TokenCache, drive: CachedDrive, past: int, future: int, intervals: Sequence[int] | None
) -> _Part:  # fmt: skip
    config = cache.config
    steps = cache.read(drive.name, 0, "intervals").numpy()
    rows = np.flatnonzero(np.isin(steps, intervals)) if intervals is not None else np.arange(len(steps))
    start = config.past_frames - past
    frames = cache.read(drive.name, 0, "clip_frames").numpy()[rows, start : start + past + future]
    return _Part(cache, drive.name, frames.astype(np.int32), steps[rows].astype(np.int32), rows.astype(np.int32))


def _frames(values: Iterable[Any]) -> NDArray[np.int32]:
    return np.array(list(values), dtype=np.int32)


def _no_points(frame: int) -> Sweep:
    raise UsageError("a token cache holds no points")
