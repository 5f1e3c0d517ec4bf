"""`ClipTask`: what all tasks share whose samples are clips of drives, at the rates of the protocol's settings."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from torch import nn

from copilot4d.counter import SampleKey
from copilot4d.datasets.windows import Window, frame_rule, protocol_windows, read_clip
from copilot4d.errors import ProtocolError, UsageError
from copilot4d.geometry import Clip, Drive
from copilot4d.training.distributed import World
from copilot4d.training.fingerprint import drives_fingerprint
from copilot4d.training.task import TrainingTask

Setting = Literal["1s", "3s"]


def check_settings(settings: Sequence[str]) -> None:
    """Raise UsageError where these are not settings of the protocol."""
    if not settings or not set(settings) <= set(get_args(Setting)):
        raise UsageError(f"`settings` are one or both of {', '.join(get_args(Setting))}, got {tuple(settings)}")


class ClipTask(TrainingTask):
    """Every reference frame of `drives` that has a future is a sample, once per setting.

    frames: how many sweeps a network reads and predicts. `held_out`: a few complete clips of these drives, evenly
    spread, choose the best checkpoint. `least_future`: frames that a sample must have.
    """

    score = "chamfer_roi"

    def __init__(
        self, what: str, settings: Sequence[Setting], frames: tuple[int, int], drives: Sequence[Drive],
        held_out: Sequence[Drive], *, held_out_clips: int, least_future: int = 1,
    ) -> None:  # fmt: skip
        self.settings, self.past_frames, self.future_frames = tuple(settings), *frames
        self.drives = tuple(drives)
        self.items = [
            (d, window)
            for d, drive in enumerate(self.drives)
            for w in self._windows(drive)
            for window in w
            if len(window.future) >= least_future
        ]
        if not self.items:
            wanted = "a future one" if least_future == 1 else f"{least_future} future ones"
            raise UsageError(f"training {what} needs a sweep with {wanted}; the chosen drives have none")
        self.held_out: list[tuple[Drive, str, Window]] = []
        each = -(-held_out_clips // len(self.settings))
        for s, setting in enumerate(self.settings):
            whole = [(drive, setting, w) for drive in held_out for w in self._windows(drive)[s] if w.complete]
            chosen = np.unique(np.linspace(0, len(whole) - 1, min(each, len(whole))).round().astype(int))
            self.held_out += [whole[i] for i in chosen]

    def _windows(self, drive: Drive) -> list[list[Window]]:
        """Per setting the drive's windows. A setting that does not fit the drive's rate has none."""
        found: list[list[Window]] = []
        reasons: list[str] = []
        for setting in self.settings:
            try:
                frame_rule(drive, setting)
            except ProtocolError as error:
                reasons.append(str(error))
                found.append([])
                continue
            found.append(protocol_windows({drive.name: drive}, setting))
        if len(reasons) == len(self.settings):
            raise ProtocolError(reasons[0])
        return found

    @abstractmethod
    def scores(self, model: nn.Module, clips: Sequence[tuple[str, Clip]]) -> Mapping[str, float]:
        """Of forecasts of clips, each with its setting."""

    @abstractmethod
    def picture(self, model: nn.Module, clip: Clip, title: str) -> NDArray[np.uint8]:
        """Of the forecast of a clip."""

    def evaluate(self, model: nn.Module, world: World) -> Mapping[str, float]:
        """Forecasts of the held-out clips; each rank takes its share."""
        if not self.held_out:
            return {}
        mine = self.held_out[world.rank :: world.size] or self.held_out[:1]
        return self.scores(model, [(setting, self._clip(drive, window)) for drive, setting, window in mine])

    def pictures(self, model: nn.Module, world: World) -> Mapping[str, NDArray[np.uint8]]:
        """Truth above forecast, for the middle held-out clip of each setting."""
        drawn = {}
        for setting in self.settings:
            clips = [(drive, window) for drive, s, window in self.held_out if s == setting]
            if clips:
                drive, window = clips[len(clips) // 2]
                title = f"{drive.name}, after sweep {window.reference}, {setting}"
                drawn[f"forecast_{setting}"] = self.picture(model, self._clip(drive, window), title)
        return drawn

    def data_fingerprint(self) -> str:
        """Names, times and poses of the training drives."""
        return drives_fingerprint(self.drives)

    def describe(self, key: SampleKey) -> Mapping[str, Any]:
        """Drive and frames."""
        drive, window = self._item(key)
        return {"drive": drive.name, "past": list(window.past), "future": list(window.future)}

    def _item(self, key: SampleKey) -> tuple[Drive, Window]:
        d, window = self.items[key.item(len(self.items))]
        return self.drives[d], window

    def _clip(self, drive: Drive, window: Window) -> Clip:
        """The window's sweeps, as many as the network takes and gives."""
        return read_clip(
            drive, replace(window, past=window.past[-self.past_frames :], future=window.future[: self.future_frames])
        )
