"""What is damaged, and how it is read: every format of data, and every kind of folder with weights."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from copilot4d import load_forecaster, open_dataset, presets
from copilot4d.checkpoints.checkpoint import open_checkpoint
from copilot4d.checkpoints.depth_parts import DepthParts
from copilot4d.checkpoints.model_folder import ModelCards, save_model
from copilot4d.checkpoints.pretrained import ModelCard
from copilot4d.checkpoints.sealed_folder import seal
from copilot4d.cli import compare
from copilot4d.cli.console import console
from copilot4d.cli.training_options import with_changes
from copilot4d.datasets.point_files import SUFFIXES
from copilot4d.datasets.simulated_files import read_simulated, write_simulated
from copilot4d.evaluation import ScoreFile
from copilot4d.geometry import Sweep, se3
from copilot4d.simulator import simulate_drive
from copilot4d.simulator.roads import StreetOptions
from copilot4d.tokenizer import Tokenizer
from copilot4d.training import train
from copilot4d.world_model import WorldModel
from tests.datasets.argoverse2_logs import LOG, tiny_drive
from tests.datasets.other_trees import write_once, write_pandaset, write_waymo
from tests.datasets.trees import folder_tree, kitti_raw_tree, kitti_tree, small_drive
from tests.evaluation.test_scores import scores
from tests.support.argoverse2_tree import write_argoverse2
from tests.support.nuscenes_tree import write_nuscenes
from tests.support.selectors import always
from tests.training.toy import ToyTask, toy_config


@dataclass(frozen=True, kw_only=True)
class Target:
    """make: writes it below a new folder, and returns what `read` is called with.

    sealed: whether every byte of its folders with a manifest is under a checksum, so that none may change unnoticed;
    half of its damages are sealed again, as an attacker would.
    """

    name: str
    make: Callable[[Path], Path]
    read: Callable[[Path], None]
    sealed: bool = False


def read_dataset(root: Path) -> None:
    """All of it; a drive that comes out must keep what a Drive promises."""
    dataset = open_dataset(root)
    for name in dataset:
        drive = dataset[name]
        assert se3.rigidity_error(drive.world_from_lidar).max() < 1e-9
        assert (np.diff(drive.timestamps_ns) > 0).all()
        for sweep in drive:
            assert len(sweep) > 0
            assert np.isfinite(sweep.points).all()


def ascii_file(suffix: str) -> Callable[[Path], Path]:
    """A folder whose sweeps are texts."""

    def make(root: Path) -> Path:
        folder = folder_tree(root, small_drive(2, points=3), suffix)
        head = {
            ".ply": "ply\nformat ascii 1.0\nelement vertex 2\n"
            + "".join(f"property float {k}\n" for k in "xyz") + "end_header\n",
            ".pcd": "VERSION .7\nFIELDS x y z\nSIZE 4 4 4\nTYPE F F F\nCOUNT 1 1 1\n"
            "WIDTH 2\nHEIGHT 1\nPOINTS 2\nDATA ascii\n",
        }[suffix]  # fmt: skip
        for path in (folder / "sweeps").iterdir():
            path.write_text(head + "1 2 3\n4 5 6\n")
        return folder

    return make


def simulated(root: Path) -> Path:
    """A drive with its truth."""
    options = StreetOptions(columns=2, rows=2, cars=2, cyclists=1, pedestrians=1)
    return write_simulated(simulate_drive(seed=1, seconds=0.2, options=options, name="x"), root)


def read_simulated_drive(folder: Path) -> None:
    """Sweeps and truths; what comes out goes with each other."""
    drive = read_simulated(folder)
    for i, sweep in enumerate(drive):
        assert len(sweep) == len(drive.truth(i).object_ids)


def score_file(root: Path) -> Path:
    """As `copilot4d evaluate` writes it."""
    return scores().write(root / "scores.json")


def read_scores(path: Path) -> None:
    """As `copilot4d compare` shows it."""
    found = ScoreFile.read(path)
    with contextlib.redirect_stdout(io.StringIO()), console.capture():
        console.print(compare.table([found, found], mixed=True))
        compare.markdown([found], mixed=False)


def settings(root: Path) -> Path:
    """Changes to a preset, as a YAML file."""
    path = root / "changes.yaml"
    root.mkdir(parents=True, exist_ok=True)
    path.write_text("codebook:\n  codes: 64\nbackbone:\n  window: 4\nrendering:\n  step_m: 0.3\n")
    return path


def read_settings(path: Path) -> None:
    """A configuration, or an error."""
    with_changes(presets.tiny().tokenizer, path)


def checkpoint(root: Path) -> Path:
    """Of a small run."""
    result = train(ToyTask(), toy_config(root / "run", max_steps=1))
    assert result.checkpoint is not None
    return result.checkpoint


def read_checkpoint(path: Path) -> None:
    """Everything that resuming reads."""
    found = open_checkpoint(path)
    assert found.step >= 0
    for name in ("model", "optimizer"):
        found.tensors(name)


def model(root: Path) -> Path:
    """A tiny model with a depth selector."""
    config = presets.tiny()
    torch.manual_seed(1)
    made = Tokenizer(config.tokenizer), WorldModel(replace(config.world_model, token_frame="reference"))
    card = ModelCard(
        title="A model", summary="Small.", trained_on=("nothing",), steps=1, samples=1, training_s=1.0, hardware="one"
    )
    cards = ModelCards(tokenizer=card, world_model=card, depth_selector=card)
    return save_model(root / "model", *made, cards=cards, depth_parts=DepthParts(depth_selector=always("recent")))


def read_model(folder: Path) -> None:
    """Load it; one that loads must forecast finite points."""
    found = load_forecaster(folder)
    cloud = np.random.default_rng(2).uniform((-8, -8, -1.5), (8, 8, 1.0), (60, 3)).astype(np.float32)
    past = [Sweep(points=cloud, world_from_lidar=se3.from_yaw(0.0), timestamp_ns=t * 10**8) for t in range(2)]
    for sweep in found.forecast(past, se3.from_yaw(0.1)[None], steps=1).sweeps:
        assert np.isfinite(sweep.points).all()


def seal_again(folder: Path) -> None:
    """As an attacker would: the manifest fits the changed bytes, and claims to be what it was."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        said = json.loads((folder / "manifest.json").read_bytes())
        seal(folder, kind=said["kind"], version=said["version"], content=said["content"])


