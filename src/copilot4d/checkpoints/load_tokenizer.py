"""A trained tokenizer from its run, its checkpoint, or the folder in which it was shared."""

from __future__ import annotations

import hashlib
import importlib.resources
import json
from dataclasses import dataclass
from pathlib import Path

import torch

from copilot4d.checkpoints.checkpoint import Checkpoint
from copilot4d.checkpoints.load_checkpoint import load_network
from copilot4d.config import to_mapping
from copilot4d.tokenizer.config import TokenizerConfig
from copilot4d.tokenizer.tokenizer import Tokenizer

SHIPPED = ("street_tokenizer",)  # in `weights/` of the package


@dataclass(frozen=True, kw_only=True)
class LoadedTokenizer:
    """A tokenizer in evaluation mode, and where it came from."""

    tokenizer: Tokenizer
    path: Path  # the checkpoint or the shared folder
    sha256: str  # `tokenizer_sha256` of the weights in use: the identity that token caches and world models name
    checkpoint: Checkpoint | None  # None for a shared folder

    @property
    def step(self) -> int | None:
        """Updates that it was trained for, where that is known."""
        return None if self.checkpoint is None else self.checkpoint.step


def load_tokenizer(folder: str | Path) -> LoadedTokenizer:
    """From a checkpoint, from a run (its best checkpoint, or the newest where none was scored), or from a folder of
    `save_pretrained`; or one of SHIPPED by its name. Averaged weights where there are.
    """
    folder = Path(folder)
    if str(folder) in SHIPPED and not folder.exists():
        folder = Path(str(importlib.resources.files("copilot4d") / "weights" / str(folder)))
    loaded = load_network(
        folder, Tokenizer, TokenizerConfig, task="tokenizer", section="tokenizer", verb="train tokenizer"
    )
    return LoadedTokenizer(
        tokenizer=loaded.network, path=loaded.path, sha256=tokenizer_sha256(loaded.network),
        checkpoint=loaded.checkpoint,
    )  # fmt: skip


def tokenizer_sha256(tokenizer: Tokenizer) -> str:
    """The identity of a tokenizer: its weights as they are in use, and what else decides its tokens.

    The same whether it came from a checkpoint, its moving average or a shared folder; a file's hash would not be.
    """
    config = to_mapping(tokenizer.config)
    deciding = {name: config[name] for name in ("grid", "empty_pillar", "backbone")}
    if tokenizer.config.codebook.reserved:
        deciding["empty_columns"] = config["codebook"]["empty_columns"]
    digest = hashlib.sha256(json.dumps(deciding, sort_keys=True).encode())
    for name, parameter in tokenizer.named_parameters():
        digest.update(name.encode())
        digest.update(parameter.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
