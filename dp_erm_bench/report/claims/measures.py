"""The measures of claims: one number each, from runs, from studies or from noise.

The keyword parameters of a measure are the keys of a claim that it reads. What is heavy
to import is imported within: claims are checked before anything runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dp_erm_bench.report.claims.lookup import MEASURES as MEASURES
from dp_erm_bench.report.claims.lookup import NOISE, NOTHING, Lookup, says
from dp_erm_bench.report.curves import Array, LineErrors, Missing, report_runs
from dp_erm_bench.report.figure import figures_of
from dp_erm_bench.report.panels import decoded
from dp_erm_bench.report.scaling import DRAWS
from dp_erm_bench.report.scaling import slope as slope_of
from dp_erm_bench.results.statistics import FLOOR

if TYPE_CHECKING:
    from dp_erm_bench.report.studies import Structured


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
    from dp_erm_bench.audit.papers import certified_scale, excess_bound

    found = runs.along(line, axis)
    records = [int(n) for n in found.x]
    scales = [certified_scale(n, epsilon, delta) for n in records]
    bounds = [
        excess_bound(n, p, radius, scale)
        for n, scale in zip(records, scales, strict=True)
    ]
    return float((found.mean / bounds).max())


def _drawn(study: Lookup) -> Structured:
    """Return the figure that a claim names."""
    from dp_erm_bench.report.studies import Structured

    for one in figures_of(study.config):
        if isinstance(one, Structured) and one.name == study.figure:
            return one
    raise Missing(f"no figure {study.figure} of the kind structured")


@says("|Monte Carlo less closed form| / its standard error, the largest", NOTHING)
def width_error(study: Lookup) -> float:
    """Return the largest error of a figure's Gaussian widths, in standard errors."""
    from dp_erm_bench.audit import papers

    drawn = _drawn(study)
    return max(papers.width_error(k, p) for k in drawn.norms for p in drawn.values)


@says("slope of the width of {norm} from p = {p} on, log-log least squares", NOTHING)
def width_slope(study: Lookup, norm: str, p: int) -> float:
    """Return the slope of a Gaussian width in the number of coordinates."""
    from dp_erm_bench.audit import papers

    along = np.array([one for one in _drawn(study).values if one >= p])
    widths = np.array([papers.width(norm, one) for one in along.tolist()])
    return slope_of(along.astype(np.float64), widths)


@says("epsilon(1e-5) of {factor} times the printed noise, n = {n}", NOTHING)
def printed_output_epsilon(_: Lookup, n: int, factor: float) -> float:
    """Return the true epsilon of printed output noise on two neighbours."""
    from dp_erm_bench.audit import papers

    return papers.printed_output_epsilon(n, factor)


@says("least quotient of the epsilons of printed noise at successive n", NOTHING)
def printed_output_growth(study: Lookup) -> float:
    """Return the least factor by which the true epsilon grows along n."""
    from dp_erm_bench.audit import papers

    along = _drawn(study).values
    found = np.array([papers.printed_output_epsilon(n) for n in along])
    return float((found[1:] / found[:-1]).min())


@says("largest epsilon(1e-5) of our noise with a ridge, over n", NOTHING)
def ridge_output_epsilon(study: Lookup) -> float:
    """Return the largest true epsilon of our output noise on the same neighbours."""
    from dp_erm_bench.audit import papers
    from dp_erm_bench.report.studies import RIDGE

    along = _drawn(study).values
    return max(papers.ridge_output_epsilon(n, RIDGE) for n in along)


@says("exact epsilon(1e-5) of {noise} noise, C = {weight}", NOTHING)
def noisy_choice_epsilon(_: Lookup, weight: float, noise: str) -> float:
    """Return the exact epsilon of a noisy choice among two vertices."""
    from dp_erm_bench.audit import papers

    return papers.selection_epsilon(weight, noise)


@says("slope of the least gap so far against T, {norm}", NOTHING)
def gap_slope(study: Lookup, norm: str) -> float:
    """Return the slope of Frank-Wolfe's gap with the step 2/(t+2)."""
    from dp_erm_bench.audit import papers

    along = np.array(_drawn(study).values)
    gaps = papers.dual_gaps(norm, "2/(t+2)", int(along.max()))
    least = np.minimum.accumulate(gaps)[along - 1]
    return slope_of(along.astype(np.float64), least)


@says("least gap of the step 1/(t+2) / that of 2/(t+2), {norm}, most steps", NOTHING)
def gap_ratio(study: Lookup, norm: str) -> float:
    """Return how far the printed step is behind at the end of the figure."""
    from dp_erm_bench.audit import papers

    steps = max(_drawn(study).values)
    usual, printed = (papers.dual_gaps(norm, rule, steps) for rule in papers.STEPS)
    return float(printed.min() / usual.min())


@says("largest entry of the difference, through the shifted {shifted}", NOTHING)
def shifted_dual(_: Lookup, shifted: str) -> float:
    """Return how far a reading of Proposition 2 is from the perturbed minimiser."""
    from dp_erm_bench.audit import papers

    return dict(zip(("set", "point"), papers.shifted_dual(), strict=True))[shifted]


