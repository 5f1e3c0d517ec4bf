"""Where the real lidar data is, for the tests that use it; they skip, saying so, where it is absent."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


def real_data(*parts: str) -> Path:
    """A path below COPILOT4D_DATA (default: ../shared/data beside the repository), or a skip with the reason."""
    root = Path(os.environ.get("COPILOT4D_DATA", REPOSITORY.parent / "shared" / "data"))
    path = root.joinpath(*parts)
    if not path.exists():
        pytest.skip(
            f"real data is not here: {'/'.join(parts) or root.name}; set COPILOT4D_DATA to a folder that has it"
        )
    return path


def unpack_drive(name: str, out: Path, sweeps: int | None = None) -> Path:
    """Write one packed real KITTI drive (or its first sweeps) as a KITTI Odometry tree and return the tree's root."""
    root = real_data("kitti_drives", name).parents[1]
    spec = importlib.util.spec_from_file_location("unpack", root / "unpack.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if sweeps is None:
        module.unpack(root / "kitti_drives" / name, out)
        return out
    subset = out / "packed" / name
    subset.mkdir(parents=True)
    packed = root / "kitti_drives" / name
    for file in sorted(packed.glob("*.qxz"))[:sweeps]:
        (subset / file.name).symlink_to(file)
    for text, target in (("poses_lidar.txt", "poses_lidar.txt"), ("times.txt", "times.txt")):
        lines = (packed / text).read_text().splitlines(keepends=True)[:sweeps]
        (subset / target).write_text("".join(lines))
    module.unpack(subset, out / "tree")
    return out / "tree"
