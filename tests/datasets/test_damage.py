"""Files of valid little trees are damaged at random: what comes out is a right drive or an error of ours, nothing else.

COPILOT4D_FUZZ_EXAMPLES=2000 looks longer.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from copilot4d import open_dataset
from copilot4d.datasets.point_files import SUFFIXES, read_points, write_points
from copilot4d.errors import Copilot4dError, Copilot4dWarning
from copilot4d.geometry import se3
from tests.datasets.trees import folder_tree, kitti_raw_tree, kitti_tree, small_drive

EXAMPLES = int(os.environ.get("COPILOT4D_FUZZ_EXAMPLES", "50"))
TREES = {
    "kitti_odometry": lambda root: kitti_tree(root, small_drive(3)),
    "kitti_raw": kitti_raw_tree,
    **{
        f"folder{suffix}": lambda root, suffix=suffix: folder_tree(root, small_drive(3, points=3), suffix)
        for suffix in SUFFIXES
    },
}
damage_settings = settings(deadline=None, max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))

WORDS = st.sampled_from(
    [
        b"nan",
        b"inf",
        b"-1",
        b"1e400",
        b"x y",
        b"0 0 0",
        b"\xff\xfe",
        b"\0",
        b"#",
        b": [",
        b"99999999999999999999",
        b"\n\n",
    ]
)


@st.composite
def damages(draw):
    """bytes -> bytes, or None to delete the file."""
    kind = draw(
        st.sampled_from(["truncate", "flip", "drop lines", "swap lines", "insert", "append", "empty", "delete"])
    )
    places = draw(st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=4))
    value, word = draw(st.integers(1, 255)), draw(WORDS | st.binary(max_size=8))

    def apply(content: bytes) -> bytes | None:
        at = [int(place * len(content)) for place in places]
        lines = content.split(b"\n")
        line = int(places[0] * len(lines))
        match kind:
            case "truncate":
                return content[: at[0]]
            case "flip":
                changed = bytearray(content)
                for k in at if content else []:
                    changed[k] ^= value
                return bytes(changed)
            case "drop lines":
                return b"\n".join(lines[:line] + lines[line + 1 :])
            case "swap lines":
                return b"\n".join(lines[line:] + lines[:line])
            case "insert":
                return content[: at[0]] + word + content[at[0] :]
            case "append":
                return content + word
            case "empty":
                return b""
        return None

    apply.__qualname__ = f"{kind} {places} {value} {word!r}"
    return apply


def check_whole(root: Path) -> None:
    """Open and read everything; a drive that comes out must keep what a Drive promises."""
    dataset = open_dataset(root)
    for name in dataset:
        drive = dataset[name]
        assert se3.rigidity_error(drive.world_from_lidar).max() < 1e-9
        assert (np.diff(drive.timestamps_ns) > 0).all()
        for sweep in drive:
            assert sweep.points.dtype == np.float32
            assert len(sweep) > 0
            assert np.isfinite(sweep.points).all()


def is_ours(action) -> None:
    with warnings.catch_warnings(), contextlib.suppress(Copilot4dError):
        warnings.simplefilter("error", RuntimeWarning)
        warnings.simplefilter("ignore", Copilot4dWarning)
        action()


@pytest.mark.parametrize("kind", TREES)
def test_damaged_trees(kind, tmp_path):
    root = TREES[kind](tmp_path / "tree")
    check_whole(root)
    files = sorted(path for path in root.rglob("*") if path.is_file())

    @damage_settings
    @given(st.sampled_from(files), damages())
    def damaged(path, damage):
        whole = path.read_bytes()
        try:
            changed = damage(whole)
            if changed is None:
                path.unlink()
            else:
                path.write_bytes(changed)
            is_ours(lambda: check_whole(root))
        finally:
            path.write_bytes(whole)

    damaged()
    check_whole(root)


@pytest.mark.parametrize("suffix", [*SUFFIXES, ".ascii.ply", ".ascii.pcd"])
def test_damaged_point_files(suffix, tmp_path):
    path = tmp_path / f"a{suffix}"
    sweep = small_drive(1, points=20).read(0)
    if suffix == ".ascii.ply":
        header = "ply\nformat ascii 1.0\nelement vertex 2\n" + "".join(f"property float {k}\n" for k in "xyz")
        path.write_text(header + "end_header\n1 2 3\n4 5 6\n")
    elif suffix == ".ascii.pcd":
        header = "VERSION .7\nFIELDS x y z\nSIZE 4 4 4\nTYPE F F F\nCOUNT 1 1 1\nWIDTH 2\nHEIGHT 1\nPOINTS 2\n"
        path.write_text(header + "DATA ascii\n1 2 3\n4 5 6\n")
    else:
        write_points(path, sweep.points, sweep.intensity)
    whole = path.read_bytes()

    @damage_settings
    @given(damages(), damages())
    def damaged(first, second):
        changed = first(whole)
        changed = None if changed is None else second(changed)
        if changed is not None:
            path.write_bytes(changed)
            is_ours(lambda: read_points(path))

    damaged()


@pytest.mark.parametrize("kind", TREES)
def test_folders_that_vanish(kind, tmp_path):
    root = TREES[kind](tmp_path / "tree")
    for folder in sorted(path for path in root.rglob("*") if path.is_dir()):
        copy = tmp_path / "copy"
        shutil.copytree(root, copy)
        shutil.rmtree(copy / folder.relative_to(root))
        is_ours(lambda copy=copy: check_whole(copy))
        (copy / folder.relative_to(root)).write_bytes(b"a file where a folder was")
        is_ours(lambda copy=copy: check_whole(copy))
        shutil.rmtree(copy)
