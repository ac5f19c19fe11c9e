"""Measures of claims: one number from the report runs of a panel's lines."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dp_erm_bench.report.authors import decoded
from dp_erm_bench.report.claims.lookup import Lookup
from dp_erm_bench.report.claims.noise_measures import (
    noise_slope,
    selection_epsilon,
    selection_quotient,
    selection_scale,
)
from dp_erm_bench.report.claims.study_measures import cell, violated, violations
from dp_erm_bench.report.curves import Array, Curves, NotRun

Claim = Mapping[str, Any]
Measure = Callable[[Claim, Lookup], float]

# The reference optimum is certified to this relative gap: nothing below is measured.
FLOOR = 1e-9


def _final_mean(line: Curves) -> float:
    return max(float(line.mean[-1]), FLOOR)


def _bounds(line: Curves) -> tuple[float, float]:
    """Return the ends of the band at the last checkpoint."""
    return max(float(line.low[-1]), FLOOR), max(float(line.high[-1]), FLOOR)


def _quotient(numerator: float, denominator: float) -> float:
    """Divide; a diverged denominator makes the quotient meaningless."""
    return numerator / denominator if math.isfinite(denominator) else math.nan


def error_at_zero(claim: Claim, lookup: Lookup) -> float:
    """Return the relative error at w = 0."""
    return float(lookup(claim["line"]).mean[0])


def ratio(claim: Claim, lookup: Lookup) -> float:
    """Return the mean final error of `over` divided by that of `under`."""
    return _quotient(
        _final_mean(lookup(claim["over"])), _final_mean(lookup(claim["under"]))
    )


def inverse_ratio(claim: Claim, lookup: Lookup) -> float:
    """Return the mean final error of `under` divided by that of `over`."""
    return _quotient(
        _final_mean(lookup(claim["under"])), _final_mean(lookup(claim["over"]))
    )


def band_gap(claim: Claim, lookup: Lookup) -> float:
    """Return the lowest final error of `over` by the highest of `under`."""
    return _quotient(
        _bounds(lookup(claim["over"]))[0], _bounds(lookup(claim["under"]))[1]
    )


def band_separation(claim: Claim, lookup: Lookup) -> float:
    """Return the factor between two final bands; at most 1 where they overlap."""
    low, high = _bounds(lookup(claim["line"]))
    other_low, other_high = _bounds(lookup(claim["other"]))
    return float(np.fmax(_quotient(low, other_high), _quotient(other_low, high)))


def share_of_progress(claim: Claim, lookup: Lookup) -> float:
    """Return the part of the final decrease reached after `iterations` passes."""
    line = lookup(claim["line"])
    start, end = float(line.mean[0]), float(line.mean[-1])
    early = float(line.mean_at(claim["iterations"]))
    return (start - early) / (start - end) if start > end else math.nan


def loss_of_error(claim: Claim, lookup: Lookup) -> float:
    """Return which part of the error at 0 is lost within `passes`."""
    line = lookup(claim["line"])
    return 1.0 - float(line.mean_at(claim["passes"])) / float(line.mean[0])


def share_left(claim: Claim, lookup: Lookup) -> float:
    """Return the mean final error divided by the error at 0."""
    line = lookup(claim["line"])
    return float(line.mean[-1]) / float(line.mean[0])


def share_lost(claim: Claim, lookup: Lookup) -> float:
    """Return which part of the error at 0 is gone at the end."""
    return 1.0 - share_left(claim, lookup)


def ratio_to_band_top(claim: Claim, lookup: Lookup) -> float:
    """Return the mean final error by the highest final error of `other`."""
    top = _bounds(lookup(claim["other"]))[1]
    return _quotient(_final_mean(lookup(claim["line"])), top)


def excess_nonzeros(claim: Claim, lookup: Lookup) -> float:
    """Return by how much the non-zeros ever exceed the iterations made."""
    line = lookup(claim["line"])
    return float(np.max(line.nnz - line.passes))


def share_of_passes(claim: Claim, lookup: Lookup) -> float:
    """Return the passes to `factor` times the end of `other`, by its passes."""
    line, other = lookup(claim["line"]), lookup(claim["other"])
    reached = np.flatnonzero(line.mean <= claim["factor"] * _final_mean(other))
    if not reached.size:
        return math.inf
    return float(line.passes[reached[0]] / other.passes[-1])


def _authors(claim: Claim) -> Array:
    return decoded(claim["figure"])[claim["curve"]][0]


def ratio_to_authors_end(claim: Claim, lookup: Lookup) -> float:
    """Return the mean final error divided by the authors' last point."""
    return _final_mean(lookup(claim["line"])) / float(_authors(claim)[-1, 1])


