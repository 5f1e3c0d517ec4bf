"""`Protocol`: everything that decides a score's value, under one name and one hash."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from copilot4d.errors import UsageError
from copilot4d.evaluation.depth_error import BAND_M, MIN_RANGE_M
from copilot4d.evaluation.frame_score import Pairing
from copilot4d.geometry.se3 import FloatArray

Convention = Literal["4docc", "vidar", "evalkit"]
CONVENTIONS: tuple[Convention, ...] = get_args(Convention)

RULES_VERSION = 1  # raise it with any change that can change a score
_HALF_M: dict[Convention, float] = {"4docc": 70.0, "vidar": 51.2, "evalkit": 70.0}
_Z_M: dict[Convention, tuple[float, float]] = {"4docc": (-4.5, 4.5), "vidar": (-5.0, 3.0), "evalkit": (-4.5, 4.5)}
_SETTINGS = {
    "1s": "nuScenes: 2 past and 2 future keyframes, 0.5 s apart. Others: 5 past and 5 future, 0.2 s apart",
    "3s": "nuScenes: 6 past and 6 future keyframes, 0.5 s apart. Others: 5 past and 5 future, 0.6 s apart",
}
_NAME = re.compile(
    r"(?P<convention>[a-z0-9]+)(-roi(?P<half>[0-9.]+))?(-every(?P<every>\d+))?(-first(?P<limit>\d+))?(-thin(?P<thin>\d+))?(?P<parity>-parity)?"
)


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """How frames are scored. Two scores may stand in one table when their protocols have the same hash.

    >>> Protocol(roi_half_m=32, every=12).name
    '4docc-roi32-every12'
    """

    convention: Convention = "4docc"
    roi_half_m: float | None = None  # half the ROI's width in x and in y; None: the convention's own
    every: int = 1  # score each n-th reference frame of the protocol
    limit: int | None = None  # score only so many reference frames, the first ones
    thin: int = 1  # score each n-th true ray of a frame: for a quick look, never beside scores of all rays
    parity: bool = False  # keep what the public code does with odd input (docs/scoring.md)

    def __post_init__(self) -> None:
        if self.convention not in CONVENTIONS:
            raise UsageError(f"protocol.convention must be one of {', '.join(CONVENTIONS)}, got {self.convention!r}")
        if self.roi_half_m is None:
            object.__setattr__(self, "roi_half_m", _HALF_M[self.convention])
        if not (np.isfinite(self.half_m) and self.half_m > 0):
            raise UsageError(f"protocol.roi_half_m must be a positive number of metres, got {self.half_m}")
        if self.every < 1:
            raise UsageError(f"protocol.every must be at least 1, got {self.every}")
        if self.limit is not None and self.limit < 1:
            raise UsageError(f"protocol.limit must be at least 1, got {self.limit}")
        if self.thin < 1:
            raise UsageError(f"protocol.thin must be at least 1, got {self.thin}")
        if self.thin > 1 and self.parity:
            raise UsageError(
                f"protocol.thin {self.thin} scores a part of the rays and protocol.parity all of them as the public "
                "code does: leave one of them out"
            )

    @property
    def half_m(self) -> float:
        """Half the ROI's width in metres."""
        assert self.roi_half_m is not None
        return float(self.roi_half_m)

    @property
    def roi(self) -> FloatArray:
        """(6,) xmin, ymin, zmin, xmax, ymax, zmax in the frame of scoring, closed."""
        low, high = _Z_M[self.convention]
        return np.array([-self.half_m, -self.half_m, low, self.half_m, self.half_m, high])

    @property
    def scoring_frame(self) -> Literal["reference", "own"]:
        """The reference sweep's lidar frame for all horizons, or each future frame's own."""
        return "own" if self.convention == "vidar" else "reference"

    @property
    def pairing(self) -> Pairing:
        """How predictions meet true rays; the public code searches by angle, the AV2 challenge pairs by row."""
        return "nearest" if self.parity and self.convention != "evalkit" else "ray"

    @property
    def clamp(self) -> bool:
        """Whether depths are cut to the ROI before they are compared."""
        return self.convention != "evalkit"

    @property
    def name(self) -> str:
        """For people: convention, ROI, and what else is not the default."""
        parts = [self.convention, f"roi{self.half_m:g}"]
        parts += [f"every{self.every}"] if self.every != 1 else []
        parts += [f"first{self.limit}"] if self.limit is not None else []
        parts += [f"thin{self.thin}"] if self.thin != 1 else []
        parts += ["parity"] if self.parity else []
        return "-".join(parts)

    @property
    def rules(self) -> dict[str, object]:
        """All that the hash covers, spelled out; it goes into every score file."""
        thinned: dict[str, object] = {} if self.thin == 1 else {"thin": self.thin, "by_the_protocol": False}
        return thinned | {
            "rules_version": RULES_VERSION,
            "convention": self.convention,
            "roi": [float(bound) for bound in self.roi],
            "scoring_frame": self.scoring_frame,
            "pairing": self.pairing,
            "clamp": self.clamp,
            "parity": self.parity,
            "every": self.every,
            "limit": self.limit,
            "rays": "one per true return; dropped where it does not enter the ROI before its return",
            "empty_roi_chamfer": 0.0 if self.parity else "frame not scored",
            "min_range_m": MIN_RANGE_M,
            "clamp_band_m": BAND_M,
            "settings": _SETTINGS,
            **({"ray_origins": "the sweep's own origin for all rays"} if self.parity else {}),
        }

    @property
    def hash(self) -> str:
        """12 hexadecimal digits of the sha256 of the rules as canonical JSON."""
        canonical = json.dumps(self.rules, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    def with_changes(self, **changes: object) -> Protocol:
        """This protocol with some fields changed; those given as None stay."""
        return replace(self, **{key: value for key, value in changes.items() if value is not None})  # type: ignore[arg-type]


def protocol_by_name(name: str) -> Protocol:
    """The protocol of a name: "4docc", "4docc-roi32-every12", "vidar", "evalkit-roi70-parity", ...

    >>> protocol_by_name("vidar").name
    'vidar-roi51.2'
    """
    match = _NAME.fullmatch(name)
    if match is None or match["convention"] not in CONVENTIONS:
        shape = f"[{' | '.join(CONVENTIONS)}][-roiHALF][-everyN][-firstN][-thinN][-parity]"
        raise UsageError(f"{name!r} is no protocol's name; names look like {shape}, e.g. 4docc-roi32-every12")
    try:
        half = float(match["half"]) if match["half"] else None
    except ValueError:
        raise UsageError(f"{name!r}: the ROI's half width {match['half']!r} is not a number of metres") from None
    return Protocol(
        convention=match["convention"],
        roi_half_m=half,
        every=int(match["every"] or 1),
        limit=int(match["limit"]) if match["limit"] else None,
        thin=int(match["thin"] or 1),
        parity=match["parity"] is not None,
    )
