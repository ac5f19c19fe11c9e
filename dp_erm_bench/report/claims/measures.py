"""The measures of claims: a number with its interval, from runs, studies or noise.

The keyword parameters of a measure are the keys of a claim that it reads. A measure is
a number in which nothing is random, an `Estimate`, or `Evidence` where it is decided
elsewhere than at the end. What is heavy to import is imported within: claims are
checked before anything runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dp_erm_bench.report.claims.lookup import MEASURES as MEASURES
from dp_erm_bench.report.claims.lookup import (
    NOISE,
    NOTHING,
    WRONG,
    Evidence,
    Lookup,
    bounded_exp,
    says,
)
from dp_erm_bench.report.curves import Array, Finals, Missing, report_runs
from dp_erm_bench.report.figure import figures_of, panels_of
from dp_erm_bench.report.lines import sources_of
from dp_erm_bench.report.panels import decoded_curves
from dp_erm_bench.report.scaling import Scaling, slope_weights
from dp_erm_bench.report.scaling import log_slope as slope_of
from dp_erm_bench.results.statistics import (
    LIKELY,
    Estimate,
    estimate_of_largest,
    estimate_of_quantiles,
    estimate_sum,
    unknown_estimate,
)

if TYPE_CHECKING:
    from dp_erm_bench.report.studies import Structured

LOW, HIGH = 0.2, 0.8
"""Ends of a band: of 20 runs an interval of these can be told, of the extremes none."""


def _slope_of_average(runs: Lookup, lines: Mapping[str, float], axis: str) -> Estimate:
    """Return a weighted sum of slopes of averages along an axis."""
    found = {line: runs.along(line, axis) for line in lines}
    points: dict[float, list[tuple[Finals, float]]] = {}
    for line, one in found.items():
        if len(one.x) < 2:
            raise Missing(f"{line} has only one value of {axis}")
        for place, weight in enumerate(slope_weights(one.x)):
            pair = one.finals(place), lines[line] * float(weight)
            points.setdefault(float(one.x[place]), []).append(pair)
    return runs.logs([*points.values()])


@says("slope of the {statistic} of {line} against {axis}, log-log least squares")
def slope(runs: Lookup, line: str, axis: str) -> Estimate:
    """Return the slope of the final average along an axis."""
    return _slope_of_average(runs, {line: 1.0}, axis)


@says("slope of the {statistic} of {line} against {axis}, log-log least squares")
def slope_of_one_pass(
    runs: Lookup, line: str, axis: str, p: int, radius: float
) -> Evidence:
    """Return the slope of one-pass SGD's excess, and its bound at the last point."""
    found = runs.along(line, axis)
    bound = _one_pass_bound(runs, line, float(found.x[-1]), p, radius)
    return Evidence(_slope_of_average(runs, {line: 1.0}, axis), bound=bound)


@says("slope against {axis}, {other} less {line}")
def slope_beyond(runs: Lookup, line: str, other: str, axis: str) -> Estimate:
    """Return by how much one slope exceeds another."""
    return _slope_of_average(runs, {line: -1.0, other: 1.0}, axis)


def _pairs_of_lines(
    runs: Lookup, over: str, under: str, axis: str
) -> list[tuple[float, Finals, Finals]]:
    """Return the values of two lines at all points that both have."""
    first, second = (runs.along(line, axis) for line in (over, under))
    at = {float(x): second.finals(place) for place, x in enumerate(second.x)}
    pairs = [
        (float(x), first.finals(place), at[float(x)])
        for place, x in enumerate(first.x)
        if float(x) in at
    ]
    if not pairs:
        raise Missing(f"{over} and {under} have no value of {axis} in common")
    return pairs


@says("largest quotient of the {statistic}s of {over} and {under} along {axis}")
def quotient_along(runs: Lookup, under: str, over: str, axis: str) -> Evidence:
    """Return the largest average of a line over that of another one along an axis."""
    pairs = _pairs_of_lines(runs, over, under, axis)

    def make(share: float) -> list[Estimate]:
        return [runs.ratio(first, second, share) for _, first, second in pairs]

    return _largest_of(make, [x for x, _, _ in pairs])


