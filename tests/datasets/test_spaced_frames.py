"""All windows of a drive at once."""

from __future__ import annotations

import numpy as np
import pytest

from copilot4d.datasets.windows import spaced_frames, spaced_windows
from copilot4d.geometry import Drive


@pytest.mark.parametrize("format", ["memory", "nuscenes"])
@pytest.mark.parametrize("seed", range(4))
def test_frames_all_at_once_are_those_of_the_windows_one_by_one(seed, format):
    generator = np.random.default_rng(seed)
    kept = np.sort(generator.choice(60, 58 - 3 * seed, replace=False))
    times_ns = (
        kept * (500_000_000 if format == "nuscenes" else 100_000_000)
        + generator.integers(-30_000_000, 30_000_000, len(kept))
    ).astype(np.int64)
    poses = np.broadcast_to(np.eye(4), (len(kept), 4, 4))
    drive = Drive(name="a", world_from_lidar=poses, timestamps_ns=times_ns, read=None, format=format)
    found = 0
    for n_in, n_out, step in ((1, 0, 1), (3, 2, 1), (5, 5, 2), (2, 3, 6)):
        windows = spaced_windows(drive, n_in=n_in, n_out=n_out, step=step)
        expected = np.array([(*w.past, *w.future) for w in windows], dtype=np.int32).reshape(-1, n_in + n_out)
        frames = spaced_frames(drive, n_in=n_in, n_out=n_out, step=step)
        assert frames.dtype == np.int32
        np.testing.assert_array_equal(frames, expected)
        found += len(frames)
    assert found > len(kept) + 10
    assert spaced_frames(drive[:0], n_in=2, n_out=2, step=1).shape == (0, 4)
