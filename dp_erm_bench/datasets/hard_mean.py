"""Sparse records: whose mean, or linear minimum, is hard to estimate; with labels."""

import math

import numpy as np
from scipy.sparse import csc_array

from dp_erm_bench.datasets.base import Array
from dp_erm_bench.datasets.spec import refused
from dp_erm_bench.datasets.synthetic import check_count, check_numbers, check_records

RULES = ("pure", "approximate", "all")
DELTA = 1e-8
MU = 0.19606656
"""The Gaussian differential privacy of epsilon = 1 at that delta."""


def hard_mean(
    seed: int,
    n: int = 1000,
    p: int = 1000,
    nonzeros: int = 8,
    blocks: int | str = "approximate",
) -> tuple[csc_array, Array]:
    """Draw records of norm 1 on disjoint blocks of coordinates.

    Record i has entries +-1 / sqrt(s) on block i mod K. The signs belong to the block,
    so that the mean has K s entries of size 1 / (K sqrt(s)).

    Parameters
    ----------
    seed : int
        Of the generator of the signs.
    n, p : int
        Records and coordinates.
    nonzeros : int
        s, the coordinates of a block; that of the bounds, too.
    blocks : int, 'pure', 'approximate' or 'all'
        K; by the rules n / (s log p) and n / sqrt(s log(1 / delta)), where the mean is
        as long as what epsilon = 1, delta = 1e-8 hides, and at most p / s; or p / s.

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
    blocks = _blocks(n, p, nonzeros, blocks)
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
    """Draw records of `hard_mean` and labels of 1, for the loss linear on a ball.

    F(w) = -<mean, w> over the unit ball has the minimum -norm2(mean), at mean /
    norm2(mean), whose entries are equal: the many coordinates of the noise take from
    them what a projection does not give back.

    Parameters
    ----------
    seed, n, p, nonzeros
        As of `hard_mean`.
    blocks : int
        K. By default (0) 4 / lam^2, and at most p / s: the mean is lam / 2 long, the
        worst there is for output perturbation by the best ridge lam (``hard_ridge``).

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
        Of the generator; the order of the draws is columns, signs, w, labels.
    n, p : int
        Records and features.
    nonzeros : int
        Entries +-1 / sqrt(s) of a record, on columns drawn without replacement; s of
        the bounds, too.
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


def hard_ridge(n: int, p: int, nonzeros: int, mu: float = MU) -> float:
    """Return the ridge that balances both errors of Algorithm 6 on the unit ball.

    With noise of deviation 2 / (lam n mu) the error is at most a / lam + lam / 2, a =
    2 sqrt(s) 2 / (n mu) sqrt(2 log(2 p / 0.1)): the bound on its largest entry fails
    with probability 0.1. It is least at lam = sqrt(2 a), and sqrt(2 a) there.
    """
    widest = math.sqrt(2.0 * math.log(20.0 * p))
    return math.sqrt(2.0 * 2.0 * math.sqrt(nonzeros) * 2.0 / (n * mu) * widest)


def _blocks(n: int, p: int, nonzeros: int, blocks: int | str) -> int:
    """Return K, everything being checked."""
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
        raise refused("blocks", blocks, f"an integer, or {' or '.join(RULES)}")
    if not 1 <= blocks <= most:
        raise refused("blocks", blocks, f"from 1 to p / nonzeros = {most}")
    return blocks
