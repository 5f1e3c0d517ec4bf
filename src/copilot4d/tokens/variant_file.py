"""A safetensors file that is written variant by variant, so that no more than one variant is ever in memory.

The library's own writer wants all tensors at once, and copies them. Variants of a drive have the same names, types and
shapes, so the first one tells where all of them will stand; the bytes are those that the library would have written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

_LENGTH_BYTES = 8  # of the header, little-endian, at the start of the file
_ALIGNMENT = 8


class VariantFile:
    """Tensors named `variant/name`. A context manager; `add` every variant, in order, before it ends."""

    def __init__(self, path: Path, variants: int, metadata: Mapping[str, str]) -> None:
        self._path, self._variants, self._metadata = path, variants, dict(metadata)
        self._next = 0
        self._start: dict[str, int] = {}  # of each tensor, in the file
        self._shapes: dict[str, tuple[torch.Size, torch.dtype]] = {}
        self._file: BinaryIO

    def __enter__(self) -> VariantFile:
        self._file = self._path.open("wb")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        assert kind is not None or self._next == self._variants, "a variant is missing"

    def add(self, tensors: Mapping[str, Tensor]) -> None:
        """The tensors of the next variant, by name."""
        shapes = {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
        if self._next == 0:
            self._shapes = shapes
            self._write_header()
        assert shapes == self._shapes, f"variant {self._next} of {self._path} has other shapes than the first"
        for name, tensor in tensors.items():
            self._file.seek(self._start[f"{self._next}/{name}"])
            self._file.write(np.ascontiguousarray(tensor.detach().cpu().numpy()).reshape(-1).view(np.uint8).data)
        self._next += 1

    def _write_header(self) -> None:
        described = self._order()
        end = 0
        for full_name, about in described.items():
            shape, dtype = self._shapes[full_name.split("/", 1)[1]]
            start, end = end, end + shape.numel() * dtype.itemsize
            about["shape"], about["data_offsets"] = list(shape), [start, end]
        text = json.dumps({"__metadata__": self._metadata, **described}, separators=(",", ":"), ensure_ascii=False)
        header = text.encode()
        header += b" " * (-len(header) % _ALIGNMENT)
        self._file.write(len(header).to_bytes(_LENGTH_BYTES, "little") + header)
        data = _LENGTH_BYTES + len(header)
        self._start = {name: data + about["data_offsets"][0] for name, about in described.items()}

    def _order(self) -> dict[str, dict[str, Any]]:
        """What the header says of each tensor, in the order in which the library puts them: asked with empty ones."""
        empty = {
            f"{variant}/{name}": torch.empty(0, dtype=dtype)
            for variant in range(self._variants)
            for name, (_, dtype) in self._shapes.items()
        }
        said = save(empty)
        header = json.loads(said[_LENGTH_BYTES : _LENGTH_BYTES + int.from_bytes(said[:_LENGTH_BYTES], "little")])
        return {name: about for name, about in header.items() if name != "__metadata__"}
