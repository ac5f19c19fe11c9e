"""Probabilities that each score wins after Laplace noise, by quadrature.

P(j wins) is the integral of f_j prod_{k != j} F_k over the real line. The densities f
and distributions F are sums of exponentials between the scores: Gauss-Legendre rules
on the panels between neighbouring scores converge geometrically. Beyond the largest
score x > m all F_k are 1 - c_k t and all f_j dx are -c_j dt with t = e^(m - x): a
polynomial of degree k - 1 in t, which the rule integrates exactly; so is the part
below the smallest score, where every F_k is f_k.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Curve = Callable[[Array, Array], Array]

NODES, WEIGHTS = np.polynomial.legendre.leggauss(24)
# On (0, 1).
NODES, WEIGHTS = (NODES + 1) / 2, WEIGHTS / 2
# So far below a score hardly anything happens.
LONGEST = 20.0


def laplace_chances(scores: Array) -> Array:
    """Return the chances under noise of density e^-|x| / 2; scores: (B, k).

    A score of minus infinity never wins.
    """
    centre = scores.max(axis=1, keepdims=True)
    scores = np.maximum(scores - centre, -700.0)
    ordered = np.sort(scores, axis=1)
    chances = _between(ordered, scores, laplace_density, laplace_below)
    chances += _above(0.5 * np.exp(scores))
    size = scores.shape[1]
    low = ordered[:, :1]
    with np.errstate(under="ignore"):
        below = np.exp((low - scores - np.log(2)).sum(axis=1, keepdims=True)) / size
    total: Array = chances + below
    return total


def inside_chances(centres: Array) -> Array:
    """Return the chances that |centre + noise| is largest; centres >= 0: (B, k)."""
    ordered = np.sort(centres, axis=1)
    ends = np.concatenate([np.zeros((len(centres), 1)), ordered], axis=1)
    chances = _between(ends, centres, folded_density, folded_below)
    # e^(-top) cosh(c), written so that neither overflows.
    top = ordered[:, -1:]
    return chances + _above(0.5 * (np.exp(centres - top) + np.exp(-centres - top)))


def laplace_density(x: Array, v: Array) -> Array:
    """Return the Laplace density around v."""
    return np.asarray(0.5 * np.exp(-np.abs(x - v)))


def laplace_below(x: Array, v: Array) -> Array:
    """Return the Laplace distribution around v."""
    half = laplace_density(x, v)
    return np.where(x < v, half, 1.0 - half)


def folded_density(x: Array, v: Array) -> Array:
    """Return the density at x >= 0 of |v + Laplace|."""
    return laplace_density(x, v) + laplace_density(x, -v)


def folded_below(x: Array, v: Array) -> Array:
    """Return the distribution at x >= 0 of |v + Laplace|."""
    return laplace_below(x, v) - laplace_below(-x, v)


def _between(ends: Array, scores: Array, density: Curve, below: Curve) -> Array:
    """Integrate over the panels between consecutive ends, (B, m); one a time."""
    total = np.zeros_like(scores)
    for left, right in zip(ends.T[:-1], ends.T[1:], strict=True):
        width = np.minimum(right - left, LONGEST)
        left = right - width
        x = left[:, None, None] + width[:, None, None] * NODES[:, None]
        f, F = density(x, scores[:, None]), below(x, scores[:, None])
        total += width[:, None] * np.tensordot(f * _others(F), WEIGHTS, ([1], [0]))
    return total


def _above(c: Array) -> Array:
    """Integrate c_j prod_{k != j} (1 - c_k t) over t in (0, 1)."""
    factors = 1.0 - c[:, None, :] * NODES[:, None]
    tails: Array = np.tensordot(_others(factors), WEIGHTS, ([1], [0]))
    return c * tails


def _others(factors: Array) -> Array:
    """Return for each entry of the last axis the product of all other entries."""
    before, after = np.ones_like(factors), np.ones_like(factors)
    np.cumprod(factors[..., :-1], axis=-1, out=before[..., 1:])
    after[..., :-1] = np.cumprod(factors[..., :0:-1], axis=-1)[..., ::-1]
    return before * after
