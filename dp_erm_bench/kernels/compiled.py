"""How the kernels are compiled."""

from typing import Any

import numba

_FAST = {"reassoc", "contract", "nsz", "arcp"}


def kernel(function: Any) -> Any:
    """Compile a kernel whose sums may be reordered.

    numba's default check for a division by zero stops the vectorisation of a
    loop, hence ``error_model='numpy'``. Not the whole of ``fastmath``: it would
    let the compiler assume that there are no NaN and no infinities.
    """
    return numba.njit(error_model="numpy", fastmath=_FAST, cache=True)(function)


def exact(function: Any) -> Any:
    """Compile a kernel in which the order of the operations is kept."""
    return numba.njit(error_model="numpy", fastmath={"contract"}, cache=True)(function)
