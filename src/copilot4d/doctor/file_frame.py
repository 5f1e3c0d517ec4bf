"""From the poses and points as the loader gives them back to those of the files: a mistake was made in the files.

The loader of own data turns points by `axes:` and poses by `axes:` and `ego_from_lidar:`. Poses that are inverted in
the file are then not inverted any more, but something else; so each explanation is tried on the poses as the file has
them, and each formula is given in the file's own columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from copilot4d.datasets.folder_config import FILE_NAME, OUR_AXES, UNITS_M, FolderConfig, axes_in_words, load_config
from copilot4d.geometry import Drive, se3
from copilot4d.geometry.se3 import FloatArray


@dataclass(frozen=True, kw_only=True)
class FileFrame:
    """How a drive's files were turned into ours: point = `axes` @ file point, pose = file pose @ `pose_from_lidar`."""

    axes: FloatArray = field(default_factory=lambda: np.eye(3))  # (3, 3) lidar_from_file, of the points
    pose_from_lidar: FloatArray = field(default_factory=lambda: np.eye(4))  # (4, 4)
    described: bool = False  # a copilot4d.yaml may say what the files hold
    axes_text: str = OUR_AXES  # as the description has it

    @classmethod
    def of(cls, config: FolderConfig) -> FileFrame:
        """The frame that a description of own data says."""
        pose_from_lidar: FloatArray = np.eye(4)
        if config.ego_from_lidar is not None:
            pose_from_lidar = config.ego_from_lidar.copy()
            pose_from_lidar[:3, 3] *= UNITS_M[config.units]
        turn = se3.from_rotation_translation(config.lidar_from_file.T, np.zeros(3))
        return cls(
            axes=config.lidar_from_file,
            pose_from_lidar=se3.compose(pose_from_lidar, turn),
            described=True,
            axes_text=config.axes,
        )

    def in_file(self, poses: FloatArray) -> FloatArray:
        """(N, 4, 4) poses as loaded -> as the file has them, in metres."""
        return poses @ se3.invert(self.pose_from_lidar)

    def loaded(self, file_poses: FloatArray) -> FloatArray:
        """(N, 4, 4) the other way."""
        return file_poses @ self.pose_from_lidar

    def of_columns(self, change: FloatArray) -> FloatArray:
        """(3, 3) a change of the points as loaded -> the same change of the file's columns."""
        return self.axes.T @ change @ self.axes

    @property
    def forward_in_file(self) -> FloatArray:
        """(3,) where the vehicle's x points, in the axes that the file's poses turn."""
        return self.pose_from_lidar[:3, 0]

    def axes_line(self, change: FloatArray) -> str:
        """What to write under `axes:` so that points as loaded are turned by `change` more."""
        return f"axes: {axes_in_words(change @ self.axes)}"


def description_of(root: Path, drive: Drive) -> FolderConfig:
    """What holds for a drive of own data opened at a root: the root's description, and its own on top."""
    config, keys = FolderConfig(), dict[str, Any]()
    if drive.format != "folder":
        return config
    above = [] if (root / FILE_NAME).is_file() else [root.parent]  # a drive that is opened by itself
    for path in dict.fromkeys([*above, root, Path(drive.source)]):
        if (path / FILE_NAME).is_file():
            config, keys = load_config(path / FILE_NAME, keys)
    return config
