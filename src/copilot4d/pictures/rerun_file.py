"""A forecast as a .rrd file for Rerun: past, truth, forecast and difference as point clouds on one timeline.

`lidar` moves (in the frame of the newest past sweep's lidar); below it are `lidar/past`, `lidar/truth`,
`lidar/forecast` (and `lidar/forecast_2`, ... for further futures), and `lidar/difference`: the forecast's points, green
where a true point is near, red where none is within a metre. Needs the extra `rerun`.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copilot4d.errors import UsageError
from copilot4d.geometry import Sweep, se3
from copilot4d.pictures.foxglove_file import distances

TIMELINE, LIDAR = "time", "lidar"
INSTALL = "pip install 'copilot4d[rerun]'"
FAR_M = 1.0  # a point further from the truth is as red as can be


def check_rerun() -> Any:
    """The module; UsageError, one sentence, where it is not installed."""
    try:
        import rerun
    except ImportError as error:
        raise UsageError(f"writing .rrd files needs rerun-sdk, which is not installed: {INSTALL}") from error
    return rerun


def write_rerun(
    path: Path, *, past: Sequence[Sweep], futures: Sequence[Sequence[Sweep]], truth: Sequence[Sweep],
    timestamps_ns: Sequence[int],
) -> Path:  # fmt: skip
    """Write the file, whole or not at all. `timestamps_ns` are the times of the future frames; `truth` may be shorter.

    A cloud stays on screen until the next one of its name, so what a frame does not have is cleared.
    """
    rerun = check_rerun()
    path.parent.mkdir(parents=True, exist_ok=True)
    writing = path.with_name(f".{path.name}.writing")
    recording = rerun.RecordingStream("copilot4d", recording_id=uuid.uuid4())
    try:
        recording.save(writing)

        def show(name: str, sweep: Sweep | None, colors: NDArray[np.uint8] | None = None) -> None:
            cloud = rerun.Clear(recursive=False) if sweep is None else rerun.Points3D(sweep.points, colors=colors)
            recording.log(f"{LIDAR}/{name}", cloud)

        def begin(sweep: Sweep, time_ns: int) -> None:
            recording.set_time(TIMELINE, timestamp=np.datetime64(time_ns, "ns"))
            moved = se3.relative_motion(past[-1].world_from_lidar, sweep.world_from_lidar)
            recording.log(LIDAR, rerun.Transform3D(translation=moved[:3, 3], mat3x3=moved[:3, :3]))

        for sweep in past:
            begin(sweep, sweep.timestamp_ns)
            show("past", sweep)
        for k, time_ns in enumerate(int(time) for time in timestamps_ns):
            begin(futures[0][k], time_ns)
            show("past", None)
            for number, future in enumerate(futures):
                show("forecast" if number == 0 else f"forecast_{number + 1}", future[k])
            true = truth[k] if k < len(truth) else None
            show("truth", true)
            error = None if true is None else error_colors(distances(futures[0][k], true))
            show("difference", None if true is None else futures[0][k], error)
        recording.flush()
        recording.disconnect()
        writing.replace(path)
    finally:
        recording.disconnect()
        writing.unlink(missing_ok=True)
    return path


def error_colors(distances_m: NDArray[np.float32]) -> NDArray[np.uint8]:
    """(N,) -> (N, 3): green at no distance, red from FAR_M on.

    >>> error_colors(np.array([0.0, 0.5, 7.0], np.float32)).tolist()
    [[0, 200, 0], [128, 100, 0], [255, 0, 0]]
    """
    share = np.clip(distances_m / FAR_M, 0, 1)
    return np.stack([np.rint(255 * share), np.rint(200 * (1 - share)), 0 * share], axis=1).astype(np.uint8)
