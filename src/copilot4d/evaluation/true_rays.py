"""The true rays of a future frame: what a forecast is asked for, and what it is scored against."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from copilot4d.evaluation.protocol import Protocol
from copilot4d.geometry import Clip, Rays, intersect_box, se3
from copilot4d.geometry.se3 import FloatArray


@dataclass(frozen=True, kw_only=True)
class TrueFrame:
    """The rays of one future frame that enter the ROI before their return, in that frame's own lidar frame."""

    rays: Rays
    points: NDArray[np.float32]  # (N, 3) the returns
    one_origin: bool  # all rays start at the frame's own origin
    scoring_from_future: FloatArray  # (4, 4)
    moving: NDArray[np.bool_] | None = None  # (N,) which returns lie on something moving, where the data knows

    @property
    def fingerprint(self) -> str:
        """Tells this frame's truth from another's of the same name and time: its rays, returns and place."""
        returns = self.points.sum(dtype=np.float64)
        place = " ".join(f"{v:.3f}" for v in self.scoring_from_future[:3, 3])
        return f"{len(self.points)} {returns:.1f} {place}"

    def origin_in(self, frame_from_future: FloatArray) -> FloatArray:
        """(3,), or (N, 3) where a sweep merges several lidars: where the rays start, seen from another frame."""
        if self.one_origin:
            return frame_from_future[:3, 3]
        return se3.transform_points(frame_from_future, self.rays.origins)


def true_frame(
    clip: Clip, index: int, protocol: Protocol, moving: NDArray[np.bool_] | None = None
) -> TrueFrame:  # fmt: skip
    """The true rays of the clip's future frame `index`; the ROI lies in the protocol's frame of scoring.

    moving: of all points of that sweep, where the data knows what moves. In parity mode all rays start at the sweep's
    own origin, also those of a second lidar, as in the public code.
    """
    sweep = clip.future[index]
    if protocol.parity:
        sweep = replace(sweep, origins=None)
    scoring_from_future = clip.reference_from(sweep) if protocol.scoring_frame == "reference" else np.eye(4)
    rays, depths = sweep.rays()
    keep = _enters(rays, depths, sweep.points, scoring_from_future, protocol.roi)
    if protocol.thin > 1:
        kept = np.flatnonzero(keep)
        keep[np.delete(kept, np.s_[:: protocol.thin])] = False
    return TrueFrame(
        rays=rays[keep],
        points=sweep.points[keep],
        one_origin=sweep.origins is None,
        scoring_from_future=scoring_from_future,
        moving=None if moving is None else moving[keep],
    )


def _enters(
    rays: Rays, depths: FloatArray, points: FloatArray, scoring_from_future: FloatArray, roi: FloatArray
) -> NDArray[np.bool_]:
    """(N,) whether a ray meets the ROI no later than its return. A ray that starts inside does at once."""
    origins = rays.origins if len(rays) == 0 or (rays.origins != rays.origins[0]).any() else rays.origins[:1]
    seen = se3.transform_points(scoring_from_future, np.asarray(origins, dtype=np.float64))
    if ((seen >= roi[:3]) & (seen <= roi[3:])).all():
        return np.isfinite(depths)
    segment = intersect_box(rays.transformed(scoring_from_future), roi)
    with np.errstate(invalid="ignore"):
        return segment.hits & (segment.entry <= depths)
