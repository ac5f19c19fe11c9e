"""The measures of claims: numbers with intervals, from runs, studies or noise.

A *line* consists of the runs with one label in a panel, usually those of one algorithm.

The keyword parameters of a measure are the keys of a claim that it reads. A measure
returns a number that is not random, an `Estimate`, or `Evidence` if the claim is not
decided at the end of runs. Claims are checked before anything runs. Functions that are
slow to import are therefore given by name. Bounds, and measures that need no run, are
in `papers.claims`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dp_erm_bench import registry
from dp_erm_bench.report.claims.lookup import MEASURES as MEASURES
from dp_erm_bench.report.claims.lookup import (
    NOISE,
    NOTHING,
    Evidence,
    Lookup,
    Measure,
    bounded_exp,
    says,
)
from dp_erm_bench.report.curves import Array, Finals, Missing
from dp_erm_bench.report.figure import panels_of
from dp_erm_bench.report.panels import decoded_curves
from dp_erm_bench.report.scaling import log_slope, slope_weights
from dp_erm_bench.results.statistics import (
    LIKELY,
    RESAMPLES,
    Estimate,
    central_interval,
    estimate_of_largest,
    estimate_of_quantiles,
    estimate_sum,
    unknown_estimate,
)

LOW, HIGH = 0.2, 0.8
"""Quantiles at the ends of the band around a line.

