"""The library's manners: what `import copilot4d` shows, and reprs that fit on a line."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

import copilot4d
from copilot4d.baselines import RayTracing
from copilot4d.forecaster import Forecast
from copilot4d.geometry import Clip, Rays
from tests.support.scenes import make_drive


def test_dir_shows_the_public_names_and_each_is_there():
    public = [name for name in dir(copilot4d) if not name.startswith("_")]
    assert public == sorted(name for name in copilot4d.__all__ if name != "__version__")
    for name in copilot4d.__all__:
        assert getattr(copilot4d, name) is not None
    assert copilot4d.__version__[0].isdigit()


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(copilot4d, "no_such_name")


def test_looking_around_imports_nothing_heavy():
    code = "import sys, copilot4d; dir(copilot4d); sys.exit(any(m in sys.modules for m in ('torch', 'numpy')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_reprs_are_short_and_say_what_it_is():
    drive = make_drive(4, rings=4, azimuths=20)
    sweep = drive[0]
    assert repr(drive) == "Drive('toy', 4 sweeps, 0.3 s, memory)"
    assert repr(drive[:0]) == "Drive('toy', 0 sweeps, 0.0 s, memory)"
    assert repr(sweep) == f"Sweep({len(sweep)} points, lidar at (0.0, 0.0, 1.7) m, 0.000 s)"
    assert repr(Forecast(sweeps=(sweep, sweep))) == f"Forecast(2 sweeps of {len(sweep)}, {len(sweep)} points)"
    assert repr(Rays.from_origin(np.zeros(3), np.eye(3))) == "Rays(3)"
    clip = Clip(drive="toy", past=(sweep,), future=(sweep, sweep), past_frames=(0,), future_frames=(1, 2))
    assert repr(clip) == "Clip('toy', 1 past and 2 future sweeps)"
    assert repr(RayTracing()) == "RayTracing('ray_tracing')"
