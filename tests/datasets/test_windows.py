"""Which frames the protocol takes: golden lists of the public code, hand-worked cases, gaps, rates that do not fit."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from copilot4d.datasets.windows import (
    SETTINGS,
    Window,
    explain_missing,
    frame_rule,
    protocol_windows,
    read_clip,
    window_at,
)
from copilot4d.errors import ProtocolError, UsageError
from copilot4d.geometry import Drive, Sweep, se3
from tests.support.real_data import real_data

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "frames.json").read_text())


def timeline(frames: int, interval_s: float = 0.1, *, format: str = "kitti_odometry", lost=(), name="d") -> Drive:
    """A drive that has times but no points; sweeps in `lost` never made it to disk."""
    kept = np.setdiff1d(np.arange(frames), np.asarray(lost, dtype=np.int64))
    stamps = np.round(kept * interval_s * 1e9).astype(np.int64)

    def read(frame: int) -> Sweep:
        raise AssertionError("choosing windows must not read points")

    return Drive(name=name, world_from_lidar=se3.identity((len(kept),)), timestamps_ns=stamps, read=read, format=format)


def as_lists(window: Window) -> list[object]:
    return [window.drive, window.reference, list(window.past), list(window.future)]


@pytest.mark.parametrize("setting", SETTINGS)
def test_kitti_frames_are_those_of_the_public_code(setting):
    golden = GOLDEN[f"kitti_{setting}"]
    windows = protocol_windows({name: timeline(n) for name, n in golden["lengths"].items()}, setting)
    assert len(windows) == golden["n_references"]
    found = {(w.drive, w.reference): as_lists(w) for w in windows}
    for known in golden["examples"]:
        assert found[known[0], known[1]] == known


@pytest.mark.parametrize("setting", SETTINGS)
def test_argoverse2_frames_are_those_of_the_public_code(setting):
    golden = GOLDEN[f"av2_{setting}"]
    logs = {name: timeline(n, format="argoverse2") for name, n in golden["sweeps_per_log"].items()}
    windows = protocol_windows(logs, setting)
    assert [as_lists(w) for w in windows] == golden["all"]
    assert len(windows) == golden["n_references"]


@pytest.mark.parametrize("setting", SETTINGS)
def test_nuscenes_frames_are_those_of_the_public_code(setting):
    golden = GOLDEN[f"nuscenes_{setting}"]
    scenes = {name: timeline(n, 0.5, format="nuscenes") for name, n in golden["samples_per_scene"].items()}
    windows = protocol_windows(scenes, setting)
    assert len(windows) == golden["n_references"]
    assert as_lists(windows[0]) == golden["first"]
    assert as_lists(windows[-1]) == golden["last"]
    assert all(w.complete for w in windows)


@pytest.mark.parametrize(("setting", "count"), [("1s", 5419), ("3s", 4219)])
def test_nuscenes_val_has_the_published_number_of_references(setting, count):
    """6019 keyframes in 150 scenes: whatever their lengths (40 and 41 here), each scene loses n_in + n_out."""
    lengths = [41] * 19 + [40] * 131
    assert sum(lengths) == 6019
    scenes = {f"scene-{i:04d}": timeline(n, 0.5, format="nuscenes") for i, n in enumerate(lengths)}
    assert len(protocol_windows(scenes, setting)) == count


def test_nuscenes_keyframes_count_by_index_even_where_their_times_jitter():
    scene = timeline(14, 0.5, format="nuscenes", lost=[5])
    assert [as_lists(w)[2:] for w in protocol_windows({"s": scene}, "1s")][2:5] == [
        [[3, 4], [5, 6]],
        [[4, 5], [6, 7]],
        [[5, 6], [7, 8]],
    ]


@pytest.mark.parametrize(
    ("interval_s", "setting", "step"),
    [
        (0.1, "1s", 2), (0.1, "3s", 6), (0.1037, "1s", 2), (0.1037, "3s", 6), (0.21, "1s", 1), (0.21, "3s", 3),
        (0.2, "1s", 1), (0.2, "3s", 3), (0.05, "1s", 4), (0.05, "3s", 12), (1 / 15, "1s", 3), (0.6, "3s", 1),
    ],
)  # fmt: skip
def test_the_step_comes_from_the_timestamps(interval_s, setting, step):
    rule = frame_rule(timeline(60, interval_s), setting)
    assert (rule.n_in, rule.n_out, rule.step) == (5, 5, step)
    window = protocol_windows({"d": timeline(200, interval_s)}, setting)[100]
    assert window.past == tuple(100 - k * step for k in (4, 3, 2, 1, 0))
    assert window.future == tuple(100 + k * step for k in (1, 2, 3, 4, 5))
    assert window.complete


@pytest.mark.parametrize("format", ["folder", "memory", "simulated"])
def test_own_data_at_two_hertz_follows_the_nuscenes_rule(format):
    windows = protocol_windows({"d": timeline(14, 0.51, format=format)}, "3s")
    assert [as_lists(w)[1:] for w in windows] == [
        [6, [1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12]],
        [7, [2, 3, 4, 5, 6, 7], [8, 9, 10, 11, 12, 13]],
    ]


def test_a_rate_that_does_not_fit_names_rate_spacing_and_the_settings_that_do():
    with pytest.raises(ProtocolError, match=r"drive d \(folder\) runs at 7 Hz.*1s.*0\.2 s apart.*fit this rate: 3s"):
        protocol_windows({"d": timeline(50, 1 / 7, format="folder")}, "1s")
    assert len(protocol_windows({"d": timeline(50, 1 / 7, format="folder")}, "3s")) == 50
    with pytest.raises(ProtocolError, match="fit this rate: none"):
        protocol_windows({"d": timeline(50, 4.0)}, "3s")
    with pytest.raises(ProtocolError, match=r"20 Hz.*keyframes"):
        protocol_windows({"d": timeline(50, 0.05, format="nuscenes")}, "1s")


def test_every_thins_the_concatenated_references():
    drives = {"a": timeline(7), "b": timeline(5)}
    thinned = protocol_windows(drives, "1s", every=3)
    assert [(w.drive, w.reference) for w in thinned] == [("a", 0), ("a", 3), ("a", 6), ("b", 2)]
    assert thinned == protocol_windows(drives, "1s")[::3]


@pytest.mark.parametrize(
    ("arguments", "message"), [({"setting": "2s"}, "2s"), ({"setting": "1s", "every": 0}, "every")]
)
def test_unknown_settings_and_counts_are_usage_errors(arguments, message):
    with pytest.raises(UsageError, match=message):
        protocol_windows({"d": timeline(30)}, **arguments)


def test_a_gap_shortens_the_past_and_ends_the_future():
    # Sweep 20 is lost: frame 20 of the drive is sweep 21, and so on.
    windows = protocol_windows({"d": timeline(60, lost=[20])}, "1s")
    by_sweep = {w.reference + (w.reference >= 20): w for w in windows}

    def sweeps(frames):
        return [f + (f >= 20) for f in frames]

    assert sweeps(by_sweep[24].past) == [22, 24]
    assert not by_sweep[24].complete
    assert sweeps(by_sweep[16].past) == [8, 10, 12, 14, 16]
    assert sweeps(by_sweep[16].future) == [18]
    assert not by_sweep[16].complete
    # The odd sweeps of that stretch are all there, so windows of odd sweeps are whole, at the right times.
    assert sweeps(by_sweep[19].past) == [11, 13, 15, 17, 19]
    assert sweeps(by_sweep[19].future) == [21, 23, 25, 27, 29]
    assert by_sweep[19].complete


@settings(max_examples=60, deadline=None)
@given(
    lost=st.sets(st.integers(1, 58), max_size=12),
    jitter=st.floats(0, 0.2),
    setting=st.sampled_from(SETTINGS),
    rate_hz=st.sampled_from([5, 10, 20]),
    seed=st.integers(0, 99),
)
# Found where the median interval was the rate: a frame 77 ms off, a future that ended too early, a refused drive.
@example(lost={1, 3, 6, 9, 10, 12}, jitter=0.1953125, setting="1s", rate_hz=10, seed=82)
@example(lost={1, 4, 26, 30, 31, 34, 37, 50}, jitter=0.2, setting="3s", rate_hz=10, seed=81)
@example(lost={1, 3, 6, 9, 11, 14}, jitter=0.2, setting="1s", rate_hz=10, seed=82)
def test_frames_are_always_the_wanted_time_away_from_the_reference(lost, jitter, setting, rate_hz, seed):
    """Up to a fifth of a sweep of jitter, and sweeps lost: each frame is there if its sweep is, at its own time."""
    clean = timeline(60, 1 / rate_hz, lost=sorted(lost))
    noise = np.random.default_rng(seed).uniform(-jitter, jitter, len(clean)) / rate_hz * 1e9
    stamps = clean.timestamps_ns + noise.astype(np.int64)
    drive = Drive(name="d", world_from_lidar=clean.world_from_lidar, timestamps_ns=stamps, read=clean.read, format="f")
    spacing, half_a_sweep = {"1s": 0.2, "3s": 0.6}[setting], 0.5 / rate_hz
    for w in protocol_windows({"d": drive}, setting):
        seconds = (stamps - stamps[w.reference]) * 1e-9
        wanted = spacing * np.arange(1 - len(w.past), len(w.future) + 1)
        np.testing.assert_allclose(seconds[[*w.past, *w.future]], wanted, atol=half_a_sweep)
        assert w.past[-1] == w.reference
        assert w.complete == (len(w.past) == 5 and len(w.future) == 5)
        if len(w.future) < 5:  # ended because the next sweep is really not there
            assert np.abs(seconds - spacing * (len(w.future) + 1)).min() > half_a_sweep
        if len(w.past) < 5:
            assert np.abs(seconds + spacing * len(w.past)).min() > half_a_sweep


def test_drift_of_the_clock_is_not_a_gap():
    """KITTI raw clocks tick in 10 ms: 0.10, 0.10, 0.11, ... has a median below its mean."""
    intervals = np.resize([0.10, 0.10, 0.11], 59)
    stamps = np.round(np.concatenate([[0], np.cumsum(intervals)]) * 1e9).astype(np.int64)
    base = timeline(60)
    drive = Drive(name="d", world_from_lidar=base.world_from_lidar, timestamps_ns=stamps, read=base.read)
    assert protocol_windows({"d": drive}, "3s")[29].complete


def test_one_stamp_that_comes_late_moves_no_other_frame():
    """60 ms late at 10 Hz: that sweep is nobody's frame, and the windows across it are those of a steady clock."""
    steady = timeline(60)
    stamps = steady.timestamps_ns.copy()
    stamps[30] += 60_000_000
    drive = Drive(
        name="d", world_from_lidar=steady.world_from_lidar, timestamps_ns=stamps, read=steady.read, format="f"
    )
    assert protocol_windows({"d": drive}, "1s")[25].future == (27, 29, 31, 33, 35)
    assert protocol_windows({"d": drive}, "1s")[26].future == (28,)


