"""Every privacy bound a second time, from dp_accounting and plain numerics.

Nothing here imports the accountants of ``privacy``, so that one mistake cannot hide in
both. Slow and meant for few steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import norm

from dp_erm_bench.audit.compositions import Use, composed, deviation, full_batch
from dp_erm_bench.releases.adjacency import Adjacency

Floats = NDArray[np.float64]
# The optimum is flat: spacing by 2.3 % costs about 1e-5 of epsilon.
ORDERS: Floats = 1 + np.geomspace(1e-2, 5e4, 600)
# Parts of an interval that shrink towards its start, where high orders look.
GRADED: Floats = np.append(0.0, np.geomspace(1e-8, 1.0, 1500))
LARGEST_TILT = 30.0
EXACT = ("gaussian", "poisson_gaussian", "laplace", "bounded_range", "pure")


def proved_epsilon(
    uses: Iterable[Use], delta: float, adjacency: Adjacency, accountant: str
) -> float:
    """Return the epsilon that an accountant proves at ``delta``.

    Parameters
    ----------
    uses : iterable of Use
        What was called. Vectors are composed by basic composition with the rest.
    delta : float
    adjacency : Adjacency
    accountant : {'gdp', 'rdp', 'pld', 'pure', 'profile', 'none'}

    Raises
    ------
    ValueError
        If the accountant does not know a mechanism.
    """
    uses = tuple(uses)
    rest = tuple(use for use in uses if use.kind != "vector")
    shares = pure_level([use for use in uses if use.kind == "vector"])
    if not rest:
        return shares
    if min(use.ratio for use in rest) == 0:
        return math.inf
    bounds = {
        "gdp": lambda: gaussian_epsilon(deviation(rest, full=True), delta),
        "rdp": lambda: renyi_epsilon(rest, delta),
        "pld": lambda: float(composed(rest, adjacency).get_epsilon_for_delta(delta)),
        "pure": lambda: pure_level(rest),
        "profile": lambda: objective_epsilon(rest, delta, adjacency),
    }
    return shares + bounds[accountant]()


def pure_level(uses: Iterable[Use]) -> float:
    """Return the sum of the pure levels."""
    return sum(use.times * use.level for use in uses)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the root of the profile of N(mu, 1) against N(0, 1).

    Balle and Wang, "Improving the Gaussian mechanism for differential privacy", ICML
    2018, Theorem 8.
    """

    def excess(epsilon: float) -> float:
        above = norm.cdf(mu / 2 - epsilon / mu)
        below = math.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu))
        return float(above - below - delta)

    if excess(0.0) <= 0:
        return 0.0
    top = mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta)) + 1
    return float(brentq(excess, 0.0, top, xtol=1e-13, rtol=1e-13))


def renyi_curve(use: Use) -> Floats:
    """Return the Renyi divergence of one use at ``ORDERS``.

    Selections: the largest over all pairs of two outcomes with log-ratios t and t -
    level (bounded range), or randomised response (pure). Laplace: by quadrature.
    """
    if full_batch(use):
        return ORDERS / (2 * use.ratio**2)
    if use.kind == "poisson_gaussian":
        raise ValueError("Renyi accounting is not kept for samples")
    power, level = ORDERS - 1, use.level
    if use.kind == "objective":
        return objective_curve(use)
    if use.kind == "laplace":
        moments = laplace_moments(power, level)
    else:
        bounded = use.kind == "bounded_range"
        ends = level * (1 - GRADED) if bounded else np.array([level])
        width = level if bounded else 2 * level
        p = (math.exp(width) - np.exp(ends)) / math.expm1(width)
        a, less = power[:, None], ends - level
        pairs = p * np.exp(a * less) + (1 - p) * np.exp(a * (less - width))
        moments = pairs.max(axis=1)
    curve: Floats = level + np.log(moments) / power
    return curve


