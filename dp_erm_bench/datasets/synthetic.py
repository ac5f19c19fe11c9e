"""Generated datasets: those of papers, those with a known law, and hard problems."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csc_array

from dp_erm_bench.datasets.base import Array, dataset_error
from dp_erm_bench.errors import UsageError, real_number
from dp_erm_bench.paths import machine_memory

NUMBER = 8
"""Bytes of a float64 number."""

GIGABYTE = 1e9


def linear_classification(
    seed: int, n: int = 1000, p: int = 100, sigma: float = 1.0, noise: float = 0.9
) -> tuple[Array, Array]:
    """Draw a noisy linear classification with log-normal true weights.

    Columns of X have mean 0 and variance 1 exactly. With ``sigma`` 1 and 2 these are
    the problems log1 and log2 of Mangold et al.

    Parameters
    ----------
    seed : int
        Seed of the generator; X, w and noise are drawn in this order.
    n, p : int
        Numbers of records and features.
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
    """Draw a linear regression in which only the first few features matter.

    With seed 2 this is the sparse lasso of Mangold et al. The squared loss with an L1
    penalty of strength 30 then has the same error at w = 0 as the authors report.

    Parameters
    ----------
    seed : int
        Seed of the generator; X, w and noise are drawn in this order.
    n, p : int
        Numbers of records and features; features are standard normal.
    support : int
        Number of features that matter.
    amplitude : float
        Standard deviation of the weights of these features.
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

    Features are uniform on [-sqrt(3), sqrt(3)], so their variance is 1 and their bounds
    can be declared. A label is the sign of x.w plus logistic noise: with noise 1 the
    true weights minimise the expected logistic loss. X does not depend on the weights.

    Parameters
    ----------
    seed : int
        Seed of the generator; X, noise and w are drawn in this order.
    n, p : int
        Numbers of records and features.
    tau : int
        Number of weights near 1, uniform on [0.9, 1.1]; they come first.
    alpha : float
        Value of all other weights.
    noise : float
        Scale of the logistic noise on x.w.
    plateau : int, optional
        Length of the runs of equal large weights. Each run starts at a random multiple
        of this length. With None the large weights are drawn one by one and come first.

    Returns
    -------
    X : array of shape (n, p)
    y : array of shape (n,), -1 and +1
    w : array of shape (p,)

    References
    ----------
    Mangold et al., AISTATS 2023, as in `linear_classification`; its poster defines
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
        Seed of the generator; X, signs of w and noise are drawn in this order.
    n, p : int
        Numbers of records and features.
    ratio : float
        M_max / M_min, which is the variance of column 0. The other columns have
        variance 1, and all columns have mean 0. The draws do not depend on this ratio.
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


def equicorrelated_classification(
    seed: int, n: int = 5000, p: int = 16, correlation: float = 1.0, noise: float = 0.5
) -> tuple[Array, Array]:
    """Draw a linear classification whose features all have the same correlation.

    Parameters
    ----------
    seed : int
        Seed of the generator; the shared part of the features, their own parts and
        noise are drawn in this order.
    n, p : int
        Numbers of records and features.
    correlation : float
        Correlation of any two features, from 0 to 1. At 1 all columns are equal.
    noise : float
        Standard deviation of the noise on the mean of the features, in units of the
        standard deviation of that mean.

    Returns
    -------
    X : array of shape (n, p)
        Columns of mean 0 and variance 1.
    y : array of shape (n,), -1 and +1

    References
    ----------
    Mangold, Bellet, Salmon, Tommasi. Differentially private coordinate descent for
    composite empirical risk minimization. ICML 2022, section 3.4 (balanced).
    """
    check_records(n, p)
    check_numbers(correlation=correlation, noise=noise)
    if real_number(correlation) > 1.0:
        raise dataset_error("correlation", correlation, "a number from 0 to 1")
    rng = np.random.default_rng(seed)
    shared = rng.standard_normal((n, 1))
    own = math.sqrt(1.0 - correlation) * rng.standard_normal((n, p))
    X = math.sqrt(correlation) * shared + own
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    mean = X.mean(axis=1)
    scores = mean + noise * mean.std() * rng.standard_normal(n)
    return X, np.where(scores >= 0.0, 1.0, -1.0)


def _quasi_sparse_weights(
    rng: np.random.Generator, w: Array, tau: int, plateau: int | None
) -> Array:
    """Return w with tau weights near 1: the first ones, or runs of equal weights."""
    if plateau is None:
        w[:tau] = rng.uniform(0.9, 1.1, tau)
        return w
    check_count("plateau", plateau, 1, w.size)
    if tau % plateau:
        raise dataset_error("plateau", plateau, f"a divisor of tau = {tau}, or null")
    runs = w[: w.size // plateau * plateau].reshape(-1, plateau)
    large = rng.choice(len(runs), tau // plateau, replace=False)
    runs[large] = rng.uniform(0.9, 1.1, (large.size, 1))
    return w


def check_records(n: object, p: object) -> None:
    """Raise UsageError for fewer than two records, no feature, or too large data."""
    for key, value, least in (("n", n, 2), ("p", p, 1)):
        check_count(key, value, least)
    needed = NUMBER * n * p  # type: ignore[operator]
    if needed > machine_memory():
        raise UsageError(
            f"dataset.n={n}: {n} x {p} numbers take {needed / GIGABYTE:.3g} GB, more "
            "than this machine's memory; take fewer records or features"
        )


def check_count(key: str, value: object, least: int, p: float = math.inf) -> None:
    """Raise UsageError unless a value is an integer from ``least`` to ``p``.

    Parameters
    ----------
    key : str
        Key of the dataset, for messages.
    value : object
        The value of the key.
    least : int
        Smallest value allowed.
    p : float
        Largest value allowed, the number of features.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise dataset_error(key, value, f"an integer >= {least}")
    if value > p:
        raise dataset_error(key, value, f"between 0 and p = {p}")


