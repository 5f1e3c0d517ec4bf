"""Scoring on a real street (skipped where the data is absent; other tests cover the same code on made drives)."""

from __future__ import annotations

import numpy as np
import pytest

from copilot4d.datasets import open_dataset
from copilot4d.datasets.windows import protocol_windows, read_clip
from copilot4d.evaluation import Protocol, score_frame
from copilot4d.evaluation.true_rays import true_frame
from copilot4d.geometry import se3
from tests.support.real_data import unpack_drive

PROTOCOL = Protocol()


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory):
    drive = open_dataset(unpack_drive("val_0005", tmp_path_factory.mktemp("real"), sweeps=10))["val_0005"]
    window = next(w for w in protocol_windows({"val_0005": drive}, "1s") if w.complete)
    return read_clip(drive, window)


def test_the_drive_is_at_five_hertz_so_the_window_takes_every_sweep(clip):
    assert clip.past_frames == (0, 1, 2, 3, 4)
    assert clip.future_frames == (5, 6, 7, 8, 9)


def test_pairing_by_angle_moves_a_real_score_by_next_to_nothing(clip):
    """Predictions on the true rays: 4D-Occ's search by angle finds almost always the prediction that was made.

    In the sweep's own frame it would not: these sweeps are stored to 5 mm, and all returns with y = 0 share one angle.
    """
    frame = true_frame(clip, 4, PROTOCOL)
    reference_from_future = frame.scoring_from_future
    depths = 1.03 * np.linalg.norm(frame.points, axis=1)
    predicted = se3.transform_points(reference_from_future, frame.rays.points_at(depths))
    true = se3.transform_points(reference_from_future, frame.points)
    arguments = predicted, true, reference_from_future[:3, 3], PROTOCOL.roi
    by_row, by_angle = score_frame(*arguments), score_frame(*arguments, "nearest", True)
    assert by_row.l1_mean > 0.1
    assert by_angle.l1_mean == pytest.approx(by_row.l1_mean, abs=1e-4)
    assert by_angle.roi_l1_median == pytest.approx(by_row.roi_l1_median, abs=1e-4)
    assert by_angle.chamfer == by_row.chamfer
