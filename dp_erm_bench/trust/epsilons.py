"""A second implementation of every privacy bound, by dp_accounting and numerics.

Nothing here imports a release or an accountant, so one mistake cannot hide in both
implementations. The laws are those of the twins (second implementations of the
releases). The code is slow and meant for few steps.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import reduce

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.trust.twins.base import Array, Twin
from dp_erm_bench.trust.twins.gaussian import GaussianTwin

# The optimum is flat: spacing by 2.3 % costs about 1e-5 of epsilon.
ORDERS: Array = 1 + np.geomspace(1e-2, 5e4, 600)
LATTICE = 60
FEW = 10
CUT_OFF = 1e-12
EXPONENTIAL = 600.0


def proved_epsilon(
    uses: Iterable[Twin], delta: float, adjacency: Adjacency, accountant: str
) -> float:
    """Return the epsilon that an accountant proves at ``delta``.

    Parameters
    ----------
    uses : iterable of Twin
        The mechanisms of a run. The pure epsilons of mechanisms that take a share of
        the budget are added to the rest by basic composition.
    delta : float
        In [0, 1).
    adjacency : Adjacency
        The neighbouring relation of the budget.
    accountant : {'gdp', 'rdp', 'pld', 'pure', 'profile', 'none'}
        The accountant of the calibration.

    Raises
    ------
    ValueError
        If the accountant does not know a mechanism.
    """
    uses = tuple(uses)
    rest = tuple(use for use in uses if not use.is_composed_apart)
    shares = sum(use.times * use.level for use in uses if use.is_composed_apart)
    if not rest:
        return shares
    if min(use.ratio for use in rest) == 0:
        return math.inf
    bounds: dict[str, Callable[[], float]] = {
        "gdp": lambda: epsilon_of_gaussians(deviation_of(rest, full=True), delta),
        "rdp": lambda: epsilon_by_renyi(rest, delta),
        "pld": lambda: epsilon_by_pld(rest, delta, adjacency),
        "pure": lambda: sum(use.times * use.level for use in rest),
        "profile": lambda: epsilon_by_profile(rest, delta, adjacency),
    }
    return shares + bounds[accountant]()


def deviation_of(uses: Sequence[Twin], full: bool = False) -> float:
    """Return the mu of all Gaussian uses together.

    If ``full``, ValueError is raised if there are uses that are not Gaussian.
    """
    squares = [use.mu_square for use in uses if use.mu_square is not None]
    if full and len(squares) < len(uses):
        raise ValueError("Gaussian accounting knows no other noise")
    return math.sqrt(math.fsum(squares))


def epsilon_of_gaussians(mu: float, delta: float) -> float:
    """Return the epsilon at which the profile of N(mu, 1) against N(0, 1) is ``delta``.

    The profile is that of Balle and Wang, "Improving the Gaussian mechanism for
    differential privacy", ICML 2018, Theorem 8.
    """

    def excess(epsilon: float) -> float:
        above = norm.cdf(mu / 2 - epsilon / mu)
        below = math.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu))
        return float(above - below - delta)

    if excess(0.0) <= 0:
        return 0.0
    top = mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta)) + 1
    return float(brentq(excess, 0.0, top, xtol=1e-13, rtol=1e-13))


def epsilon_by_pld(
    uses: Sequence[Twin], delta: float, adjacency: Adjacency, least: bool = False
) -> float:
    """Return the epsilon that dp_accounting's PLD accountant finds for all uses.

    Parameters
    ----------
    uses : sequence of Twin
        The mechanisms of a run.
    delta : float
        In [0, 1).
    adjacency : Adjacency
        The neighbouring relation of the budget.
    least : bool
        Whether to compose exact instances and round down, for a lower bound. Otherwise
        dominating pairs are composed and rounded up.
    """
    # The interval is short compared with the loss of one use, because the rounding of
    # few losses does not average out. It divides the pure levels of equally loud
    # mechanisms, so that their atoms do not move.
    finer = 5 if sum(use.times for use in uses) < FEW else 1
    step = min(use.typical_loss for use in uses) / (finer * LATTICE)
    mu = deviation_of(uses)
    # All Gaussian uses together are one Gaussian use.
    parts = [GaussianTwin(1 / mu, 1).distribution(step, adjacency, least)] if mu else []
    for use in uses:
        if use.mu_square is None:
            one = use.distribution(step, adjacency, least)
            parts.append(one.self_compose(use.times))
    whole = reduce(lambda one, other: one.compose(other), parts)
    epsilon = float(whole.get_epsilon_for_delta(delta))
    if not EXPONENTIAL < epsilon < math.inf:
        return epsilon
    # Beyond, e^-loss is 0 in the library, which then returns a quantile of the loss.
    return _root_of(lambda at: whole.get_delta_for_epsilon(at) - delta, epsilon)


def epsilon_by_profile(
    uses: Sequence[Twin], delta: float, adjacency: Adjacency
) -> float:
    """Return the epsilon of the profile of one use, alone or with Gaussian uses.

    The profile is the one that the twin knows, or else ``terms`` times that of its
    ``losses``. Gaussian uses enter by the mean of their profile at epsilon minus each
    loss.

    Parameters
    ----------
    uses : sequence of Twin
        The mechanisms of a run, of which exactly one is not Gaussian, used once.
    delta : float
        In (0, 1).
    adjacency : Adjacency
        The neighbouring relation of the budget.

    Raises
    ------
    ValueError
        If no profile is known for these uses.
    """
    rest, mu = [use for use in uses if use.mu_square is None], deviation_of(uses)
    if len(rest) != 1 or rest[0].times != 1:
        raise ValueError("the profile is that of one use alone")
    special, nodes = rest[0], rest[0].losses()
    if special.delta(0.0, mu) is not None:
        return _root_of(lambda epsilon: (special.delta(epsilon, mu) or 0.0) - delta)
    if nodes is None:
        raise ValueError("the profile is that of a kind with losses")
    losses, masses = nodes
    terms = special.terms(adjacency)

    def excess(epsilon: float) -> float:
        left = np.minimum(epsilon - losses, 700.0)
        if mu > 0:
            gains = norm.cdf(mu / 2 - left / mu)
            gains -= np.exp(left + norm.logcdf(-mu / 2 - left / mu))
        else:
            gains = np.maximum(-np.expm1(left), 0.0)
        return terms * float(masses @ gains) - delta

    return _root_of(excess, losses[-1] + 40 * mu + mu * mu)


def _root_of(excess: Callable[[float], float], top: float = 1.0) -> float:
    """Return the root of a falling function, searched from 0 to ``top`` or beyond."""
    if excess(0.0) <= 0:
        return 0.0
    while excess(top) > 0:
        top *= 2.0
    return float(brentq(excess, 0.0, top))


def epsilon_by_renyi(uses: Sequence[Twin], delta: float) -> float:
    """Return the epsilon that dp_accounting computes from the sum of Renyi curves."""
    from dp_accounting.rdp import compute_epsilon

    total = np.sum([use.times * use.renyi(ORDERS) for use in uses], axis=0)
    finite = np.isfinite(total)
    epsilon, _ = compute_epsilon(ORDERS[finite], total[finite], delta)
    return float(epsilon)


def least_epsilon(uses: Iterable[Twin], delta: float, adjacency: Adjacency) -> float:
    """Return an epsilon below which the composition is not private at ``delta``.

    Mechanisms without an exact instance (neighbours whose privacy loss is known
    exactly) are left out, as are selections of unequal noise. The answers of the other
    mechanisms are a function of all answers, hence at least as private.

    Parameters
    ----------
    uses : iterable of Twin
        The mechanisms of a run.
    delta : float
        In [0, 1).
    adjacency : Adjacency
        The neighbouring relation of the budget.
    """
    uses = tuple(uses)
    if any(use.ratio == 0 for use in uses):
        return math.inf
    kept = [use for use in uses if use.is_exact]
    if not kept:
        return 0.0
    if all(use.mu_square is not None for use in kept):
        return epsilon_of_gaussians(deviation_of(kept), delta)
    # The library moves 1e-15 of the mass of a composition to infinity. So at delta = 0
    # the epsilon at a larger delta serves as the lower bound.
    return epsilon_by_pld(kept, max(delta, CUT_OFF), adjacency, least=True)