@says("largest mean excess risk of {line} / its bound, over {axis}")
def share_of_output_bound(
    runs: Lookup,
    line: str,
    axis: str,
    p: int,
    kappa: float,
    radius: float,
    epsilon: float,
    delta: float,
) -> float:
    """Return the largest quotient of output perturbation's mean and bound over n."""
    from dp_erm_bench.audit import papers

    found, budget = runs.along(line, axis), (epsilon, delta)
    bounds = [
        papers.output_bound(line, int(n), p, kappa, radius, budget) for n in found.x
    ]
    return float((found.mean / bounds).max())


@says("Spearman correlation of widths and mean excess risks at the largest {axis}")
def width_order(runs: Lookup, axis: str, p: int) -> float:
    """Return the rank correlation of Gaussian widths and excess risks of all norms."""
    from scipy.stats import spearmanr

    from dp_erm_bench.audit import papers

    ends = [runs.along(name, axis).mean[-1] for name in papers.NAMES]
    widths = [papers.width(name, p) for name in papers.NAMES]
    return float(spearmanr(widths, ends).statistic)


def _final(line: LineErrors, of: str = "mean") -> float:
    """Return the mean, low or high at the last checkpoint, at least `FLOOR`."""
    return max(float(getattr(line, of)[-1]), FLOOR)


def _quotient(numerator: float, denominator: float) -> float:
    """Divide; a diverged denominator makes the quotient meaningless."""
    return numerator / denominator if math.isfinite(denominator) else math.nan


@says("relative error at w = 0")
def error_at_zero(runs: Lookup, line: str) -> float:
    """Return the relative error of the start of a line."""
    return float(runs(line).mean[0])


@says("mean final error, {over} / {under}")
def ratio(runs: Lookup, under: str, over: str) -> float:
    """Return the mean final error of one line divided by that of another."""
    return _quotient(_final(runs(over)), _final(runs(under)))


@says("mean final error, {under} / {over}")
def inverse_ratio(runs: Lookup, under: str, over: str) -> float:
    """Return `ratio` the other way round."""
    return ratio(runs, over, under)


@says("lowest final error of {over} / highest of {under} (above 1: disjoint)")
def band_gap(runs: Lookup, under: str, over: str) -> float:
    """Return the factor between the band above and the band below."""
    return _quotient(_final(runs(over), "low"), _final(runs(under), "high"))


@says("factor between the final bands of {line} and {other} (at most 1: overlap)")
def band_separation(runs: Lookup, line: str, other: str) -> float:
    """Return the factor between two bands, whichever is above."""
    return float(np.fmax(band_gap(runs, other, line), band_gap(runs, line, other)))


@says("part of the mean decrease of {line} after {iterations} iterations")
def share_of_progress(runs: Lookup, line: str, iterations: float) -> float:
    """Return the part of the final decrease reached after some passes."""
    run = runs(line)
    start, end = float(run.mean[0]), float(run.mean[-1])
    early = float(run.mean_at(iterations))
    return (start - early) / (start - end) if start > end else math.nan


@says("part of the error at 0 that {line} loses in {passes} passes (mean)")
def loss_of_error(runs: Lookup, line: str, passes: float) -> float:
    """Return the part of the error at 0 that is lost after some passes."""
    run = runs(line)
    return 1.0 - float(run.mean_at(passes)) / float(run.mean[0])


@says("mean final error of {line} / error at 0")
def share_left(runs: Lookup, line: str) -> float:
    """Return the final error over the error at 0."""
    run = runs(line)
    return float(run.mean[-1]) / float(run.mean[0])


@says("part of the error at 0 that {line} has lost at its end (mean)")
def share_lost(runs: Lookup, line: str) -> float:
    """Return the part of the error at 0 that is lost at the end."""
    return 1.0 - share_left(runs, line)


@says("mean final error of {line} / highest final error of {other}")
def ratio_to_band_top(runs: Lookup, line: str, other: str) -> float:
    """Return the mean end of one line over the highest end of another."""
    return _quotient(_final(runs(line)), _final(runs(other), "high"))


@says("most non-zeros of {line} beyond the iterations made, over all checkpoints")
def excess_nonzeros(runs: Lookup, line: str) -> float:
    """Return the largest excess of the non-zeros over the passes."""
    run = runs(line)
    return float(np.max(run.nnz - run.passes))


@says("passes of {line} to {factor} x the mean final error of {other} / its passes")
def share_of_passes(runs: Lookup, line: str, other: str, factor: float) -> float:
    """Return the part of another line's passes after which one is as good; or inf."""
    run, slower = runs(line), runs(other)
    reached = np.flatnonzero(run.mean <= factor * _final(slower))
    if not reached.size:
        return math.inf
    return float(run.passes[reached[0]] / slower.passes[-1])


@says("mean final error of {line} / the authors' last point")
def ratio_to_authors_end(runs: Lookup, line: str, curve: str) -> float:
    """Return the mean final error divided by that of the authors' figure."""
    return _final(runs(line)) / float(decoded(runs.figure)[curve][0][-1, 1])


