"""A trained tokenizer from its run, its checkpoint, or the folder in which it was shared."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import torch

from copilot4d.config import from_mapping, to_mapping
from copilot4d.tokenizer.config import TokenizerConfig
from copilot4d.tokenizer.tokenizer import Tokenizer
from copilot4d.training.checkpoint import Checkpoint
from copilot4d.training.load_checkpoint import best_checkpoint, fill, task_config
from copilot4d.training.pretrained import load_pretrained


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
    `save_pretrained`. Averaged weights where there are.
    """
    folder = Path(folder)
    if (folder / "config.json").is_file():
        shared = load_pretrained(folder, kind="tokenizer")
        tokenizer = Tokenizer(from_mapping(TokenizerConfig, shared.config, source=folder / "config.json"))
        shared.fill(tokenizer)
        return LoadedTokenizer(
            tokenizer=tokenizer.eval(), path=folder, sha256=tokenizer_sha256(tokenizer), checkpoint=None
        )
    checkpoint = best_checkpoint(folder)
    config = task_config(checkpoint, TokenizerConfig, task="tokenizer", section="tokenizer", verb="train tokenizer")
    tokenizer = Tokenizer(config)
    fill(tokenizer, checkpoint)
    return LoadedTokenizer(
        tokenizer=tokenizer.eval(), path=checkpoint.path, sha256=tokenizer_sha256(tokenizer), checkpoint=checkpoint
    )


def tokenizer_sha256(tokenizer: Tokenizer) -> str:
    """The identity of a tokenizer: its weights as they are in use, and what else decides its tokens.

    The same whether it came from a checkpoint, its moving average or a shared folder; a file's hash would not be.
    """
    config = to_mapping(tokenizer.config)
    deciding = {name: config[name] for name in ("grid", "empty_pillar", "backbone")}
    digest = hashlib.sha256(json.dumps(deciding, sort_keys=True).encode())
    for name, parameter in tokenizer.named_parameters():
        digest.update(name.encode())
        digest.update(parameter.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
