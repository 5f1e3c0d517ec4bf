"""Weights before they are used: every tensor there, of the right shape and type, and finite.

`check_header` reads names, shapes and types only, against a network without memory of its own (torch's meta device), so
that a configuration and weights that do not belong together are refused before anything is allocated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from copilot4d.checkpoints.sealed_folder import DamagedError
from copilot4d.checkpoints.tensors import named_state
from copilot4d.errors import DataError

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_BY_NAME = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64,
            "I64": torch.int64, "I32": torch.int32, "BOOL": torch.bool, "C64": torch.complex64}  # fmt: skip
_REMEDY = "use the config that the weights were made with"

Tensors = Mapping[str, torch.Tensor]


def check_header(build: Callable[[], nn.Module], path: Path, left_out: Iterable[str] = ()) -> None:
    """Compare what a safetensors file says that it holds with a network's own tensors; DataError where they differ.

    left_out: names of buffers that the file need not have.
    """
    with torch.device("meta"):
        model = build()
    targets = dict(named_state(model))
    check_left_out(model, left_out, path)
    stated = read_header(path)
    check_names_and_shapes(
        {name: t for name, t in targets.items() if name in stated or name not in left_out}, stated, path
    )


def read_header(path: Path) -> dict[str, torch.Tensor]:
    """Names, shapes and types of a safetensors file, as tensors without values."""
    found = {}
    try:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 -- it is no mapping
                entry = file.get_slice(name)
                dtype = _BY_NAME.get(entry.get_dtype())
                if dtype is None:
                    raise _bad(path, name, "floating point numbers", f"the type {entry.get_dtype()}")
                found[name] = torch.empty(entry.get_shape(), dtype=dtype, device="meta")
    except (SafetensorError, OSError, RuntimeError, OverflowError) as error:
        raise DamagedError(
            path, "tensors", expected="a safetensors file", found=str(error)[:200], remedy="copy the file again"
        ) from error
    return found


def check_left_out(model: nn.Module, left_out: Iterable[str], path: Path) -> None:
    """Only buffers may be left out of a file of weights: what only training needs, or what the configuration tells."""
    buffers = {name for name, _ in model.named_buffers()}
    wrong = sorted(set(left_out) - buffers)
    if wrong:
        found = f"{len(wrong)} others ({', '.join(wrong[:3])})"
        raise _bad(path.with_name("config.json"), "left_out", "names of the network's buffers", found,
                   "copy the folder again: weights must all be in the file")  # fmt: skip


def check_names_and_shapes(targets: Tensors, tensors: Tensors, path: Path) -> None:
    """Raise DataError naming the first tensors that are missing, left over, of another shape or type, or not finite."""
    missing, extra = sorted(set(targets) - set(tensors)), sorted(set(tensors) - set(targets))
    if missing or extra:
        found = f"{len(missing)} missing ({', '.join(missing[:3])}), {len(extra)} unknown ({', '.join(extra[:3])})"
        raise _bad(path, "tensors", "the model's names", found)
    for name, target in targets.items():
        tensor = tensors[name]
        if target.shape != tensor.shape:
            raise _bad(path, name, f"shape {tuple(target.shape)}", f"{tuple(tensor.shape)}")
        fits = tensor.dtype in FLOATS if target.dtype in FLOATS else tensor.dtype == target.dtype
        if not fits:
            wanted = "floating point numbers" if target.dtype in FLOATS else str(target.dtype).removeprefix("torch.")
            raise _bad(path, name, wanted, f"the type {str(tensor.dtype).removeprefix('torch.')}")
        if not tensor.is_meta and tensor.dtype in FLOATS and not bool(torch.isfinite(tensor).all()):
            count = int((~torch.isfinite(tensor)).sum())
            raise _bad(path, name, "finite numbers", f"{count} of {tensor.numel()} that are NaN or infinite",
                       "use other weights: these were damaged, or their training had failed")  # fmt: skip


@torch.no_grad()
def fill(model: nn.Module, tensors: Mapping[str, torch.Tensor], path: Path) -> None:
    """Put tensors into a model's parameters and buffers; names and shapes must be its own. path: their file."""
    targets = dict(named_state(model))
    check_names_and_shapes(targets, tensors, path)
    for name, target in targets.items():
        target.copy_(tensors[name])


def _bad(path: Path, field: str, expected: str, found: str, remedy: str = _REMEDY) -> DataError:
    return DataError(path, field, expected=expected, found=found, remedy=remedy)
