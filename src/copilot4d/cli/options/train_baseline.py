"""The options of `copilot4d train baseline`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from copilot4d.cli.options import train_occupancy


@dataclass(frozen=True, kw_only=True)
class Options(train_occupancy.Options):
    """Train one of the other systems of the paper's tables, by the same loop, data and protocol as our own models.

    st3dcnn, spfnet and s2net read and predict range images; 4d_occ is the published network of 4D-Occ, and 4d_occ_ours
    our variant of it. `copilot4d forecast` and `evaluate` take the run's folder as --model. The same command goes on
    where an interrupted run stopped. Example:

        copilot4d train baseline st3dcnn --data street-v1/train:300 --held-out-data street-v1/val --run runs/st3dcnn
    """

    name: Annotated[Literal["st3dcnn", "spfnet", "s2net", "4d_occ", "4d_occ_ours"], tyro.conf.Positional]
    """Which network."""
    poses: bool = False
    """Range images: carry the past into the reference frame first, and predict there. Published: without any pose."""
    chamfer_weight: float = 0.0
    """Range images: weight of the Chamfer distance in the loss."""
    chamfer_from_step: int = 0
    """Range images: the step from which on it counts."""
    kl_weight: float = 1e-3
    """s2net: weight of the latent's divergence."""
