"""docs/tools is a folder of scripts: its modules are imported by their bare names."""

from __future__ import annotations

import sys

from tests.support.real_data import REPOSITORY

sys.path.append(str(REPOSITORY / "docs" / "tools"))