def argoverse2(root: Path) -> Path:
    """One log."""
    return write_argoverse2(root / "val" / LOG, tiny_drive()).parents[1]


def folder_of(suffix: str) -> Callable[[Path], Path]:
    """Own data."""
    return lambda root: folder_tree(root, small_drive(2, points=3), suffix)


def waymo(root: Path) -> Path:
    """Two frames of a segment."""
    write_waymo(root / "training", frames=2)
    return root


def once(root: Path) -> Path:
    """A sequence; every frame has a pose."""
    write_once(root / "data", small_drive(3))
    return root


def pandaset(root: Path) -> Path:
    """A converted sequence."""
    write_pandaset(root, small_drive(3))
    return root


TARGETS = (
    Target(name="KITTI Odometry", make=lambda root: kitti_tree(root, small_drive(3)), read=read_dataset),
    Target(name="KITTI raw", make=kitti_raw_tree, read=read_dataset),
    Target(name="nuScenes", make=lambda root: write_nuscenes(root, {"scene-0061": small_drive(3)}), read=read_dataset),
    Target(name="Argoverse 2", make=argoverse2, read=read_dataset),
    Target(name="Waymo", make=waymo, read=read_dataset),
    Target(name="ONCE", make=once, read=read_dataset),
    Target(name="PandaSet", make=pandaset, read=read_dataset),
    *(Target(name=f"folder of {suffix}", make=folder_of(suffix), read=read_dataset) for suffix in SUFFIXES),
    Target(name="folder of ASCII .ply", make=ascii_file(".ply"), read=read_dataset),
    Target(name="folder of ASCII .pcd", make=ascii_file(".pcd"), read=read_dataset),
    Target(name="simulated drive", make=simulated, read=read_simulated_drive),
    Target(name="score file", make=score_file, read=read_scores),
    Target(name="settings in YAML", make=settings, read=read_settings),
    Target(name="checkpoint", make=checkpoint, read=read_checkpoint, sealed=True),
    Target(name="model folder", make=model, read=read_model, sealed=True),
)
