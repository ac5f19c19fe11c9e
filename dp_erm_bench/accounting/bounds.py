"""Bounds in closed form: pure levels, Gaussian mechanisms, Renyi divergences.

**Gaussian.** The outputs of T adaptive Gaussian releases with scale / sensitivity
z_1 .. z_T on neighbours are exactly as hard to tell apart as N(0, 1) and N(mu, 1),
mu = sqrt(sum_t 1 / z_t^2) (Dong, Roth, Su, "Gaussian Differential Privacy", JRSS-B
2022, Corollary 3.3). Their privacy profile is that of Balle and Wang ("Improving the
Gaussian Mechanism", ICML 2018, Theorem 8):

    delta(eps) = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu).

**Renyi.** A mechanism is (alpha, eps(alpha))-RDP if the Renyi divergence of order alpha
between its outputs on neighbours is at most eps(alpha); curves add up under adaptive
composition (Mironov, "Renyi Differential Privacy", CSF 2017, Proposition 1).
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import erfcx, ndtr

from dp_erm_bench.releases.gaussian import log_gdp_delta
from dp_erm_bench.releases.law import Law
from dp_erm_bench.releases.losses import Floats

Laws = tuple[Law, ...]


def smallest_true(holds: Callable[[float], bool]) -> float:
    """Return the smallest positive number at which a monotone condition holds.

    Parameters
    ----------
    holds : callable
        False below some positive number, true above it.

    Returns
    -------
    float
        A number at which the predicate holds, within a few units in the last place of
        the smallest one. Infinity if the predicate holds nowhere, about 1e-300 if it
        holds everywhere.
    """
    high = 1.0
    while not holds(high):
        high *= 16.0
        if math.isinf(high):
            return math.inf
    low = high / 16
    while low > 1e-300 and holds(low):
        high, low = low, low / 16
    while high - low > 4e-16 * high:
        middle = low + (high - low) / 2
        if not low < middle < high:
            break
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


@functools.lru_cache(maxsize=256)
def mu_for(epsilon: float, delta: float) -> float:
    """Return the largest mu such that mu-GDP is (epsilon, delta)-DP.

    Parameters
    ----------
    epsilon : float
        At least 0; the accuracy below is stated for values up to 1e3.
    delta : float
        In [0, 1); 0 gives mu = 0, as no Gaussian is purely private.

    Returns
    -------
    float
        The mu, to a relative accuracy of 1e-9 for delta >= 1e-300. It exceeds the
        exact value by no more than the rounding of delta.
    """
    if delta <= 0:
        return 0.0
    if delta > 0.5:
        left = 1.0 - delta
        return 1 / smallest_true(
            lambda scale: gdp_complement(epsilon, 1 / scale) >= left
        )
    goal = math.log(delta)
    return 1 / smallest_true(lambda scale: log_gdp_delta(epsilon, 1 / scale) <= goal)


def gdp_complement(epsilon: float, mu: float) -> float:
    """Return 1 - ``gdp_delta``, to full relative precision even if delta is near 1.

    The result is computed as Phi(s) + e^eps Phi(-r), a sum of two terms >= 0.
    """
    s, r = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    tail = float(erfcx(r / math.sqrt(2))) / 2
    return float(ndtr(s)) + math.exp(-s * s / 2) * tail


def gdp_epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon >= 0 at which mu-GDP is (epsilon, delta)-DP."""
    if mu <= 0:
        return 0.0
    if delta <= 0 or not math.isfinite(mu):
        return math.inf
    goal = math.log(delta)
    if log_gdp_delta(0.0, mu) <= goal:
        return 0.0
    return smallest_true(lambda epsilon: log_gdp_delta(epsilon, mu) <= goal)


def fold_gaussians(laws: Laws, z: float) -> tuple[float, list[Law]]:
    """Return the mu of all Gaussian releases together, and the laws of the others."""
    squares = [(law, law.mu_square(z)) for law in laws]
    mu = math.sqrt(math.fsum(square for _, square in squares if square is not None))
    return mu, [law for law, square in squares if square is None]


def gaussian_epsilon(laws: Laws, z: float, delta: float) -> float | None:
    """Return the exact epsilon of Gaussian releases; None if there are other laws.

    Parameters
    ----------
    laws : tuple of Law
        The laws of all releases.
    z : float
        Common noise multiplier, positive.
    delta : float
        In [0, 1).
    """
    mu, others = fold_gaussians(laws, z)
    return None if others else gdp_epsilon(mu, delta)


