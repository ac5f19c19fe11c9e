"""Decorators that compile kernels, by which operations may be reordered or fused."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench import machine_code

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Two = tuple[Array, Array]
Three = tuple[Array, Array, Array]
Seed = NDArray[np.uint32]
FAST = {"reassoc", "contract", "nsz", "arcp"}
F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile a kernel whose sums may be reordered.

    numba's default check for a division by zero stops the vectorisation of a
    loop, hence ``error_model='numpy'``. Full ``fastmath`` is not used, because it
    would let the compiler assume that there are no NaN and no infinities.
    """
    return machine_code.compile_cached(function, error_model="numpy", fastmath=FAST)


def exact(function: F) -> F:
    """Compile a kernel that keeps the order of its operations."""
    return machine_code.compile_cached(
        function, error_model="numpy", fastmath={"contract"}
    )


def compile_unfused(function: F) -> F:
    """Compile an exact kernel without fused multiply-adds.

    An addition to a sum then waits only for the addition before it.
    """
    return machine_code.compile_cached(function, error_model="numpy", fastmath=set())
