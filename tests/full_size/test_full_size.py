"""Data sets with as many drives as the real ones: the second process does no work over again, in little memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.full_size.tokens import token_cache
from tests.full_size.trees import AV2_LOGS, SWEEPS, argoverse2_tree, nuscenes_tables

pytestmark = pytest.mark.slow
MOST_MB = 50


def opened(path: str, cache: Path, split: str = "", looked_at: int = 500) -> dict[str, Any]:
    """What a fresh process needs to open it."""
    return reported("open_it", cache, path, split, looked_at)


def reported(program: str, cache: Path, *arguments: object) -> dict[str, Any]:
    """What a program of this folder prints in a process of its own."""
    words = [sys.executable, "-m", f"tests.full_size.{program}", *map(str, arguments)]
    environment = {**os.environ, "COPILOT4D_CACHE": str(cache)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    print(report)
    return report


def test_all_of_argoverse_2(tmp_path):
    """20,000 logs, of which the 2,000 of val are used."""
    root = argoverse2_tree(tmp_path, AV2_LOGS, "val")
    first = opened(str(root), tmp_path / "cache", "val")
    assert (first["drives"], first["chosen"], first["sweeps"]) == (20_000, 2_000, 2_000 * SWEEPS)
    assert first["work"] == {"read_ego_poses": 2_000, "numbered_sweeps": 2_000}  # the other splits are left alone
    second = opened(str(root), tmp_path / "cache", "val")
    assert second["work"] == {}
    assert second["sweeps"] == first["sweeps"]
    assert second["first"] == first["first"] == min(path.name for path in (root / "val").iterdir())
    assert max(second["opened_mb"], second["own_mb"]) < MOST_MB
    assert second["pickled_bytes"] < 2_000


def test_all_of_nuscenes_trainval(tmp_path):
    """850 scenes, 34,000 keyframes with an image each, 340,000 sweeps: 374,000 records a table."""
    root = nuscenes_tables(tmp_path, 850, 40, 10)
    path, sweeps = f"{root}@20hz", 340_000
    first = opened(path, tmp_path / "cache")
    assert (first["drives"], first["sweeps"]) == (850, sweeps)
    assert first["work"]["_pose"] >= sweeps
    second = opened(path, tmp_path / "cache")
    assert second["work"] == {}
    assert second["sweeps"] == sweeps
    assert max(second["opened_mb"], second["own_mb"]) < MOST_MB
    assert second["pickled_bytes"] < 2_000


def test_the_tokens_of_all_of_argoverse_2(tmp_path):
    """Clips of 16,000 logs: the second rank holds a few MB, whatever their number, and has the first one's clips."""
    changes = tmp_path / "changes.yaml"
    changes.write_text("frames: 10\npast_frames: 5\n")
    folder = token_cache(tmp_path / "tokens", AV2_LOGS["train"], 64)
    first = reported("open_tokens", tmp_path / "cache", folder, changes)
    of_a_log = (64 - 9 * 2) + (64 - 9 * 6)
    assert (first["clips"], first["held_out"]) == (15_840 * of_a_log, 160 * of_a_log)
    second = reported("open_tokens", tmp_path / "cache", folder, changes)
    assert {**second, **{key: first[key] for key in first if "_mb" in key or "_s" in key}} == first
    assert second["opened_cpu_s"] < first["opened_cpu_s"] / 4
    assert max(second["opened_mb"], second["own_mb"]) < 10
    assert second["pickled_bytes"] < 5_000
