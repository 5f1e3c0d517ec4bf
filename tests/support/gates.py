"""Copy gates that always choose the same."""

from __future__ import annotations

import torch

from copilot4d.copy_path import CANDIDATES, CopyGate, CopyGateConfig


def always(candidate: str, *, second_opinion: bool = False) -> CopyGate:
    """A gate that chooses this candidate for every ray. second_opinion: one that hears it, whatever it chooses."""
    hears = second_opinion or candidate not in CANDIDATES
    gate = CopyGate(CopyGateConfig.with_second_opinion() if hears else None)
    with torch.no_grad():
        for parameter in gate.parameters():
            parameter.zero_()
        gate.layers[-1].bias[gate.config.candidates.index(candidate)] = 1.0
    return gate
