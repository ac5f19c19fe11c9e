"""Generated datasets, and the checks of what they are generated with."""

import math

import numpy as np

from dp_erm_bench.datasets.base import Array
from dp_erm_bench.datasets.spec import number, refused
from dp_erm_bench.errors import UsageError
from dp_erm_bench.paths import machine_memory

NUMBER = 8
"""Bytes of a number."""

GIGABYTE = 1e9


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
    check_records(n, p)
    check_numbers(sigma=sigma, noise=noise)
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    w = rng.lognormal(0.0, sigma, p)
    scores = X @ w + noise * np.linalg.norm(w) * rng.standard_normal(n)
    return X, np.where(scores >= 0.0, 1.0, -1.0)


def sparse_lasso(
    seed: int,
    n: int = 1000,
    p: int = 1000,
    support: int = 10,
    amplitude: float = 100.0,
    noise: float = 0.5,
) -> tuple[Array, Array, Array]:
    """Draw a linear regression in which the first few features matter.

    With seed 2 this is the sparse lasso of Mangold et al.; the squared loss with an
    L1 penalty of strength 30 then has the authors' error at 0.

    Parameters
    ----------
    seed : int
        Of the generator; the order of the draws is X, w, noise.
    n, p : int
        Records and features, the latter standard normal.
    support : int
        Number of features that matter.
    amplitude : float
        Standard deviation of their weights.
    noise : float
        Standard deviation of the noise on x.w, in units of norm2(w).

    Returns
    -------
    X : array of shape (n, p)
    y : array of shape (n,)
    w : array of shape (p,)

    References
    ----------
    Mangold, Bellet, Salmon, Tommasi. Differentially private coordinate descent for
    composite empirical risk minimization. ICML 2022, experiments (lasso).
    """
    check_records(n, p)
    check_count("support", support, 0, p)
    check_numbers(amplitude=amplitude, noise=noise)
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    v = amplitude * rng.standard_normal(support)
    y = X[:, :support] @ v
    y += noise * np.linalg.norm(v) * rng.standard_normal(n)
    return X, y, np.concatenate([v, np.zeros(p - support)])


def quasi_sparse(
    seed: int,
    n: int = 1000,
    p: int = 100,
    tau: int = 5,
    alpha: float = 0.0,
    noise: float = 1.0,
    plateau: int | None = None,
) -> tuple[Array, Array, Array]:
    """Draw a linear classification whose true weights are (alpha, tau)-quasi-sparse.

    Features are uniform on [-sqrt(3), sqrt(3)], of variance 1: their bounds can be
    declared. A label is the sign of x.w plus logistic noise: at noise 1 the true
    weights minimise the expected logistic loss. X does not depend on the weights.

    Parameters
    ----------
    seed : int
        Of the generator; the order of the draws is X, noise, w.
    n, p : int
        Records and features.
    tau : int
        Number of weights near 1, uniform on [0.9, 1.1]; they come first.
    alpha : float
        All other weights.
    noise : float
        Scale of the logistic noise on x.w.
    plateau : int, optional
        Length of runs of equal large weights, which come at random multiples of it.

    Returns
    -------
    X : array of shape (n, p)
    y : array of shape (n,), -1 and +1
    w : array of shape (p,)

    References
    ----------
    Mangold et al., AISTATS 2023, as `linear_classification`; its poster defines
    quasi-sparse solutions.
    """
    check_records(n, p)
    check_count("tau", tau, 0, p)
    check_numbers(noise=noise)
    check_numbers(-math.inf, alpha=alpha)
    rng = np.random.default_rng(seed)
    X = rng.uniform(-np.sqrt(3.0), np.sqrt(3.0), (n, p))
    errors = noise * rng.logistic(size=n)
    w = _quasi_sparse_weights(rng, np.full(p, float(alpha)), tau, plateau)
    return X, np.where(X @ w + errors >= 0.0, 1.0, -1.0), w


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


def _quasi_sparse_weights(
    rng: np.random.Generator, w: Array, tau: int, plateau: int | None
) -> Array:
    """Return w with tau weights near 1: the first, or runs of one value each."""
    if plateau is None:
        w[:tau] = rng.uniform(0.9, 1.1, tau)
        return w
    check_count("plateau", plateau, 1, w.size)
    if tau % plateau:
        raise refused("plateau", plateau, f"a divisor of tau = {tau}, or null")
    runs = w[: w.size // plateau * plateau].reshape(-1, plateau)
    large = rng.choice(len(runs), tau // plateau, replace=False)
    runs[large] = rng.uniform(0.9, 1.1, (large.size, 1))
    return w


def check_records(n: object, p: object) -> None:
    """Refuse fewer than two records, no feature, or more than memory can hold."""
    for key, value, least in (("n", n, 2), ("p", p, 1)):
        check_count(key, value, least)
    needed = NUMBER * n * p  # type: ignore[operator]
    if needed > machine_memory():
        raise UsageError(
            f"dataset.n={n}: {n} x {p} numbers take {needed / GIGABYTE:.3g} GB, more "
            "than this machine's memory; take fewer records or features"
        )


def check_count(key: str, value: object, least: int, p: float = math.inf) -> None:
    """Refuse all but integers of at least a number, and at most p features."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise refused(key, value, f"an integer >= {least}")
    if value > p:
        raise refused(key, value, f"between 0 and p = {p}")


def check_numbers(least: float = 0.0, **numbers: object) -> None:
    """Refuse all but finite numbers of at least a number."""
    for key, value in numbers.items():
        if not math.isfinite(number(value)) or number(value) < least:
            allowed = "finite" if least == -math.inf else f"finite and >= {least:g}"
            raise refused(key, value, f"a number, {allowed}")