def test_read_clip_reads_the_windows_sweeps_without_the_ego_body():
    box = np.array([-2, -1.55, -np.inf, 3.5, 1.55, np.inf])
    sweeps = [
        Sweep(
            points=np.array([[3.5, 1.55, 0.2], [3.51, 0, 0], [10 + i, 2, 1]], dtype=np.float32),
            world_from_lidar=se3.from_yaw(0.0, (i, 0, 0)),
            timestamp_ns=i * 200_000_000,
        )
        for i in range(12)
    ]
    drive = Drive.from_sweeps("d", sweeps, ego_box=box)
    window = next(w for w in protocol_windows({"d": drive}, "1s") if w.complete)
    clip = read_clip(drive, window)
    assert (window.reference, clip.past_frames, clip.future_frames) == (4, (0, 1, 2, 3, 4), (5, 6, 7, 8, 9))
    np.testing.assert_array_equal(clip.reference.points, np.array([[3.51, 0, 0], [14, 2, 1]], dtype=np.float32))
    np.testing.assert_array_equal(clip.future[-1].points[-1], [19, 2, 1])
    np.testing.assert_array_equal(clip.future_poses[:, 0, 3], [5, 6, 7, 8, 9])


@pytest.mark.parametrize(
    ("drive", "setting", "sentence"),
    [
        (timeline(3, name="00"), "1s",
         "drive 00 has 3 sweeps at 10 Hz; the 1s setting needs 19 consecutive sweeps: frames 3..18 are missing"),
        (timeline(18), "1s", "drive d has 18 sweeps at 10 Hz; the 1s setting needs 19 consecutive sweeps: frame 18 is "
         "missing"),
        (timeline(1), "3s",
         "drive d has 1 sweep; the 3s setting needs 55 consecutive sweeps: frames 1..54 are missing"),
        (timeline(1, format="nuscenes"), "1s",
         "drive d has 1 keyframe; the 1s setting needs 5 consecutive keyframes: frames 1..4 are missing"),
        (timeline(2, format="argoverse2"), "1s",
         "drive d has 2 sweeps at 10 Hz; the 1s setting needs 21 consecutive sweeps: frames 2..20 are missing"),
        (timeline(19), "1s", "drive d has 1 complete window of the 1s setting"),
    ],
)  # fmt: skip
def test_explain_missing_says_which_frames_would_be_needed(drive, setting, sentence):
    assert explain_missing(drive, setting) == sentence


