"""One thread for tiny networks: threads that wait for each other cost more than the work."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    torch.set_num_threads(1)
