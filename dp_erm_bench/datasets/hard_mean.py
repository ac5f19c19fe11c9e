"""Sparse records whose mean is hard to estimate privately."""

import math

import numpy as np
from scipy.sparse import csc_array

from dp_erm_bench.datasets.base import Array
from dp_erm_bench.datasets.spec import refused
from dp_erm_bench.datasets.synthetic import check_count, check_records

RULES = ("pure", "approximate", "all")
DELTA = 1e-8


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
