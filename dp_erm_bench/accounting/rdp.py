"""Renyi accounting: curves, their sum, and the conversion to (epsilon, delta).

A mechanism is (alpha, eps(alpha))-RDP if the Renyi divergence of order alpha between
its outputs on neighbours is at most eps(alpha); curves add up under adaptive
composition (Mironov, "Renyi Differential Privacy", CSF 2017, Proposition 1).
"""

import functools
import math

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.releases.events import Event
from dp_erm_bench.releases.objective_gaussian import objective_rdp

Floats = NDArray[np.float64]


@functools.cache
def default_orders() -> Floats:
    """Return the orders alpha > 1 over which every conversion minimises."""
    near_one = 1 + np.geomspace(1e-3, 1, 60)[:-1]
    middle = np.arange(2, 64, 0.25)
    powers = 2.0 ** np.arange(8.25, 15.76, 0.25)
    return np.concatenate([near_one, middle, np.arange(64, 257), powers])


def log_mean_exp(
    weights: tuple[Floats, Floats], exponents: tuple[Floats, Floats]
) -> Floats:
    """Return log(w1 e^x1 + w2 e^x2) for weights that add up to one.

    Small exponents keep their relative accuracy (log1p of expm1), large ones do not
    overflow (logaddexp).
    """
    (w, v), (x, y) = weights, exponents
    small = np.abs(x) < 1
    near = np.log1p(
        w * np.expm1(np.where(small, x, 0)) + v * np.expm1(np.where(small, y, 0))
    )
    with np.errstate(divide="ignore"):
        far = np.logaddexp(np.log(w) + x, np.log(v) + y)
    return np.where(small, near, far)


def gaussian_rdp(orders: Floats, z: float) -> Floats:
    """Return the curve alpha / (2 z^2) of a Gaussian (Mironov 2017, Corollary 3)."""
    return orders / 2 / z / z


def laplace_rdp(orders: Floats, z: float) -> Floats:
    """Return the curve of a Laplace release (Mironov 2017, Proposition 6).

    log[ a/(2a-1) e^((a-1)/z) + (a-1)/(2a-1) e^(-a/z) ] / (a-1) for order a.
    """
    upper = orders / (2 * orders - 1)
    return log_mean_exp((upper, 1 - upper), ((orders - 1) / z, -orders / z)) / (
        orders - 1
    )


def pure_rdp(orders: Floats, level: float) -> Floats:
    """Return the curve of any ``level``-DP mechanism.

    Its dominating pair is randomised response with p = 1/(1 + e^-level) (Kairouz, Oh,
    Viswanath, "The Composition Theorem for DP", ICML 2015): losses +-level with
    probabilities p and 1 - p.
    """
    p = np.full_like(orders, 1 / (1 + math.exp(-level)))
    step = (orders - 1) * level
    return log_mean_exp((p, 1 - p), (step, -step)) / (orders - 1)


def log_sinh_ratio(x: Floats) -> Floats:
    """Return log(sinh(x/2) / (x/2)) for x >= 0, accurate near 0 and for large x."""
    small = np.where(x < 0.1, x, 0.0) ** 2
    series = small / 24 - small**2 / 2880 + small**3 / 181440
    large = np.where(x < 0.1, 1.0, x)
    return np.where(
        x < 0.1, series, large / 2 - np.log(large) + np.log1p(-np.exp(-large))
    )


def bounded_range_rdp(orders: Floats, level: float) -> Floats:
    """Return the curve of a ``level``-bounded-range mechanism.

    The exponential mechanism's log-ratios lie in some [t - level, t] (Durfee and
    Rogers, NeurIPS 2019); the worst pair puts them on its two ends (Dong, Durfee,
    Rogers, "Optimal DP Composition for Exponential Mechanisms", ICML 2020)
    and the curve is the largest over t. Setting the derivative in t to zero gives
    t* = level/2 + g(a level) - g((a-1) level), which lies in [0, level] because
    (1 - e^-x)/x falls and (e^x - 1)/x grows, and

        (a - 1) eps(a) = a g(a level) - (a-1) g((a-1) level) - g(level)

    with g(x) = log(sinh(x/2)/(x/2)); at most a level^2 / 8.
    """
    whole = orders * log_sinh_ratio(orders * level)
    part = (orders - 1) * log_sinh_ratio((orders - 1) * level)
    single = log_sinh_ratio(np.full_like(orders, level))
    return np.maximum(whole - part - single, 0) / (orders - 1)


def rdp_curve(event: Event, z: float, orders: Floats) -> Floats | None:
    """Return the curve of one use of an event, None if its kind is unknown.

    A Poisson sampled Gaussian is charged as if never sampled, a valid bound because
    Renyi divergence is jointly quasi-convex; the PLD accountant does better.
    """
    if event.kind in ("gaussian", "poisson_gaussian"):
        return gaussian_rdp(orders, event.multiplier(z))
    if event.kind == "laplace":
        return laplace_rdp(orders, event.multiplier(z))
    if event.kind in ("pure", "norm_laplace", "objective_pure"):
        return pure_rdp(orders, event.level(z))
    if event.kind == "objective":
        return objective_rdp(orders, event.multiplier(z), event.curvature)
    if event.kind == "bounded_range":
        return bounded_range_rdp(orders, event.level(z))
    return None


def converted_epsilon(orders: Floats, curve: Floats, delta: float) -> float:
    """Return the smallest epsilon >= 0 that an RDP curve proves at ``delta``.

    eps = min over a of eps(a) + log(1 - 1/a) - log(delta a)/(a - 1) (Canonne, Kamath,
    Steinke, "The Discrete Gaussian for Differential Privacy", NeurIPS 2020,
    Proposition 12).
    """
    if delta <= 0:
        return math.inf
    gain = np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
    return max(0.0, float(np.min(curve + gain)))


def rdp_epsilon(events: tuple[Event, ...], z: float, delta: float) -> float | None:
    """Return the epsilon that Renyi accounting proves, None for unknown kinds."""
    orders = default_orders()
    total = np.zeros_like(orders)
    for event in events:
        curve = rdp_curve(event, z, orders)
        if curve is None:
            return None
        total += event.times * curve
    return converted_epsilon(orders, total, delta)
