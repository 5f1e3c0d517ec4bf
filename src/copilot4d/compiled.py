"""The one door to numba: functions compiled once, kept on disk where the disk allows it, and run without the GIL, so
that `in_threads` runs parts of one job side by side.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

import numba
import numpy as np

Function = TypeVar("Function", bound=Callable[..., Any])
FEW = 2048  # less than this is not worth a second thread


def compiled(function: Function) -> Function:
    """Compile on first use. Kernels are sequential and release the GIL: threads or processes run them side by side,
    with no threading layer that a forked or spawned worker could break.
    """
    return _compiled(function, fastmath=False)


def compiled_sums(function: Function) -> Function:
    """`compiled`, where sums may be added up in any order, so that they are vectorised; infinities and NaN stay."""
    return _compiled(function, fastmath={"reassoc", "contract", "nsz"})


def in_threads(work: Callable[[int, int], None], count: int, threads: int) -> None:
    """work(first, last) for all of range(count): at once, or in parts side by side. The parts must not depend on each
    other.
    """
    threads = min(threads, os.cpu_count() or 1)
    if threads <= 1 or count < FEW:
        work(0, count)
        return
    bounds = np.linspace(0, count, 4 * threads + 1).astype(int)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, bounds[:-1].tolist(), bounds[1:].tolist()))


def _compiled(function: Function, **options: Any) -> Function:
    try:
        return cast(Function, numba.njit(cache=True, nogil=True, **options)(function))
    except RuntimeError:  # numba found no folder where it may write its cache: compile again in each process
        return cast(Function, numba.njit(nogil=True, **options)(function))