def _largest_of(
    make: Callable[[float], Sequence[Estimate]],
    x: Sequence[float],
    bounds: Sequence[float] = (),
) -> Evidence:
    """Return the largest of some numbers; it is decided where that is."""
    place = int(np.argmax([one.point for one in make(LIKELY)]))
    bound = bounds[place] if bounds else math.nan
    return Evidence(estimate_of_largest(make), float(x[place]), bound)


@says("{statistic} at the least {axis}, {over} / {under}")
def ratio_at_start(runs: Lookup, under: str, over: str, axis: str) -> Evidence:
    """Return the average at the start of the axis of one line over another's."""
    x, first, second = _pairs_of_lines(runs, over, under, axis)[0]
    return Evidence(runs.ratio(first, second), x)


@says("{statistic} at the largest {axis}, {over} / {under}")
def ratio_at_end(runs: Lookup, under: str, over: str, axis: str) -> Evidence:
    """Return the average at the end of the axis of one line over another's."""
    x, first, second = _pairs_of_lines(runs, over, under, axis)[-1]
    return Evidence(runs.ratio(first, second), x)


@says("{statistic} {quantity} of {line} at the largest {axis}")
def average_at_end(runs: Lookup, line: str, axis: str, quantity: str) -> Estimate:
    """Return the average of a column at the end of the axis."""
    return runs.average(runs.along(line, axis).finals(-1))


@says("part of the excess at 0 {line} has lost at the largest {axis} ({statistic})")
def excess_lost(runs: Lookup, line: str, axis: str) -> Estimate:
    """Return the part of the excess at w = 0 that is lost, whatever a run's length."""
    runs.asked.append(runs.along(line, axis).finals(-1))
    return runs.beside_zero(line, None)[0].map(_complement)


def _complement(share: float) -> float:
    return 1.0 - share


def _share_of_bounds(runs: Lookup, found: Scaling, bounds: Sequence[float]) -> Evidence:
    """Return the largest quotient of averages and the bounds at the points."""

    def make(share: float) -> list[Estimate]:
        return [
            runs.average(found.finals(place), share).over(bound)
            for place, bound in enumerate(bounds)
        ]

    return _largest_of(make, found.x.tolist(), bounds)


@says("largest {statistic} of {line} / the bound of its expectation, over {axis}")
def share_of_mean_bound(runs: Lookup, line: str, axis: str, nonzeros: int) -> Evidence:
    """Return the largest quotient of the projection mechanism's mean and bound.

    With few coordinates the bound is attained but for 1 / (4 p): a mean of finitely
    many runs is above it by chance, which the interval tells.
    """
    found, rows = runs.along(line, axis), report_runs(runs.table, runs.figure, line)
    first = rows.iloc[0]
    at = [{"n": int(first["n"]), "p": int(first["p"]), axis: int(x)} for x in found.x]
    budget = float(first["epsilon"]), float(first["delta"])
    bounds = [mean_bound(**one, nonzeros=nonzeros, budget=budget) for one in at]
    return _share_of_bounds(runs, found, bounds)


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


@says("largest {statistic} excess risk of {line} / its bound, over {axis}")
def share_of_bound(
    runs: Lookup, line: str, axis: str, p: int, radius: float
) -> Evidence:
    """Return the largest quotient of one-pass SGD's mean and bound over n records."""
    found = runs.along(line, axis)
    bounds = [_one_pass_bound(runs, line, n, p, radius) for n in found.x.tolist()]
    return _share_of_bounds(runs, found, bounds)


def _one_pass_bound(runs: Lookup, line: str, n: float, p: int, radius: float) -> float:
    """Return the bound on one-pass SGD's excess at the noise of its runs."""
    from dp_erm_bench.audit.papers import certified_scale, excess_bound

    table, panels = runs.table, panels_of({*runs.table["panel"]}, runs.figure, "n")
    own = table["panel"].isin(panels) & table["line"].eq(line) & table["n"].eq(n)
    first = table[own].iloc[0]
    budget = float(first["epsilon"]), float(first["delta"])
    # The table says behind it what is not proved.
    how = str(first["calibration"]).partition(" (")[0]
    scale = certified_scale(int(n), *budget, calibration=how)
    return excess_bound(int(n), p, radius, scale)


