"""Statements on structured norms in papers, against closed forms (docs/errata.md)."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit

from dp_erm_bench.accounting.bounds import gdp_epsilon
from dp_erm_bench.norms.cardinality import Cardinality


def jump(n):
    """How far the optimum moves, the lambda of the theorem, and where it was.

    Logistic loss with lambda norm1 on the sum, p = 2: n - 1 records are (1, 1)/sqrt 2,
    the last one is (1, 0) or (0, 1), so that all of the optimum is on the axis that the
    last record has.
    """
    strength = math.sqrt(n) / Cardinality().width(2)
    root = math.sqrt(0.5)

    def slope(a):
        return strength - (n - 1) * root * expit(-root * a) - expit(-a)

    a = brentq(slope, 0.0, 100.0, xtol=1e-14)
    other = (n - 1) * root * expit(-root * a) + 0.5
    return math.sqrt(2.0) * a, strength, a, strength - (other - 0.5)


@pytest.mark.parametrize(
    ("n", "moved", "epsilon"), [(100, 4.6517, 10.4), (1000, 7.0911, 90.8)]
)
def test_a_smooth_loss_with_the_l1_norm_jumps_too(n, moved, epsilon):
    """L = R_2 = 1, claimed epsilon 1 at 1e-5, with 4 times the printed noise."""
    found, strength, a, room = jump(n)
    # The other coordinate stays at 0: its slope is inside of [-lambda, lambda].
    assert room > 0.0 and a > 0.0
    assert found == pytest.approx(moved, abs=1e-4)
    assert found > 10 * 2.0 / strength
    sigma = 4.0 * math.sqrt(math.log(1e5) + 1.0) / strength
    assert gdp_epsilon(found / sigma, 1e-5) == pytest.approx(epsilon, rel=0.01)


def selection_epsilon(weight, scale):
    """Return the exact epsilon(1e-5) of one noisy choice among two vertices, +-1/2.

    p = 1, n = 100: losses c_i (theta - y_i)^2 / 2, all (c, y) = (1, 0) but one, (C, 1)
    or (C, -1). The scores are +-theta / 2, theta = +-C / (99 + C), and the noise of
    their difference is that of two Laplace draws.
    """
    gap = weight / (99.0 + weight) / scale
    wrong = math.exp(-gap) * (2.0 + gap) / 4.0
    return math.log((1.0 - wrong - 1e-5) / wrong)


PRINTED = 1.5 * math.sqrt(8.0 * math.log(1e5)) / 100.0
"""L Gamma sqrt(8 T log(1/delta)) / (n eps): kappa = 1/2, T = 1, Gamma = 1, L = 1.5."""


@pytest.mark.parametrize(
    ("weight", "epsilon"), [(1, 0.069), (10, 0.625), (100, 3.131), (1000, 5.585)]
)
def test_the_printed_noise_of_dual_frank_wolfe_forgets_curvature(weight, epsilon):
    assert pytest.approx(0.143955, abs=1e-6) == PRINTED
    assert selection_epsilon(weight, PRINTED) == pytest.approx(epsilon, abs=2e-3)
    # theta(s) moves by 2 L_l / (Delta n) at most; |theta - y| <= 2, Delta = the mean c.
    moved = 2.0 * (2.0 * weight) / (99.0 + weight)
    assert 2.0 * weight / (99.0 + weight) <= moved
    # Half of norm2 over K, twice: Gamma = 1 for K = [-1/2, 1/2].
    ours = moved * math.sqrt(8.0 * math.log(1e5))
    assert selection_epsilon(weight, ours) <= 1.0


def test_a_perturbed_objective_is_a_shift_of_the_dual_set():
    """Loss norm2(theta - a)^2 / 2, kappa Omega, and a linear term b / n."""
    a, kappa, norm = np.array([1.0, -0.3, 0.2]), 0.4, Cardinality("sqrt")
    b = np.array([0.35, -0.2, -0.5])
    direct = norm.prox(a - b, kappa)
    # The dual point is the nearest to a of kappa |P|(F) + b / n, and theta = a - it.
    shifted = b + norm.project(a - b, kappa)
    np.testing.assert_allclose(a - shifted, direct, atol=1e-9)
    np.testing.assert_allclose(direct, [0.392157, 0.0, 0.392157], atol=5e-7)
    # Not the unperturbed dual point plus b / n.
    added = a - (norm.project(a, kappa) + b)
    np.testing.assert_allclose(added, [0.25, 0.065685, 0.572865], atol=5e-7)
    assert np.abs(added - direct).max() > 0.1


def dual_gaps(norm, kappa, step, steps):
    """The gaps kappa Omega(theta) - s.theta of Frank-Wolfe on a dual."""
    X, y = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, -1.0]]), np.array([1.0, -0.5, 0.25])
    system, right = X.T @ X / 3 + 0.1 * np.eye(2), X.T @ y / 3
    s, gaps, theta = np.zeros(2), [], np.zeros(2)
    for t in range(steps):
        theta = np.linalg.solve(system, right - s)
        gaps.append(float(kappa * norm.value(theta) - s @ theta))
        s = s + step(t) * (kappa * norm.maximiser(theta) - s)
    fit = np.square(X @ theta - y).mean() / 2 + 0.05 * theta @ theta
    return gaps, float(fit + kappa * norm.value(theta))


@pytest.mark.parametrize(
    ("function", "value"), [("count", 0.148190), ("one", 0.127814)]
)
def test_the_printed_step_of_dual_frank_wolfe_is_slower(function, value):
    norm = Cardinality(function)
    usual, reached = dual_gaps(norm, 0.05, lambda t: 2.0 / (t + 2), 4_000)
    printed, _ = dual_gaps(norm, 0.05, lambda t: 1.0 / (t + 3), 4_000)
    assert min(usual) >= -1e-15
    assert reached == pytest.approx(value, abs=5e-7)
    # From t = 1 on the start keeps a weight of 2 / (T + 2): here all of the gap.
    assert printed[-1] >= 5e-6 and printed[-1] >= 5.0 * max(usual[-50:])
