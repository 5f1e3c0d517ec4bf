"""Trees with as many logs and scenes as the real data sets, of tiny files: hard links, and sweeps that are empty."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path

import numpy as np

from tests.datasets.argoverse2_logs import tiny_drive
from tests.support.argoverse2_tree import FIRST_NS, write_argoverse2
from tests.support.nuscenes_tree import CALIBRATION, token

AV2_LOGS = {"train": 16_000, "val": 2_000, "test": 2_000}
SWEEPS = 3
HOUR_AGO_S = 3600


def argoverse2_tree(root: Path, logs: dict[str, int], whole: str) -> Path:
    """Logs with random ids. Those of the split `whole` share one file of poses, one of calibration and three sweeps;
    the others are folders alone.
    """
    template = write_argoverse2(root / "template", tiny_drive(SWEEPS))
    shared = ("city_SE3_egovehicle.feather", "calibration/egovehicle_SE3_sensor.feather")
    sweeps = sorted((template / "sensors" / "lidar").iterdir())
    rng = np.random.default_rng(0)
    past = FIRST_NS // 1_000_000_000
    for split, count in logs.items():
        for _ in range(count):
            log = f"{root}/tree/{split}/{uuid.UUID(bytes=rng.bytes(16))}"
            os.makedirs(f"{log}/sensors/lidar")  # noqa: PTH103 (a fifth of the time of Path's)
            if split != whole:
                continue
            os.mkdir(f"{log}/calibration")  # noqa: PTH102
            for name in shared:
                os.link(template / name, f"{log}/{name}")
            for sweep in sweeps:
                os.link(sweep, f"{log}/sensors/lidar/{sweep.name}")
            os.utime(f"{log}/sensors/lidar", (past, past))
    for name in shared:
        os.utime(template / name, (past, past))
    return root / "tree"


def nuscenes_tables(root: Path, scenes: int, keyframes: int, sweeps_per_keyframe: int) -> Path:
    """The tables of v1.0-trainval with every lidar sweep, and an image beside each keyframe; no sweep's file."""
    folder = root / "v1.0-trainval"
    folder.mkdir(parents=True)
    calibration = {"token": token("c-lidar"), "sensor_token": token("lidar"), **CALIBRATION}
    camera = {**calibration, "token": token("c-camera"), "sensor_token": token("camera")}
    write_json(folder / "sensor.json", [
        {"token": token("lidar"), "channel": "LIDAR_TOP"}, {"token": token("camera"), "channel": "CAM_FRONT"},
    ])  # fmt: skip
    write_json(folder / "calibrated_sensor.json", [calibration, camera])
    calibrations = {sensor: token(f"c-{sensor}") for sensor in ("lidar", "camera")}
    names = [f"scene-{number:04d}" for number in range(1, scenes + 1)]
    write_json(folder / "scene.json", [
        {"token": f"s{i:031d}", "name": name, "nbr_samples": keyframes, "first_sample_token": f"k{i:016d}{0:015d}"}
        for i, name in enumerate(names)
    ])  # fmt: skip
    write_json(folder / "sample.json", [
        {"token": f"k{i:016d}{k:015d}", "scene_token": f"s{i:031d}", "prev": "", "next": ""}
        for i in range(scenes) for k in range(keyframes)
    ])  # fmt: skip
    with (folder / "sample_data.json").open("w") as data, (folder / "ego_pose.json").open("w") as poses:
        data.write("[")
        poses.write("[")
        between = ""
        for i in range(scenes):
            for k in range(keyframes * sweeps_per_keyframe):
                key = "true" if k % sweeps_per_keyframe == 0 else "false"
                for sensor in ("lidar", "camera") if key == "true" else ("lidar",):
                    entry = f"{sensor[0]}{i:016d}{k:015d}"
                    data.write(
                        f'{between}{{"token":"{entry}","sample_token":"k{i:016d}{k // sweeps_per_keyframe:015d}",'
                        f'"ego_pose_token":"{entry}","calibrated_sensor_token":"{calibrations[sensor]}",'
                        f'"timestamp":{1_531_884_156_948_944 + 50_000 * k},"is_key_frame":{key},'
                        f'"filename":"sweeps/{sensor}/{i}_{k}.pcd.bin"}}\n'
                    )
                    poses.write(
                        f'{between}{{"token":"{entry}","translation":[{k}.0,2.0,0.0],"rotation":[1.0,0.0,0.0,0.0]}}\n'
                    )
                    between = ","
        data.write("]")
        poses.write("]")
    past = folder.stat().st_mtime - HOUR_AGO_S
    for path in folder.iterdir():
        os.utime(path, (past, past))
    return root


def write_json(path: Path, records: list[dict[str, object]]) -> None:
    path.write_text(json.dumps(records))
