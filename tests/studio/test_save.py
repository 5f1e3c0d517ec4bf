"""What is saved is what is seen: points, colours and names of .ply files, films, and a page that asks for nothing."""

from __future__ import annotations

import re

import imageio_ffmpeg
import numpy as np
import pytest

from copilot4d.datasets.point_files import read_points
from copilot4d.errors import UsageError
from copilot4d.studio.clouds import FUTURES, TRUTH, Look, clouds, colours
from copilot4d.studio.plan import Plan
from copilot4d.studio.save import Picture, save_html, save_mp4, save_ply
from copilot4d.studio.session import Session
from copilot4d.studio.worker import Worker
from tests.studio.scripted import Scripted, ToyLibrary, toy_dataset


@pytest.fixture
def session(tmp_path):
    worker = Worker(settle_s=0.0)
    made = Session(ToyLibrary(toy_dataset(tmp_path), Scripted()), worker, model="scripted")
    made.open("toy")
    made.choose_sampling(futures=2)
    made.ask()
    assert worker.wait_idle(60)
    yield made
    worker.close()


def ply_colours(path) -> np.ndarray:
    content = path.read_bytes()
    start = content.index(b"end_header\n") + len(b"end_header\n")
    kinds = [("xyz", "<f4", 3), ("rgb", "u1", 3)]
    return np.frombuffer(content[start:], dtype=kinds)["rgb"]


def test_ply_files_hold_the_visible_clouds_in_the_reference_frame(session, tmp_path):
    picture = Picture(session=session, look=Look(time=2))
    paths = save_ply(tmp_path / "out", picture)
    assert [path.name for path in paths] == [
        "one_frame8_log_01_truth_p2.ply", "one_frame8_log_01_log_1_p2.ply", "one_frame8_log_01_log_2_p2.ply",
    ]  # fmt: skip
    moment = session.moment
    truth = moment.truth[1]
    np.testing.assert_allclose(
        read_points(paths[0]).points, truth.points_in(moment.reference_from_world), atol=1e-5
    )  # fmt: skip
    seen = [cloud for cloud in clouds(session, picture.look) if cloud.visible]
    for path, cloud, tint in zip(paths, seen, (TRUTH, FUTURES[0], FUTURES[1]), strict=True):
        rgb = ply_colours(path)
        np.testing.assert_array_equal(rgb, colours(cloud, moment, "layer"))
        brightness = rgb.astype(float) / np.array(tint)
        assert 0.55 < brightness.min() < brightness.max() <= 1.01


def test_nothing_is_overwritten(session, tmp_path):
    picture = Picture(session=session, look=Look(time=1, futures=False))
    first, second = (save_ply(tmp_path, picture) for _ in range(2))
    assert not set(first) & set(second)
    assert len([*tmp_path.glob("*.ply")]) == 2


def test_an_empty_view_cannot_be_saved_as_points(session, tmp_path):
    with pytest.raises(UsageError, match="nothing is seen"):
        save_ply(tmp_path, Picture(session=session, look=Look(time=2, truth=False, futures=False)))


def test_a_film_has_a_frame_per_time_in_order(session, tmp_path):
    asked = []

    def render(time):
        asked.append(time)
        return np.full((64, 96, 3), 20 * (time + 5), dtype=np.uint8)

    [path] = save_mp4(tmp_path, Picture(session=session, look=Look()), render)
    assert asked == list(range(-4, 6))
    reader = imageio_ffmpeg.read_frames(str(path))
    meta = next(reader)
    frames = [np.frombuffer(frame, dtype=np.uint8).mean() for frame in reader]
    assert meta["size"] == (96, 64)
    assert meta["fps"] == pytest.approx(5.0)
    np.testing.assert_allclose(frames, [20 * (time + 5) for time in asked], atol=4)


def test_without_a_browsers_pictures_the_film_shows_views_from_above(session, tmp_path):
    [path] = save_mp4(tmp_path, Picture(session=session, look=Look()), lambda time: None)
    reader = imageio_ffmpeg.read_frames(str(path))
    width = next(reader)["size"][0]
    assert width > 3 * 400, "truth and two futures side by side"
    assert sum(1 for _ in reader) == 10


def test_the_page_shows_every_run_and_asks_for_nothing(session, tmp_path):
    session.keep()
    session.choose_plan(Plan(kind="brake"))
    session.ask()
    assert session.worker.wait_idle(60)
    [path] = save_html(tmp_path, Picture(session=session, look=Look()))
    page = path.read_text(encoding="utf-8")
    assert path.name == "one_frame8_brake_01.html"
    assert "1. log" in page
    assert "2. brake" in page
    assert not re.search(r"""(src|href)=["']?https?:""", page)
    assert "default-src 'none'" in page


def test_a_page_without_futures_is_refused(session, tmp_path):
    session.choose(frame=9)
    with pytest.raises(UsageError, match="press Imagine"):
        save_html(tmp_path, Picture(session=session, look=Look()))


def test_names_of_drives_are_made_into_names_of_files(session, tmp_path):
    object.__setattr__(session.moment.drive, "name", "2011_09_26/../drive 5")
    place = Picture(session=session, look=Look()).place(tmp_path, ".ply")
    assert place.parent == tmp_path
    assert "/" not in place.name
    assert " " not in place.name
