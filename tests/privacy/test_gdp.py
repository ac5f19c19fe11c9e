import math
from decimal import Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate

from dp_erm_bench.accounting.bounds import gdp_epsilon, mu_for, smallest_true
from dp_erm_bench.accounting.least import smallest_multiplier
from dp_erm_bench.errors import UsageError
from dp_erm_bench.releases.gaussian import (
    Gaussian,
    divide_mu,
    gdp_delta,
    log_gdp_delta,
)
from dp_erm_bench.releases.laplace import Laplace
from tests.loops import each


def by_quadrature(epsilon: float, mu: float) -> float:
    start = epsilon / mu + mu / 2

    def excess(x: float) -> float:
        p = math.exp(-((x - mu) ** 2) / 2)
        return (p - math.exp(epsilon - x * x / 2)) / math.sqrt(2 * math.pi)

    return float(integrate.quad(excess, start, start + 40, epsabs=0, limit=200)[0])


@each("epsilon", [0.0, 0.1, 1.0, 5.0])
@each("mu", [0.05, 0.3, 1.0, 4.0])
def test_profile_equals_its_definition(epsilon: float, mu: float) -> None:
    expected = by_quadrature(epsilon, mu)
    assert gdp_delta(epsilon, mu) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("epsilon", "scale"), [(0.1, 36.3047), (1, 4.22468), (5, 0.980049), (10, 0.541087)]
)
def test_published_scales(epsilon: float, scale: float) -> None:
    assert 1 / mu_for(epsilon, 1e-6) == pytest.approx(scale, rel=2e-6)


def test_published_mu() -> None:
    assert mu_for(1, 1e-6) == pytest.approx(0.236704, abs=5e-7)


def test_arora_single_use_and_output_perturbation() -> None:
    # Used with probability 1/2, delta(eps) = gdp_delta(eps, 2 L / sigma) / 2.
    assert 2 / mu_for(0.05, 2e-6) == pytest.approx(131.888, rel=1e-5)
    assert 0.2 / mu_for(1, 1e-6) == pytest.approx(0.844936, rel=1e-5)


@given(st.floats(1e-3, 50), st.floats(-600, -0.1))
def test_mu_is_largest_and_safe(epsilon: float, log_delta: float) -> None:
    delta = math.exp(log_delta)
    mu = mu_for(epsilon, delta)
    assert log_gdp_delta(epsilon, mu) <= math.log(delta)
    assert log_gdp_delta(epsilon, mu * (1 + 1e-6)) > math.log(delta)
    assert gdp_epsilon(mu, delta) == pytest.approx(epsilon, rel=1e-6, abs=1e-9)


DIGITS = 700
with localcontext(prec=DIGITS):
    # Machin.
    PI = 4 * sum(
        Decimal(c * (-1) ** k) / ((2 * k + 1) * Decimal(x) ** (2 * k + 1))
        for c, x in ((4, 5), (-1, 239))
        for k in range(505)
    )


def upper_tail(x: Decimal) -> Decimal:
    """1 - Phi(x) by the series of Phi: no digit is lost at this precision."""
    term, total, k = x, x, 0
    while abs(term) > Decimal(10) ** -(DIGITS - 50):
        k += 1
        term = -term * x * x / (2 * k)
        total += term / (2 * k + 1)
    return Decimal("0.5") - total / (2 * PI).sqrt()


def exact_delta(epsilon: float, mu: Decimal) -> Decimal:
    e = Decimal(epsilon)
    return upper_tail(e / mu - mu / 2) - e.exp() * upper_tail(e / mu + mu / 2)


@each(
    ("epsilon", "delta"),
    [
        *((0.0, delta) for delta in (1e-300, 1e-10, 0.5)),
        *((1e-300, delta) for delta in (1e-300, 1e-3)),
        *((1e-30, delta) for delta in (1e-300, 1e-40, 1e-10)),
        *((1e-11, delta) for delta in (1e-300, 1e-40, 1e-10, 0.5)),
        *((1e-6, delta) for delta in (1e-300, 1e-7, 1 - 1e-12)),
        *((1.0, delta) for delta in (1e-300, 1e-6, 1 - 1e-12)),
        (100.0, 1e-40),
    ],
)
def test_mu_keeps_nine_digits(epsilon: float, delta: float) -> None:
    with localcontext(prec=DIGITS):
        mu, step = Decimal(mu_for(epsilon, delta)), Decimal("1e-9")
        assert exact_delta(epsilon, mu * (1 - step)) < Decimal(delta)
        assert exact_delta(epsilon, mu * (1 + step)) > Decimal(delta)


