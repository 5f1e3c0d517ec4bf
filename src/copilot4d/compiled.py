"""The one door to numba: functions compiled once, kept on disk where the disk allows it, and run without the GIL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile on first use. Kernels are sequential and release the GIL: threads or processes run them side by side,
    with no threading layer that a forked or spawned worker could break.
    """
    return _compiled(function, fastmath=False)


def compiled_sums(function: Function) -> Function:
    """`compiled`, where sums may be added up in any order, so that they are vectorised; infinities and NaN stay."""
    return _compiled(function, fastmath={"reassoc", "contract", "nsz"})


def _compiled(function: Function, **options: Any) -> Function:
    try:
        return cast(Function, numba.njit(cache=True, nogil=True, **options)(function))
    except RuntimeError:  # numba found no folder where it may write its cache: compile again in each process
        return cast(Function, numba.njit(nogil=True, **options)(function))
