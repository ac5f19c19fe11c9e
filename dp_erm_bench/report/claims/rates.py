"""Measures of final values along an axis: slopes, and what theory says of them."""

from __future__ import annotations

import numpy as np

from dp_erm_bench.report.claims.lookup import Lookup, says


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


@says("mean at the largest {axis}, {over} / {under}")
def ratio_at_end(runs: Lookup, under: str, over: str, axis: str) -> float:
    """Return the mean at the end of the axis of one line divided by another's."""
    first, second = (runs.along(line, axis).mean[-1] for line in (under, over))
    return float(second / first)


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
