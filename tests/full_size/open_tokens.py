"""Opens the clips of a token cache as a rank does, and prints, as JSON, what it took and some of what it saw."""

from __future__ import annotations

import hashlib
import json
import pickle
import sys
import time
from pathlib import Path

import numpy as np

from copilot4d.cli.options.train_world_model import Options
from copilot4d.cli.train_world_model import choose_clips, world_model_config
from tests.full_size.memory import memory_mb

folder = Path(sys.argv[1])
options = Options(tokens=(folder,), run=folder / "run", preset="tiny", config=Path(sys.argv[2]))
before_mb, own_mb, before_s = memory_mb(), memory_mb("RssAnon"), time.process_time()
clips, held_out = choose_clips(options, world_model_config(options))
opened_mb, opened_s = memory_mb() - before_mb, time.process_time() - before_s
seen = hashlib.sha256()
for item in np.random.default_rng(0).integers(0, len(clips), 200).tolist():
    clip = clips.clip(item, 0)
    seen.update(json.dumps([item, clip.drive, clip.reference, clip.interval, clip.tokens[:, 0, 0].tolist()]).encode())
assert held_out is not None
print(
    json.dumps(
        {
            "clips": len(clips), "held_out": len(held_out), "seen": seen.hexdigest(), "fingerprint": clips.fingerprint,
            "opened_mb": opened_mb, "opened_cpu_s": opened_s, "own_mb": memory_mb("RssAnon") - own_mb,
            "pickled_bytes": len(pickle.dumps(clips)),
        }
    )
)  # fmt: skip
