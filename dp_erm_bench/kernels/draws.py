"""Draws from standard distributions of scale 1, made of a Philox stream.

A uniform is the middle of one of 2^52 cells. In the outermost cells, this would cut the
tails of a distribution, at |x| = 36 (Laplace) or 8.6 (normal). There, further bits of
the stream decide the place inside the cell (``philox.place``). The tail that is still
cut off has a probability below 1e-307 per draw. All other draws are computed from the
middles of cells.
"""

from collections.abc import Callable

import numpy as np

from dp_erm_bench.kernels.compiled import Array, Seed, exact
from dp_erm_bench.kernels.elementary import cos_turns, log, sin_turns
from dp_erm_bench.kernels.philox import CELL, fill_uniforms, place

_TWO_CELLS = 2.0 * CELL
OUTSIDE = 0.5 - CELL
"""A uniform farther than this from 1/2 lies in one of the two outermost cells."""


@exact
def to_laplace(out: Array) -> int:
    """Turn uniforms into Laplace draws, density exp(-|x|) / 2, in place.

    Returns
    -------
    int
        Number of draws from outermost cells, which ``laplace_again`` replaces.
    """
    outermost = 0
    for i in range(out.size):
        u = out[i]
        tail = 2.0 * min(u, 1.0 - u)
        out[i] = log(tail) if u < 0.5 else -log(tail)
        outermost += tail < _TWO_CELLS
    return outermost


@exact
def laplace_again(inside: float, u: Array, i: int, out: Array) -> None:
    """Write Laplace draw i, whose uniform lies in an outermost cell.

    Parameters
    ----------
    inside : float
        Distance from the nearer end of (0, 1), as a share of the cell's width.
    u : array
        The uniforms.
    i : int
        Index of the draw and of its uniform.
    out : array of the shape of u
        Receives the draw.
    """
    x = log(_TWO_CELLS * inside)
    out[i] = x if u[i] < 0.5 else -x


@exact
def to_gumbel(out: Array) -> int:
    """Turn uniforms into Gumbel draws, distribution exp(-exp(-x)), in place.

    Returns
    -------
    int
        Number of draws from outermost cells, which ``gumbel_again`` replaces.
    """
    outermost = 0
    for i in range(out.size):
        u = out[i]
        out[i] = -log(-log(u))
        outermost += abs(u - 0.5) > OUTSIDE
    return outermost


@exact
def gumbel_tail(inside: float, low: bool) -> float:
    """Return the Gumbel draw of a uniform inside the cell at 0 (``low``) or at 1.

    For a uniform 1 - t, -log(1 - t) equals t up to rounding.
    """
    t = CELL * inside
    return -log(-log(t)) if low else -log(t)


@exact
def gumbel_again(inside: float, u: Array, i: int, out: Array) -> None:
    """Write Gumbel draw i, whose uniform lies in an outermost cell.

    Parameters
    ----------
    inside : float
        Distance from the nearer end of (0, 1), as a share of the cell's width.
    u : array
        The uniforms.
    i : int
        Index of the draw and of its uniform.
    out : array of the shape of u
        Receives the draw.
    """
    out[i] = gumbel_tail(inside, u[i] < 0.5)


@exact
def to_gaussian(out: Array) -> int:
    """Turn pairs of uniforms into pairs of normal draws (Box and Muller), in place.

    Returns
    -------
    int
        Number of pairs whose radius is from the outermost cell, which
        ``gaussian_again`` replaces.
    """
    outermost = 0
    for i in range(out.size // 2):
        u = out[2 * i]
        radius = np.sqrt(-2.0 * log(u))
        turn = out[2 * i + 1]
        out[2 * i] = radius * cos_turns(turn)
        out[2 * i + 1] = radius * sin_turns(turn)
        outermost += u < CELL
    return outermost


@exact
def gaussian_again(inside: float, u: Array, i: int, out: Array) -> None:
    """Write the normal pair i, i + 1, whose radius comes from an outermost cell.

    No other pair is changed. Only a radius (an even i) has a tail, and only if its
    uniform is near 0.

    Parameters
    ----------
    inside : float
        Distance from the nearer end of (0, 1), as a share of the cell's width.
    u : array
        The uniforms.
    i : int
        Index of the draw and of its uniform.
    out : array of the shape of u
        Receives the draw.
    """
    if i % 2 == 0 and u[i] < 0.5:
        radius = np.sqrt(-2.0 * log(CELL * inside))
        out[i] = radius * cos_turns(u[i + 1])
        out[i + 1] = radius * sin_turns(u[i + 1])


@exact
def to_survival(out: Array) -> int:
    """Leave uniforms unchanged, and count those in the outermost cell at 0."""
    outermost = 0
    for i in range(out.size):
        outermost += out[i] < CELL
    return outermost


@exact
def survival_again(inside: float, u: Array, i: int, out: Array) -> None:
    """Write uniform i, if it lies in the outermost cell at 0.

    Parameters
    ----------
    inside : float
        Distance from the nearer end of (0, 1), as a share of the cell's width.
    u : array
        The uniforms.
    i : int
        Index of the draw and of its uniform.
    out : array of the shape of u
        Receives the draw.
    """
    if u[i] < 0.5:
        out[i] = CELL * inside


def _draw(
    to_law: Callable[[Array], int],
    again: Callable[[float, Array, int, Array], None],
    seed: Seed,
    start: int,
    count: int,
) -> Array:
    lead = start % 2
    out = np.empty((count + lead + 1) // 2 * 2)
    fill_uniforms(seed, start // 2, out)
    if to_law(out):
        u = np.empty_like(out)
        fill_uniforms(seed, start // 2, u)
        for i in np.flatnonzero(np.abs(u - 0.5) > OUTSIDE).tolist():
            again(place(seed, start - lead + i), u, i, out)
    return out[lead : lead + count]


def laplace(seed: Seed, start: int, count: int) -> Array:
    """Return the Laplace draws with numbers start to start + count - 1 of a stream.

    Parameters
    ----------
    seed : array of shape (4,), uint32
        The 128 bits of the stream.
    start, count : int
        Number of the first draw, and number of draws.
    """
    return _draw(to_laplace, laplace_again, seed, start, count)


def gumbel(seed: Seed, start: int, count: int) -> Array:
    """Return the Gumbel draws with numbers start to start + count - 1 of a stream.

    Parameters
    ----------
    seed : array of shape (4,), uint32
        The 128 bits of the stream.
    start, count : int
        Number of the first draw, and number of draws.
    """
    return _draw(to_gumbel, gumbel_again, seed, start, count)


def gaussian(seed: Seed, start: int, count: int) -> Array:
    """Return the normal draws with numbers start to start + count - 1 of a stream.

    Parameters
    ----------
    seed : array of shape (4,), uint32
        The 128 bits of the stream.
    start, count : int
        Number of the first draw, and number of draws.
    """
    return _draw(to_gaussian, gaussian_again, seed, start, count)


def survivals(seed: Seed, start: int, count: int) -> Array:
    """Return the uniforms with numbers start to start + count - 1 of a stream.

    Small uniforms have full precision. For a law on [0, infinity), the uniforms are the
    probabilities of exceeding its draws.

    Parameters
    ----------
    seed : array of shape (4,), uint32
        The 128 bits of the stream.
    start, count : int
        Number of the first draw, and number of draws.
    """
    return _draw(to_survival, survival_again, seed, start, count)