def _named_figure(study: Lookup) -> Structured:
    """Return the figure that a claim names."""
    from dp_erm_bench.report.studies import Structured

    drawn = sources_of(figures_of(study.config), Structured)
    if study.figure not in drawn:
        raise Missing(f"no figure {study.figure} of structured norms")
    return drawn[study.figure]


@says("Monte Carlo width / closed form, the furthest from 1: distance", NOTHING)
def width_error(study: Lookup) -> Estimate:
    """Return the largest relative error of a figure's Gaussian widths."""
    from scipy.special import ndtri

    from dp_erm_bench.audit import papers

    drawn = _named_figure(study)
    found = [papers.width_quotient(k, p) for k in drawn.norms for p in drawn.values]

    def make(share: float) -> list[Estimate]:
        wide = float(ndtri(0.5 + share / 2))
        return [_distance_within(abs(x - 1.0), wide * error) for x, error in found]

    return estimate_of_largest(make)


def _distance_within(length: float, error: float) -> Estimate:
    """Return a length that is known up to an error."""
    return Estimate(length, max(length - error, 0.0), length + error)


@says("slope of the width of {norm} from p = {p} on, log-log least squares", NOTHING)
def width_slope(study: Lookup, norm: str, p: int) -> float:
    """Return the slope of a Gaussian width in the number of coordinates."""
    from dp_erm_bench.audit import papers

    along = np.array([one for one in _named_figure(study).values if one >= p])
    widths = np.array([papers.gaussian_width(norm, one) for one in along.tolist()])
    return slope_of(along.astype(np.float64), widths)


@says("epsilon(1e-5) of {factor} times the printed noise, n = {n}", NOTHING)
def printed_output_epsilon(_: Lookup, n: int, factor: float) -> float:
    """Return the true epsilon of printed output noise on two neighbours."""
    from dp_erm_bench.audit import papers

    return papers.epsilon_of_printed_output(n, factor)


@says("least quotient of the epsilons of printed noise at successive n", NOTHING)
def printed_output_growth(study: Lookup) -> float:
    """Return the least factor by which the true epsilon grows along n."""
    from dp_erm_bench.audit import papers

    along = _named_figure(study).values
    found = np.array([papers.epsilon_of_printed_output(n) for n in along])
    return float((found[1:] / found[:-1]).min())


@says("largest epsilon(1e-5) of our noise with a ridge, over n", NOTHING)
def ridge_output_epsilon(study: Lookup) -> float:
    """Return the largest true epsilon of our output noise on the same neighbours."""
    from dp_erm_bench.audit import papers
    from dp_erm_bench.report.studies import RIDGE

    along = _named_figure(study).values
    return max(papers.epsilon_of_ridge_output(n, RIDGE) for n in along)


@says("exact epsilon(1e-5) of {noise} noise, C = {weight}", NOTHING)
def noisy_choice_epsilon(_: Lookup, weight: float, noise: str) -> float:
    """Return the exact epsilon of a noisy choice among two vertices."""
    from dp_erm_bench.audit import papers

    return papers.epsilon_of_selection(weight, noise)


@says("slope of the least gap so far against T, {norm}", NOTHING)
def gap_slope(study: Lookup, norm: str) -> float:
    """Return the slope of Frank-Wolfe's gap with the step 2/(t+2)."""
    from dp_erm_bench.audit import papers

    along = np.array(_named_figure(study).values)
    gaps = papers.dual_gaps(norm, "2/(t+2)", int(along.max()))
    least = np.minimum.accumulate(gaps)[along - 1]
    return slope_of(along.astype(np.float64), least)


@says("least gap of the step 1/(t+2) / that of 2/(t+2), {norm}, most steps", NOTHING)
def gap_ratio(study: Lookup, norm: str) -> float:
    """Return how far the printed step is behind at the end of the figure."""
    from dp_erm_bench.audit import papers

    steps = max(_named_figure(study).values)
    usual, printed = (papers.dual_gaps(norm, rule, steps) for rule in papers.STEPS)
    return float(printed.min() / usual.min())


