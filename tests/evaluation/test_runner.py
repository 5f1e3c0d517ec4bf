"""Evaluation of data sets: what is scored against what, in which frame, and how means are made."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from copilot4d.errors import ProtocolError
from copilot4d.evaluation import Protocol, evaluate_dataset
from copilot4d.evaluation.frame_score import METRICS
from copilot4d.evaluation.runner import EMPTY_ROI, NO_FUTURE, NO_RAYS
from copilot4d.evaluation.true_rays import true_frame
from copilot4d.forecaster import Sampling
from copilot4d.geometry import Clip, Drive, Sweep
from tests.evaluation.plain_drives import plain_drive
from tests.evaluation.scripted import Oracle
from tests.support.scenes import make_drive


@pytest.fixture(scope="module")
def drive() -> Drive:
    return make_drive(24, rings=12, azimuths=120)


def test_the_truth_scores_zero(drive):
    scores = evaluate_dataset(Oracle(drive), {"toy": drive}, setting="1s")
    assert all(abs(value) < 1e-4 for value in scores.metrics.values()), scores.metrics
    # 24 sweeps at 10 Hz, every second: reference r has min(5, (23 - r) // 2) future frames
    expected = [min(5, (23 - r) // 2) for r in range(24)]
    assert scores.frames_scored == sum(expected)
    assert scores.frames_not_scored == 24 * 5 - sum(expected)
    assert scores.not_scored_because == {NO_FUTURE: 24 * 5 - sum(expected)}
    assert scores.references == sum(n > 0 for n in expected)
    assert [h.frames_scored for h in scores.per_horizon] == [sum(n > k for n in expected) for k in range(5)]
    assert [h.seconds_ahead for h in scores.per_horizon] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert (scores.model, scores.setting, scores.protocol) == ("oracle", "1s", "4docc-roi70")


def test_the_sweep_before_does_not_score_zero(drive):
    scores = evaluate_dataset(Oracle(drive, lag=1), {"toy": drive}, setting="1s", every=6)
    assert scores.metrics["chamfer"] > 0.005
    assert scores.metrics["l1_mean"] > 0.05


def test_half_a_metre_too_far():
    """By hand: depths 10, 20, 40 m in the ROI, each predicted 0.5 m too far; the next point is always far away."""
    points = np.array([[10.0, 0, 0], [0, 20, 0], [0, -40, 0]])
    drive = plain_drive(11, points)
    scores = evaluate_dataset(Oracle(drive, change=lambda d: d + 0.5), {"plain": drive}, setting="1s")
    m = scores.metrics
    assert m["chamfer"] == pytest.approx(0.25, rel=1e-4)
    assert m["chamfer_roi"] == pytest.approx(0.25, rel=1e-4)
    assert m["l1_mean"] == pytest.approx(0.5, rel=1e-4)
    assert m["l1_median"] == pytest.approx(0.5, rel=1e-4)
    assert m["absrel_mean"] == pytest.approx(0.5 * (1 / 10 + 1 / 20 + 1 / 40) / 3, rel=1e-4)
    assert m["roi_absrel_median"] == pytest.approx(0.5 / 20, rel=1e-4)
    assert scores.pooled["roi_l1_median"] == pytest.approx(0.5, rel=2e-4)
    assert scores.pooled["roi_absrel_median"] == pytest.approx(0.025, rel=2e-4)


def test_the_roi_stays_at_the_reference_frame():
    """A wall 30 m ahead of the moving ego leaves a 32 m ROI of the reference frame once the ego has moved 3 m."""
    drive = plain_drive(11, np.array([[30.0, 1, 0], [5, 3, 0]]))
    scores = evaluate_dataset(
        Oracle(drive, change=lambda d: d + 1), {"plain": drive}, setting="1s", protocol=Protocol(roi_half_m=32)
    )
    by_horizon = [h.metrics["l1_mean"] for h in scores.per_horizon]
    # Ends at x = 30 + k: clamped at 32. Horizon 1: +1 m fits (32); 2: both end at 32 or beyond: 0.
    assert by_horizon == pytest.approx([1.0, 0.5, 0.5, 0.5, 0.5], abs=0.01)
    assert [h.metrics["roi_l1_median"] for h in scores.per_horizon][2] == pytest.approx(1.0, abs=1e-3)


def test_vidar_scores_each_frame_in_its_own_lidar_frame():
    drive = plain_drive(11, np.array([[50.0, 1, 0], [5, 3, 0]]))
    oracle = Oracle(drive, change=lambda d: d + 1)
    scores = evaluate_dataset(oracle, {"plain": drive}, setting="1s", protocol=Protocol(convention="vidar"))
    assert [h.metrics["roi_l1_mean"] for h in scores.per_horizon] == pytest.approx([1.0] * 5, abs=1e-3)
    far = evaluate_dataset(oracle, {"plain": drive}, setting="1s", protocol=Protocol(roi_half_m=51.2))
    assert far.per_horizon[4].metrics["l1_mean"] == pytest.approx(0.5, abs=1e-3)


def test_rays_that_never_enter_the_roi_are_not_asked_for():
    """From 12 m ahead of a 10 m ROI, only the ray that looks back into it is scored."""
    drive = plain_drive(11, np.array([[10.0, 0, 0], [-9.0, 0.1, 0], [-1.0, 0, 0]]), step_m=12.0)
    oracle = Oracle(drive)
    scores = evaluate_dataset(oracle, {"plain": drive}, setting="1s", protocol=Protocol(roi_half_m=10))
    counts = [[len(rays) for rays in call["rays"]] for call in oracle.calls]
    assert counts[0] == [1, 0, 0, 0, 0]
    assert scores.frames_scored == scores.references
    assert scores.not_scored_because[NO_RAYS] > 0
    assert [h.horizon for h in scores.per_horizon] == [1]


def test_a_prediction_outside_the_roi_is_not_scored_but_counted():
    drive = plain_drive(11, np.array([[5.0, 0, 0], [0, 5, 0]]))
    oracle = Oracle(drive, change=lambda d: d * 100)
    with pytest.raises(ProtocolError, match="no frame could be scored"):
        evaluate_dataset(oracle, {"plain": drive}, setting="1s")
    half = Oracle(drive, change=lambda d: d * (100 if len(half.calls) % 2 else 1))
    scores = evaluate_dataset(half, {"plain": drive}, setting="1s")
    assert scores.not_scored_because[EMPTY_ROI] > 0
    assert scores.metrics["chamfer_roi"] == pytest.approx(0, abs=1e-6)
    parity = evaluate_dataset(oracle, {"plain": drive}, setting="1s", protocol=Protocol(parity=True))
    assert parity.metrics["chamfer_roi"] == 0.0
    assert NO_FUTURE in parity.not_scored_because
    assert EMPTY_ROI not in parity.not_scored_because


def test_parity_agrees_with_the_default_on_clean_predictions(drive):
    oracle = Oracle(drive, change=lambda d: d * 1.07)
    options = {"setting": "1s", "every": 9}
    default = evaluate_dataset(oracle, {"toy": drive}, **options)
    parity = evaluate_dataset(oracle, {"toy": drive}, protocol=Protocol(parity=True), **options)
    for metric in METRICS:
        assert parity.metrics[metric] == pytest.approx(default.metrics[metric], rel=5e-3), metric
    assert parity.protocol_hash != default.protocol_hash


def test_evalkit_compares_raw_depths(drive):
    oracle = Oracle(drive, change=lambda d: d * 1.5)
    scores = evaluate_dataset(oracle, {"toy": drive}, setting="1s", protocol=Protocol(convention="evalkit"), every=9)
    assert scores.metrics["absrel_mean"] == pytest.approx(0.5, rel=1e-4)


def test_two_lidars_keep_their_origins(drive):
    """Points seen from 1.5 m above: without the origins, the asked rays would point elsewhere."""

    def merged(sweep: Sweep) -> Sweep:
        origins = np.zeros_like(sweep.points)
        origins[::2, 2] = 1.5
        return replace(sweep, origins=origins)

    two = Drive.from_sweeps("toy", [merged(s) for s in drive])
    oracle = Oracle(two, change=lambda d: d * 1.1)
    scores = evaluate_dataset(oracle, {"toy": two}, setting="1s", every=8, protocol=Protocol(convention="evalkit"))
    assert scores.metrics["absrel_mean"] == pytest.approx(0.1, rel=1e-4)
    asked = oracle.calls[0]["rays"][0]
    assert set(np.unique(asked.origins[:, 2])) == {0.0, 1.5}


def test_options_reach_the_forecaster_and_the_file(drive):
    oracle = Oracle(drive)
    scores = evaluate_dataset(oracle, {"toy": drive}, setting="1s", every=10, seed=4, guidance=2.0, steps=3)
    assert {(c["seed"], c["guidance"], c["steps"]) for c in oracle.calls} == {(4, 2.0, 3)}
    assert {"seed": 4, "guidance": 2.0, "steps": 3}.items() <= scores.options.items()
    assert scores.protocol == "4docc-roi70-every10"


def test_what_is_left_open_is_as_stored_with_the_model_and_never_null_in_the_file(drive):
    oracle = Oracle(drive)
    scores = evaluate_dataset(oracle, {"toy": drive}, setting="1s", every=10)
    assert {"guidance": 1.0, "steps": 10}.items() <= scores.options.items()  # it stores nothing
    oracle.sampling = Sampling(guidance=0.5, steps=3)
    scores = evaluate_dataset(oracle, {"toy": drive}, setting="1s", every=10, guidance=2.0)
    assert (oracle.calls[-1]["guidance"], oracle.calls[-1]["steps"]) == (2.0, 3)
    assert {"guidance": 2.0, "steps": 3}.items() <= scores.options.items()


def test_the_forecaster_sees_the_past_only(drive):
    oracle = Oracle(drive)
    evaluate_dataset(oracle, {"toy": drive}, setting="1s", protocol=Protocol(limit=12))
    newest = oracle.calls[10]["past"][-1]
    assert newest.timestamp_ns == drive.timestamps_ns[10]
    assert [s.timestamp_ns for s in oracle.calls[10]["past"]] == [drive.timestamps_ns[i] for i in (2, 4, 6, 8, 10)]
    np.testing.assert_array_equal(oracle.calls[10]["poses"], drive.world_from_lidar[[12, 14, 16, 18, 20]])
    assert len(oracle.calls) == 12


def test_the_mean_is_over_frames_not_over_drives(drive):
    short = make_drive(20, rings=12, azimuths=120, name="short")
    oracle = Oracle(drive, change=lambda d: d + 0.3)
    both = {"toy": drive, "short": short}
    assert (short.world_from_lidar == drive.world_from_lidar[:20]).all()
    scores = evaluate_dataset(oracle, both, setting="1s")
    parts = [evaluate_dataset(oracle, {name: d}, setting="1s") for name, d in both.items()]
    frames = [p.frames_scored for p in parts]
    for metric in METRICS:
        mean = np.average([p.metrics[metric] for p in parts], weights=frames)
        assert scores.metrics[metric] == pytest.approx(mean, rel=1e-9), metric
    weighted = np.average(
        [h.metrics["chamfer"] for h in scores.per_horizon], weights=[h.frames_scored for h in scores.per_horizon]
    )
    assert scores.metrics["chamfer"] == pytest.approx(weighted, rel=1e-9)


def test_each_reference_tells_its_own_mean(drive):
    """Reference r at 10 Hz has min(5, (23 - r) // 2) future frames; all references together are the data set's mean."""
    scores = evaluate_dataset(Oracle(drive, lag=1), {"toy": drive}, setting="1s", every=7)
    found = scores.by_reference
    assert [(r.drive, r.reference_ns, r.frames) for r in found] == [
        ("toy", int(drive.timestamps_ns[i]), min(5, (23 - i) // 2)) for i in (0, 7, 14, 21)
    ]
    assert len({r.chamfer_roi for r in found}) == 4
    weighted = sum(r.frames * r.chamfer_roi for r in found) / scores.frames_scored
    assert weighted == pytest.approx(scores.metrics["chamfer_roi"])
    for k, horizon in enumerate(scores.per_horizon):
        ahead = [r.chamfer_roi_ahead[k] for r in found if len(r.chamfer_roi_ahead) > k]
        assert len(ahead) == horizon.frames_scored
        assert np.mean(ahead) == pytest.approx(horizon.metrics["chamfer_roi"])


def test_each_sweep_is_read_once(drive):
    reads: list[int] = []

    def read(frame: int) -> Sweep:
        reads.append(frame)
        return drive[frame]

    evaluate_dataset(Oracle(drive), {"toy": replace(drive, read=read)}, setting="1s")
    assert sorted(reads) == list(range(24))


def test_two_runs_are_equal_and_other_frames_have_another_hash(drive):
    run = lambda **more: evaluate_dataset(Oracle(drive, lag=1), {"toy": drive}, setting="1s", every=7, **more)  # noqa: E731
    first, second, fewer = run(), run(), run(limit=2)
    assert first.metrics == second.metrics
    assert first.frames_hash == second.frames_hash
    assert first.frames_hash != fewer.frames_hash
    assert fewer.references == 2


def test_logs_that_share_names_and_times_but_not_what_was_measured_have_another_hash(drive):
    def hash_of(log: Drive) -> str:
        return evaluate_dataset(Oracle(log), {"toy": log}, setting="1s", every=6).frames_hash

    sparser = Drive.from_sweeps("toy", [sweep.select(np.arange(0, len(sweep), 2)) for sweep in drive])
    elsewhere = make_drive(len(drive), speed=7.0, rings=6, azimuths=60)
    assert len({hash_of(log) for log in (drive, sparser, elsewhere)}) == 3


def test_parity_has_one_origin_where_a_sweep_merges_two_lidars():
    """By hand: a return 10 m ahead of the upper lidar, seen by one 2 m to the left."""
    sweep = Sweep(
        points=np.array([[10.0, 0, 0]], dtype=np.float32), origins=np.array([[0.0, 2, 0]], dtype=np.float32),
        world_from_lidar=np.eye(4), timestamp_ns=0,
    )  # fmt: skip
    clip = Clip(drive="a", past=(sweep,), future=(sweep,), past_frames=(0,), future_frames=(1,))
    two, one = (true_frame(clip, 0, Protocol(parity=parity)) for parity in (False, True))
    np.testing.assert_allclose(two.rays.directions, [[10 / np.sqrt(104), -2 / np.sqrt(104), 0]], rtol=1e-6)
    np.testing.assert_allclose(one.rays.directions, [[1, 0, 0]], rtol=1e-6)
    np.testing.assert_array_equal(one.origin_in(np.eye(4)), [0, 0, 0])
    np.testing.assert_array_equal(two.origin_in(np.eye(4)), [[0, 2, 0]])
    assert Protocol().hash == "3042a5f0da5c"  # the default's rules are as they were
