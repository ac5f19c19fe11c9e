"""Measures of statements on structured norms: nothing is run for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dp_erm_bench.report.claims.lookup import NOTHING, Lookup, says
from dp_erm_bench.report.curves import Missing
from dp_erm_bench.report.figure import figures_of
from dp_erm_bench.report.scaling import slope as slope_of

if TYPE_CHECKING:
    from dp_erm_bench.report.structured import Structured


def _drawn(study: Lookup) -> Structured:
    """Return the figure that a claim names."""
    from dp_erm_bench.report.structured import Structured

    for one in figures_of(study.config):
        if isinstance(one, Structured) and one.name == study.figure:
            return one
    raise Missing(f"no figure {study.figure} of the kind structured")


@says("|Monte Carlo less closed form| / its standard error, the largest", NOTHING)
def width_error(study: Lookup) -> float:
    """Return the largest error of a figure's Gaussian widths, in standard errors."""
    from dp_erm_bench.audit import structured

    drawn = _drawn(study)
    return max(structured.width_error(k, p) for k in drawn.norms for p in drawn.values)


@says("slope of the width of {norm} from p = {p} on, log-log least squares", NOTHING)
def width_slope(study: Lookup, norm: str, p: int) -> float:
    """Return the slope of a Gaussian width in the number of coordinates."""
    from dp_erm_bench.audit import structured

    along = np.array([one for one in _drawn(study).values if one >= p])
    widths = np.array([structured.width(norm, one) for one in along.tolist()])
    return slope_of(along.astype(np.float64), widths)


@says("epsilon(1e-5) of {factor} times the printed noise, n = {n}", NOTHING)
def printed_output_epsilon(_: Lookup, n: int, factor: float) -> float:
    """Return the true epsilon of printed output noise on two neighbours."""
    from dp_erm_bench.audit import structured

    return structured.printed_output_epsilon(n, factor)


@says("least quotient of the epsilons of printed noise at successive n", NOTHING)
def printed_output_growth(study: Lookup) -> float:
    """Return the least factor by which the true epsilon grows along n."""
    from dp_erm_bench.audit import structured

    along = _drawn(study).values
    found = np.array([structured.printed_output_epsilon(n) for n in along])
    return float((found[1:] / found[:-1]).min())


@says("largest epsilon(1e-5) of our noise with a ridge, over n", NOTHING)
def ridge_output_epsilon(study: Lookup) -> float:
    """Return the largest true epsilon of our output noise on the same neighbours."""
    from dp_erm_bench.audit import structured
    from dp_erm_bench.report.structured import RIDGE

    along = _drawn(study).values
    return max(structured.ridge_output_epsilon(n, RIDGE) for n in along)


@says("exact epsilon(1e-5) of {noise} noise, C = {weight}", NOTHING)
def noisy_choice_epsilon(_: Lookup, weight: float, noise: str) -> float:
    """Return the exact epsilon of a noisy choice among two vertices."""
    from dp_erm_bench.audit import structured

    return structured.selection_epsilon(weight, noise)


@says("slope of the least gap so far against T, {norm}", NOTHING)
def gap_slope(study: Lookup, norm: str) -> float:
    """Return the slope of Frank-Wolfe's gap with the step 2/(t+2)."""
    from dp_erm_bench.audit import structured

    along = np.array(_drawn(study).values)
    gaps = structured.dual_gaps(norm, "2/(t+2)", int(along.max()))
    least = np.minimum.accumulate(gaps)[along - 1]
    return slope_of(along.astype(np.float64), least)


@says("least gap of the step 1/(t+2) / that of 2/(t+2), {norm}, most steps", NOTHING)
def gap_ratio(study: Lookup, norm: str) -> float:
    """Return how far the printed step is behind at the end of the figure."""
    from dp_erm_bench.audit import structured

    steps = max(_drawn(study).values)
    usual, printed = (
        structured.dual_gaps(norm, rule, steps) for rule in structured.STEPS
    )
    return float(printed.min() / usual.min())


@says("largest entry of the difference, through the shifted {shifted}", NOTHING)
def shifted_dual(_: Lookup, shifted: str) -> float:
    """Return how far a reading of Proposition 2 is from the perturbed minimiser."""
    from dp_erm_bench.audit import structured

    return dict(zip(("set", "point"), structured.shifted_dual(), strict=True))[shifted]


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
    from dp_erm_bench.audit import structured

    found, budget = runs.along(line, axis), (epsilon, delta)
    bounds = [
        structured.output_bound(line, int(n), p, kappa, radius, budget) for n in found.x
    ]
    return float((found.mean / bounds).max())


@says("Spearman correlation of widths and mean excess risks at the largest {axis}")
def width_order(runs: Lookup, axis: str, p: int) -> float:
    """Return the rank correlation of Gaussian widths and excess risks of all norms."""
    from scipy.stats import spearmanr

    from dp_erm_bench.audit import structured

    ends = [runs.along(name, axis).mean[-1] for name in structured.NAMES]
    widths = [structured.width(name, p) for name in structured.NAMES]
    return float(spearmanr(widths, ends).statistic)