def worst_ratio_to_authors(claim: Claim, lookup: Lookup) -> float:
    """Return the largest ratio of mean error to the authors' over their points."""
    passes, errors = _authors(claim).T
    return float((lookup(claim["line"]).mean_at(passes) / errors).max())


def certified_epsilon(claim: Claim, lookup: Lookup) -> float:
    """Return the epsilon that is proved for the line's noise."""
    value = lookup(claim["line"]).facts["epsilon_certified"]
    if value is None or math.isnan(value):
        raise NotRun("no accountant certifies this noise")
    return float(value)


def measured_slope(claim: Claim, lookup: Lookup) -> float:
    """Return the slope of the final mean along an axis, on log-log scales."""
    return lookup.along(claim["line"], claim["axis"]).slope


def slope_beyond(claim: Claim, lookup: Lookup) -> float:
    """Return by how much the slope of `other` exceeds that of `line`."""
    line, other = (lookup.along(claim[key], claim["axis"]) for key in ("line", "other"))
    return other.slope - line.slope


def later(claim: Claim, lookup: Lookup) -> float:
    """Refuse: the panel belongs to a later version."""
    raise NotRun(f"later: {claim['reason']}")


MEASURES: dict[str, tuple[Measure, str]] = {
    "violated": (
        violated,
        "delta(1) / delta, T = {n_iter}, {rivals} coordinates of {kappa} x the L",
    ),
    "violations": (violations, "audits whose profile test refutes the claim"),
    "cell": (cell, "{column} of the row of the claim"),
    "error_at_zero": (error_at_zero, "relative error at w = 0"),
    "ratio": (ratio, "mean final error, {over} / {under}"),
    "inverse_ratio": (inverse_ratio, "mean final error, {under} / {over}"),
    "band_gap": (
        band_gap,
        "lowest final error of {over} / highest of {under} (above 1: disjoint)",
    ),
    "band_separation": (
        band_separation,
        "factor between the final bands of {line} and {other} (at most 1: overlap)",
    ),
    "share_of_progress": (
        share_of_progress,
        "part of the mean decrease of {line} after {iterations} iterations",
    ),
    "loss_of_error": (
        loss_of_error,
        "part of the error at 0 that {line} loses in {passes} passes (mean)",
    ),
    "share_left": (share_left, "mean final error of {line} / error at 0"),
    "share_lost": (
        share_lost,
        "part of the error at 0 that {line} has lost at its end (mean)",
    ),
    "ratio_to_band_top": (
        ratio_to_band_top,
        "mean final error of {line} / highest final error of {other}",
    ),
    "excess_nonzeros": (
        excess_nonzeros,
        "most non-zeros of {line} beyond the iterations made, over all checkpoints",
    ),
    "share_of_passes": (
        share_of_passes,
        "passes of {line} to {factor} x the mean final error of {other} / its passes",
    ),
    "ratio_to_authors_end": (
        ratio_to_authors_end,
        "mean final error of {line} / the authors' last point",
    ),
    "worst_ratio_to_authors": (
        worst_ratio_to_authors,
        "largest mean error of {line} / the authors' error over their points",
    ),
    "certified_epsilon": (certified_epsilon, "epsilon certified for {line}"),
    "slope": (
        measured_slope,
        "slope of the mean of {line} against {axis}, log-log least squares",
    ),
    "slope_beyond": (slope_beyond, "slope against {axis}, {other} less {line}"),
    "noise_slope": (noise_slope, "slope of the noise of {line} against p, log-log"),
    "selection_scale": (
        selection_scale,
        "scale of the noise of {line} at T = {n_iter}, n = 1000, in units of L_1",
    ),
    "selection_quotient": (
        selection_quotient,
        "scale of the noise of {under} / that of {over} at T = {n_iter}, n = 1000",
    ),
    "selection_epsilon": (
        selection_epsilon,
        "epsilon certified for the noise of {line} at T = {n_iter}, n = 1000",
    ),
    "later": (later, "nothing yet"),
}