def sum_over_uses(laws: Laws, ask: Callable[[Law], Any]) -> Any:
    """Return the sum of ``ask(law)`` over all uses; None if it is None for a law."""
    answers = [(law.times, ask(law)) for law in laws]
    if any(answer is None for _, answer in answers):
        return None
    return sum(times * answer for times, answer in answers)


def pure_epsilon(laws: Laws, z: float) -> float | None:
    """Return the sum of the pure epsilons of all uses; None if a law is not pure.

    This is basic composition (Dwork and Roth, 2014, Theorem 3.16), valid at delta = 0.
    """
    total = sum_over_uses(laws, lambda law: law.level(z))
    return None if total is None else total * (1 + 4e-16 * len(laws))


@functools.cache
def default_orders() -> Floats:
    """Return the orders alpha > 1 over which conversions to epsilon minimise."""
    near_one = 1 + np.geomspace(1e-3, 1, 60)[:-1]
    middle = np.arange(2, 64, 0.25)
    powers = 2.0 ** np.arange(8.25, 15.76, 0.25)
    return np.concatenate([near_one, middle, np.arange(64, 257), powers])


def converted_epsilon(orders: Floats, curve: Floats, delta: float) -> float:
    """Return the smallest epsilon >= 0 that an RDP curve proves at ``delta``.

    eps = min over a of eps(a) + log(1 - 1/a) - log(delta a)/(a - 1) (Canonne, Kamath,
    Steinke, "The Discrete Gaussian for Differential Privacy", NeurIPS 2020,
    Proposition 12).

    Parameters
    ----------
    orders : array of shape (m,)
        The orders a > 1.
    curve : array of shape (m,)
        Renyi divergence eps(a) of the composition at each order.
    delta : float
        In [0, 1); the result is infinite at 0.
    """
    if delta <= 0:
        return math.inf
    gain = np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
    return max(0.0, float(np.min(curve + gain)))


def rdp_epsilon(laws: Laws, z: float, delta: float) -> float | None:
    """Return the epsilon that Renyi accounting proves; None for a law without a curve.

    Parameters
    ----------
    laws : tuple of Law
        The laws of all releases.
    z : float
        Common noise multiplier, positive.
    delta : float
        In [0, 1).
    """
    orders = default_orders()
    curve = sum_over_uses(laws, lambda law: law.rdp(z, orders))
    return None if curve is None else converted_epsilon(orders, curve, delta)


def rdp_deltas(laws: Laws, z: float, epsilons: Floats) -> Floats:
    """Return the deltas that Renyi accounting proves; 1 for a law without a curve.

    delta = min over a of e^((a-1) (eps(a) - eps)) (1 - 1/a)^a / (a - 1), at most 1.
    This is the conversion of ``converted_epsilon``, solved for delta.

    Parameters
    ----------
    laws : tuple of Law
        The laws of all releases.
    z : float
        Common noise multiplier, positive.
    epsilons : array of shape (m,)
        At least 0.
    """
    orders = default_orders()
    curve = sum_over_uses(laws, lambda law: law.rdp(z, orders))
    if curve is None:
        return np.ones_like(epsilons)
    gain = orders * np.log1p(-1 / orders) - np.log(orders - 1)
    logs = (orders - 1) * (curve - epsilons[:, None]) + gain
    return np.asarray(np.exp(np.minimum(logs.min(axis=1), 0.0)))


def zcdp_epsilon(laws: Laws, z: float, delta: float) -> float | None:
    """Return the epsilon that zCDP proves; None for a law without rho.

    zCDP is zero-concentrated DP: epsilon = rho + 2 sqrt(rho log(1 / delta)) (Bun and
    Steinke, "Concentrated differential privacy", TCC 2016, Proposition 1.3).

    Parameters
    ----------
    laws : tuple of Law
        The laws of all releases.
    z : float
        Common noise multiplier, positive.
    delta : float
        In (0, 1).
    """
    rho = sum_over_uses(laws, lambda law: law.rho(z))
    return None if rho is None else rho + 2 * math.sqrt(-rho * math.log(delta))


def library_epsilon(laws: Laws, z: float, delta: float) -> float:
    """Return the epsilon of dp_accounting's Renyi accountant under ``zero_out``.

    That accountant includes amplification by sampling. Our own Renyi accountant leaves
    amplification to privacy-loss distributions.

    Parameters
    ----------
    laws : tuple of Law
        The laws of all releases, whose noise must be normal.
    z : float
        Common noise multiplier, positive.
    delta : float
        In (0, 1).
    """
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant()
    for law in laws:
        accountant.compose(law.library_event(z), law.times)
    return float(accountant.get_epsilon(delta))
