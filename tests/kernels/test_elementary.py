"""Test elementary functions against decimal arithmetic with 40 digits."""

import math
from decimal import Decimal, getcontext, localcontext

import numpy as np
import pytest

from dp_erm_bench.kernels import elementary
from dp_erm_bench.kernels.compiled import exact

TOLERANCE = 4e-16
TINIEST = 2.0**-1022
PI = Decimal("3.1415926535897932384626433832795028841971693993751058209749445923")


@exact
def exp_all(x, out):
    for i in range(x.size):
        out[i] = elementary.exp(x[i])


@exact
def log_all(x, out):
    for i in range(x.size):
        out[i] = elementary.log(x[i])


@exact
def turns_all(u, cosines, sines):
    for i in range(u.size):
        cosines[i] = elementary.cos_turns(u[i])
        sines[i] = elementary.sin_turns(u[i])


def applied(function, x):
    out = np.empty(len(x))
    function(np.asarray(x, dtype=np.float64), out)
    return out


def relative_error(value, exact_value):
    return float(abs(Decimal(float(value)) / exact_value - 1))


@pytest.fixture(autouse=True)
def digits():
    with localcontext():
        getcontext().prec = 40
        yield


def cosine(turns):
    """Return cos(2 pi u) by its series, in decimal arithmetic."""
    turns = abs(Decimal(turns) - round(Decimal(turns)))
    x, term, total = 2 * PI * turns, Decimal(1), Decimal(1)
    for k in range(1, 30):
        term *= -x * x / ((2 * k - 1) * (2 * k))
        total += term
    return total


def exp_points():
    rng = np.random.default_rng(0)
    halves = np.arange(-1000, 1001, 100) / 2 * math.log(2.0)  # where k changes
    small = np.concatenate([10.0 ** -np.arange(0, 300, 25.0), [0.0]])
    return np.concatenate(
        [rng.uniform(-708, 708, 300), rng.uniform(-1, 1, 200), halves, small, -small]
    )


def log_points():
    rng = np.random.default_rng(1)
    near = 1.0 + np.concatenate([-(2.0 ** -np.arange(2, 54)), 2.0 ** -np.arange(1, 53)])
    roots = math.sqrt(0.5) * np.array(
        [1 - 2e-16, 1, 1 + 2e-16, 2 - 4e-16, 2, 2 + 4e-16]
    )
    powers = 2.0 ** np.arange(-1022, 1024, 31)
    return np.concatenate(
        [
            np.exp(rng.uniform(-708, 709, 300)),
            rng.uniform(0.5, 2.0, 300),
            near,
            roots,
            powers,
            [TINIEST, np.finfo(float).max],
        ]
    )


def test_exp_is_accurate():
    for x, value in zip(exp_points(), applied(exp_all, exp_points()), strict=True):
        assert relative_error(value, Decimal(float(x)).exp()) <= TOLERANCE, x


def test_log_is_accurate_everywhere_and_near_one():
    for x, value in zip(log_points(), applied(log_all, log_points()), strict=True):
        if x == 1.0:
            assert value == 0.0
        else:
            assert relative_error(value, Decimal(float(x)).ln()) <= TOLERANCE, x


def test_turns_are_accurate():
    rng = np.random.default_rng(2)
    eighths = np.arange(9) / 8
    u = np.concatenate([rng.random(300), eighths, np.clip(eighths - 1e-9, 0, 1)])
    cosines, sines = np.empty(u.size), np.empty(u.size)
    turns_all(u, cosines, sines)
    for i, turns in enumerate(u.tolist()):
        assert abs(Decimal(cosines[i]) - cosine(turns)) <= TOLERANCE, turns
        shifted = Decimal(turns) - Decimal("0.25")
        assert abs(Decimal(sines[i]) - cosine(shifted)) <= TOLERANCE, turns


def test_turns_are_exact_at_quarters():
    quarters = np.arange(5) / 4
    cosines, sines = np.empty(5), np.empty(5)
    turns_all(quarters, cosines, sines)
    np.testing.assert_allclose(cosines, [1, 0, -1, 0, 1], rtol=0, atol=1e-16)
    np.testing.assert_allclose(sines, [0, 1, 0, -1, 0], rtol=0, atol=1e-16)


def test_turns_lie_on_the_unit_circle():
    u = np.random.default_rng(3).random(20000)
    cosines, sines = np.empty(u.size), np.empty(u.size)
    turns_all(u, cosines, sines)
    assert np.abs(np.hypot(cosines, sines) - 1.0).max() <= 4e-16
    angle = np.arctan2(sines, cosines) / (2 * np.pi) % 1.0
    assert np.abs(angle - u).max() <= 4e-16


def test_exp_saturates_without_overflow_or_subnormals():
    far = applied(exp_all, [-math.inf, -1e300, -709.0, -708.0, 708.0, 1e4, math.inf])
    assert (far[:3] == far[3]).all() and (far[5:] == far[4]).all()
    assert TINIEST <= far[0] and far[-1] < math.inf


def test_nan_stays_nan():
    assert np.isnan(applied(exp_all, [math.nan, 0.0, math.nan])).tolist() == [
        True,
        False,
        True,
    ]


def test_exp_and_log_are_inverse():
    x = np.random.default_rng(4).uniform(-700, 700, 20000)
    back = applied(log_all, applied(exp_all, x))
    np.testing.assert_allclose(back, x, rtol=1e-15, atol=1e-15)


@pytest.mark.parametrize("mapped, name", [(exp_all, "exp"), (log_all, "log")])
def test_vector_code_gives_the_bits_of_the_scalar_code(mapped, name):
    x = np.random.default_rng(5).uniform(0.01, 9.0, 37)
    one_by_one = [getattr(elementary, name)(value) for value in x]
    assert applied(mapped, x).tolist() == one_by_one
