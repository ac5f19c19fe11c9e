"""Exact accounting of Gaussian mechanisms.

T adaptive Gaussian releases whose scale / sensitivity are z_1 .. z_T are exactly as
hard to tell apart as N(0, 1) and N(mu, 1), mu = sqrt(sum_t 1 / z_t^2) (Dong, Roth, Su,
"Gaussian Differential Privacy", JRSS-B 2022, Corollary 3.3). Their profile is that of
Balle and Wang ("Improving the Gaussian Mechanism", ICML 2018, Theorem 8):

    delta(eps) = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu).
"""

import math

from scipy.special import erfcx, ndtr

from dp_erm_bench.accounting.search import smallest_true
from dp_erm_bench.releases.gaussian import log_gdp_delta
from dp_erm_bench.releases.law import Law


def mu_for(epsilon: float, delta: float) -> float:
    """Return the largest mu such that mu-GDP is (epsilon, delta)-DP.

    Parameters
    ----------
    epsilon : float
        At least 0, at most 1e3 for what is said below.
    delta : float
        In [0, 1); 0 gives mu = 0, as no Gaussian is purely private.

    Returns
    -------
    float
        The mu, for delta >= 1e-300 to a relative 1e-9, whatever epsilon, and above
        the exact value by no more than the rounding of delta.
    """
    if delta <= 0:
        return 0.0
    if delta > 0.5:
        left = 1.0 - delta
        return 1 / smallest_true(lambda scale: gdp_left(epsilon, 1 / scale) >= left)
    goal = math.log(delta)
    return 1 / smallest_true(lambda scale: log_gdp_delta(epsilon, 1 / scale) <= goal)


def gdp_left(epsilon: float, mu: float) -> float:
    """Return 1 - ``gdp_delta``, of full relative precision where delta is near 1.

    It is Phi(s) + e^eps Phi(-r), a sum of terms >= 0.
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


def folded(laws: tuple[Law, ...], z: float) -> tuple[float, list[Law]]:
    """Return the mu of the Gaussian releases, all as one, and the other laws."""
    squares = [law.mu_square(z) for law in laws]
    mu = math.sqrt(math.fsum(square for square in squares if square is not None))
    pairs = zip(laws, squares, strict=True)
    return mu, [law for law, square in pairs if square is None]


def gaussian_mu(laws: tuple[Law, ...], z: float) -> float | None:
    """Return the mu of a composition, None unless all of it is exactly GDP."""
    mu, others = folded(laws, z)
    return None if others else mu