@says("largest entry of the difference, through the shifted {shifted}", NOTHING)
def shifted_dual(_: Lookup, shifted: str) -> float:
    """Return how far a reading of Proposition 2 is from the perturbed minimiser."""
    from dp_erm_bench.audit import papers

    return dict(zip(("set", "point"), papers.readings_of_shifted_dual(), strict=True))[
        shifted
    ]


@says("largest {statistic} excess risk of {line} / its bound, over {axis}")
def share_of_output_bound(
    runs: Lookup,
    line: str,
    axis: str,
    p: int,
    kappa: float,
    radius: float,
    epsilon: float,
    delta: float,
) -> Evidence:
    """Return the largest quotient of output perturbation's mean and bound over n."""
    from dp_erm_bench.audit import papers

    found, budget = runs.along(line, axis), (epsilon, delta)
    bounds = [
        papers.output_bound(line, int(n), p, kappa, radius, budget) for n in found.x
    ]
    return _share_of_bounds(runs, found, bounds)


@says("relative error at w = 0", tuned=False)
def error_at_zero(runs: Lookup, line: str) -> float | Estimate:
    """Return the relative error of the start of a line."""
    run = runs(line)
    start = run.errors[:, 0]
    if (start == start[0]).all():
        return float(start[0])
    return runs.average(Finals(start, run.finals().sets))


@says("{statistic} final error, {over} / {under}")
def ratio(runs: Lookup, under: str, over: str) -> Estimate:
    """Return the average final error of one line divided by that of another."""
    return runs.ratio(runs.finals(over), runs.finals(under))


@says("{statistic} final error, {under} / {over}")
def inverse_ratio(runs: Lookup, under: str, over: str) -> Estimate:
    """Return `ratio` the other way round."""
    return runs.ratio(runs.finals(under), runs.finals(over))


@says(
    "seconds of {over} / {under} until their {statistic} error stays within {factor} "
    "of that at their end"
)
def quotient_of_seconds(runs: Lookup, under: str, over: str, factor: float) -> Estimate:
    """Return the time of one line to about its own end over that of another.

    The time is that of the first checkpoint from which on the average error is at most
    ``factor`` times the final one. Which one that is is given, like the settings: the
    interval is of its times.
    """
    first, second = (_seconds_to_end(runs, line, factor) for line in (over, under))
    return runs.ratio(first, second)


def _seconds_to_end(runs: Lookup, line: str, factor: float) -> Finals:
    """Return the seconds of all runs at the checkpoint at which a line has arrived."""
    run = runs(line)
    average = np.median if runs.statistic == "median" else np.mean
    errors = average(run.errors, axis=0)
    if not math.isfinite(errors[-1]):
        raise Missing(f"{line}: runs were lost, so that it has no end to come near to")
    place = len(errors) - int(
        np.argmin([*(errors <= factor * errors[-1])[::-1], False])
    )
    # What is there at w = 0 is there at the first checkpoint after it.
    return Finals(run.seconds[:, max(place, 1)], run.finals().sets)


def _gap_of_bands(runs: Lookup, over: Finals, under: Finals, share: float) -> Estimate:
    """Return the lower end of one band over the upper end of another.

    Of several data sets it is the geometric mean of what it is on each.
    """
    runs.asked.extend((over, under))
    seeds = [np.unique(one.sets) for one in (over, under)]

    def parts(first: Array, second: Array) -> list[tuple[Array, float, float]]:
        return [(first, LOW, 1.0), (second, HIGH, -1.0)]

    if len(seeds[0]) < 2 or not np.array_equal(seeds[0], seeds[1]):
        pair = parts(over.units(), under.units())
        return estimate_of_quantiles(pair, share).map(bounded_exp)
    each = [
        estimate_of_quantiles(
            parts(over.values[over.sets == one], under.values[under.sets == one])
        ).point
        for one in seeds[0]
    ]
    gaps = np.array(each)[:, None], np.ones(1)
    return estimate_sum([gaps], logs=False, share=share).map(bounded_exp)


@says("20 % quantile of {over} / 80 % quantile of {under}, at the end (above 1: apart)")
def band_gap(runs: Lookup, under: str, over: str) -> Estimate:
    """Return the factor between the band above and the band below."""
    return _gap_of_bands(runs, runs.finals(over), runs.finals(under), LIKELY)


