"""Loading weights to forecast with needs no training code."""

from __future__ import annotations

import subprocess
import sys

from tests.support.shipped import shipped_mini

PROGRAM = """
import sys
from copilot4d import load_forecaster
for name in sys.argv[1:]:
    load_forecaster(name)
print(*sorted(name for name in sys.modules if name.startswith("copilot4d.training")))
"""


def test_loading_weights_imports_no_training_module():
    shipped_mini()
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM, "mini", "occupancy_4d"], capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == []
