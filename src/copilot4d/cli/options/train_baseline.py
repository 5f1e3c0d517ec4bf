"""The options of `copilot4d train baseline`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from copilot4d.cli.options import train_occupancy


@dataclass(frozen=True, kw_only=True)
class Options(train_occupancy.Options):
    """Train another system of the paper's tables, with the same loop, data and protocol as our own models.

    st3dcnn, spfnet and s2net predict range images. 4d_occ is the published network of 4D-Occ, 4d_occ_ours our variant.
    `copilot4d forecast` and `evaluate` take the run as --model. The same command resumes an interrupted run. Example:

        copilot4d train baseline st3dcnn --data street-v1/train:300 --held-out-data street-v1/val --run runs/st3dcnn
    """

    name: Annotated[Literal["st3dcnn", "spfnet", "s2net", "4d_occ", "4d_occ_ours"], tyro.conf.Positional]
    """Which network."""
    poses: bool = False
    """Range images: transform the past into the reference frame, and predict there. Published: without poses."""
    chamfer_weight: float = 0.0
    """Range images: weight of the Chamfer distance in the loss."""
    chamfer_from_step: int = 0
    """Range images: the first step with the Chamfer distance in the loss."""
    kl_weight: float = 1e-3
    """s2net: weight of the latent's KL divergence."""
