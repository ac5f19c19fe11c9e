"""Second implementation (twin) of selections by scores with Laplace noise.

The probability that a score wins is the integral of f_j prod_{k != j} F_k over the real
line, computed by quadrature. Between the scores, the densities f and distribution
functions F are sums of exponentials. So Gauss-Legendre rules on the panels between
neighbouring scores converge geometrically. Beyond the largest score, at x > m, all F_k
are 1 - c_k t and all f_j dx are -c_j dt with t = e^(m - x). The integrand is then a
polynomial of degree k - 1 in t, which the rule integrates exactly. The part below the
smallest score, where every F_k is f_k, is exact too.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dp_erm_bench.trust.twins.base import Answered, Array
from dp_erm_bench.trust.twins.noisy_max import NoisyMaxTwin, entries_of_winners
from dp_erm_bench.trust.twins.pure import PureTwin, two_candidates

# A Gauss-Legendre rule on (0, 1).
NODES, WEIGHTS = np.polynomial.legendre.leggauss(24)
NODES, WEIGHTS = (NODES + 1) / 2, WEIGHTS / 2
# Farther than this below a score, the integrand is negligible.
LONGEST = 20.0
Curve = Callable[[Array, Array], Array]


@dataclass(frozen=True)
class LaplaceNoisyMaxTwin(PureTwin):
    """Twin of a selection by scores with Laplace noise, known by its pure epsilon.

    A twin is a second implementation of a law.

    Attributes
    ----------
    spread : float
        Ratio of the largest to the smallest score sensitivity, if the noise is inside
        the score.
    """

    spread: float = 1.0

    @property
    def level(self) -> float:
        """Return the pure epsilon of one use."""
        return (1 + self.spread) / self.ratio if self.ratio > 0 else math.inf

    @property
    def is_exact(self) -> bool:
        """Return whether the noise of all scores has the same scale.

        An exact instance (neighbours with known privacy loss) requires this.
        """
        return self.spread == 1.0

    def instance(self, step: float) -> Any:
        """Return the distribution of a selection between two candidates.

        The difference of two Laplace draws of scale b has the tail
        e^(-d/b) (1/2 + d/(4b)).
        """
        d = 1 / self.ratio
        return two_candidates(1 - math.exp(-d) * (0.5 + d / 4), step)

    @staticmethod
    def log_ratio(release: Any, use: Answered) -> Array:
        """Return the log-ratio of the winner's probabilities under Laplace noise."""
        b = np.max(use.scale, axis=-1, keepdims=True)
        return log_ratio_at_winner(
            laplace_chances, use.first / b, use.second / b, use.answer
        )

    recovered_multiplier = staticmethod(NoisyMaxTwin.recovered_multiplier)


def log_ratio_at_winner(
    chances: Callable[[Array], Array], first: Array, second: Array, answer: Array
) -> Array:
    """Return log chances(first) - log chances(second) at the winner.

    Scores hardly change during a run, so equal rows are integrated only once.

    Parameters
    ----------
    chances : callable
        Maps scores of shape (m, k) to winning probabilities of the same shape.
    first, second : arrays of shape (B, k)
        The scores on either dataset, in units of the noise.
    answer : array of shape (B,)
        The index of the winner.
    """
    both = np.round(np.concatenate([first, second]), 9)
    rows, where = np.unique(both, axis=0, return_inverse=True)
    table = np.log(np.maximum(chances(rows), 1e-300))[where.ravel()]
    half = len(first)
    return entries_of_winners(table[:half], answer) - entries_of_winners(
        table[half:], answer
    )


def laplace_chances(scores: Array) -> Array:
    """Return the winning probabilities of scores (B, k) with noise of density e^-|x|/2.

    A score of minus infinity never wins.
    """
    centre = scores.max(axis=1, keepdims=True)
    scores = np.maximum(scores - centre, -700.0)
    ordered = np.sort(scores, axis=1)
    chances = _integrate_between(ordered, scores, laplace_density, laplace_below)
    chances += _integrate_above(0.5 * np.exp(scores))
    below = (ordered[:, :1] - scores - np.log(2)).sum(axis=1, keepdims=True)
    with np.errstate(under="ignore"):
        return np.asarray(chances + np.exp(below) / scores.shape[1])


def inside_chances(centres: Array) -> Array:
    """Return the probability that each |centre + noise| is largest, centres >= 0."""
    ordered = np.sort(centres, axis=1)
    ends = np.concatenate([np.zeros((len(centres), 1)), ordered], axis=1)
    chances = _integrate_between(ends, centres, folded_density, folded_below)
    # e^(-top) cosh(c), written so that neither overflows.
    top = ordered[:, -1:]
    return chances + _integrate_above(
        0.5 * (np.exp(centres - top) + np.exp(-centres - top))
    )


def laplace_density(x: Array, v: Array) -> Array:
    """Return the density at x of the Laplace law around v."""
    return np.asarray(0.5 * np.exp(-np.abs(x - v)))


def laplace_below(x: Array, v: Array) -> Array:
    """Return the distribution function at x of the Laplace law around v."""
    half = laplace_density(x, v)
    return np.where(x < v, half, 1.0 - half)


def folded_density(x: Array, v: Array) -> Array:
    """Return the density at x >= 0 of |v + Laplace|."""
    return laplace_density(x, v) + laplace_density(x, -v)


def folded_below(x: Array, v: Array) -> Array:
    """Return the distribution function at x >= 0 of |v + Laplace|."""
    return laplace_below(x, v) - laplace_below(-x, v)


def _integrate_between(
    ends: Array, scores: Array, density: Curve, below: Curve
) -> Array:
    """Integrate over the panels between consecutive ends (B, m), one at a time."""
    total = np.zeros_like(scores)
    for left, right in zip(ends.T[:-1], ends.T[1:], strict=True):
        width = np.minimum(right - left, LONGEST)
        left = right - width
        x = left[:, None, None] + width[:, None, None] * NODES[:, None]
        f, F = density(x, scores[:, None]), below(x, scores[:, None])
        total += width[:, None] * np.tensordot(
            f * _products_of_others(F), WEIGHTS, ([1], [0])
        )
    return total


def _integrate_above(c: Array) -> Array:
    """Integrate c_j prod_{k != j} (1 - c_k t) over t in (0, 1)."""
    factors = 1.0 - c[:, None, :] * NODES[:, None]
    tails: Array = np.tensordot(_products_of_others(factors), WEIGHTS, ([1], [0]))
    return c * tails


def _products_of_others(factors: Array) -> Array:
    """Return, for each entry of the last axis, the product of all other entries."""
    before, after = np.ones_like(factors), np.ones_like(factors)
    np.cumprod(factors[..., :-1], axis=-1, out=before[..., 1:])
    after[..., :-1] = np.cumprod(factors[..., :0:-1], axis=-1)[..., ::-1]
    return before * after
