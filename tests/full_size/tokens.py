"""A token cache with as many drives as the real ones: one file of tokens, linked under the name of every drive."""

from __future__ import annotations

import hashlib
import os
import uuid
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from copilot4d.checkpoints.sealed_folder import MANIFEST, _sealed_bytes, sha256_of
from copilot4d.config import to_mapping
from copilot4d.tokens.token_cache import KIND, VERSION, CacheContent, CachedDrive
from copilot4d.tokens.write_token_cache import file_name
from tests.tokens.moving_drives import CONFIG


def token_cache(folder: Path, drives: int, sweeps: int) -> Path:
    """Drives with random ids, of which every hundredth is held out; sweeps at 10 Hz, tokens that tell their number."""
    folder.mkdir(parents=True)
    shared = folder / "shared.tmp"
    numbers = torch.arange(sweeps, dtype=torch.int16)[:, None, None].expand(sweeps, *CONFIG.token_shape)
    tensors = {
        "0/tokens": numbers.contiguous(),
        "0/world_from_lidar": torch.eye(4, dtype=torch.float64).expand(sweeps, 4, 4).contiguous(),
        "0/timestamps_ns": torch.from_numpy(np.arange(sweeps, dtype=np.int64) * 100_000_000),
    }
    save_file(tensors, shared)
    sealed = {"bytes": shared.stat().st_size, "sha256": sha256_of(shared)}
    rng = np.random.default_rng(0)
    entries, files = [], {}
    for n in range(drives):
        name = str(uuid.UUID(bytes=rng.bytes(16)))
        file = file_name(name)
        os.link(shared, folder / file)
        files[file] = sealed
        entries.append(
            CachedDrive(
                name=name, file=file, frames=sweeps, clips=0, intervals=(2, 6), format="argoverse2", split="train",
                held_out=n % 100 == 0, fingerprint=hashlib.sha256(name.encode()).hexdigest(),
            )
        )  # fmt: skip
    shared.unlink()
    config = {**to_mapping(CONFIG), "token_frame": "own", "vocabulary": 32_000}
    content = {**to_mapping(CacheContent(config=CONFIG, command="copilot4d tokenize", drives=tuple(entries)))}
    body = {"kind": KIND, "version": VERSION, "files": files, "content": {**content, "config": config}}
    (folder / MANIFEST).write_bytes(_sealed_bytes(body))
    return folder
