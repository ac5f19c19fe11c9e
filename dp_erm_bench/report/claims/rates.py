"""Measures of final values along an axis: slopes, and what theory says of them."""

from __future__ import annotations

import math

import numpy as np

from dp_erm_bench.report.claims.lookup import Lookup, says
from dp_erm_bench.report.curves import report_runs
from dp_erm_bench.report.scaling import DRAWS

BETA = 0.1
"""Probability with which a draw may exceed the bound on its error."""


def _slope_interval(runs: Lookup, line: str, axis: str) -> tuple[float, float]:
    return runs.along(line, axis).interval


@says(
    "slope of the mean of {line} against {axis}, log-log least squares",
    interval=_slope_interval,
)
def slope(runs: Lookup, line: str, axis: str) -> float:
    """Return the slope of the final mean along an axis."""
    return runs.along(line, axis).slope


@says("slope against {axis}, {other} less {line}")
def slope_beyond(runs: Lookup, line: str, other: str, axis: str) -> float:
    """Return by how much one slope exceeds another."""
    first, second = (runs.along(name, axis) for name in (line, other))
    return second.slope - first.slope


@says("largest quotient of the means of {over} and {under} along {axis}")
def quotient_along(runs: Lookup, under: str, over: str, axis: str) -> float:
    """Return the largest mean of a line over that of another one along an axis."""
    return float(np.divide(*(runs.along(k, axis).mean for k in (over, under))).max())


@says("mean at the least {axis}, {over} / {under}")
def ratio_at_start(runs: Lookup, under: str, over: str, axis: str) -> float:
    """Return the mean at the start of the axis of one line divided by another's."""
    first, second = (runs.along(line, axis).mean[0] for line in (under, over))
    return float(second / first)


@says("mean at the largest {axis}, {over} / {under}")
def ratio_at_end(runs: Lookup, under: str, over: str, axis: str) -> float:
    """Return the mean at the end of the axis of one line divided by another's."""
    first, second = (runs.along(line, axis).mean[-1] for line in (under, over))
    return float(second / first)


@says("least {quantity} of {line} at the largest {axis}")
def least_at_end(runs: Lookup, line: str, axis: str, quantity: str) -> float:
    """Return the least value of a column at the end of the axis, over the runs."""
    return float(runs.along(line, axis).ends[-1].min())


@says("upper end of the 95 % bootstrap interval of the mean, {over} / {under}")
def ratio_at_end_limit(runs: Lookup, under: str, over: str, axis: str) -> float:
    """Return the upper end of the interval of `ratio_at_end`, runs drawn again."""
    rng = np.random.default_rng(0)
    means = [
        ends[rng.integers(ends.size, size=(DRAWS, ends.size))].mean(axis=1)
        for ends in (runs.along(name, axis).ends[-1] for name in (over, under))
    ]
    return float(np.quantile(means[0] / means[1], 0.975))


@says("part of the excess at 0 that {line} has lost at the largest {axis} (mean)")
def excess_lost(runs: Lookup, line: str, axis: str) -> float:
    """Return the part of the excess at w = 0 that is lost, whatever a run's length."""
    found = runs.along(line, axis)
    return 1.0 - float(found.mean[-1] / found.start[-1])


@says("largest mean of {line} / the bound of a draw with probability 0.9, over {axis}")
def share_of_mean_bound(runs: Lookup, line: str, axis: str, nonzeros: int) -> float:
    """Return the largest quotient of the projection mechanism's mean and bound."""
    found, rows = runs.along(line, axis), report_runs(runs.table, runs.figure, line)
    first = rows.iloc[0]
    at = [{"n": int(first["n"]), "p": int(first["p"]), axis: int(x)} for x in found.x]
    budget = float(first["epsilon"]), float(first["delta"])
    bounds = [mean_bound(**one, nonzeros=nonzeros, budget=budget) for one in at]
    return float((found.mean / bounds).max())


def mean_bound(n: int, p: int, nonzeros: int, budget: tuple[float, float]) -> float:
    """Return the bound on the error of mean_projection for L = 1, replace_one.

    The error is at most sqrt(2 sqrt(s) norm_inf(noise)), and at most norm2(noise), each
    of which exceeds its part of the bound with probability at most beta = 0.1. Of
    Gaussian noise the largest of p entries is at most sigma sqrt(2 log(2 p / beta)),
    the norm sigma (sqrt(p) + sqrt(2 log(1 / beta))); of Laplace noise b log(p / beta),
    and, by Chebyshev's inequality on squares of variance 20 b^4, b sqrt(2 p + sqrt(20 p
    / beta)) (Ghazi et al., NeurIPS 2024, lemma 3.1, with constants).
    """
    from dp_erm_bench.accounting.bounds import mu_for  # takes long to import

    epsilon, delta = budget
    if delta > 0.0:
        sigma = 2.0 / (n * mu_for(epsilon, delta))
        largest = sigma * math.sqrt(2.0 * math.log(2.0 * p / BETA))
        whole = sigma * (math.sqrt(p) + math.sqrt(-2.0 * math.log(BETA)))
    else:
        b = 2.0 * math.sqrt(nonzeros) / (n * epsilon)
        largest = b * math.log(p / BETA)
        whole = b * math.sqrt(2.0 * p + math.sqrt(20.0 * p / BETA))
    return min(math.sqrt(2.0 * math.sqrt(nonzeros) * largest), whole)


@says("largest mean excess risk of {line} / its bound, over {axis}")
def share_of_bound(
    runs: Lookup,
    line: str,
    axis: str,
    p: int,
    radius: float,
    epsilon: float,
    delta: float,
) -> float:
    """Return the largest quotient of one-pass SGD's mean and bound over n records."""
    from dp_erm_bench.audit.single_use import certified_scale, excess_bound

    found = runs.along(line, axis)
    records = [int(n) for n in found.x]
    scales = [certified_scale(n, epsilon, delta) for n in records]
    bounds = [
        excess_bound(n, p, radius, scale)
        for n, scale in zip(records, scales, strict=True)
    ]
    return float((found.mean / bounds).max())
