"""Generated data whose law is so simple that expected losses are known."""

import numpy as np

from dp_erm_bench.datasets.base import Array
from dp_erm_bench.datasets.synthetic import check_numbers, check_records


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
