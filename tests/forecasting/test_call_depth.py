"""From `Copilot4D.forecast` to the networks it is a short way: a reader can follow it."""

from __future__ import annotations

import sys
from pathlib import Path

import copilot4d
from copilot4d import presets
from copilot4d.baselines.occupancy_4d import Occupancy4d, occupancy_4d_preset
from copilot4d.forecasting.copilot4d import Copilot4D
from copilot4d.tokenizer import Tokenizer
from copilot4d.world_model import WorldModel
from tests.forecasting.test_copilot4d import past_of, rays_at_poles, way
from tests.support.selectors import always

PACKAGE = Path(copilot4d.__file__).parent
DOORS = ("tokenizer", "world_model")
MOST_FRAMES = 8


def part_of(frame) -> str | None:
    """The folder of this package that a frame's code is in; None where it is not ours."""
    path = Path(frame.f_code.co_filename)
    return path.relative_to(PACKAGE).parts[0] if path.is_relative_to(PACKAGE) else None


def ways_to_the_doors(run) -> set[tuple[str, ...]]:
    """Our own functions between `Copilot4D.forecast` and the first one of a network, for every way that is taken."""
    ways = set()

    def on_call(frame, event, argument):
        if event != "call" or part_of(frame) not in DOORS:
            return
        way, above = [frame.f_code.co_name], frame
        while (above := above.f_back) is not None:
            part = part_of(above)
            if part in DOORS:
                return  # already inside
            if part is not None:
                way.append(above.f_code.co_name)
                if part == "forecasting" and above.f_code.co_name == "forecast":
                    ways.add(tuple(reversed(way)))
                    return

    sys.setprofile(on_call)
    try:
        run()
    finally:
        sys.setprofile(None)
    return ways


def test_a_forecast_reaches_its_networks_within_eight_frames():
    config = presets.tiny()
    model = Copilot4D(
        Tokenizer(config.tokenizer), WorldModel(config.world_model), depth_selector=always("recent", occupancy=True),
        occupancy=Occupancy4d(occupancy_4d_preset("tiny")),
    )  # fmt: skip
    future = way(2, start=3)
    rays = [rays_at_poles(pose)[0] for pose in future]
    ways = ways_to_the_doors(lambda: model.forecast(past_of(3), future, rays, steps=2, futures=2))
    assert {way[-1] for way in ways} >= {"encode", "decode", "render", "step"}  # both doors are on the way
    longest = max(ways, key=len)
    assert len(longest) - 2 <= MOST_FRAMES, " > ".join(longest)  # between the two, themselves not counted
