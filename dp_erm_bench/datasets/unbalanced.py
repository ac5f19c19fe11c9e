"""A generated classification whose first feature is much larger than the others."""

import numpy as np

from dp_erm_bench.datasets.base import Array
from dp_erm_bench.datasets.values import check_numbers, check_records


def unbalanced_classification(
    seed: int, n: int = 5000, p: int = 10, ratio: float = 1.0, noise: float = 0.5
) -> tuple[Array, Array]:
    """Draw a linear classification in which the largest feature does not matter.

    Parameters
    ----------
    seed : int
        Of the generator; the order of the draws is X, signs of w, noise.
    n, p : int
        Records and features.
    ratio : float
        M_max / M_min: column 0 has this variance, the others 1, all mean 0. The
        draws do not depend on it.
    noise : float
        Standard deviation of the noise on x.w, in units of norm2(w).

    Returns
    -------
    X : array of shape (n, p)
    y : array of shape (n,), -1 and +1

    References
    ----------
    Mangold, Bellet, Salmon, Tommasi. Differentially private coordinate descent for
    composite empirical risk minimization. ICML 2022, section 3.4 (unbalanced).
    """
    check_records(n, p)
    check_numbers(ratio=ratio, noise=noise)
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    w = rng.choice([-1.0, 1.0], p)
    w[0] = 0.0
    scores = X @ w + noise * np.linalg.norm(w) * rng.standard_normal(n)
    X[:, 0] *= np.sqrt(ratio)
    return X, np.where(scores >= 0.0, 1.0, -1.0)
