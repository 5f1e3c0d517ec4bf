"""The range-view networks by name, each in three sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from copilot4d.baselines.range_view.config import RangeViewConfig, RangeViewNetwork
from copilot4d.baselines.range_view.geometry import RangeGeometry
from copilot4d.baselines.range_view.s2net import S2net, S2netConfig
from copilot4d.baselines.range_view.spfnet import Spfnet, SpfnetConfig
from copilot4d.baselines.range_view.st3dcnn import St3dcnn, St3dcnnConfig
from copilot4d.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class RangeViewKind:
    """A network: its class, its configuration's, and the changes of its sizes to the defaults."""

    network: Callable[[Any], RangeViewNetwork]
    config: type[RangeViewConfig]
    sizes: Mapping[str, Mapping[str, Any]]


RANGE_VIEW: dict[str, RangeViewKind] = {
    "st3dcnn": RangeViewKind(
        network=St3dcnn, config=St3dcnnConfig,
        sizes={
            "mini": {"channels": (8, 16, 32, 64), "temporal_kernels": (2, 2, 1)},
            "tiny": {"channels": (8, 16), "temporal_kernels": (2,), "past_frames": 2, "future_frames": 2},
        },
    ),
    "spfnet": RangeViewKind(
        network=Spfnet, config=SpfnetConfig,
        sizes={
            "mini": {"channels": (16, 32, 64)},
            "tiny": {"channels": (8, 16), "past_frames": 2, "future_frames": 2},
        },
    ),
    "s2net": RangeViewKind(
        network=S2net, config=S2netConfig,
        sizes={
            "mini": {"channels": (16, 32, 64), "latent": 8},
            "tiny": {"channels": (8, 16), "latent": 4, "past_frames": 2, "future_frames": 2},
        },
    ),
}  # fmt: skip
MINI = RangeGeometry(  # of the simulator's sensor mini32
    elevations_deg=tuple(round(float(e), 4) for e in (*np.linspace(4.0, -9.5, 22), *np.linspace(-10.5, -24.0, 10))),
    columns=640,
    max_range_m=80.0,
)
GEOMETRIES = {
    "paper": RangeGeometry(),
    "mini": MINI,
    "tiny": RangeGeometry(elevations_deg=tuple(float(e) for e in np.linspace(2.0, -24.0, 16)), columns=64),
}


def range_view_preset(network: str, size: str) -> RangeViewConfig:
    """A network's configuration by its name and size."""
    if network not in RANGE_VIEW:
        raise UsageError(f"the range-view networks are {', '.join(RANGE_VIEW)}, got {network!r}")
    if size not in GEOMETRIES:
        raise UsageError(f"`preset` is one of {', '.join(GEOMETRIES)}, got {size!r}")
    kind = RANGE_VIEW[network]
    return kind.config(geometry=GEOMETRIES[size], **kind.sizes.get(size, {}))
