"""K-means by Lloyd's iteration, deterministic given its generator."""

from __future__ import annotations

import torch
from torch import Tensor

from copilot4d.errors import UsageError

ROWS_AT_ONCE = 32768


def nearest_rows(rows: Tensor, centres: Tensor) -> Tensor:
    """(N, D) and (K, D) -> (N,) which centre is nearest, always searched in fp32.

    In bf16 near ties are decided by rounding, and a third of the tokens change when points move by two centimetres.
    """
    with torch.autocast(device_type=rows.device.type, enabled=False):
        centres = centres.float()
        half_norm = 0.5 * centres.square().sum(dim=-1)
        parts = [(part.float() @ centres.T - half_norm).argmax(dim=-1) for part in torch.split(rows, ROWS_AT_ONCE)]
    return torch.cat(parts) if parts else rows.new_zeros(0, dtype=torch.int64)


@torch.no_grad()
def seeds(rows: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """(N, D) -> (count,) distinct rows to start from: K-means++.

    Each next row is drawn with a chance that grows with its squared distance from those drawn so far. Rows drawn
    evenly would put most centres where most rows are: half of a codebook would tell noise of the ground apart.
    """
    draws = torch.rand(count, generator=generator, device=generator.device, dtype=torch.float64).to(rows.device)
    chosen = torch.zeros(count, dtype=torch.int64, device=rows.device)
    chosen[0] = (draws[0] * len(rows)).long()
    left = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
    left[chosen[0]] = False
    distance = (rows - rows[chosen[0]]).square().sum(dim=-1)
    for k in range(1, count):
        # Rows that equal a centre have no distance; the smallest number lets them in when nothing else is left.
        chance = torch.where(left, distance.double().clamp(min=1e-30), 0.0).cumsum(0)
        chosen[k] = torch.searchsorted(chance, draws[k] * chance[-1], right=True).clamp(max=len(rows) - 1)
        left[chosen[k]] = False
        distance = torch.minimum(distance, (rows - rows[chosen[k]]).square().sum(dim=-1))
    return chosen


@torch.no_grad()
def kmeans(rows: Tensor, clusters: int, generator: torch.Generator, iterations: int = 10) -> Tensor:
    """(N, D) rows -> (clusters, D) centres.

    Starts from rows that are far from each other (`seeds`). A centre that loses all its rows moves to one of the rows
    that lie furthest from their own centre.
    """
    if len(rows) < clusters:
        raise UsageError(f"K-means needs at least as many rows as clusters, got {len(rows)} for {clusters}")
    rows = rows.float()
    centres = rows[seeds(rows, clusters, generator)].clone()
    for _ in range(iterations):
        member = nearest_rows(rows, centres)
        sizes = torch.bincount(member, minlength=clusters)
        sums = torch.zeros_like(centres).index_add(0, member, rows)
        updated = torch.where(sizes[:, None] > 0, sums / sizes[:, None].clamp(min=1), centres)
        empty = (sizes == 0).nonzero()[:, 0]
        if len(empty):
            distance = (rows - updated[member]).square().sum(dim=-1)
            updated[empty] = rows[distance.topk(len(empty)).indices]
        if torch.equal(updated, centres):
            break
        centres = updated
    return centres