@says("factor between the final bands of {line} and {other} (at most 1: overlap)")
def band_separation(runs: Lookup, line: str, other: str) -> Estimate:
    """Return the factor between two bands, whichever is above."""
    first, second = runs.finals(line), runs.finals(other)

    def make(share: float) -> list[Estimate]:
        orders = (first, second), (second, first)
        return [_gap_of_bands(runs, *order, share) for order in orders]

    return estimate_of_largest(make)


@says("part of the mean decrease of {line} after {iterations} iterations")
def share_of_progress(runs: Lookup, line: str, iterations: float) -> Estimate:
    """Return the part of the final decrease reached after some passes."""
    run = runs(line)
    start, end = run.errors[:, 0], run.errors[:, -1]
    early, sets = run.finals(iterations)
    # Lost runs have made no progress that can be divided.
    if not np.isfinite([early, end]).all():
        return unknown_estimate(math.nan)
    runs.asked.append(Finals(end, sets))
    columns = [Finals(start - one, sets).units() for one in (early, end)]
    return estimate_sum([(np.stack(columns, axis=1), np.array([1.0, -1.0]))]).map(
        bounded_exp
    )


def _error_left(runs: Lookup, line: str, passes: float | None = None) -> Estimate:
    """Return the error over the error at 0."""
    values, sets = found = runs.finals(line, passes)
    runs.asked.append(found)
    both = [Finals(one, sets).units() for one in (values, runs(line).errors[:, 0])]
    return estimate_sum([(np.stack(both, axis=1), np.array([1.0, -1.0]))]).map(
        bounded_exp
    )


@says("part of the error at 0 that {line} loses in {passes} passes (mean)")
def loss_of_error(runs: Lookup, line: str, passes: float) -> Evidence:
    """Return the part of the error at 0 that is lost after some passes."""
    return Evidence(_error_left(runs, line, passes).map(_complement), passes)


@says("mean final error of {line} / error at 0")
def share_left(runs: Lookup, line: str) -> Estimate:
    """Return the final error over the error at 0."""
    return _error_left(runs, line)


@says("part of the error at 0 that {line} has lost at its end (mean)")
def share_lost(runs: Lookup, line: str) -> Estimate:
    """Return the part of the error at 0 that is lost at the end."""
    return _error_left(runs, line).map(_complement)


@says("mean final error of {line} / 80 % quantile of the final errors of {other}")
def ratio_to_band_top(runs: Lookup, line: str, other: str) -> Estimate:
    """Return the mean end of one line over the upper end of another's band."""
    first, second = runs.finals(line), runs.finals(other)
    runs.asked.extend((first, second))
    parts = [(first.units(), None, 1.0), (second.units(), HIGH, -1.0)]
    return estimate_of_quantiles(parts).map(bounded_exp)


@says("most non-zeros of {line} beyond the iterations made, over all checkpoints")
def excess_nonzeros(runs: Lookup, line: str) -> float:
    """Return the largest excess of the non-zeros over the passes: one refutes."""
    run = runs(line)
    return float(np.max(run.nnz - run.x))


@says("{statistic} error of {line} in {share} of the passes of {other} / its end")
def ratio_at_share(runs: Lookup, line: str, other: str, share: float) -> Evidence:
    """Return the error in a part of another line's passes over the latter's end."""
    passes = share * float(runs(other).x[-1])
    early = runs.finals(line, passes)
    return Evidence(runs.ratio(early, runs.finals(other)), passes)


AUTHORS = END, PASSES = "at the end", "at their passes"


@says("{statistic} error of {line} / that of the authors' curve, {at}")
def ratio_to_authors(runs: Lookup, line: str, curve: str, at: str) -> Evidence:
    """Return a line's error over that of the authors' figure.

    At the end: of both, whatever their passes. At their passes: the largest quotient
    over their points, our error being that after as many passes.
    """
    passes, errors = decoded_curves(runs.figure)[curve][0].T
    begun = passes > 0.0  # their first point is w = 0
    passes, errors = passes[begun], errors[begun]
    if at == END:
        return Evidence(runs.average(runs.finals(line)).over(errors[-1]))

    def make(share: float) -> list[Estimate]:
        return [
            runs.average(runs.finals(line, float(x)), share).over(error)
            for x, error in zip(passes, errors, strict=True)
        ]

    return _largest_of(make, passes.tolist())


