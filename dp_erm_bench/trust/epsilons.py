"""Every privacy bound a second time, from dp_accounting and plain numerics.

Nothing here imports a release or an accountant, so that one mistake cannot hide in
both: the twins are asked. Slow and meant for few steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import norm

from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.trust.twins.base import Twin
from dp_erm_bench.trust.twins.gaussian import GaussianTwin

Floats = NDArray[np.float64]
# The optimum is flat: spacing by 2.3 % costs about 1e-5 of epsilon.
ORDERS: Floats = 1 + np.geomspace(1e-2, 5e4, 600)
LATTICE = 60
FEW = 10


def proved_epsilon(
    uses: Iterable[Twin], delta: float, adjacency: Adjacency, accountant: str
) -> float:
    """Return the epsilon that an accountant proves at ``delta``.

    Parameters
    ----------
    uses : iterable of Twin
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
    rest = tuple(use for use in uses if not use.apart)
    shares = pure_level([use for use in uses if use.apart])
    if not rest:
        return shares
    if min(use.ratio for use in rest) == 0:
        return math.inf
    bounds = {
        "gdp": lambda: gaussian_epsilon(deviation(rest, full=True), delta),
        "rdp": lambda: renyi_epsilon(rest, delta),
        "pld": lambda: float(composed(rest, adjacency).get_epsilon_for_delta(delta)),
        "pure": lambda: pure_level(rest),
        "profile": lambda: profile_epsilon(rest, delta, adjacency),
    }
    return shares + bounds[accountant]()


def pure_level(uses: Iterable[Twin]) -> float:
    """Return the sum of the pure levels."""
    return sum(use.times * use.level for use in uses)


def deviation(uses: Sequence[Twin], full: bool = False) -> float:
    """Return mu of all Gaussian uses together; ``full``: there must be no other."""
    squares = [use.mu_square for use in uses if use.mu_square is not None]
    if full and len(squares) < len(uses):
        raise ValueError("Gaussian accounting knows no other noise")
    return math.sqrt(math.fsum(squares))


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


def lattice_step(uses: Sequence[Twin]) -> float:
    """Return an interval short against the loss of one use.

    It divides the levels of equally loud mechanisms: their atoms stay where they are.
    """
    # The rounding of few losses is not averaged out.
    finer = 5 if sum(use.times for use in uses) < FEW else 1
    return min(use.typical_loss for use in uses) / (finer * LATTICE)


def composed(uses: Sequence[Twin], adjacency: Adjacency, least: bool = False) -> Any:
    """Return the library's privacy-loss distribution of the composition.

    ``least``: of exact instances and rounded down, so that its epsilon is a lower
    bound; else of dominating pairs, rounded up.
    """
    step = lattice_step(uses)
    parts = []
    mu = deviation(uses)
    if mu > 0:
        # One Gaussian that all of them amount to.
        alone = GaussianTwin(1 / mu, 1)
        parts.append(alone.distribution(step, adjacency, least))
    for use in uses:
        if use.mu_square is None:
            one = use.distribution(step, adjacency, least)
            parts.append(one.self_compose(use.times))
    return reduce(lambda one, other: one.compose(other), parts)


def profile_epsilon(uses: Sequence[Twin], delta: float, adjacency: Adjacency) -> float:
    """Return the root of the profile of one minimiser, twice that of one term.

    Gaussian uses beside it: the mean of their profile at epsilon less each loss.
    """
    minimisers = [use for use in uses if use.losses() is not None]
    others = [use for use in uses if use.mu_square is not None]
    alone = len(minimisers) == 1 and minimisers[0].times == 1
    nodes = minimisers[0].losses() if alone else None
    if nodes is None or len(others) != len(uses) - 1:
        raise ValueError("the profile is that of one perturbed objective alone")
    losses, masses = nodes
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


def renyi_epsilon(uses: Sequence[Twin], delta: float) -> float:
    """Return the library's conversion of the summed curves."""
    from dp_accounting.rdp import compute_epsilon

    total = np.sum([use.times * use.renyi(ORDERS) for use in uses], axis=0)
    known = np.isfinite(total)
    epsilon, _ = compute_epsilon(ORDERS[known], total[known], delta)
    return float(epsilon)


def least_epsilon(uses: Iterable[Twin], delta: float, adjacency: Adjacency) -> float:
    """Return an epsilon below which the composition is not private at ``delta``.

    What has no exact instance here is left out, as are selections of unequal noise:
    what is left is a function of what was released, hence no more private.
    """
    uses = tuple(uses)
    if any(use.ratio == 0 for use in uses):
        return math.inf
    kept = [use for use in uses if use.is_exact]
    if not kept:
        return 0.0
    if all(use.mu_square is not None for use in kept):
        return gaussian_epsilon(deviation(kept), delta)
    return float(composed(kept, adjacency, least=True).get_epsilon_for_delta(delta))
