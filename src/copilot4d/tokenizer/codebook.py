"""Vector quantisation with a codebook that gradients move and K-means revives.

Axes: B scenes, H/W tokens, D code dimensions, K codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from copilot4d.errors import UsageError, check_range
from copilot4d.tokenizer.kmeans import kmeans, nearest_rows

EmptyColumns = Literal["learned", "reserved"]
EMPTY_TOKEN = 0  # of a column without a point, where its code is reserved


@dataclass(frozen=True, kw_only=True)
class CodebookConfig:
    """The codebook and its care.

    empty_columns: "learned", as in the paper, quantises every column; "reserved" gives all columns without a point the
    code EMPTY_TOKEN, which is a zero vector for ever and free space in the scene.
    """

    codes: int = 1024  # with the reserved one
    dim: int = 1024
    bank_factor: int = 10  # rows of the memory bank, per code
    rows_per_iteration: int | None = None  # encoder outputs that enter the bank, over the whole batch; None: `codes`
    dead_after: int = 256  # iterations without use
    dead_fraction: float = 0.03  # more than this, and the whole codebook is made anew
    wait: int = 200  # iterations that a codebook must live before it is made anew
    kmeans_iterations: int = 10
    start_from_data: bool = False  # the first K-means as soon as the bank is full; the paper waits for dead codes
    warm_up: int = 0  # iterations without quantisation, before the first K-means: an encoder worth clustering
    empty_columns: EmptyColumns = "learned"

    def __post_init__(self) -> None:
        for name in ("codes", "dim", "bank_factor", "dead_after", "wait", "kmeans_iterations"):
            if getattr(self, name) < 1:
                raise UsageError(f"tokenizer.codebook.{name} must be at least 1, got {getattr(self, name)}")
        check_range("tokenizer.codebook.codes", self.codes, 1, 1 << 17)
        check_range("tokenizer.codebook.dim", self.dim, 1, 1 << 14)
        check_range("tokenizer.codebook.kmeans_iterations", self.kmeans_iterations, 1, 10_000)
        check_range(
            "tokenizer.codebook.codes x .dim x .bank_factor", self.codes * self.dim * self.bank_factor, 1, 1 << 28
        )
        if self.warm_up < 0:
            raise UsageError(f"tokenizer.codebook.warm_up must not be negative, got {self.warm_up}")
        if not 0 <= self.dead_fraction <= 1:
            raise UsageError(f"tokenizer.codebook.dead_fraction must lie in [0, 1], got {self.dead_fraction}")
        if self.empty_columns not in get_args(EmptyColumns):
            known = ", ".join(get_args(EmptyColumns))
            raise UsageError(f"tokenizer.codebook.empty_columns is one of {known}, got {self.empty_columns!r}")
        if self.codes <= self.reserved:
            raise UsageError(f"tokenizer.codebook.codes must leave a code beside the reserved one, got {self.codes}")
        if self.rows_per_iteration is not None and self.rows_per_iteration < 1:
            raise UsageError(f"tokenizer.codebook.rows_per_iteration must be at least 1, got {self.rows_per_iteration}")

    @property
    def reserved(self) -> int:
        """How many codes, the first ones, are never learned."""
        return 1 if self.empty_columns == "reserved" else 0


class Quantised(NamedTuple):
    """Encoder outputs replaced by their nearest codes."""

    values: Tensor  # (B, H, W, D): the codes forward, straight through to the encoder backward
    tokens: Tensor  # (B, H, W) int64
    codebook_loss: Tensor  # scalar: |sg[z] - e|^2, a mean over tokens and dimensions; 0 for reserved tokens
    commitment_loss: Tensor  # scalar: |z - sg[e]|^2


class CodebookReport(NamedTuple):
    """How the codebook fares in one iteration."""

    used: float  # fraction of the learned codes in this iteration's batch
    perplexity: float
    dead: float  # fraction of the learned codes
    reinitialised: bool


class Codebook(nn.Module):
    """K codes of D dimensions, with the memory bank and counters that decide when K-means makes them anew."""

    undecayed_parameters = ("weight",)
    bank: Tensor
    bank_rows: Tensor
    idle: Tensor
    age: Tensor
    made: Tensor
    iterations: Tensor

    def __init__(self, config: CodebookConfig) -> None:
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.randn(config.codes, config.dim) * (3 * config.dim) ** -0.5)
        nn.init.zeros_(self.weight[: config.reserved])
        self.register_buffer("bank", torch.zeros(config.bank_factor * config.codes, config.dim))
        self.register_buffer("bank_rows", torch.zeros((), dtype=torch.int64))  # ever written; the bank is a ring
        self.register_buffer("idle", torch.zeros(config.codes, dtype=torch.int64))  # iterations since last used
        self.register_buffer("age", torch.zeros((), dtype=torch.int64))  # iterations since it was made
        self.register_buffer("made", torch.zeros((), dtype=torch.int64))  # how often K-means made it
        self.register_buffer("iterations", torch.zeros((), dtype=torch.int64))  # ever trained

    def forward(self, features: Tensor, empty: Tensor | None = None) -> Quantised:
        """(B, H, W, D) encoder outputs -> their nearest codes, and both terms of the loss.

        empty: (B, H, W) bool, the columns without a point; needed where their code is reserved.
        """
        tokens = self.nearest(features, empty)
        codes = self.embed(tokens)
        features = features.float()
        if self.config.reserved:
            features = features.masked_fill((tokens == EMPTY_TOKEN)[..., None], 0.0)
        if self.training and self.warming_up:
            nothing = 0 * codes.sum()
            return Quantised(values=features, tokens=tokens, codebook_loss=nothing, commitment_loss=nothing)
        return Quantised(
            values=features + (codes - features).detach(),
            tokens=tokens,
            codebook_loss=functional.mse_loss(codes, features.detach()),
            commitment_loss=functional.mse_loss(features, codes.detach()),
        )

    @property
    def warming_up(self) -> bool:
        """Whether training still passes the encoder's outputs on as they are."""
        return int(self.iterations) < self.config.warm_up

    @torch.no_grad()
    def nearest(self, features: Tensor, empty: Tensor | None = None) -> Tensor:
        """(..., D) -> (...) tokens; EMPTY_TOKEN where `empty` (...) says so and that code is reserved."""
        first = self.config.reserved
        tokens = nearest_rows(features.flatten(0, -2), self.weight[first:]).view(features.shape[:-1]) + first
        if not first:
            return tokens
        if empty is None:
            raise UsageError("this codebook reserves a code for empty columns; say which columns are empty")
        return tokens.masked_fill(empty, EMPTY_TOKEN)

    def embed(self, tokens: Tensor) -> Tensor:
        """(...) tokens -> (..., D)."""
        return functional.embedding(tokens, self.weight, padding_idx=EMPTY_TOKEN if self.config.reserved else None)

    def is_empty(self, tokens: Tensor) -> Tensor | None:
        """(...) bool: the tokens of columns without a point; None where no code is reserved for them."""
        return tokens == EMPTY_TOKEN if self.config.reserved else None

    @torch.no_grad()
    def update(
        self, rows: Tensor, counts: Tensor, generator: torch.Generator, *, remake: bool = False
    ) -> CodebookReport:
        """Once per iteration, with the same arguments on every rank.

        rows: (M, D) some of the iteration's encoder outputs, oldest first, of columns that are not empty where those
        have a reserved code. counts: (K,) how often each code was used. remake: make the codes of a trained tokenizer
        anew once the bank is full.
        """
        first = self.config.reserved
        self.iterations += 1
        self.age += 1
        self.idle += 1
        self.idle[counts.to(self.idle.device) > 0] = 0
        self._store(rows)
        dead = float((self.idle[first:] >= self.config.dead_after).double().mean())
        due = dead > self.config.dead_fraction and int(self.age) >= self.config.wait
        due |= self.config.start_from_data and int(self.made) == 0 and self.full
        due |= remake and int(self.made) <= 1 and self.full
        due = int(self.iterations) == self.config.warm_up or (due and not self.warming_up)
        reinitialise = bool(due) and min(int(self.bank_rows), len(self.bank)) >= self.config.codes
        if reinitialise:
            known = self.bank[: min(int(self.bank_rows), len(self.bank))]
            clusters = self.config.codes - first
            self.weight[first:] = kmeans(known, clusters, generator, self.config.kmeans_iterations)
            # `idle` runs on: a code that stays unused is still dead when the next 200 iterations are over.
            self.age.zero_()
            self.made += 1
        counts = counts[first:]
        share = counts.double() / counts.sum().clamp(min=1)
        entropy = -(share * share.clamp(min=1e-300).log()).sum()
        return CodebookReport(
            used=float((counts > 0).double().mean()),
            perplexity=float(entropy.exp()),
            dead=dead,
            reinitialised=reinitialise,
        )

    def begin_trained(self) -> None:
        """The codes are those of a trained tokenizer: no warm-up, no first K-means, bank and counters begin anew."""
        self.iterations.fill_(self.config.warm_up)
        self.made.fill_(1)
        for counter in (self.bank_rows, self.idle, self.age):
            counter.zero_()

    @property
    def full(self) -> bool:
        """Whether the memory bank has been filled once."""
        return int(self.bank_rows) >= len(self.bank)

    def _store(self, rows: Tensor) -> None:
        capacity = len(self.bank)
        rows = rows[-capacity:].to(self.bank)
        where = (int(self.bank_rows) + torch.arange(len(rows), device=self.bank.device)) % capacity
        self.bank[where] = rows
        self.bank_rows += len(rows)
