"""Standard laws drawn from a Philox stream; all have scale 1."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.kernels.compiled import exact
from dp_erm_bench.kernels.elementary import cos_turns, log, sin_turns
from dp_erm_bench.kernels.philox import fill_uniforms

Array = NDArray[np.float64]


@exact
def to_laplace(out):  # type: ignore[no-untyped-def]
    """Turn uniforms into Laplace draws, density exp(-|x|) / 2."""
    for i in range(out.size):
        u = out[i]
        tail = 2.0 * min(u, 1.0 - u)
        out[i] = log(tail) if u < 0.5 else -log(tail)


@exact
def to_gumbel(out):  # type: ignore[no-untyped-def]
    """Turn uniforms into Gumbel draws, distribution exp(-exp(-x))."""
    for i in range(out.size):
        out[i] = -log(-log(out[i]))


@exact
def to_gaussian(out):  # type: ignore[no-untyped-def]
    """Turn pairs of uniforms into pairs of normal draws (Box and Muller)."""
    for i in range(out.size // 2):
        radius = np.sqrt(-2.0 * log(out[2 * i]))
        turn = out[2 * i + 1]
        out[2 * i] = radius * cos_turns(turn)
        out[2 * i + 1] = radius * sin_turns(turn)


def _draw(
    transform: Callable[[Array], None],
    seed: NDArray[np.uint32],
    start: int,
    count: int,
) -> Array:
    lead = start % 2
    out = np.empty((count + lead + 1) // 2 * 2)
    fill_uniforms(seed, start // 2, out)
    transform(out)
    return out[lead : lead + count]


def laplace(seed: NDArray[np.uint32], start: int, count: int) -> Array:
    """Return the Laplace draws number start .. start + count - 1 of a stream."""
    return _draw(to_laplace, seed, start, count)


def gumbel(seed: NDArray[np.uint32], start: int, count: int) -> Array:
    """Return the Gumbel draws number start .. start + count - 1 of a stream."""
    return _draw(to_gumbel, seed, start, count)


def gaussian(seed: NDArray[np.uint32], start: int, count: int) -> Array:
    """Return the normal draws number start .. start + count - 1 of a stream."""
    return _draw(to_gaussian, seed, start, count)
