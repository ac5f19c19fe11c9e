"""Generated data whose law is so simple that expected losses are known."""

import functools
from dataclasses import dataclass

import numpy as np

from dp_erm_bench.datasets.base import Array
from dp_erm_bench.datasets.synthetic import check_numbers, check_records

NODES = 200


def median_regression(
    seed: int, n: int = 2000, p: int = 5, norm: float = 1.0, noise: float = 0.5
) -> tuple[Array, Array, Array]:
    """Draw a linear regression with Laplace noise: w is the population's median.

    Features are uniform on the unit sphere, labels x.w plus noise, so that the expected
    absolute loss is least at w (``problems.population``).

    Parameters
    ----------
    seed : int
        Of the generator; the order of the draws is w, X, noise.
    n, p : int
        Records and features.
    norm : float
        norm2(w), of uniform direction.
    noise : float
        Scale of the Laplace noise, its mean absolute value.

    Returns
    -------
    X : array of shape (n, p)
    y : array of shape (n,)
    w : array of shape (p,)
    """
    check_records(n, p)
    check_numbers(norm=norm, noise=noise)
    rng = np.random.default_rng(seed)
    w = norm * _on_sphere(rng, 1, p)[0]
    X = _on_sphere(rng, n, p)
    return X, X @ w + noise * rng.laplace(size=n), w


def _on_sphere(rng: np.random.Generator, n: int, p: int) -> Array:
    """Return n points, uniform on the unit sphere; rounding leaves none outside."""
    X = rng.standard_normal((n, p))
    lengths = np.linalg.norm(X, axis=1, keepdims=True)
    return np.asarray(X / (lengths * (1.0 + 1e-15 * p)))


@dataclass(frozen=True, eq=False)
class MedianLaw:
    """The law of a record of `median_regression`.

    Parameters
    ----------
    w : array of shape (p,)
        The population's minimiser, of which the labels are drawn.
    noise : float
        Scale b of the Laplace noise e.
    """

    w: Array
    noise: float

    def excess_absolute(self, w: Array) -> Array:
        """Return E|y - x.w| - E|e| for points w, (B, p) to (B,).

        y - x.w is e + t with t = s u, s = norm2(w* - w) and u an entry of a uniform
        point of the sphere, and E|e + t| = |t| + b exp(-|t| / b). With u = sin(a) the
        density of a is proportional to cos(a)^(p - 2), which Gauss and Legendre's rule
        integrates to rounding.
        """
        p, b = self.w.size, self.noise
        apart = np.linalg.norm(w - self.w, axis=-1)[..., None]
        u, weights = _half_sphere(p)
        t = apart * u
        change = b * np.expm1(-t / b) if b > 0.0 else np.zeros_like(t)
        return np.asarray((t + change) @ weights)

    def draw(self, rng: np.random.Generator, n: int) -> tuple[Array, Array]:
        """Return features, (n, p), and labels, (n,), of n fresh records."""
        X = _on_sphere(rng, n, self.w.size)
        return X, X @ self.w + self.noise * rng.laplace(size=n)


@functools.cache
def _half_sphere(p: int) -> tuple[Array, Array]:
    """Return values and weights of the absolute first entry of a uniform point."""
    if p == 1:
        return np.ones(1), np.ones(1)
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    angles = 0.25 * np.pi * (nodes + 1.0)
    weights = weights * np.cos(angles) ** (p - 2)
    return np.sin(angles), weights / weights.sum()


LAWS = {median_regression.__name__: MedianLaw}
"""Laws of generators, by name: made of the true weights and the noise."""
