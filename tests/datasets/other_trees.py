"""Small trees of Waymo v2, ONCE and PandaSet, written as their publishers do."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet

from copilot4d.geometry import Drive, se3

FIRST_US = 1_550_083_467_346_370
LIDAR = "LiDAR"
# The top lidar's mount: turned by a large angle about z, as on the real vehicle, and a little tilted.
VEHICLE_FROM_TOP = se3.compose(
    se3.from_yaw(2.58, (1.43, 0.0, 2.184)), se3.from_rotation_translation(
        np.array([[1, 0, 0], [0, np.cos(0.01), -np.sin(0.01)], [0, np.sin(0.01), np.cos(0.01)]]), np.zeros(3)
    )
)  # fmt: skip
ROWS, COLUMNS = 6, 24
INCLINATIONS = np.linspace(-0.3, 0.04, ROWS) ** 3 * 4 + np.linspace(-0.2, 0.03, ROWS)  # lowest first, uneven
LEFT_BACK_UP = np.array([[0.0, 1, 0], [-1, 0, 0], [0, 0, 1]])  # the sensor's axes from ours


def waymo_way(time_s: np.ndarray) -> np.ndarray:
    """world_from_vehicle (..., 4, 4): it drives at 12 m/s, turns and rocks."""
    time_s = np.asarray(time_s, dtype=np.float64)
    poses = np.zeros((*time_s.shape, 4, 4))
    for at in np.ndindex(time_s.shape):
        t = time_s[at]
        poses[at] = roll_pitch_yaw(0.02 * np.sin(7 * t), 0.03 * np.cos(5 * t), 0.4 * t + 1.0)
        poses[at][:3, 3] = 3000 + 12 * t, -800 + 2 * t * t, 30 + 0.1 * t
    return poses


def roll_pitch_yaw(roll: float, pitch: float, yaw: float) -> np.ndarray:
    """Turns about x, then y, then z, as three matrices."""
    (a, b), (c, d), (e, f) = ((np.cos(angle), np.sin(angle)) for angle in (roll, pitch, yaw))
    about_x = np.array([[1, 0, 0], [0, a, -b], [0, b, a]])
    about_y = np.array([[c, 0, d], [0, 1, 0], [-d, 0, c]])
    about_z = np.array([[e, -f, 0], [f, e, 0], [0, 0, 1]])
    return se3.from_rotation_translation(about_z @ about_y @ about_x, np.zeros(3))


def write_parquet(path: Path, columns: dict[str, object], **options: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pa.parquet.write_table(pa.table(columns), str(path), **options)


def write_waymo(split: Path, name: str = "segment_1", *, frames: int = 4, beams: bool = True,
                row_group_size: int = 3) -> dict[str, np.ndarray]:  # fmt: skip
    """One segment; returns the truth: world points (frames, ROWS, COLUMNS, 3), returned, the world places of the rays'
    starts, and the poses of the top lidar with the vehicle's axes.
    """
    rng = np.random.default_rng(4)
    times_s = 0.1 * np.arange(frames)
    times_us = FIRST_US + (times_s * 1e6).round().astype(np.int64)
    ranges = rng.uniform(3, 60, (frames, ROWS, COLUMNS)).astype(np.float32)
    ranges[rng.random(ranges.shape) < 0.2] = -1.0  # no return
    # Columns go clockwise, and the middle one looks along the vehicle's x: half a turn before it is the first.
    around = np.pi - 2 * np.pi * (np.arange(COLUMNS) + 0.5) / COLUMNS
    up = INCLINATIONS if beams else np.linspace(-0.3, 0.04, 2 * ROWS + 1)[1::2]
    up = up[::-1]  # the image begins at the top
    mount_yaw = np.arctan2(VEHICLE_FROM_TOP[1, 0], VEHICLE_FROM_TOP[0, 0])
    angle = (around - mount_yaw)[None, :] + np.zeros((ROWS, 1))
    direction = np.stack([np.cos(up)[:, None] * np.cos(angle), np.cos(up)[:, None] * np.sin(angle),
                          np.sin(up)[:, None] + 0 * angle], axis=-1)  # fmt: skip
    pixel_s = times_s[:, None] + 0.1 * (np.arange(COLUMNS) + 0.5) / COLUMNS - 0.05  # (frames, COLUMNS)
    way = waymo_way(pixel_s)[:, None].repeat(ROWS, axis=1)  # (frames, ROWS, COLUMNS, 4, 4)
    world_from_top = way @ VEHICLE_FROM_TOP
    points = np.einsum("...ij,...j->...i", world_from_top[..., :3, :3], ranges[..., None] * direction[None])
    points += world_from_top[..., :3, 3]
    image = np.stack([ranges, rng.random(ranges.shape), 0 * ranges, 0 * ranges - 1], axis=-1).astype(np.float32)
    r = way[..., :3, :3]
    angles = [np.arctan2(r[..., 2, 1], r[..., 2, 2]), -np.arcsin(r[..., 2, 0]), np.arctan2(r[..., 1, 0], r[..., 0, 0])]
    pixels = np.stack([*angles, *np.moveaxis(way[..., :3, 3], -1, 0)], axis=-1)
    # Every frame has five lidars; the others' images are smaller. Rows are not in the order of time.
    rows = [(int(t), laser) for t in times_us[::-1] for laser in (2, 1, 5)]
    small = np.ones((2, 3, 4), np.float32)
    images = [image[::-1][k // 3] if laser == 1 else small for k, (_, laser) in enumerate(rows)]
    keys = {
        "key.segment_context_name": [name] * len(rows), "key.frame_timestamp_micros": pa.array([t for t, _ in rows]),
        "key.laser_name": pa.array([laser for _, laser in rows], pa.int8()),
    }  # fmt: skip
    for component, values in (("return1", images), ("return2", [0 * i for i in images])):
        keys[f"[LiDARComponent].range_image_{component}.values"] = pa.array(
            [v.ravel().tolist() for v in values], pa.list_(pa.float32())
        )
        keys[f"[LiDARComponent].range_image_{component}.shape"] = pa.array(
            [list(v.shape) for v in values], pa.list_(pa.int32(), 3)
        )
    write_parquet(split / "lidar" / f"{name}.parquet", keys, row_group_size=row_group_size)
    write_parquet(split / "lidar_pose" / f"{name}.parquet", {
        "key.frame_timestamp_micros": pa.array(times_us), "key.laser_name": pa.array([1] * frames, pa.int8()),
        "[LiDARPoseComponent].range_image_return1.values": pa.array(
            [p.ravel().astype(np.float32).tolist() for p in pixels], pa.list_(pa.float32())
        ),
        "[LiDARPoseComponent].range_image_return1.shape": pa.array(
            [list(p.shape) for p in pixels], pa.list_(pa.int32(), 3)
        ),
    })  # fmt: skip
    lists = pa.list_(pa.float64())
    write_parquet(split / "vehicle_pose" / f"{name}.parquet", {
        "key.segment_context_name": [name] * frames, "key.frame_timestamp_micros": pa.array(times_us[::-1]),
        "[VehiclePoseComponent].world_from_vehicle.transform": pa.array(
            [p.ravel().tolist() for p in waymo_way(times_s)[::-1]], lists
        ),
    })  # fmt: skip
    write_parquet(split / "lidar_calibration" / f"{name}.parquet", {
        "key.laser_name": pa.array([3, 1], pa.int8()),
        "[LiDARCalibrationComponent].extrinsic.transform": pa.array(
            [np.eye(4).ravel().tolist(), VEHICLE_FROM_TOP.ravel().tolist()], lists
        ),
        "[LiDARCalibrationComponent].beam_inclination.min": pa.array([-1.0, -0.3]),
        "[LiDARCalibrationComponent].beam_inclination.max": pa.array([0.5, 0.04]),
        "[LiDARCalibrationComponent].beam_inclination.values": pa.array(
            [None, INCLINATIONS.tolist() if beams else None], lists
        ),
    })  # fmt: skip
    poses = waymo_way(times_s) @ se3.from_rotation_translation(np.eye(3), VEHICLE_FROM_TOP[:3, 3])
    return {
        "points": points, "returned": ranges > 0, "starts": world_from_top[..., :3, 3], "poses": poses,
        "times_ns": times_us * 1000, "intensity": image[..., 1],
    }  # fmt: skip


def write_once(data: Path, drive: Drive, name: str = "000076", *, without_pose: tuple[int, ...] = ()) -> Path:
    """A sequence of ONCE: points and poses in the sensor's own axes, x left, y backward, z up."""
    folder = data / name
    (folder / "lidar_roof").mkdir(parents=True)
    frames = []
    for k, sweep in enumerate(drive):
        frame_id = str(1_616_100_800_400 + round(sweep.timestamp_ns * 1e-6))
        rows = np.column_stack([sweep.points @ LEFT_BACK_UP.T, np.full(len(sweep), 0.5)])
        rows.astype("<f4").tofile(folder / "lidar_roof" / f"{frame_id}.bin")
        pose = sweep.world_from_lidar @ se3.from_rotation_translation(LEFT_BACK_UP.T, np.zeros(3))
        w, x, y, z = se3.quaternion_from_rotation(pose[:3, :3])
        stated = [0.0] * 7 if k in without_pose else [x, y, z, w, *pose[:3, 3]]
        frames.append({"frame_id": frame_id, "pose": [float(n) for n in stated]})
    described = {"meta_info": {"weather": "sunny"}, "calib": {}, "frames": frames}
    (folder / f"{name}.json").write_text(json.dumps(described))
    return folder


