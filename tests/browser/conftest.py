"""One headless Chromium for all browser tests; they skip, with the reason, where there is none."""

from __future__ import annotations

import pytest

from tests.support.chromium import MISSING, Chromium, find_chromium


@pytest.fixture(scope="session")
def browser():
    if find_chromium() is None:
        pytest.skip(MISSING)
    with Chromium() as running:
        yield running
