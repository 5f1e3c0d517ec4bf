"""What surfaces are made of, as a lidar sees it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from copilot4d.geometry.se3 import FloatArray


class Material(NamedTuple):
    """Reflectivity in [0, 1] at normal incidence; the mean free path of light inside (0: opaque); glass share in
    [0, 1]: how often a return is lost to a mirror-like surface.
    """

    name: str
    reflectivity: float
    free_path_m: float = 0.0
    glass: float = 0.0


MATERIALS = (
    Material("asphalt", 0.30),
    Material("pavement", 0.36),
    Material("lawn", 0.42),
    Material("facade", 0.55),  # walls with windows: glass where the caster finds a window
    Material("masonry", 0.50),
    Material("fence", 0.45, free_path_m=0.10),
    Material("hedge", 0.45, free_path_m=0.12),
    Material("leaves", 0.42, free_path_m=0.55),
    Material("bark", 0.40),
    Material("metal", 0.55),
    Material("paint", 0.50),
    Material("glass", 0.50, glass=0.55),
    Material("cloth", 0.45),
    Material("rubber", 0.25),
)
INDEX = {material.name: i for i, material in enumerate(MATERIALS)}
ASPHALT, PAVEMENT, LAWN, FACADE = (INDEX[n] for n in ("asphalt", "pavement", "lawn", "facade"))


def column(field: str) -> FloatArray:
    """(materials,) one property of all materials."""
    return np.array([getattr(material, field) for material in MATERIALS])