With 20 runs, these quantiles have a confidence interval, but the extremes do not.
"""


def _slope_of_average(runs: Lookup, lines: Mapping[str, float], axis: str) -> Estimate:
    """Return a weighted sum of the log-log slopes of lines along an axis."""
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
    """Return the slope of the final average along an axis, on log-log scales.

    Parameters
    ----------
    runs : Lookup
        The runs of the claim.
    line : str
        Label of the line.
    axis : str
        The axis along which the panels or runs vary, such as `n`.
    """
    return _slope_of_average(runs, {line: 1.0}, axis)


@says("slope of the {statistic} of {line} against {axis}, log-log least squares")
def slope_of_one_pass(
    runs: Lookup, line: str, axis: str, p: int, radius: float
) -> Evidence:
    """Return the slope of one-pass SGD's excess risk, and its bound at the last point.

    Parameters
    ----------
    runs : Lookup
        The runs of the claim.
    line : str
        Label of the line.
    axis : str
        The axis along which the panels or runs vary, such as `n`.
    p : int
        Number of features, for the bound.
    radius : float
        Radius R of the bound, see `papers.claims.excess_bound`.
    """
    at = float(runs.along(line, axis).x[-1])
    bound = _bound_at(runs, line, axis, at, "one_pass_bound", p=p, radius=radius)
    return Evidence(_slope_of_average(runs, {line: 1.0}, axis), bound=bound)


@says("slope against {axis}, {other} less {line}")
def slope_beyond(runs: Lookup, line: str, other: str, axis: str) -> Estimate:
    """Return the slope of `other` minus that of `line`, on log-log scales.

    Parameters
    ----------
    runs : Lookup
        The runs of the claim.
    line, other : str
        Labels of the two lines.
    axis : str
        The axis along which the panels or runs vary, such as `n`.
    """
    return _slope_of_average(runs, {line: -1.0, other: 1.0}, axis)


def _pairs_of_lines(
    runs: Lookup, over: str, under: str, axis: str
) -> list[tuple[float, Finals, Finals]]:
    """Return the values of two lines at all points where both lines have values."""
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
    """Return the largest ratio of the averages of two lines along an axis.

    Parameters
    ----------
    runs : Lookup
        The runs of the claim.
    under, over : str
        Labels of the lines in the denominator and in the numerator.
    axis : str
        The axis along which the panels or runs vary, such as `n`.
    """
    pairs = _pairs_of_lines(runs, over, under, axis)

    def make(share: float) -> list[Estimate]:
        return [runs.ratio(first, second, share) for _, first, second in pairs]

    return _largest_of(make, [x for x, _, _ in pairs])


def _largest_of(
    make: Callable[[float], Sequence[Estimate]],
    x: Sequence[float],
    bounds: Sequence[float] = (),
) -> Evidence:
    """Return the largest of several numbers, with its point on the axis and bound."""
    place = int(np.argmax([one.point for one in make(LIKELY)]))
    bound = bounds[place] if bounds else math.nan
    return Evidence(estimate_of_largest(make), float(x[place]), bound)


@says("{statistic} at the least {axis}, {over} / {under}")
def ratio_at_start(runs: Lookup, under: str, over: str, axis: str) -> Evidence:
    """Return the ratio of the averages of two lines at the start of the axis.

    Parameters
    ----------
    runs : Lookup
        The runs of the claim.
    under, over : str
        Labels of the lines in the denominator and in the numerator.
    axis : str
        The axis along which the panels or runs vary, such as `n`.
    """
    x, first, second = _pairs_of_lines(runs, over, under, axis)[0]
    return Evidence(runs.ratio(first, second), x)


@says("{statistic} at the largest {axis}, {over} / {under}")
def ratio_at_end(runs: Lookup, under: str, over: str, axis: str) -> Evidence:
    """Return the ratio of the averages of two lines at the end of the axis.

    Parameters
    ----------
    runs : Lookup
        The runs of the claim.
    under, over : str
        Labels of the lines in the denominator and in the numerator.
    axis : str
        The axis along which the panels or runs vary, such as `n`.
    """
    x, first, second = _pairs_of_lines(runs, over, under, axis)[-1]
    return Evidence(runs.ratio(first, second), x)


@says("{statistic} {quantity} of {line} at the largest {axis}")
def average_at_end(runs: Lookup, line: str, axis: str, quantity: str) -> Estimate:
    """Return the average of a column at the end of the axis.

    Parameters
    ----------
    runs : Lookup
        The runs of the claim.
    line : str
        Label of the line.
    axis : str
        The axis along which the panels or runs vary, such as `n`.
    quantity : str
        The column, which the look-up reads from the claim.
    """
    return runs.average(runs.along(line, axis).finals(-1))


@says("part of the excess at 0 {line} has lost at the largest {axis} ({statistic})")
def excess_lost(runs: Lookup, line: str, axis: str) -> Estimate:
    """Return the relative decrease of the excess risk from w = 0, at the axis's end.

    Final values are compared, even if the runs have different lengths.

    Parameters
    ----------
    runs : Lookup
        The runs of the claim.
    line : str
        Label of the line.
    axis : str
        The axis along which the panels or runs vary, such as `n`.
    """
    runs.asked.append(runs.along(line, axis).finals(-1))
    return runs.beside_zero(line, None)[0].map(_complement)


def _complement(share: float) -> float:
    return 1.0 - share


def _bound_at(
    runs: Lookup, line: str, axis: str, at: float, bound: str, **keys: float
) -> float:
    """Return a bound of `papers.claims` for a line's runs at a value of an axis."""
    table, panels = runs.table, panels_of({*runs.table["panel"]}, runs.figure, axis)
    own = table["panel"].isin(panels) & table["line"].eq(line) & table[axis].eq(at)
    value: float = registry.locate(f"{PAPERS}.{bound}")(table[own].iloc[0], **keys)
    return value


def _share_of_bounds(
    runs: Lookup, line: str, axis: str, bound: str, **keys: float
) -> Evidence:
    """Return the largest average error, divided by its bound, along an axis."""
    found = runs.along(line, axis)
    bounds = [_bound_at(runs, line, axis, at, bound, **keys) for at in found.x.tolist()]

    def make(share: float) -> list[Estimate]:
        averages = (runs.average(found.finals(k), share) for k in range(len(bounds)))
        return [one.over(by) for one, by in zip(averages, bounds, strict=True)]

    return _largest_of(make, found.x.tolist(), bounds)