@says("epsilon certified for {line}")
def certified_epsilon(runs: Lookup, line: str) -> float:
    """Return the epsilon that is proved for a line's noise."""
    value = runs(line).certified_epsilon
    if math.isnan(value):
        raise Missing("no accountant certifies this noise")
    return value


@says("slope of the noise of {line} against p, log-log", NOISE)
def noise_slope(noise: Lookup, line: str) -> float:
    """Return the slope of the noise's deviation against the number of features."""
    from dp_erm_bench.report.scaling import log_slope

    figure = noise.noise
    return log_slope(np.array(figure.values, float), figure.along(line))


@says("scale of the noise of {line} at T = {n_iter}, n = {n}, in units of L_1", NOISE)
def selection_scale(noise: Lookup, line: str, n_iter: int) -> float:
    """Return the scale of the noise of some private selections."""
    return noise.noise.noise_of_line(line, n_iter).scale


@says("scale of the noise of {under} / that of {over} at T = {n_iter}, n = {n}", NOISE)
def selection_quotient(noise: Lookup, under: str, over: str, n_iter: int) -> float:
    """Return the scale of one noise divided by that of another."""
    first, second = (noise.noise.noise_of_line(line, n_iter) for line in (under, over))
    return float(first.scale / second.scale)


@says("epsilon certified for the noise of {line} at T = {n_iter}, n = {n}", NOISE)
def selection_epsilon(noise: Lookup, line: str, n_iter: int) -> float:
    """Return the epsilon that is proved for the noise of some selections."""
    return noise.noise.noise_of_line(line, n_iter).epsilon_certified


@says(
    "delta(1) / delta, T = {n_iter}, {rivals} coordinates of {kappa} x the L", NOTHING
)
def violated(_: Lookup, kappa: float, rivals: int, n_iter: int, delta: float) -> float:
    """Return delta(1) / delta of the printed greedy noise on unequal coordinates."""
    from dp_erm_bench.audit.papers import Instance, violation_factor

    return violation_factor(Instance(kappa, rivals, n_iter, delta))


@says("mean of tau / n, n = {n}, {seeds} passes", NOTHING)
def length_of_a_pass(_: Lookup, n: int, seeds: int) -> Estimate:
    """Return the mean steps of one-pass SGD over n."""
    from dp_erm_bench.audit.papers import steps_over_n

    return _mean_of_draws(steps_over_n(n, seeds))


def _mean_of_draws(drawn: Array) -> Estimate:
    return estimate_sum([(drawn[:, None], np.ones(1))]).map(bounded_exp)


@says("share of passes of more than 2 n steps, n = {n}, {seeds} passes", NOTHING)
def long_passes(_: Lookup, n: int, seeds: int) -> Estimate:
    """Return the share of passes of one-pass SGD that are longer than proved."""
    from dp_erm_bench.audit import profile
    from dp_erm_bench.audit.papers import steps_over_n

    long, level = np.array([np.sum(steps_over_n(n, seeds) > 2.0)]), WRONG
    low, high = (of(long, seeds, level) for of in (profile.at_least, profile.at_most))
    return Estimate(float(long[0]) / seeds, float(low[0]), float(high[0]))


@says("length of the estimator's bias / that of a batch of 2", NOTHING)
def share_of_bias(_: Lookup) -> Estimate:
    """Return the bias of bias-reduced SGD's estimator over that of a batch of two.

    The error of the latter, of 40000 draws, is not in the interval.
    """
    from dp_erm_bench.audit.papers import batch_bias, estimator_bias

    (length, limit), whole = estimator_bias(), batch_bias(2)
    return _distance_within(length / whole, (limit - length) / whole)


@says("mean steps to the printed end, n = {n}, {seeds} runs", NOTHING)
def mean_steps(_: Lookup, n: int, delta: float, seeds: int) -> Estimate:
    """Return the mean steps of bias-reduced SGD as printed at epsilon = 1."""
    from dp_erm_bench.audit.papers import stopping_times

    return _mean_of_draws(stopping_times(n, 1.0, delta, seeds))


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
