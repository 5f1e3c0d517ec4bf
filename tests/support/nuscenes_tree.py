"""Writes small nuScenes trees: real tables, real .pcd.bin files, in nuScenes' own axes (x right, y forward)."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np

from copilot4d.geometry import Drive, se3

# The lidar's own axes against the ego's (x forward): a quarter turn to the right, and where it is mounted.
CALIBRATION = {"translation": [0.94, 0.0, 1.84], "rotation": [np.sqrt(0.5), 0.0, 0.0, -np.sqrt(0.5)]}
EGO_FROM_RAW = np.array([[0.0, 1, 0, 0.94], [-1, 0, 0, 0], [0, 0, 1, 1.84], [0, 0, 0, 1]])
FIRST_US = 1_531_884_156_948_944


def token(*words: object) -> str:
    return hashlib.md5(repr(words).encode()).hexdigest()


def raw_points(points: np.ndarray) -> np.ndarray:
    """Our axes -> nuScenes' lidar axes: right is minus left."""
    return np.stack([-points[:, 1], points[:, 0], points[:, 2]], axis=-1)


def write_nuscenes(
    root: Path, drives: dict[str, Drive], *, version: str = "v1.0-mini", keyframe_every: int = 1
) -> Path:
    """One scene per drive. Sweep 0, keyframe_every, ... are keyframes; a camera has records in between, as on disk."""
    tables: dict[str, list[dict[str, object]]] = {
        "sensor": [
            {"token": token("camera"), "channel": "CAM_FRONT", "modality": "camera"},
            {"token": token("lidar"), "channel": "LIDAR_TOP", "modality": "lidar"},
        ],
        "calibrated_sensor": [
            {"token": token("c-camera"), "sensor_token": token("camera"), "camera_intrinsic": [[1, 0, 0]],
             "translation": [1.7, 0, 1.5], "rotation": [0.5, -0.5, 0.5, -0.5]},
            {"token": token("c-lidar"), "sensor_token": token("lidar"), "camera_intrinsic": [], **CALIBRATION},
        ],
        "scene": [], "sample": [], "sample_data": [], "ego_pose": [], "log": [{"token": token("log")}],
    }  # fmt: skip
    for name, drive in drives.items():
        keyframes = range(0, len(drive), keyframe_every)
        samples = [token(name, "sample", k) for k in keyframes]
        tables["scene"].append(
            {"token": token(name), "name": name, "log_token": token("log"), "nbr_samples": len(samples),
             "first_sample_token": samples[0], "last_sample_token": samples[-1], "description": ""}
        )  # fmt: skip
        for i, sample in enumerate(samples):
            tables["sample"].append(
                {"token": sample, "timestamp": FIRST_US + int(drive.timestamps_ns[keyframes[i]]) // 1000,
                 "scene_token": token(name), "prev": samples[i - 1] if i else "",
                 "next": samples[i + 1] if i + 1 < len(samples) else ""}
            )  # fmt: skip
        for k, sweep in enumerate(drive):
            time_us = FIRST_US + sweep.timestamp_ns // 1000
            is_keyframe = k % keyframe_every == 0
            folder = "samples" if is_keyframe else "sweeps"
            file = f"{folder}/LIDAR_TOP/{name}__LIDAR_TOP__{time_us}.pcd.bin"
            raw_from_lidar = np.array([[0.0, -1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
            ego = sweep.world_from_lidar @ np.linalg.inv(EGO_FROM_RAW @ raw_from_lidar)
            for channel, calibration in (("camera", token("c-camera")), ("lidar", token("c-lidar"))):
                entry = token(name, channel, k)
                tables["sample_data"].append(
                    {"token": entry, "sample_token": samples[k // keyframe_every], "ego_pose_token": entry,
                     "calibrated_sensor_token": calibration, "timestamp": time_us, "is_key_frame": is_keyframe,
                     "fileformat": "pcd", "filename": file if channel == "lidar" else f"{folder}/CAM_FRONT/{k}.jpg",
                     "prev": "", "next": ""}
                )  # fmt: skip
                tables["ego_pose"].append(
                    {"token": entry, "timestamp": time_us, "translation": ego[:3, 3].tolist(),
                     "rotation": se3.quaternion_from_rotation(ego[:3, :3]).tolist()}
                )  # fmt: skip
            rows = np.zeros((len(sweep), 5), dtype="<f4")
            rows[:, :3] = raw_points(sweep.points)
            rows[:, 3] = np.arange(len(sweep)) % 256
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            rows.tofile(root / file)
    (root / version).mkdir(parents=True, exist_ok=True)
    tables["sample_data"].reverse()  # the tables promise no order
    for name, records in tables.items():
        (root / version / f"{name}.json").write_text(json.dumps(records, indent=0))
    return root
