"""The door to numba for the loops of this folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Sequential and without the GIL: no threading layer that a forked loader worker could break."""
    try:
        return cast(Function, numba.njit(cache=True, nogil=True)(function))
    except RuntimeError:  # there is no folder where numba may keep its cache
        return cast(Function, numba.njit(nogil=True)(function))