@pytest.mark.parametrize("epsilon", [1e-12, 1e-7, 3e-4])
def test_the_profile_of_tiny_mu_is_never_below_the_exact_one(epsilon: float) -> None:
    for mu in (1e-12, 1e-8, 9.9e-6, 1.1e-5):
        found = log_gdp_delta(epsilon, mu)
        with localcontext(prec=DIGITS):
            if epsilon < 40 * mu:
                exact = float(exact_delta(epsilon, Decimal(mu)).ln())
                assert -1e-10 * (mu > 1e-5) - 1e-14 <= found - exact <= 1e-9


@given(st.floats(0.01, 10), st.floats(0.01, 5))
def test_profile_is_monotone(epsilon: float, mu: float) -> None:
    at = log_gdp_delta(epsilon, mu)
    assert log_gdp_delta(epsilon * 1.01, mu) < at < log_gdp_delta(epsilon, mu * 1.01)


def test_far_tails_and_edges() -> None:
    assert log_gdp_delta(1.0, 1e-3) == pytest.approx(-(1e3**2) / 2, rel=1e-3)
    assert gdp_delta(1.0, 0.0) == 0
    assert gdp_delta(0.0, 200.0) == 1
    assert mu_for(1.0, 0.0) == 0
    assert gdp_epsilon(0.0, 0.0) == 0
    assert gdp_epsilon(0.1, 0.0) == math.inf
    assert gdp_epsilon(0.1, 0.5) == 0


@given(st.floats(1e-200, 1e200))
def test_smallest_true_is_tight_and_safe(threshold: float) -> None:
    found = smallest_true(lambda x: x >= threshold)
    assert threshold <= found <= threshold * (1 + 1e-14)


def test_smallest_true_without_an_answer() -> None:
    assert smallest_true(lambda x: False) == math.inf


@given(
    st.floats(1e-3, 1e3), st.floats(0.3, 6), st.floats(1e-4, 1e4), st.floats(1e-3, 100)
)
def test_smallest_multiplier_is_tight_and_safe(
    scale: float, power: float, start: float, epsilon: float
) -> None:
    seen = {}

    def epsilon_at(z: float) -> float:
        seen[z] = math.inf if z < scale / 100 else (scale / z) ** power + scale / z
        return seen[z]

    z = smallest_multiplier(epsilon_at, epsilon, start, 1e-6)
    assert seen[z] <= epsilon
    assert seen[z] >= epsilon * (1 - 1e-5) or z <= scale / 100 * (1 + 1e-5)
    assert len(seen) < 160


def test_impossible_search_is_loud() -> None:
    with pytest.raises(ArithmeticError, match="epsilon=1"):
        smallest_multiplier(lambda z: math.inf, 1, 1, 1e-6)


def shared(first=0.2, second=0.8, kind=Gaussian):
    pair = (kind("few", 3.0, 1), first), (Gaussian("many", 2.0, 7), second)
    return list(divide_mu(pair))


def test_shares_of_mu_square_are_those_asked_for() -> None:
    few, many = shared()
    for release, share in ((few, 0.2), (many, 0.8)):
        assert release.law().mu_square(5.0) == pytest.approx(share / 25.0)
    assert (few.sensitivity, many.times) == (3.0, 7)
    none, one = divide_mu([(Gaussian("none", 1.0, 0), 0.5), (many, 0.5)])
    assert (none.times, none.weight) == (0, 1.0) and one.weight == math.sqrt(14.0)


def test_shares_that_are_none_and_other_releases_are_refused() -> None:
    for first in (0.0, 1.0, -0.5, math.nan):
        with pytest.raises(UsageError, match="few: share=.* must be a number > 0"):
            shared(first, 1.0 - first)
    with pytest.raises(UsageError, match="add up to 0.9, but must add up to 1"):
        shared(0.2, 0.7)
    with pytest.raises(UsageError, match="few: shares .* not for Laplace"):
        shared(kind=Laplace)
