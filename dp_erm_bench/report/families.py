"""Estimate which of two algorithms is better on other families of datasets.

A *line* consists of the runs of one algorithm. Runs that diverged or failed are *lost*.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from itertools import permutations
from types import MappingProxyType
from typing import NamedTuple
from zlib import crc32

import numpy as np

from dp_erm_bench.results.statistics import FLOOR, Array, quantile

NEAR = 1.1
"""Ratio of errors below which a line is better than, or nearly as good as, another."""

DRAWS = 4000

Problem = tuple[str, float]
Errors = Mapping[Problem, Mapping[str, Array]]


class Contrast(NamedTuple):
    """Comparison of a line A with a line B, on the problems on which both ran.

    Attributes
    ----------
    families, problems : int
        Numbers of families and of problems on which both lines ran.
    ratio : float
        Geometric mean of the ratio of A's median error to B's: over the problems of
        each family, then over families. It is infinite if on some problem half of the
        runs of A, but not of B, are lost. It is nan if on another problem the reverse
        happens.
    better, within : float
        Probabilities that the ratio is below 1, and below `NEAR`, on other families and
        with other runs. They are nan for a single family, which says nothing about
        other families.
    """

    families: int
    problems: int
    ratio: float
    better: float
    within: float


def compare_pairs(
    errors: Errors, families: Mapping[str, str] = MappingProxyType({})
) -> dict[tuple[str, str], Contrast]:
    """Return the comparison of each line A with every other line B, for the key (A, B).

    The probabilities come from a Bayesian bootstrap over families. The weights of
    families are drawn from the flat Dirichlet distribution, with the same draws for all
    pairs. The runs of each line on a problem are resampled with replacement, and the
    medians of the resampled runs are compared.

    For k families, the variance of a mean under these weights is (k - 1) / (k + 1) of
    the unbiased estimate. The deviations from the mean that the weights cause are
    therefore stretched: they are multiplied by sqrt((k + 1) / (k - 1)). Suppose that
    two lines are equal and that their differences by family are normal. Then P(better)
    > .95 for 7 % of the pairs with k = 8, 10 % with k = 4 and 13 % with k = 3. Ideally
    these shares would be 5 %. Without stretching they are 10, 14 and 19 %.

    A draw with a ratio of 1 counts one half in the probability of being better. So does
    a draw with an unknown ratio, which arises if the runs of both lines are lost, on
    different problems. Neither the choice of settings nor the dataset within its family
    is resampled.

    Parameters
    ----------
    errors : mapping of (problem, epsilon) to mapping of line to array
        Error of each run of the lines that ran, infinite if the run was lost. Errors
        below `FLOOR` count as `FLOOR`.
    families : mapping of str to str
        Family of each problem's data; a problem without one is its own family.

    References
    ----------
    Rubin, "The Bayesian bootstrap", Annals of Statistics 1981. Benavoli, Corani,
    Demsar, Zaffalon, "Time for a change: a tutorial for comparing multiple classifiers
    through Bayesian analysis", JMLR 2017, for probabilities in place of tests.
    """
    drawn = {
        problem: {
            line: _median_and_draws(runs, *problem, line) for line, runs in own.items()
        }
        for problem, own in errors.items()
    }
    weights = {
        name: _generator_of(name).exponential(size=DRAWS)
        for name in {families.get(problem, problem) for problem, _ in errors}
    }
    lines = sorted({line for own in errors.values() for line in own})
    found = {}
    for first, second in permutations(lines, 2):
        ratios: dict[str, list[Array]] = {}
        for (problem, _), own in drawn.items():
            if first in own and second in own:
                # If both lines are lost, they are equal.
                equal = own[first] == own[second]
                with np.errstate(invalid="ignore"):
                    ratio = np.where(equal, 0.0, own[first] - own[second])
                family = families.get(problem, problem)
                ratios.setdefault(family, []).append(ratio)
        if ratios:
            found[first, second] = _contrast_of_pair(ratios, weights)
    return found


def _contrast_of_pair(
    ratios: Mapping[str, list[Array]], weights: Mapping[str, Array]
) -> Contrast:
    """Return the comparison of two lines from the logs of their ratios by problem.

    `ratios` maps each family to the arrays of its problems. Each array has 1 + DRAWS
    logs: the first is that of all runs, the others are draws. Infinite logs are not
    weighted. The sum of infinite logs with opposite signs is nan.
    """
    k, count = len(ratios), sum(map(len, ratios.values()))
    with np.errstate(invalid="ignore"):
        means = np.array([np.mean(own, axis=0) for own in ratios.values()])
        logs = means.mean(axis=0)
    if k > 1:
        drawn = np.array([weights[name] for name in ratios])
        told = np.where(np.isfinite(means).all(axis=0), means, 0.0)[:, 1:]
        moved = ((drawn / drawn.sum(axis=0) - 1.0 / k) * told).sum(axis=0)
        logs[1:] += math.sqrt((k + 1.0) / (k - 1.0)) * moved
    ratio, logs = float(np.exp(logs[0])), logs[1:]
    if k < 2:
        return Contrast(1, count, ratio, math.nan, math.nan)
    better, within = (
        float(np.mean(np.where(np.isnan(logs) | (logs == end), 0.5, logs < end)))
        for end in (0.0, math.log(NEAR))
    )
    return Contrast(k, count, ratio, better, within)


def _median_and_draws(runs: Array, *names: Hashable) -> Array:
    """Return the log of the median, followed by logs of medians of resampled runs."""
    # Sorted, so that the draws do not depend on the order of the runs.
    ordered = np.sort(np.maximum(runs, FLOOR))
    n = len(ordered)
    chosen = _generator_of(*names).integers(n, size=(n, DRAWS))
    drawn = quantile(ordered[chosen], 0.5)
    return np.log(np.append(quantile(ordered, 0.5), drawn))


def _generator_of(*names: Hashable) -> np.random.Generator:
    """Return a random generator that is seeded by the names alone.

    The draws of a line therefore do not depend on other lines.
    """
    return np.random.default_rng(crc32("/".join(map(str, names)).encode()))