def test_explain_missing_names_gaps_and_rates():
    text = explain_missing(timeline(30, lost=[9, 10, 17, 18]), "1s")
    assert "2 after frame 8, 2 after frame 14" in text
    assert "frames 15..25 (11 sweeps)" in text
    assert "7 Hz" in explain_missing(timeline(9, 1 / 7), "1s")


@settings(max_examples=40, deadline=None)
@given(
    drive_format=st.sampled_from(["kitti_odometry", "argoverse2", "nuscenes", "folder"]),
    setting=st.sampled_from(SETTINGS),
)
def test_the_number_of_sweeps_that_explain_missing_asks_for_is_the_least_that_works(drive_format, setting):
    interval = 0.5 if drive_format == "nuscenes" else 0.1
    needed = frame_rule(timeline(9, interval, format=drive_format), setting).sweeps_needed
    for length, works in ((needed - 1, False), (needed, True)):
        windows = protocol_windows({"d": timeline(length, interval, format=drive_format)}, setting)
        assert any(w.complete for w in windows) is works


def test_drives_without_a_rate_give_what_they_have():
    assert [as_lists(w) for w in protocol_windows({"d": timeline(1)}, "1s")] == [["d", 0, [0], []]]
    assert protocol_windows({"d": timeline(0)}, "1s") == []
    assert protocol_windows({"d": timeline(1, format="nuscenes")}, "1s") == []
    assert math.isnan(timeline(1).interval_s)


