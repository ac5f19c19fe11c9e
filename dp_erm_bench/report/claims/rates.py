"""Measures of final values along an axis: slopes, and what theory says of them."""

from __future__ import annotations

import math

import numpy as np

from dp_erm_bench.report.claims.lookup import Lookup, says
from dp_erm_bench.report.curves import Array, report_runs
from dp_erm_bench.report.scaling import DRAWS


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
    ends = (runs.along(name, axis).ends[-1] for name in (over, under))
    first, second = (_resampled_means(one, rng) for one in ends)
    return float(np.quantile(first / second, 0.975))


def _resampled_means(ends: Array, rng: np.random.Generator) -> Array:
    return np.asarray(
        ends[rng.integers(ends.size, size=(DRAWS, ends.size))].mean(axis=1)
    )


@says("part of the excess at 0 that {line} has lost at the largest {axis} (mean)")
def excess_lost(runs: Lookup, line: str, axis: str) -> float:
    """Return the part of the excess at w = 0 that is lost, whatever a run's length."""
    found = runs.along(line, axis)
    return 1.0 - float(found.mean[-1] / found.start[-1])


@says("largest mean of {line} / the bound of its expectation, over {axis}: lower 95 %")
def share_of_mean_bound(runs: Lookup, line: str, axis: str, nonzeros: int) -> float:
    """Return the largest quotient of the projection mechanism's mean and bound.

    The lower ends of the means' 95 % bootstrap intervals are compared: with few
    coordinates the bound is attained but for 1 / (4 p), and a mean of finitely many
    runs is above it by chance.
    """
    found, rows = runs.along(line, axis), report_runs(runs.table, runs.figure, line)
    first = rows.iloc[0]
    at = [{"n": int(first["n"]), "p": int(first["p"]), axis: int(x)} for x in found.x]
    budget = float(first["epsilon"]), float(first["delta"])
    bounds = [mean_bound(**one, nonzeros=nonzeros, budget=budget) for one in at]
    rng = np.random.default_rng(0)
    low = [np.quantile(_resampled_means(ends, rng), 0.025) for ends in found.ends]
    return float(np.divide(low, bounds).max())


def mean_bound(n: int, p: int, nonzeros: int, budget: tuple[float, float]) -> float:
    """Return the bound on the expected error of mean_projection, L = 1, replace_one.

    The error is at most sqrt(2 sqrt(s) norm_inf(noise)), and at most norm2(noise);
    by Jensen's inequality so are the expectations with those of norm_inf and of norm2
    squared. The largest of p Gaussian entries has an expectation of at most sigma
    sqrt(2 log(2 p)), that of p Laplace entries is b (1 + 1/2 + ... + 1/p) <= b (1 + log
    p); the squares' sums are sigma^2 p and 2 b^2 p (Ghazi et al., NeurIPS 2024, lemma
    3.1, with constants).
    """
    from dp_erm_bench.accounting.bounds import mu_for  # takes long to import

    epsilon, delta = budget
    if delta > 0.0:
        sigma = 2.0 / (n * mu_for(epsilon, delta))
        largest = sigma * math.sqrt(2.0 * math.log(2.0 * p))
        whole = sigma * math.sqrt(p)
    else:
        b = 2.0 * math.sqrt(nonzeros) / (n * epsilon)
        largest, whole = b * (1.0 + math.log(p)), b * math.sqrt(2.0 * p)
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
