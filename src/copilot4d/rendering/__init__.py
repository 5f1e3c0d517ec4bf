"""Volume rendering as pure functions: where to sample a ray, what a grid holds there, what depth comes out.

Shared by every model that renders depth. Axes: B scenes, R rays (each knows its scene), S samples of all rays packed
one ray after another, X/Y/Z cells, C channels. Depths are metres along the ray.
"""

from copilot4d.rendering.answers import BEYOND_EXIT_M, SOME_OPACITY, answered_depths
from copilot4d.rendering.compositing import (
    Composite,
    composite,
    median_depth,
    pad_samples,
    rendering_weights,
    weights_from_logits,
)
from copilot4d.rendering.interpolation import Corners, interpolate, trilinear_corners
from copilot4d.rendering.ray_batch import RayBatch
from copilot4d.rendering.sampling import RaySamples, sample_rays

__all__ = [
    "BEYOND_EXIT_M", "SOME_OPACITY", "Composite", "Corners", "RayBatch", "RaySamples", "answered_depths", "composite",
    "interpolate", "median_depth", "pad_samples", "rendering_weights", "sample_rays", "trilinear_corners",
    "weights_from_logits",
]  # fmt: skip