def check_numbers(least: float = 0.0, **numbers: object) -> None:
    """Raise UsageError unless all numbers are finite and at least ``least``."""
    for key, value in numbers.items():
        if not math.isfinite(real_number(value)) or real_number(value) < least:
            allowed = "finite" if least == -math.inf else f"finite and >= {least:g}"
            raise dataset_error(key, value, f"a number, {allowed}")


NODES = 200


def median_regression(
    seed: int, n: int = 2000, p: int = 5, norm: float = 1.0, noise: float = 0.5
) -> tuple[Array, Array, Array]:
    """Draw a linear regression with Laplace noise, in which x.w is the median label.

    Features are uniform on the unit sphere and labels are x.w plus noise. So w
    minimises the expected absolute loss (``problems.erm.problem``).

    Parameters
    ----------
    seed : int
        Seed of the generator; w, X and noise are drawn in this order.
    n, p : int
        Numbers of records and features.
    norm : float
        norm2(w); the direction of w is uniform.
    noise : float
        Scale of the Laplace noise, which is its mean absolute value.

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
    """Return n points, uniform on the unit sphere; rounding puts none outside."""
    X = rng.standard_normal((n, p))
    lengths = np.linalg.norm(X, axis=1, keepdims=True)
    return np.asarray(X / (lengths * (1.0 + 1e-15 * p)))


@dataclass(frozen=True, eq=False)
class MedianLaw:
    """The law (distribution) of a record of `median_regression`.

    Parameters
    ----------
    w : array of shape (p,)
        The population's minimiser, from which the labels are drawn.
    noise : float
        Scale b of the Laplace noise e.
    """

    w: Array
    noise: float

    def excess_absolute(self, w: Array) -> Array:
        """Return E|y - x.w| - E|e| for points w, (B, p) to (B,).

        y - x.w is e + t with t = s u, where s = norm2(w* - w) and u is an entry of a
        uniform point of the sphere. E|e + t| = |t| + b exp(-|t| / b). With u = sin(a)
        the density of a is proportional to cos(a)^(p - 2), which the Gauss-Legendre
        rule integrates up to rounding.
        """
        p, b = self.w.size, self.noise
        apart = np.linalg.norm(w - self.w, axis=-1)[..., None]
        u, weights = _half_sphere(p)
        t = apart * u
        change = b * np.expm1(-t / b) if b > 0.0 else np.zeros_like(t)
        return np.asarray((t + change) @ weights)

    def draw(self, rng: np.random.Generator, n: int) -> tuple[Array, Array]:
        """Return the features and the labels of n fresh records.

        Their shapes are (n, p) and (n,).
        """
        X = _on_sphere(rng, n, self.w.size)
        return X, X @ self.w + self.noise * rng.laplace(size=n)


@functools.cache
def _half_sphere(p: int) -> tuple[Array, Array]:
    """Return nodes and weights for means over |u_1|, with u uniform on the sphere."""
    if p == 1:
        return np.ones(1), np.ones(1)
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    angles = 0.25 * np.pi * (nodes + 1.0)
    weights = weights * np.cos(angles) ** (p - 2)
    return np.sin(angles), weights / weights.sum()


LAWS = {median_regression.__name__: MedianLaw}
"""Class of the law of each generator; its parameters are true weights and noise."""


RULES = ("pure", "approximate", "all")
DELTA = 1e-8
MU = 0.19606656
"""Parameter mu of Gaussian differential privacy for epsilon = 1 at `DELTA`."""


def hard_mean(
    seed: int,
    n: int = 1000,
    p: int = 1000,
    nonzeros: int = 8,
    blocks: int | str = "approximate",
) -> tuple[csc_array, Array]:
    """Draw records of norm 1 on disjoint blocks of coordinates.

    Record i has entries +-1 / sqrt(s) on block i mod K. All records of a block have the
    same signs, so the mean has K s entries of size 1 / (K sqrt(s)).

    Parameters
    ----------
    seed : int
        Seed of the generator of the signs.
    n, p : int
        Numbers of records and coordinates.
    nonzeros : int
        s, the number of coordinates of a block, and of non-zeros in the bounds.
    blocks : int, 'pure', 'approximate' or 'all'
        K, the number of blocks, or a rule for it. The rules ``pure`` and
        ``approximate`` give n / (s log p) and n / sqrt(s log(1 / delta)), up to the
        limit p / s. Noise for epsilon = 1, delta = 1e-8 can then just hide the mean.
        The rule ``all`` gives p / s.

    Returns
    -------
    X : sparse array of shape (n, p)
    y : array of shape (n,)
        Zeros: there are no labels.

    References
    ----------
    Ghazi, Guzman, Kamath, Kumar, Manurangsi, "Differentially private optimization with
    sparse gradients", NeurIPS 2024, lower bounds of section 4.
    """
    blocks = _block_count(n, p, nonzeros, blocks)
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], (blocks, nonzeros))
    own = np.arange(n) % blocks
    columns = own[:, None] * nonzeros + np.arange(nonzeros)
    values = signs[own] / math.sqrt(nonzeros)
    rows = np.repeat(np.arange(n), nonzeros)
    X = csc_array((values.ravel(), (rows, columns.ravel())), shape=(n, p))
    return X, np.zeros(n)


def linear_hard(
    seed: int, n: int = 1000, p: int = 1000, nonzeros: int = 8, blocks: int = 0
) -> tuple[csc_array, Array]:
    """Draw records as `hard_mean` does, with labels 1, for a linear loss on a ball.

    F(w) = -<mean, w> over the unit ball has the minimum -norm2(mean), at mean /
    norm2(mean), whose non-zero entries are of equal size. Noise on many coordinates
    takes a share of the norm from these entries, and a projection does not restore it.

    Parameters
    ----------
    seed, n, p, nonzeros
        As in `hard_mean`.
    blocks : int
        K, the number of blocks. The default 0 means 4 / lam^2, but at most p / s. The
        mean then has the length lam / 2, which is the worst case for output
        perturbation with the best ridge lam (``hard_ridge``).

    Returns
    -------
    X : sparse array of shape (n, p)
    y : array of shape (n,)
        Ones.
    """
    check_records(n, 1)
    check_count("p", p, 1)
    check_count("nonzeros", nonzeros, 1, p)
    if blocks == 0 and not isinstance(blocks, bool):
        ideal = round(4.0 / hard_ridge(n, p, nonzeros) ** 2)
        blocks = max(1, min(ideal, p // nonzeros))
    X, _ = hard_mean(seed, n, p, nonzeros, blocks)
    return X, np.ones(n)


def sparse_classification(
    seed: int, n: int = 1000, p: int = 200, nonzeros: int = 4, scale: float = 8.0
) -> tuple[csc_array, Array]:
    """Draw a linear classification of sparse records of norm 1, with logistic labels.

    Parameters
    ----------
    seed : int
        Seed of the generator; columns, signs, w and labels are drawn in this order.
    n, p : int
        Numbers of records and features.
    nonzeros : int
        s, the number of entries +-1 / sqrt(s) of a record, and of non-zeros in the
        bounds. Their columns are drawn without replacement.
    scale : float
        Standard deviation of the true weights.

    Returns
    -------
    X : sparse array of shape (n, p)
    y : array of shape (n,), -1 and +1
    """
    check_records(n, p)
    check_count("nonzeros", nonzeros, 1, p)
    check_numbers(scale=scale)
    rng = np.random.default_rng(seed)
    columns = np.argpartition(rng.random((n, p)), nonzeros - 1, axis=1)[:, :nonzeros]
    values = rng.choice([-1.0, 1.0], (n, nonzeros)) / math.sqrt(nonzeros)
    rows = np.repeat(np.arange(n), nonzeros)
    X = csc_array((values.ravel(), (rows, columns.ravel())), shape=(n, p))
    scores = X @ (scale * rng.standard_normal(p))
    return X, np.where(rng.logistic(size=n) < scores, 1.0, -1.0)


def one_hot_fields(
    seed: int,
    n: int = 1000,
    p: int = 400,
    nonzeros: int = 4,
    exponent: float = 1.5,
    scale: float = 8.0,
) -> tuple[csc_array, Array]:
    """Draw records with one word from each of s fields, where words follow Zipf's law.

    Parameters
    ----------
    seed : int
        Seed of the generator; words, w and labels are drawn in this order.
    n, p : int
        Numbers of records and features. A field has p / s words; s must divide p.
    nonzeros : int
        s; a record has the entry 1 / sqrt(s) at one word of each field.
    exponent : float
        The k-th word of a field has a probability proportional to k^-exponent (Zipf's
        law).
    scale : float
        Standard deviation of the true weights.

    Returns
    -------
    X : sparse array of shape (n, p)
    y : array of shape (n,), -1 and +1
        Labels of a logistic model.
    """
    check_records(n, p)
    check_count("nonzeros", nonzeros, 1, p)
    check_numbers(exponent=exponent, scale=scale)
    words, left = divmod(p, nonzeros)
    if left:
        raise UsageError(f"nonzeros={nonzeros}: must divide p={p}, a field for each")
    rng = np.random.default_rng(seed)
    # Relative to the first word: no exponent overflows.
    weights = np.arange(1.0, words + 1.0) ** -exponent
    chosen = rng.choice(words, (n, nonzeros), p=weights / weights.sum())
    columns = chosen + words * np.arange(nonzeros)
    values = np.full(columns.size, 1.0 / math.sqrt(nonzeros))
    rows = np.repeat(np.arange(n), nonzeros)
    X = csc_array((values, (rows, columns.ravel())), shape=(n, p))
    scores = X @ (scale * rng.standard_normal(p))
    return X, np.where(rng.logistic(size=n) < scores, 1.0, -1.0)


def hard_ridge(n: int, p: int, nonzeros: int, mu: float = MU) -> float:
    """Return the ridge that balances both errors of output perturbation on a ball.

    The method is Algorithm 6 of the paper, on the unit ball. With noise of standard
    deviation 2 / (lam n mu) the error is at most a / lam + lam / 2, where a = 2 sqrt(s)
    2 / (n mu) sqrt(2 log(2 p / 0.1)). The bound on the largest entry of the noise,
    which a contains, fails with probability 0.1. The bound on the error is least at
    lam = sqrt(2 a), where it is sqrt(2 a).

    Parameters
    ----------
    n, p : int
        Numbers of records and coordinates.
    nonzeros : int
        s, the number of non-zeros of a record.
    mu : float
        Parameter of Gaussian differential privacy.

    References
    ----------
    Ghazi et al., NeurIPS 2024, as in `hard_mean`.
    """
    widest = math.sqrt(2.0 * math.log(20.0 * p))
    return math.sqrt(2.0 * 2.0 * math.sqrt(nonzeros) * 2.0 / (n * mu) * widest)


def _block_count(n: int, p: int, nonzeros: int, blocks: int | str) -> int:
    """Return the number of blocks K, after checking all arguments."""
    check_records(n, 1)
    check_count("p", p, 1)
    check_count("nonzeros", nonzeros, 1, p)
    most = p // nonzeros
    rules = {
        "pure": n / nonzeros / math.log(max(p, 2)),
        "approximate": n / math.sqrt(-nonzeros * math.log(DELTA)),
        "all": most,
    }
    if isinstance(blocks, str) and blocks in rules:
        blocks = max(1, min(round(rules[blocks]), most))
    if isinstance(blocks, bool) or not isinstance(blocks, int):
        raise dataset_error("blocks", blocks, f"an integer, or {' or '.join(RULES)}")
    if not 1 <= blocks <= most:
        raise dataset_error("blocks", blocks, f"from 1 to p / nonzeros = {most}")
    return blocks
