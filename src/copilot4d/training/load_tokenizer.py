"""A trained tokenizer from its run or checkpoint folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from copilot4d.config import from_mapping
from copilot4d.errors import DataError, UsageError
from copilot4d.tokenizer.config import TokenizerConfig
from copilot4d.tokenizer.tokenizer import Tokenizer
from copilot4d.training.checkpoint import Checkpoint, CheckpointStore, open_checkpoint


@dataclass(frozen=True, kw_only=True)
class LoadedTokenizer:
    """A tokenizer in evaluation mode, and the checkpoint that it came from."""

    tokenizer: Tokenizer
    checkpoint: Checkpoint


def load_tokenizer(folder: str | Path) -> LoadedTokenizer:
    """From a checkpoint, or from a run: its best checkpoint, or the newest where none was scored. Averaged weights
    where there are.
    """
    checkpoint = _checkpoint(Path(folder))
    if checkpoint.content.get("task") != "tokenizer":
        raise UsageError(f"{checkpoint.path} holds a {checkpoint.content.get('task')}, not a tokenizer")
    config = checkpoint.content.get("config", {}).get("task", {}).get("tokenizer")
    if not isinstance(config, dict):
        raise DataError(checkpoint.path / "manifest.json", "config.task.tokenizer", expected="a configuration",
                        found="none", remedy="pass a checkpoint that `copilot4d train tokenizer` wrote")  # fmt: skip
    tokenizer = Tokenizer(from_mapping(TokenizerConfig, config, source=checkpoint.path / "manifest.json"))
    tensors = checkpoint.tensors("model")
    if checkpoint.has("ema"):
        tensors |= checkpoint.tensors("ema")
    try:
        tokenizer.load_state_dict(tensors)
    except RuntimeError as error:
        found = " ".join(str(error).split())[:300]
        raise DataError(checkpoint.path / "model.safetensors", "weights", expected="those of its own configuration",
                        found=found, remedy="copy the checkpoint again") from error  # fmt: skip
    return LoadedTokenizer(tokenizer=tokenizer.eval(), checkpoint=checkpoint)


def _checkpoint(folder: Path) -> Checkpoint:
    if not (folder / "checkpoints").is_dir():
        return open_checkpoint(folder)
    store = CheckpointStore(folder=folder / "checkpoints")
    best = store.best_step()
    found = store.newest() if best is None else open_checkpoint(store.path(best))
    if found is None:
        raise DataError(folder, "checkpoints", expected="an intact checkpoint", found="none",
                        remedy="pass a run that has saved one")  # fmt: skip
    return found
