"""The measures of claims: one number each, from runs, from studies or from noise.

The keyword parameters of a measure are the keys of a claim that it reads. What is heavy
to import is imported within: claims are checked before anything runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dp_erm_bench.report.claims import (  # noqa: F401 - they enter their measures
    rates,
    structured,
)
from dp_erm_bench.report.claims.lookup import (  # noqa: F401 - for all who ask here
    MEASURES as MEASURES,
)
from dp_erm_bench.report.claims.lookup import NOISE, NOTHING, Lookup, says
from dp_erm_bench.report.curves import Curves, Missing
from dp_erm_bench.report.panels import decoded
from dp_erm_bench.results.statistics import FLOOR


def _final(line: Curves, of: str = "mean") -> float:
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
    from dp_erm_bench.audit.greedy import Instance, violation

    return violation(Instance(kappa, rivals, n_iter, delta))


@says("|mean of tau / n less log 2|, n = {n}, {seeds} passes", NOTHING)
def length_of_a_pass(_: Lookup, n: int, seeds: int) -> float:
    """Return how far the mean steps of one-pass SGD are from n log 2, over n."""
    from dp_erm_bench.audit.single_use import steps_over_n

    return abs(float(steps_over_n(n, seeds).mean()) - math.log(2.0))


@says("share of passes of more than 2 n steps, n = {n}, {seeds} passes", NOTHING)
def long_passes(_: Lookup, n: int, seeds: int) -> float:
    """Return the share of passes of one-pass SGD that are longer than proved."""
    from dp_erm_bench.audit.single_use import steps_over_n

    return float((steps_over_n(n, seeds) > 2.0).mean())


@says("upper 95 % limit of the estimator's bias / the bias of a batch of 2", NOTHING)
def share_of_bias(_: Lookup) -> float:
    """Return the upper limit of bias-reduced SGD's bias over a batch of two's."""
    from dp_erm_bench.audit.bias_reduced import batch_bias, estimator_bias

    return estimator_bias()[1] / batch_bias(2)


@says("mean steps to the printed end, n = {n}, {seeds} runs", NOTHING)
def mean_steps(_: Lookup, n: int, delta: float, seeds: int) -> float:
    """Return the mean steps of bias-reduced SGD as printed at epsilon = 1."""
    from dp_erm_bench.audit.bias_reduced import stopping_times

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
