"""A trained network of range images (ST3DCNN, SPFNet, S2Net) from its run, its checkpoint, or a shared folder."""

from __future__ import annotations

from pathlib import Path

from copilot4d.baselines.range_view import RANGE_VIEW, RangeViewForecaster
from copilot4d.checkpoints.load_checkpoint import load_network


def load_range_view(folder: str | Path, network: str) -> RangeViewForecaster:
    """The network of a run, checkpoint or shared folder, to forecast with. network: st3dcnn, spfnet or s2net."""
    kind = RANGE_VIEW[network]
    loaded = load_network(
        folder, kind.network, kind.config, task=network, section="model", verb=f"train baseline {network}"
    )
    return RangeViewForecaster(loaded.network)
