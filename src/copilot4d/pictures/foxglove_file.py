"""A forecast as an MCAP file for Foxglove: past, truth, forecast and difference as point clouds, with poses and times.

Topics: /past, /truth, /forecast (and /forecast_2, ... for further futures) in the frame `lidar`; /difference holds the
forecast's points with `error_m`, each one's distance from the nearest true point; /tf tells where the lidar is in the
frame `world`. Needs the extra `foxglove`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from copilot4d.errors import UsageError
from copilot4d.geometry import Sweep, se3
from copilot4d.geometry.se3 import FloatArray

WORLD, LIDAR = "world", "lidar"
INSTALL = "pip install 'copilot4d[foxglove]'"


def check_foxglove() -> Any:
    """The module; UsageError, one sentence, where it is not installed."""
    try:
        import foxglove
    except ImportError as error:
        raise UsageError(f"writing .mcap files needs foxglove-sdk, which is not installed: {INSTALL}") from error
    return foxglove


def write_foxglove(
    path: Path, *, past: Sequence[Sweep], futures: Sequence[Sequence[Sweep]], truth: Sequence[Sweep],
    timestamps_ns: Sequence[int],
) -> Path:  # fmt: skip
    """Write the file, whole or not at all. `timestamps_ns` are the times of the future frames; `truth` may be shorter.

    Every cloud is in its own lidar frame, at its own time; a player that follows /tf sees them in the world.
    """
    foxglove = check_foxglove()
    from foxglove.channels import FrameTransformChannel, PointCloudChannel

    path.parent.mkdir(parents=True, exist_ok=True)
    writing = path.with_name(f".{path.name}.writing")
    context = foxglove.Context()
    try:
        with foxglove.open_mcap(writing, allow_overwrite=True, context=context):
            channels: dict[str, Any] = {}

            def log(topic: str, sweep: Sweep, time_ns: int, more: Mapping[str, NDArray[np.float32]]) -> None:
                if topic not in channels:
                    channels[topic] = PointCloudChannel(topic, context=context)
                channels[topic].log(_cloud(sweep.points, time_ns, more), log_time=time_ns)

            tf = FrameTransformChannel("/tf", context=context)
            for sweep in past:
                tf.log(_transform(sweep.world_from_lidar, sweep.timestamp_ns), log_time=sweep.timestamp_ns)
                log("/past", sweep, sweep.timestamp_ns, _intensity(sweep))
            for k, time_ns in enumerate(int(time) for time in timestamps_ns):
                tf.log(_transform(futures[0][k].world_from_lidar, time_ns), log_time=time_ns)
                for number, future in enumerate(futures):
                    log("/forecast" if number == 0 else f"/forecast_{number + 1}", future[k], time_ns, {})
                if k < len(truth):
                    log("/truth", truth[k], time_ns, _intensity(truth[k]))
                    log("/difference", futures[0][k], time_ns, {"error_m": distances(futures[0][k], truth[k])})
        writing.replace(path)
    finally:
        writing.unlink(missing_ok=True)
    return path


def distances(predicted: Sweep, true: Sweep) -> NDArray[np.float32]:
    """(N,) how far each predicted point is from the nearest true one, in metres; infinite where there is none."""
    if not len(true) or not len(predicted):
        return np.full(len(predicted), np.inf, dtype=np.float32)
    between = se3.relative_motion(true.world_from_lidar, predicted.world_from_lidar)
    found, _ = cKDTree(true.points).query(se3.transform_points(between, predicted.points))
    return np.asarray(found, dtype=np.float32)


def _intensity(sweep: Sweep) -> dict[str, NDArray[np.float32]]:
    return {} if sweep.intensity is None else {"intensity": sweep.intensity}


def _cloud(points: NDArray[np.float32], time_ns: int, more: Mapping[str, NDArray[np.float32]]) -> Any:
    from foxglove.messages import PackedElementField, PackedElementFieldNumericType, PointCloud, Pose

    names = ["x", "y", "z", *more]
    rows = np.column_stack([points, *more.values()]).astype("<f4")
    fields = [
        PackedElementField(name=name, offset=4 * k, type=PackedElementFieldNumericType.Float32)
        for k, name in enumerate(names)
    ]
    translation, rotation = _parts(np.eye(4))
    return PointCloud(
        timestamp=_time(time_ns), frame_id=LIDAR, pose=Pose(position=translation, orientation=rotation),
        point_stride=4 * len(names), fields=fields, data=rows.tobytes(),
    )  # fmt: skip


def _transform(world_from_lidar: FloatArray, time_ns: int) -> Any:
    from foxglove.messages import FrameTransform

    translation, rotation = _parts(world_from_lidar)
    return FrameTransform(
        timestamp=_time(time_ns), parent_frame_id=WORLD, child_frame_id=LIDAR, translation=translation,
        rotation=rotation,
    )  # fmt: skip


def _parts(motion: FloatArray) -> tuple[Any, Any]:
    from foxglove.messages import Quaternion, Vector3

    w, x, y, z = (float(value) for value in se3.quaternion_from_rotation(motion[:3, :3]))
    return Vector3(x=float(motion[0, 3]), y=float(motion[1, 3]), z=float(motion[2, 3])), Quaternion(x=x, y=y, z=z, w=w)


def _time(time_ns: int) -> Any:
    from foxglove.messages import Timestamp

    return Timestamp(sec=time_ns // 10**9, nsec=time_ns % 10**9)