@says("largest {statistic} of {line} / the bound of its expectation, over {axis}")
def share_of_mean_bound(runs: Lookup, line: str, axis: str, nonzeros: int) -> Evidence:
    """Return the largest error of the projection mechanism, divided by its bound.

    With few coordinates, the mean error reaches the bound up to 1 / (4 p). A mean of
    finitely many runs may exceed it by chance, which the interval shows.

    Parameters
    ----------
    runs : Lookup
        The runs of the claim.
    line : str
        Label of the line.
    axis : str
        The axis along which the panels or runs vary, such as `n`.
    nonzeros : int
        Number of non-zeros of a record, for the bound.
    """
    return _share_of_bounds(runs, line, axis, "mean_bound", nonzeros=nonzeros)


@says("largest {statistic} excess risk of {line} / its bound, over {axis}")
def share_of_bound(
    runs: Lookup, line: str, axis: str, p: int, radius: float
) -> Evidence:
    """Return the largest mean excess of one-pass SGD, divided by its bound.

    Parameters
    ----------
    runs : Lookup
        The runs of the claim.
    line : str
        Label of the line.
    axis : str
        The axis along which the panels or runs vary, such as `n`.
    p : int
        Number of features, for the bound.
    radius : float
        Radius R of the bound, see `papers.claims.excess_bound`.
    """
    return _share_of_bounds(runs, line, axis, "one_pass_bound", p=p, radius=radius)


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
    """Return the largest mean excess of output perturbation, divided by its bound.

    Parameters
    ----------
    runs : Lookup
        The runs of the claim.
    line : str
        Label of the line.
    axis : str
        The axis along which the panels or runs vary, such as `n`.
    p, kappa, radius, epsilon, delta
        As in `papers.claims.output_bound`.
    """
    keys = {"p": p, "kappa": kappa, "radius": radius}
    keys |= {"epsilon": epsilon, "delta": delta}
    return _share_of_bounds(runs, line, axis, "output_bound", **keys)


@says("relative error at w = 0", tuned=False)
def error_at_zero(runs: Lookup, line: str) -> float | Estimate:
    """Return the relative error of a line where its runs start, at w = 0."""
    run = runs(line)
    start = run.errors[:, 0]
    if (start == start[0]).all():
        return float(start[0])
    return runs.average(Finals(start, run.finals().sets))


@says("{statistic} final error, {over} / {under}")
def ratio(runs: Lookup, under: str, over: str) -> Estimate:
    """Return the average final error of one line divided by that of another.

    Parameters
    ----------
    runs : Lookup
        The runs of the claim.
    under, over : str
        Labels of the lines in the denominator and in the numerator.
    """
    return runs.ratio(runs.finals(over), runs.finals(under))


@says("{statistic} final error, {under} / {over}")
def inverse_ratio(runs: Lookup, under: str, over: str) -> Estimate:
    """Return the average final error of `under` divided by that of `over`.

    Parameters
    ----------
    runs : Lookup
        The runs of the claim.
    under, over : str
        Labels of the lines in the numerator and in the denominator.
    """
    return runs.ratio(runs.finals(under), runs.finals(over))


@says(
    "share of figures and epsilons at which {under} ends at or below {over}, by the "
    "{statistic}",
    over_sets=True,
)
def share_of_sets(runs: Lookup, under: str, over: str) -> Estimate:
    """Return the share of problems on which one line ends at or below another.

    A problem is a panel at one epsilon. The result is the share of problems on which
    `under` ends at or below `over`. The interval is a bootstrap interval over panels.

    Parameters
    ----------
    runs : Lookup
        The runs of the claim, which lists panels and epsilons.
    under, over : str
        Labels of the two lines.
    """
    shares = []
    for one in runs.claim["figure"]:
        own = {**runs.claim, "figure": one}
        claims = ({**own, "epsilon": at} for at in runs.claim["epsilon"])
        each = [replace(runs, claim=claim) for claim in claims]
        quotients = [on.ratio(on.finals(under), on.finals(over)) for on in each]
        shares.append(np.mean([quotient.point <= 1.0 for quotient in quotients]))
    drawn = np.random.default_rng(0).choice(shares, (RESAMPLES, len(shares)))
    ends = central_interval(drawn.mean(axis=1), LIKELY)
    return Estimate(float(np.mean(shares)), *ends)


