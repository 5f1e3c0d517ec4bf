"""Folders to share weights in, as the Hugging Face hub keeps them: config.json, model.safetensors, README.md.

    save_pretrained("out/tokenizer", model, kind="tokenizer", config=to_mapping(config), card=ModelCard(...))
    weights = load_pretrained("out/tokenizer", kind="tokenizer")
    model = Tokenizer(from_mapping(TokenizerConfig, weights.config)); weights.fill(model)

A manifest seals the folder, and every byte is checked against it. A folder that never had a manifest (made by another
tool) is read too, because config.json and safetensors cannot execute anything. If config.json says that the folder was
sealed, the manifest must be there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors.torch import save_file
from torch import nn

from copilot4d.checkpoints.checkpoint import CONVENTIONS, read_tensors
from copilot4d.checkpoints.model_card import ModelCard, Score
from copilot4d.checkpoints.sealed_folder import MANIFEST, new_folder, open_sealed, safe_member, seal, sha256_of
from copilot4d.checkpoints.tensors import full_tensor, named_state
from copilot4d.checkpoints.weights_check import check_header, check_left_out, fill
from copilot4d.errors import DataError, UsageError
from copilot4d.version import __version__

__all__ = ["ModelCard", "Pretrained", "Score", "load_pretrained", "save_pretrained", "stated_config"]
KIND = "copilot4d.pretrained"
VERSION = 1
MAX_CONFIG_BYTES = 1_000_000
C = TypeVar("C")
N = TypeVar("N", bound=nn.Module)


@dataclass(frozen=True, kw_only=True)
class Pretrained:
    """A pretrained folder that was checked."""

    path: Path
    kind: str
    config: Mapping[str, Any]
    conventions: Mapping[str, Any]
    sha256: str  # of model.safetensors
    left_out: tuple[str, ...] = ()  # tensors of the model that using it does not need

    def tensors(self) -> dict[str, torch.Tensor]:
        """The weights, on the CPU."""
        return read_tensors(self.path / "model.safetensors")

    def build(self, network: Callable[[C], N], config: C) -> N:
        """The network of a configuration with these weights, which are compared before it is built."""
        check_header(lambda: network(config), self.path / "model.safetensors", self.left_out)
        model = network(config)
        self.fill(model)
        return model

    def fill(self, model: nn.Module) -> None:
        """Put the weights into a model; names and shapes must be its own. What was left out stays as it is."""
        check_left_out(model, self.left_out, self.path / "model.safetensors")
        kept = {name: tensor for name, tensor in named_state(model) if name in self.left_out}
        fill(model, {**kept, **self.tensors()}, self.path / "model.safetensors")


def save_pretrained(
    folder: str | Path, model: nn.Module, *, kind: str, config: Mapping[str, Any], card: ModelCard,
    conventions: Mapping[str, Any] | None = None, dtype: torch.dtype | None = None, without: Sequence[str] = (),
) -> Path:  # fmt: skip
    """Write a folder for the hub. An existing folder of ours is replaced, anything else is refused.

    dtype: of the floating tensors in the file; None: as they are. without: names of buffers that are not written, which
    only training needs.
    """
    folder = Path(folder)
    if folder.exists() and not (folder / MANIFEST).is_file():
        raise UsageError(f"{folder} exists and is not a pretrained folder; choose another name or remove it")
    left_out = [name for name, _ in named_state(model) if name in without]
    weights_left_out = sorted({name for name, _ in model.named_parameters()} & set(left_out))
    if weights_left_out:
        raise UsageError(f"only buffers can be left out of a file of weights, not {weights_left_out[0]}")
    weights = {
        name: _in_dtype(full_tensor(tensor), dtype).contiguous()
        for name, tensor in named_state(model)
        if name not in left_out
    }
    parameters = sum(p.numel() for p in model.parameters())
    stated: dict[str, Any] = {
        "kind": kind,
        "config": dict(config),
        "conventions": {**CONVENTIONS, **(conventions or {})},
        "sealed": True,  # there is a manifest: without it the folder is not read
    }
    if left_out:
        stated["left_out"] = left_out
    with new_folder(folder) as writing:
        save_file(weights, writing / "model.safetensors", metadata={"format": "pt"})
        (writing / "config.json").write_text(json.dumps(stated, indent=1) + "\n", encoding="utf-8")
        (writing / "README.md").write_text(card.text(kind, parameters), encoding="utf-8")
        seal(writing, kind=KIND, version=VERSION, content={"kind": kind, "written_by": f"copilot4d {__version__}"})
    return folder


def load_pretrained(folder: str | Path, *, kind: str) -> Pretrained:
    """Check and open a pretrained folder; nothing but config.json, model.safetensors and the manifest is opened."""
    folder = Path(folder)
    for name in ("config.json", "model.safetensors"):
        if not safe_member(folder, name).is_file():
            raise _bad(folder / name, "file", "a file", "none",
                       "pass a pretrained folder; pickled weights (.pt, .bin, .ckpt) are never read")  # fmt: skip
    sha256 = _sealed_sha256(folder)
    path, stated = folder / "config.json", stated_config(folder)
    if sha256 is None:
        # A manifest that was lost must not switch checking off where the folder, or the model around it, had one.
        if stated.get("sealed") or (folder.parent / "copilot4d.json").is_file():
            raise _bad(folder / MANIFEST, "manifest", "the manifest that was written with the folder", "none",
                       "copy the folder again")  # fmt: skip
        sha256 = sha256_of(folder / "model.safetensors")
    if stated.get("kind") != kind:
        raise _bad(path, "kind", repr(kind), repr(stated.get("kind")), f"pass a folder with a {kind}")
    conventions = stated.get("conventions") or {}
    if not isinstance(conventions, dict):
        raise _bad(path, "conventions", "names and values", repr(conventions)[:60], "pass a copilot4d folder")
    for name, value in CONVENTIONS.items():
        if conventions.get(name) != value:
            raise _bad(path, f"conventions.{name}", value, repr(conventions.get(name)), "use other weights")
    return Pretrained(
        path=folder, kind=kind, config=stated["config"], conventions=conventions, sha256=sha256,
        left_out=tuple(stated["left_out"]),
    )  # fmt: skip


def _sealed_sha256(folder: Path) -> str | None:
    """The weights' sha256 in a folder whose every byte was checked; None for a folder without a manifest."""
    if not (folder / MANIFEST).exists() and not (folder / MANIFEST).is_symlink():
        return None
    files = open_sealed(folder, kind=KIND, version=VERSION).files
    for name in ("config.json", "model.safetensors"):
        if name not in files:
            raise _bad(folder / MANIFEST, "files", "config.json and model.safetensors", f"no {name}",
                       "copy the folder again")  # fmt: skip
    return files["model.safetensors"]


def stated_config(folder: Path) -> dict[str, Any]:
    """What config.json of a pretrained folder states: kind, config, conventions, and `left_out`, a list of names."""
    path = folder / "config.json"
    if path.stat().st_size > MAX_CONFIG_BYTES:
        raise _bad(path, "size", f"at most {MAX_CONFIG_BYTES} bytes", f"{path.stat().st_size}", "pass another folder")
    try:
        stated = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise _bad(path, "JSON", "a configuration", str(error), "copy the folder again") from error
    if not isinstance(stated, dict) or not isinstance(stated.get("config"), dict):
        raise _bad(path, "config", "kind, config and conventions", "something else", "pass a copilot4d folder")
    left_out = stated.get("left_out", [])
    if not isinstance(left_out, list) or not all(isinstance(name, str) for name in left_out):
        raise _bad(path, "left_out", "a list of names", repr(left_out)[:60], "copy the folder again")
    return {**stated, "left_out": left_out}


def _in_dtype(tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    return tensor.to(dtype) if dtype is not None and tensor.is_floating_point() else tensor


def _bad(path: Path, field: str, expected: str, found: str, remedy: str) -> DataError:
    return DataError(path, field, expected=expected, found=found, remedy=remedy)
