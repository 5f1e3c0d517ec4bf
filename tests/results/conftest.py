"""benchmarks/results is a folder of scripts, not an installed package: its modules are imported by their bare names."""

from __future__ import annotations

import sys

from tests.support.real_data import REPOSITORY

sys.path += [str(REPOSITORY / "benchmarks" / "results"), str(REPOSITORY / "benchmarks")]