@says(
    "seconds of {over} / {under} until their {statistic} error stays within {factor} "
    "of the higher of their two ends"
)
def quotient_of_seconds(runs: Lookup, under: str, over: str, factor: float) -> Estimate:
    """Return the ratio of the times that two lines need to reach a common error.

    The common error is ``factor`` times the higher of the two final errors. The time of
    a line is that of the first checkpoint from which on its average error is at most
    the common error. The interval ignores the choice of this checkpoint. The line
    reached the common error after the preceding checkpoint. If steps lie between these
    two checkpoints, the interval covers both times.

    Parameters
    ----------
    runs : Lookup
        The runs of the claim.
    under, over : str
        Labels of the lines in the denominator and in the numerator.
    factor : float
        Factor over the higher final error within which the error has to stay.
    """
    average = np.median if runs.statistic == "median" else np.mean
    means = {line: average(runs(line).errors, axis=0) for line in (over, under)}
    target = factor * max(errors[-1] for errors in means.values())
    if not math.isfinite(target):
        raise Missing("runs were lost, so that there is no end to come near to")
    first, second = (
        _seconds_within(runs, line, errors, target) for line, errors in means.items()
    )
    quotient, low, high = (
        runs.ratio(first[i], second[j]) for i, j in ((1, 1), (0, 1), (1, 0))
    )
    return Estimate(quotient.point, low.low, high.high)


def _seconds_within(
    runs: Lookup, line: str, errors: Array, target: float
) -> tuple[Finals, Finals]:
    """Return the times of two checkpoints between which the error falls to a target.

    From the second checkpoint on, errors are at most `target`. The first one is the
    checkpoint before. If errors are already low at w = 0, the second one is the first
    checkpoint after w = 0. If the two are one step apart, both times are those of the
    second.
    """
    found, sets = runs(line), runs(line).finals().sets
    at = max(len(errors) - int(np.argmin([*(errors <= target)[::-1], False])), 1)
    iterations = np.unique(found.rows["iteration"])
    alone = len(iterations) == len(errors) and iterations[at] - iterations[at - 1] == 1
    before = found.seconds[:, at if alone else at - 1]
    smallest = np.finfo(float).tiny  # a run begins at 0 seconds, which has no logarithm
    return Finals(np.maximum(before, smallest), sets), Finals(
        found.seconds[:, at], sets
    )


def _gap_of_bands(runs: Lookup, over: Finals, under: Finals, share: float) -> Estimate:
    """Return the lower end of one line's band over the upper end of another's.

    A band is from the 20 % to the 80 % quantile of final errors. With several data
    sets, return the geometric mean of this ratio over data sets.
    """
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
    """Return the 20 % quantile of one line's final errors over another's 80 % quantile.

    Parameters
    ----------
    runs : Lookup
        The runs of the claim.
    under, over : str
        Labels of the lines in the denominator and in the numerator.
    """
    return _gap_of_bands(runs, runs.finals(over), runs.finals(under), LIKELY)


@says("factor between the final bands of {line} and {other} (at most 1: overlap)")
def band_separation(runs: Lookup, line: str, other: str) -> Estimate:
    """Return the factor between the bands of two lines at the end, upper over lower.

    Parameters
    ----------
    runs : Lookup
        The runs of the claim.
    line, other : str
        Labels of the two lines.
    """
    first, second = runs.finals(line), runs.finals(other)

    def make(share: float) -> list[Estimate]:
        orders = (first, second), (second, first)
        return [_gap_of_bands(runs, *order, share) for order in orders]

    return estimate_of_largest(make)


@says("part of the mean decrease of {line} after {iterations} iterations")
def share_of_progress(runs: Lookup, line: str, iterations: float) -> Estimate:
    """Return the part of the whole decrease that is reached after some iterations.

    Parameters
    ----------
    runs : Lookup
        The runs of the claim.
    line : str
        Label of the line.
    iterations : float
        Number of iterations, each of which is a pass.
    """
    run = runs(line)
    start, end = run.errors[:, 0], run.errors[:, -1]
    early, sets = run.finals(iterations)
    # The progress of lost runs is unknown.
    if not np.isfinite([early, end]).all():
        return unknown_estimate(math.nan)
    runs.asked.append(Finals(end, sets))
    columns = [Finals(start - one, sets).units() for one in (early, end)]
    return estimate_sum([(np.stack(columns, axis=1), np.array([1.0, -1.0]))]).map(
        bounded_exp
    )