def laplace_moments(power: Floats, level: float) -> Floats:
    """Return E (P/Q)^power of Lap(0, 1) against Lap(level, 1), over e^(power level)."""
    nodes, weights = np.polynomial.legendre.leggauss(4)
    half = level * np.diff(GRADED)[:, None] / 2
    x = (level * GRADED[:-1, None] + half * (nodes + 1)).ravel()
    gain = np.exp(-(2 * power[:, None] + 1) * x) @ (half * weights).ravel()
    ends = 1 + np.exp(-(1 + 2 * power) * level)
    return np.asarray((gain + ends) / 2)


def objective_losses(use: Use) -> tuple[Floats, Floats]:
    """Return nodes (losses, masses) of c + m^2 / 2 + m |u|, u normal, m = 1 / ratio.

    The loss of one record's term in a perturbed objective is at most that.
    """
    nodes, weights = np.polynomial.legendre.leggauss(40)
    ends = np.linspace(0.0, 38.0, 400)
    half = np.diff(ends)[:, None] / 2
    u = (ends[:-1, None] + half * (1 + nodes)).ravel()
    masses = 2 * norm.pdf(u) * (half * weights).ravel()
    m = 1 / use.ratio
    return use.curvature + m * m / 2 + m * u, masses


def objective_curve(use: Use) -> Floats:
    """Return the Renyi divergence by quadrature, infinite where it is too large."""
    losses, masses = objective_losses(use)
    power = ORDERS - 1
    known = power / use.ratio < LARGEST_TILT
    curve = np.full(ORDERS.shape, np.inf)
    exponents = power[known, None] * (losses - losses[0])
    largest = (exponents + np.log(np.maximum(masses, 1e-300))).max(axis=1)
    sums = np.exp(exponents - largest[:, None]) @ masses
    curve[known] = losses[0] + (largest + np.log(sums)) / power[known]
    return curve


def objective_epsilon(uses: Sequence[Use], delta: float, adjacency: Adjacency) -> float:
    """Return the root of the profile of one minimiser, twice that of one term.

    Gaussian uses beside it: the mean of their profile at epsilon less each loss.
    """
    minimisers = [use for use in uses if use.kind == "objective"]
    others = [use for use in uses if full_batch(use)]
    alone = len(minimisers) == 1 and minimisers[0].times == 1
    if not alone or len(others) != len(uses) - 1:
        raise ValueError("the profile is that of one perturbed objective alone")
    losses, masses = objective_losses(minimisers[0])
    mu = deviation(others)
    terms = 2 if adjacency is Adjacency.REPLACE_ONE else 1

    def excess(epsilon: float) -> float:
        left = np.minimum(epsilon - losses, 700.0)
        if mu > 0:
            gains = norm.cdf(mu / 2 - left / mu)
            gains -= np.exp(left + norm.logcdf(-mu / 2 - left / mu))
        else:
            gains = np.maximum(-np.expm1(left), 0.0)
        return terms * float(masses @ gains) - delta

    top = losses[-1] + 40 * mu + mu * mu
    return 0.0 if excess(0.0) <= 0 else float(brentq(excess, 0.0, top))


def renyi_epsilon(uses: Sequence[Use], delta: float) -> float:
    """Return the library's conversion of the summed curves."""
    from dp_accounting.rdp import compute_epsilon

    total = np.sum([use.times * renyi_curve(use) for use in uses], axis=0)
    known = np.isfinite(total)
    epsilon, _ = compute_epsilon(ORDERS[known], total[known], delta)
    return float(epsilon)


def least_epsilon(uses: Iterable[Use], delta: float, adjacency: Adjacency) -> float:
    """Return an epsilon below which the composition is not private at ``delta``.

    What has no exact instance here is left out, as are selections of unequal noise:
    what is left is a function of what was released, hence no more private.
    """
    uses = tuple(uses)
    if any(use.ratio == 0 for use in uses):
        return math.inf
    kept = [use for use in uses if use.kind in EXACT and use.spread == 1.0]
    if not kept:
        return 0.0
    if all(full_batch(use) for use in kept):
        return gaussian_epsilon(deviation(kept), delta)
    return float(composed(kept, adjacency, least=True).get_epsilon_for_delta(delta))
