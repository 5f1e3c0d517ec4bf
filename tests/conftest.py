"""One thread for tiny networks, and property tests that try the same examples on every run.

`--hypothesis-profile=random` tries others; `tests/test_random_examples.py` does so in the slow set.
"""

from __future__ import annotations

import signal

import pytest
import torch
from hypothesis import settings

settings.register_profile("fixed", derandomize=True, database=None, print_blob=True)
settings.register_profile("random", derandomize=False, database=None, print_blob=True)
settings.load_profile("fixed")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # so are background jobs started; tests of Ctrl-C need it
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Threads that wait for each other cost more than the work."""
    torch.set_num_threads(1)