def _error_left(runs: Lookup, line: str, passes: float | None = None) -> Estimate:
    """Return the error after given passes, or at the end, over the error at w = 0."""
    values, sets = runs.finals(line, passes)
    both = [Finals(one, sets).units() for one in (values, runs(line).errors[:, 0])]
    return estimate_sum([(np.stack(both, axis=1), np.array([1.0, -1.0]))]).map(
        bounded_exp
    )


@says("part of the error at 0 that {line} loses in {passes} passes (mean)")
def loss_of_error(runs: Lookup, line: str, passes: float) -> Evidence:
    """Return the relative decrease of the error from w = 0 after given passes.

    Parameters
    ----------
    runs : Lookup
        The runs of the claim.
    line : str
        Label of the line.
    passes : float
        Number of passes over the data.
    """
    return Evidence(_error_left(runs, line, passes).map(_complement), passes)


@says("mean final error of {line} / error at 0")
def share_left(runs: Lookup, line: str) -> Estimate:
    """Return the final error over the error at w = 0."""
    return _error_left(runs, line)


@says("part of the error at 0 that {line} has lost at its end (mean)")
def share_lost(runs: Lookup, line: str) -> Estimate:
    """Return the relative decrease of the error from w = 0 to the end."""
    return _error_left(runs, line).map(_complement)


@says("mean final error of {line} / 80 % quantile of the final errors of {other}")
def ratio_to_band_top(runs: Lookup, line: str, other: str) -> Estimate:
    """Return a line's mean final error over the 80 % quantile of another line's.

    Parameters
    ----------
    runs : Lookup
        The runs of the claim.
    line, other : str
        Labels of the line, and of the line whose band is compared.
    """
    first, second = runs.finals(line), runs.finals(other)
    parts = [(first.units(), None, 1.0), (second.units(), HIGH, -1.0)]
    return estimate_of_quantiles(parts).map(bounded_exp)


@says("most non-zeros of {line} beyond the iterations made, over all checkpoints")
def excess_nonzeros(runs: Lookup, line: str) -> float:
    """Return the largest number of non-zeros beyond the passes, over all checkpoints.

    An excess in a single run refutes the claim.
    """
    run = runs(line)
    return float(np.max(run.nnz - run.x))


@says("{statistic} error of {line} in {share} of the passes of {other} / its end")
def ratio_at_share(runs: Lookup, line: str, other: str, share: float) -> Evidence:
    """Return an early error of a line divided by the final error of another line.

    Parameters
    ----------
    runs : Lookup
        The runs of the claim.
    line, other : str
        Labels of the line, and of the line that it is compared with.
    share : float
        Part of the passes of `other` after which the error of `line` is measured.
    """
    passes = share * float(runs(other).x[-1])
    early = runs.finals(line, passes)
    return Evidence(runs.ratio(early, runs.finals(other)), passes)


AUTHORS = END, PASSES = "at the end", "at their passes"


@says("{statistic} error of {line} / that of the authors' curve, {at}")
def ratio_to_authors(runs: Lookup, line: str, curve: str, at: str) -> Evidence:
    """Return a line's error divided by that of a curve of the authors' figure.

    Parameters
    ----------
    runs : Lookup
        The runs of the claim.
    line : str
        Label of the line.
    curve : str
        The authors' name of the curve.
    at : str
        One of `AUTHORS`. At the end, final errors are compared, even after different
        numbers of passes. At the authors' passes, the result is the largest quotient
        over their points, with our error after equally many passes.
    """
    passes, errors = decoded_curves(runs.figure)[curve][0].T
    begun = passes > 0.0  # the authors' first point is w = 0
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
    """Return the certified epsilon of a line's noise."""
    value = runs(line).certified_epsilon
    if math.isnan(value):
        raise Missing("no accountant certifies this noise")
    return value


