"""Log-ratios of the densities of released values, by kind of release.

Each takes the answers of B runs and what the noise was added to in two datasets.
"""

from dataclasses import dataclass
from functools import singledispatch

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.audit.winners import inside_chances, laplace_chances
from dp_erm_bench.releases.base import Release
from dp_erm_bench.releases.gaussian import Gaussian
from dp_erm_bench.releases.inside_noisy_max import InsideNoisyMax
from dp_erm_bench.releases.laplace import Laplace
from dp_erm_bench.releases.laplace_noisy_max import LaplaceNoisyMax
from dp_erm_bench.releases.laplace_vector import LaplaceVector
from dp_erm_bench.releases.noisy_max import NoisyMax
from dp_erm_bench.releases.norm_laplace import NormLaplace
from dp_erm_bench.releases.poisson_gaussian import PoissonGaussian

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Answered:
    """One use of a mechanism by B runs, replayed on two datasets.

    Attributes
    ----------
    answer : array of shape (B,) or (B, k)
        What was published: noisy values, or the index of the winner.
    first, second : arrays of shape (B, k)
        The query on either dataset.
    scale : array, broadcastable to (B, k)
        The noise scale that was claimed; 0 where nothing may move.
    """

    answer: Array
    first: Array
    second: Array
    scale: Array

    def normalised(self) -> tuple[Array, Array]:
        """Return both queries in units of the noise; 0 where there is none."""
        return self.first / self._unit, self.second / self._unit

    def values(self) -> Array:
        """Return the published values in units of the noise, (B, k)."""
        rows: Array = self.answer.reshape(self.first.shape) / self._unit
        return rows

    @property
    def _unit(self) -> Array:
        return np.where(self.scale > 0.0, self.scale, np.inf)


@singledispatch
def log_ratio(release: Release, use: Answered) -> Array:
    """Return log p(answer | first) - log p(answer | second), (B,).

    A new kind of release registers its own: ``@log_ratio.register``.

    Raises
    ------
    TypeError
        For a kind that has none.
    """
    raise TypeError(f"no density is known for {type(release).__name__}")


@log_ratio.register
def _gaussian(release: Gaussian, use: Answered) -> Array:
    """Return the log-ratio of two normal densities."""
    a, (v, u) = use.values(), use.normalised()
    return np.asarray(((a - (v + u) / 2) * (v - u)).sum(axis=1))


@log_ratio.register
def _norm_laplace(release: NormLaplace, use: Answered) -> Array:
    """Return the log-ratio of two densities exp(-norm2)."""
    a, (v, u) = use.values(), use.normalised()
    near, far = np.linalg.norm(a - v, axis=1), np.linalg.norm(a - u, axis=1)
    return np.asarray(far - near)


@log_ratio.register(Laplace)
@log_ratio.register(LaplaceVector)
def _laplace(release: Release, use: Answered) -> Array:
    """Return the log-ratio of products of Laplace densities."""
    a, (v, u) = use.values(), use.normalised()
    return np.asarray((np.abs(a - u) - np.abs(a - v)).sum(axis=1))


@log_ratio.register
def _poisson(release: PoissonGaussian, use: Answered) -> Array:
    """Return the log-ratio of two mixtures over one record's coin.

    The query is the sum with every record sampled; all but one are zero, so the sum
    over a sample is v with probability q, else 0. The coins of a step are fresh and
    secret, hence given all earlier answers the answer has density
    (1 - q) N(0, s^2) + q N(v, s^2), and relative to N(0, s^2)
    1 - q + q e^((a.v - norm2(v)^2 / 2) / s^2).
    """
    a, (v, u) = use.values(), use.normalised()

    def mixed(v: Array) -> Array:
        gain = ((a - v / 2) * v).sum(axis=1)
        with np.errstate(divide="ignore"):
            out = np.log1p(-release.rate)
        total: Array = np.logaddexp(out, np.log(release.rate) + gain)
        return total

    return mixed(v) - mixed(u)


@log_ratio.register
def _exponential(release: NoisyMax, use: Answered) -> Array:
    """Return the log-ratio of softmax probabilities: Gumbel noise has these winners."""
    b = np.max(use.scale, axis=-1, keepdims=True)

    def chance(scores: Array) -> Array:
        shifted = (scores - scores.max(axis=1, keepdims=True)) / b
        total: Array = np.log(np.exp(shifted).sum(axis=1))
        return _won(shifted, use.answer) - total

    return chance(use.first) - chance(use.second)


@log_ratio.register
def _noisy_max(release: LaplaceNoisyMax, use: Answered) -> Array:
    """Return the log-ratio of the winner's probabilities under Laplace noise."""
    b = np.max(use.scale, axis=-1, keepdims=True)
    return _selected(laplace_chances, use.first / b, use.second / b, use.answer)


@log_ratio.register
def _inside(release: InsideNoisyMax, use: Answered) -> Array:
    """Return the log-ratio of the winner's probabilities, the noise being inside.

    The score is taken as |g_j| / Delta_j, which it is up to a factor where all score
    sensitivities are equal (M_j = H R_j^2) and there is no penalty.
    """
    v, u = use.normalised()
    return _selected(inside_chances, np.abs(v), np.abs(u), use.answer)


def _selected(chances: object, first: Array, second: Array, won: Array) -> Array:
    """Return log chances(first) - log chances(second) at the winner.

    The scores hardly move along a run: equal rows are integrated once.
    """
    assert callable(chances)
    both = np.round(np.concatenate([first, second]), 9)
    rows, where = np.unique(both, axis=0, return_inverse=True)
    table = np.log(np.maximum(chances(rows), 1e-300))[where.ravel()]
    half = len(first)
    return _won(table[:half], won) - _won(table[half:], won)


def _won(table: Array, won: Array) -> Array:
    indices = won.astype(np.int64)[:, None]
    return np.take_along_axis(table, indices, axis=1)[:, 0]