def test_the_real_kitti_drives_use_every_sweep_and_every_third():
    times = np.loadtxt(real_data("kitti_drives", "val_0005", "times.txt"))
    stamps = np.round(times * 1e9).astype(np.int64)
    drive = Drive(
        name="v", world_from_lidar=se3.identity((len(stamps),)), timestamps_ns=stamps, read=timeline(1).read, format="x"
    )
    one, three = (protocol_windows({"v": drive}, s) for s in SETTINGS)
    assert one[40].past == (36, 37, 38, 39, 40)
    assert one[40].future == (41, 42, 43, 44, 45)
    assert three[40].past == (28, 31, 34, 37, 40)
    assert three[40].future == (43, 46, 49, 52, 55)
    n = len(stamps)
    assert sum(w.complete for w in one) == n - 9
    assert sum(w.complete for w in three) == n - 27


def test_window_at_is_the_protocols_window_and_exists_for_every_frame():
    drive = timeline(63, format="argoverse2", name="log")
    for window in protocol_windows({"log": drive}, "1s"):
        assert window_at(drive, window.reference, "1s") == window
    assert window_at(drive, 11, "1s").past == (3, 5, 7, 9, 11)
    for outside in (-1, 63):
        with pytest.raises(UsageError, match=r"frames 0\.\.62"):
            window_at(drive, outside, "1s")