@says("largest mean error of {line} / the authors' error over their points")
def worst_ratio_to_authors(runs: Lookup, line: str, curve: str) -> float:
    """Return the largest ratio of mean error to that of the authors' figure."""
    passes, errors = decoded(runs.figure)[curve][0].T
    return float((runs(line).mean_at(passes) / errors).max())


@says("epsilon certified for {line}")
def certified_epsilon(runs: Lookup, line: str) -> float:
    """Return the epsilon that is proved for a line's noise."""
    value = runs(line).certified
    if math.isnan(value):
        raise Missing("no accountant certifies this noise")
    return value


@says("slope of the noise of {line} against p, log-log", NOISE)
def noise_slope(noise: Lookup, line: str) -> float:
    """Return the slope of the noise's deviation against the number of features."""
    from dp_erm_bench.report.scaling import slope

    figure = noise.noise
    return slope(np.array(figure.values, float), figure.along(line))


@says("scale of the noise of {line} at T = {n_iter}, n = {n}, in units of L_1", NOISE)
def selection_scale(noise: Lookup, line: str, n_iter: int) -> float:
    """Return the scale of the noise of some private selections."""
    return noise.noise.calibrated(line, n_iter).scale


@says("scale of the noise of {under} / that of {over} at T = {n_iter}, n = {n}", NOISE)
def selection_quotient(noise: Lookup, under: str, over: str, n_iter: int) -> float:
    """Return the scale of one noise divided by that of another."""
    return selection_scale(noise, under, n_iter) / selection_scale(noise, over, n_iter)


@says("epsilon certified for the noise of {line} at T = {n_iter}, n = {n}", NOISE)
def selection_epsilon(noise: Lookup, line: str, n_iter: int) -> float:
    """Return the epsilon that is proved for the noise of some selections."""
    return noise.noise.calibrated(line, n_iter).epsilon_certified


@says(
    "delta(1) / delta, T = {n_iter}, {rivals} coordinates of {kappa} x the L", NOTHING
)
def violated(_: Lookup, kappa: float, rivals: int, n_iter: int, delta: float) -> float:
    """Return delta(1) / delta of the printed greedy noise on unequal coordinates."""
    from dp_erm_bench.audit.papers import Instance, violation

    return violation(Instance(kappa, rivals, n_iter, delta))


@says("|mean of tau / n less log 2|, n = {n}, {seeds} passes", NOTHING)
def length_of_a_pass(_: Lookup, n: int, seeds: int) -> float:
    """Return how far the mean steps of one-pass SGD are from n log 2, over n."""
    from dp_erm_bench.audit.papers import steps_over_n

    return abs(float(steps_over_n(n, seeds).mean()) - math.log(2.0))


@says("share of passes of more than 2 n steps, n = {n}, {seeds} passes", NOTHING)
def long_passes(_: Lookup, n: int, seeds: int) -> float:
    """Return the share of passes of one-pass SGD that are longer than proved."""
    from dp_erm_bench.audit.papers import steps_over_n

    return float((steps_over_n(n, seeds) > 2.0).mean())


@says("upper 95 % limit of the estimator's bias / the bias of a batch of 2", NOTHING)
def share_of_bias(_: Lookup) -> float:
    """Return the upper limit of bias-reduced SGD's bias over a batch of two's."""
    from dp_erm_bench.audit.papers import batch_bias, estimator_bias

    return estimator_bias()[1] / batch_bias(2)


@says("mean steps to the printed end, n = {n}, {seeds} runs", NOTHING)
def mean_steps(_: Lookup, n: int, delta: float, seeds: int) -> float:
    """Return the mean steps of bias-reduced SGD as printed at epsilon = 1."""
    from dp_erm_bench.audit.papers import stopping_times

    return float(stopping_times(n, 1.0, delta, seeds).mean())


@says("{column} of the row of the claim", NOTHING)
def cell(study: Lookup, column: str, where: Mapping[str, Any]) -> float:
    """Return the column of the one row with given values of other columns."""
    rows = study.table
    for name, value in where.items():
        if name not in rows:
            raise Missing(f"the table has no column {name}")
        number = isinstance(value, int | float)
        equal = np.isclose(rows[name].astype("float64"), value) if number else None
        rows = rows[rows[name] == value if equal is None else equal]
    if len(rows) != 1:
        cells = ", ".join(f"{name}={value}" for name, value in where.items())
        raise Missing(f"{len(rows) or 'no'} rows with {cells}")
    return float(rows[column].iloc[0])


@says("audits whose profile test refutes the claim", NOTHING)
def violations(study: Lookup) -> float:
    """Return the number of audits that refute their guarantee."""
    from dp_erm_bench.audit.profile import VIOLATION

    if not len(study.table):
        raise Missing("no audit is recorded")
    return float((study.table["verdict"] == VIOLATION).sum())


@says("nothing yet", NOTHING)
def later(_: Lookup, reason: str) -> float:
    """Refuse: the panel belongs to a later version."""
    raise Missing(f"later: {reason}")
