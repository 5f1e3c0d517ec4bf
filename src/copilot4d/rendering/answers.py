"""What a ray is answered, whichever model rendered it.

A beam that a sensor might send comes back where enough of it is stopped, and is dropped elsewhere. A ray that is asked
about, as in scoring, is known to have come back: it gets a depth that presumes so wherever anything at all may have
stopped it, and elsewhere ends just behind the volume.
"""

from __future__ import annotations

import torch
from torch import Tensor

SOME_OPACITY = 0.01
BEYOND_EXIT_M = 0.05  # so that no crop to the volume keeps the point


def answered_depths(depth_m: Tensor, answered: Tensor, exit_m: Tensor) -> Tensor:
    """(R,) a depth for every ray: its own where it is answered, else just behind the volume's exit."""
    return torch.where(answered, depth_m, exit_m + BEYOND_EXIT_M)
