"""A file written variant by variant: the library's own bytes, and never more than one variant in memory."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from copilot4d.tokens.token_cache import open_token_cache
from copilot4d.tokens.variant_file import VariantFile
from tests.tokens.test_token_cache import ALONE, CONFIG, DRIVES, Encoder, quadrants
from tests.tokens.test_token_cache import write as write_cache

IDENTITY = {"identity": '{"drive": "dr\u00fcben \\"1\\"", "path": "a\\\\b"}'}


def variant(number: int) -> dict[str, torch.Tensor]:
    """Types of four sizes, two empty tensors, one without axes, one that is no block of memory."""
    draws = torch.Generator().manual_seed(number)
    return {
        "tokens": torch.randint(0, 1000, (3, 5, 2), generator=draws, dtype=torch.int16),
        "wide": torch.randint(0, 1000, (7,), generator=draws, dtype=torch.int32),
        "poses": torch.rand(3, 4, 4, generator=draws, dtype=torch.float64),
        "times": torch.randint(0, 1000, (3,), generator=draws),
        "flags": torch.rand(5, generator=draws) > 0.5,
        "none": torch.empty(0, 10, dtype=torch.int64),
        "no list": torch.from_numpy(np.array([], dtype=np.int64)),
        "number": torch.tensor(number),
        "turned": torch.rand(4, 3, generator=draws).T,
    }


@pytest.mark.parametrize("variants", [1, 2, 12])  # 10/ and 11/ stand before 2/
def test_the_bytes_are_those_of_the_library(variants, tmp_path):
    with VariantFile(tmp_path / "ours", variants, IDENTITY) as file:
        for number in range(variants):
            file.add(variant(number))
    tensors = {f"{v}/{name}": tensor.contiguous() for v in range(variants) for name, tensor in variant(v).items()}
    save_file(tensors, tmp_path / "theirs", metadata=IDENTITY)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


def test_variants_that_differ_or_are_missing_are_not_written_quietly(tmp_path):
    def write(path, sizes):
        with VariantFile(path, 2, {}) as file:
            for size in sizes:
                file.add({"tokens": torch.zeros(size)})

    with pytest.raises(AssertionError, match="other shapes"):
        write(tmp_path / "a", (3, 4))
    with pytest.raises(AssertionError, match="missing"):
        write(tmp_path / "b", (3,))


class Watching(Encoder):
    """Counts the tensors that it gave away and that are still alive when a variant is begun."""

    def __init__(self):
        super().__init__()
        self.given, self.alive = [], []

    def encode(self, drive):
        self.alive.append(sum(tensor() is not None for tensor in self.given))
        made = yield from super().encode(drive)
        self.given += [weakref.ref(tensor) for tensor in made.values()]
        return made


def test_a_cache_holds_one_variant_of_a_drive_at_a_time(tmp_path):
    encoder = Watching()
    write_cache(tmp_path, encoder=encoder, world=ALONE)
    assert encoder.alive == [0] * 6  # three variants of two drives
    cache = open_token_cache(tmp_path)
    augmented = CONFIG.variant(DRIVES[1].name, 2).drive(DRIVES[1])
    assert torch.equal(cache.read(DRIVES[1].name, 2, "tokens"), quadrants(augmented))


def test_a_drive_that_cannot_be_read_leaves_no_half_file(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        write_cache(tmp_path, encoder=Encoder(dies_at=2))
    assert list(tmp_path.iterdir()) == []