@says("slope of the noise of {line} against p, log-log", NOISE)
def noise_slope(noise: Lookup, line: str) -> float:
    """Return the log-log slope of the noise's standard deviation against p.

    p is the number of features.
    """
    figure = noise.noise
    return log_slope(np.array(figure.values, float), figure.along(line))


@says("scale of the noise of {line} at T = {n_iter}, n = {n}, in units of L_1", NOISE)
def selection_scale(noise: Lookup, line: str, n_iter: int) -> float:
    """Return the scale of the noise of a line that selects privately.

    Parameters
    ----------
    noise : Lookup
        The figure of noise that the claim names.
    line : str
        Label of the line.
    n_iter : int
        Number of iterations T.
    """
    return noise.noise.noise_of_line(line, n_iter).scale


@says("scale of the noise of {under} / that of {over} at T = {n_iter}, n = {n}", NOISE)
def selection_quotient(noise: Lookup, under: str, over: str, n_iter: int) -> float:
    """Return the noise scale of one line divided by that of another.

    Parameters
    ----------
    noise : Lookup
        The figure of noise that the claim names.
    under, over : str
        Labels of the lines in the numerator and in the denominator.
    n_iter : int
        Number of iterations T.
    """
    first, second = (noise.noise.noise_of_line(line, n_iter) for line in (under, over))
    return float(first.scale / second.scale)


@says("epsilon certified for the noise of {line} at T = {n_iter}, n = {n}", NOISE)
def selection_epsilon(noise: Lookup, line: str, n_iter: int) -> float:
    """Return the certified epsilon of the noise of a line that selects privately.

    Parameters
    ----------
    noise : Lookup
        The figure of noise that the claim names.
    line : str
        Label of the line.
    n_iter : int
        Number of iterations T.
    """
    return noise.noise.noise_of_line(line, n_iter).epsilon_certified


@says("{column} of the row of the claim", NOTHING)
def cell(study: Lookup, column: str, where: Mapping[str, Any]) -> float:
    """Return the value of a column in the only row with given values of other columns.

    Parameters
    ----------
    study : Lookup
        The table of the study.
    column : str
        The column to read.
    where : mapping of str to value
        Values of the other columns.
    """
    rows = study.table
    for name, value in where.items():
        if name not in rows:
            raise Missing(f"the table has no column {name}")
        if isinstance(value, int | float):
            rows = rows[np.isclose(rows[name].astype("float64"), value)]
        else:
            rows = rows[rows[name] == value]
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


PAPERS = "dp_erm_bench.papers.claims"
OF_PAPERS = {
    "width_error": "Monte Carlo width / closed form, the furthest from 1: distance",
    "width_slope": "slope of the width of {norm} from p = {p} on, log-log least "
    "squares",
    "printed_output_epsilon": "epsilon(1e-5) of {factor} times the printed noise, "
    "n = {n}",
    "printed_output_growth": "least quotient of the epsilons of printed noise at "
    "successive n",
    "ridge_output_epsilon": "largest epsilon(1e-5) of our noise with a ridge, over n",
    "noisy_choice_epsilon": "exact epsilon(1e-5) of {noise} noise, C = {weight}",
    "gap_slope": "slope of the least gap so far against T, {norm}",
    "gap_ratio": "least gap of the step 1/(t+2) / that of 2/(t+2), {norm}, most steps",
    "shifted_dual": "largest entry of the difference, through the shifted {shifted}",
    "violated": "delta(1) / delta, T = {n_iter}, {rivals} coordinates of {kappa} x the "
    "L",
    "length_of_a_pass": "mean of tau / n, n = {n}, {seeds} passes",
    "long_passes": "share of passes of more than 2 n steps, n = {n}, {seeds} passes",
    "share_of_bias": "length of the estimator's bias / that of a batch of 2",
    "mean_steps": "mean steps to the printed end, n = {n}, {seeds} runs",
}
"""Measures of `papers.claims`, which need no run, and their descriptions."""

MEASURES.update(
    (name, Measure(words, f"{PAPERS}.{name}", NOTHING))
    for name, words in OF_PAPERS.items()
)
