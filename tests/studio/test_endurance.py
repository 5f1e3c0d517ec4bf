"""A thousand random acts in three windows that come and go: nothing breaks, and memory does not grow."""

from __future__ import annotations

import ctypes
import gc
import random
from contextlib import suppress
from pathlib import Path

import pytest

from copilot4d.studio.server import Studio
from copilot4d.studio.view import Start
from tests.studio.fake_browser import FakeBrowser, wait_for
from tests.studio.scripted import Scripted, ToyLibrary, toy_dataset
from tests.support.scenes import make_drive

EVENTS = 1000
WINDOWS = 3


def resident_mb() -> float:
    """What this process holds, after what is free was given back."""
    gc.collect()
    with suppress(OSError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def act(window: FakeBrowser, draw: random.Random) -> None:
    """One thing that a hand could do, sensible or not."""
    acts = {
        "drive": lambda: draw.choice(["one", "two", "bare", "no such"]),
        "frame": lambda: draw.randint(-3, 40),
        "setting": lambda: draw.choice(["1s", "3s"]),
        "model": lambda: draw.choice(["copy_last", "scripted"]),
        "preset": lambda: draw.choice(["keep", "brake", "swerve", "log"]),
        "speed": lambda: draw.uniform(-5, 50),
        "steer": lambda: draw.uniform(-40, 40),
        "brake": lambda: draw.uniform(-1, 10),
        "handles": lambda: draw.random() < 0.5,
        "futures": lambda: draw.randint(0, 9),
        "seed": lambda: draw.randint(0, 5),
        "steps": lambda: draw.randint(0, 60),
        "guidance": lambda: draw.uniform(0, 5),
        "time": lambda: draw.uniform(-9, 9),
        "play": lambda: draw.random() < 0.2,
        "all_times": lambda: draw.random() < 0.3,
        "colour": lambda: draw.choice(["layer", "height", "time", "disagreement"]),
        "only": lambda: draw.choice(["all", "1", "7"]),
        "truth": lambda: draw.random() < 0.7,
        "point_size": lambda: draw.uniform(0.02, 0.3),
        "data": lambda: draw.choice(["toy", "nowhere"]),
    }
    kind = draw.choice([*acts, "imagine", "cancel", "keep", "drop", "open", "drag"])
    if kind == "drag":
        window.drag(draw.randrange(4), *((draw.uniform(-20, 40), draw.uniform(-20, 20)) for _ in range(3)))
    elif kind in acts:
        window.set(kind, acts[kind]())
    else:
        window.click(kind)


@pytest.mark.slow
def test_a_thousand_random_acts(tmp_path, capfd):
    draw = random.Random(4)
    drives = {
        "one": make_drive(30, name="one", rings=8, azimuths=60),
        "two": make_drive(70, name="two", rings=8, azimuths=60, speed=3.0),
        "bare": None,
    }
    library = ToyLibrary(toy_dataset(tmp_path, **drives), Scripted())
    studio = Studio(Start(data="toy", model="copy_last", out=tmp_path), library, port=0, settle_s=0.01)
    windows = [FakeBrowser(studio).__enter__() for _ in range(WINDOWS)]
    after_100 = after_1000 = 0.0
    for event in range(1, EVENTS + 1):
        act(draw.choice(windows), draw)
        if event % 40 == 0:  # a window is closed in the middle of whatever it does, and another one opens
            windows.pop(draw.randrange(WINDOWS)).__exit__()
            windows.append(FakeBrowser(studio).__enter__())
        if event % 10 == 0:
            assert studio.worker.wait_idle(60)
        if event == 100:
            after_100 = resident_mb()
    after_1000 = resident_mb()
    wait_for(lambda: len(studio.views) == WINDOWS)
    for window in windows:
        window.set("data", "toy")
        window.set("drive", "one")
        window.set("preset", "keep")
        window.click("imagine")
        wait_for(lambda window=window: window.view.session.run is not None and window.view.session.run.state == "done")
        assert window.view.scene.node_count() <= 5 + 5 + 5 * 8 * 6, "past, truth, and the futures of six runs"
        window.__exit__()
    wait_for(lambda: not studio.views)
    studio.close()
    said = capfd.readouterr()
    assert "Traceback" not in said.err + said.out, (said.err + said.out)[-3000:]
    assert after_1000 <= 1.1 * after_100, f"{after_100:.0f} MB after 100 acts, {after_1000:.0f} MB after {EVENTS}"
