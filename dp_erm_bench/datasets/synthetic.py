"""Generated datasets."""

import numpy as np

from dp_erm_bench.datasets.base import Array


def linear_classification(
    seed: int, n: int = 1000, p: int = 100, sigma: float = 1.0, noise: float = 0.9
) -> tuple[Array, Array]:
    """Draw a noisy linear classification with log-normal true weights.

    Columns of X have mean 0 and variance 1 exactly. With ``sigma`` 1 and 2 these
    are the problems log1 and log2 of Mangold et al.

    Parameters
    ----------
    seed : int
        Of the generator; the order of the draws is X, w, noise.
    n, p : int
        Records and features.
    sigma : float
        Standard deviation of log(w): the larger, the fewer features matter.
    noise : float
        Standard deviation of the noise on x.w, in units of norm2(w).

    Returns
    -------
    X : array of shape (n, p)
    y : array of shape (n,), -1 and +1

    References
    ----------
    Mangold, Bellet, Salmon, Tommasi. High-dimensional private empirical risk
    minimization by greedy coordinate descent. AISTATS 2023, section 6.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    w = rng.lognormal(0.0, sigma, p)
    scores = X @ w + noise * np.linalg.norm(w) * rng.standard_normal(n)
    return X, np.where(scores >= 0.0, 1.0, -1.0)