def write_pandaset(root: Path, drive: Drive, name: str = "001", *, converted: bool = True) -> Path:
    """A sequence of PandaSet: tables in the world's frame beside the pickles, which hold nothing that could be read."""
    from copilot4d.datasets.pandaset import CAMERA_FROM_LIDAR

    folder = root / name
    (folder / "lidar").mkdir(parents=True)
    (folder / "camera" / "front_camera").mkdir(parents=True)
    own_axes = se3.from_rotation_translation(LEFT_BACK_UP.T, np.zeros(3))
    poses, times = [], []
    for k, sweep in enumerate(drive):
        world = se3.transform_points(sweep.world_from_lidar, sweep.points.astype(np.float64))
        other = world + 5.0  # the second lidar, which is left out
        both = np.concatenate([world, other])
        columns = dict(zip("xyz", both.T, strict=True)) | {
            "i": np.full(len(both), 7.0), "t": np.zeros(len(both)),
            "d": np.repeat(np.array([0, 1], np.int64), len(world)),
        }  # fmt: skip
        if converted:
            pa.feather.write_feather(pa.table(columns), str(folder / "lidar" / f"{k:02d}.feather"))
        (folder / "lidar" / f"{k:02d}.pkl.gz").write_bytes(b"never opened")
        camera = sweep.world_from_lidar @ own_axes @ se3.invert(CAMERA_FROM_LIDAR)
        heading = se3.quaternion_from_rotation(camera[:3, :3])
        poses.append({
            "position": dict(zip("xyz", camera[:3, 3].tolist(), strict=True)),
            "heading": dict(zip("wxyz", heading.tolist(), strict=True)),
        })  # fmt: skip
        times.append(1_557_539_924.05 + sweep.timestamp_ns * 1e-9)
    for place in (folder / "camera" / "front_camera", folder / "lidar"):
        (place / "poses.json").write_text(json.dumps(poses if "camera" in str(place) else [{}] * len(poses)))
        (place / "timestamps.json").write_text(json.dumps(times))
    return folder
