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

TINY = 1e-5
"""Below this mu the closed form loses digits: about 1e-16 / mu of delta."""
LARGE = 40.0


def log_gdp_delta(epsilon: float, mu: float) -> float:
    """Return the logarithm of ``gdp_delta``; finite far below 1e-308.

    With s = eps/mu - mu/2 and r = eps/mu + mu/2 one has r^2 - s^2 = 2 eps, so both
    terms share the factor e^(-s^2/2): delta = e^(-s^2/2) (erfcx(s/sqrt2) -
    erfcx(r/sqrt2)) / 2, erfcx(x) = e^(x^2) erfc(x). Nothing over- or underflows for
    s > 0; for s <= 0 the first term of the plain formula is at least 1/2. For tiny mu
    the difference is an integral, see :func:`tiny_log_delta`.
    """
    if mu <= 0:
        return -math.inf
    if mu < TINY:
        return tiny_log_delta(epsilon, mu)
    s, r = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    tail = float(erfcx(r / math.sqrt(2))) / 2
    if s > 0:
        gap = float(erfcx(s / math.sqrt(2))) / 2 - tail
        return math.log(gap) - s * s / 2 if gap > 0 else -math.inf
    value = float(ndtr(-s)) - math.exp(-s * s / 2) * tail
    return math.log(value) if value > 0 else -math.inf


def tiny_log_delta(epsilon: float, mu: float) -> float:
    """Return the logarithm of ``gdp_delta`` for mu < TINY, rounded up.

    With Mills' ratio M(x) = sqrt(pi/2) erfcx(x/sqrt2) the difference above is the
    integral of N = -M' = 1 - x M over [s, r], whose middle is a = eps/mu and whose
    length is mu. N is convex and 0 <= N'' <= 2 N for x >= 0, so that it is at most
    mu N(a) (1 + mu^2/12), and less than that by a part 1e-11 at most. N(a) is its
    asymptotic series for large a.
    """
    a = epsilon / mu
    if a < LARGE:
        slope = 1 - a * math.sqrt(math.pi / 2) * float(erfcx(a / math.sqrt(2)))
    else:
        slope = 1.0
        for odd in (13, 11, 9, 7, 5, 3):
            slope = 1 - odd / a / a * slope
        slope = slope / a / a
    if not slope > 0:
        return -math.inf
    s = a - mu / 2
    logs = math.log(mu) + math.log(slope) + math.log1p(mu * mu / 12)
    return logs - s * s / 2 - math.log(2 * math.pi) / 2


def gdp_delta(epsilon: float, mu: float) -> float:
    """Return the smallest delta at which mu-GDP is (epsilon, delta)-DP."""
    return math.exp(log_gdp_delta(epsilon, mu))


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
