"""Exact accounting of Gaussian mechanisms.

T adaptive Gaussian releases whose scale / sensitivity are z_1 .. z_T are exactly as
hard to tell apart as N(0, 1) and N(mu, 1), mu = sqrt(sum_t 1 / z_t^2) (Dong, Roth, Su,
"Gaussian Differential Privacy", JRSS-B 2022, Corollary 3.3). Their profile is that of
Balle and Wang ("Improving the Gaussian Mechanism", ICML 2018, Theorem 8):

    delta(eps) = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu).
"""

import math

from scipy.special import erfcx, ndtr

from dp_erm_bench.privacy.search import smallest_true


def log_gdp_delta(epsilon: float, mu: float) -> float:
    """Return the logarithm of ``gdp_delta``; finite far below 1e-308.

    With s = eps/mu - mu/2 and r = eps/mu + mu/2 one has r^2 - s^2 = 2 eps, so both
    terms share the factor e^(-s^2/2): delta = e^(-s^2/2) (erfcx(s/sqrt2) -
    erfcx(r/sqrt2)) / 2, erfcx(x) = e^(x^2) erfc(x). Nothing over- or underflows for
    s > 0; for s <= 0 the first term of the plain formula is at least 1/2.
    """
    if mu <= 0:
        return -math.inf
    s, r = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    tail = float(erfcx(r / math.sqrt(2))) / 2
    if s > 0:
        gap = float(erfcx(s / math.sqrt(2))) / 2 - tail
        return math.log(gap) - s * s / 2 if gap > 0 else -math.inf
    value = float(ndtr(-s)) - math.exp(-s * s / 2) * tail
    return math.log(value) if value > 0 else -math.inf


def gdp_delta(epsilon: float, mu: float) -> float:
    """Return the smallest delta at which mu-GDP is (epsilon, delta)-DP."""
    return math.exp(log_gdp_delta(epsilon, mu))


def mu_for(epsilon: float, delta: float) -> float:
    """Return the largest mu such that mu-GDP is (epsilon, delta)-DP.

    Parameters
    ----------
    epsilon : float
        At least 0, finite.
    delta : float
        In [0, 1); 0 gives mu = 0, as no Gaussian is purely private.

    Returns
    -------
    float
        The mu, never above the exact value by more than the rounding of delta.
    """
    if delta <= 0:
        return 0.0
    goal = math.log(delta)
    return 1 / smallest_true(lambda scale: log_gdp_delta(epsilon, 1 / scale) <= goal)


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
