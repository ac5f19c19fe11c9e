"""What printed statements on structured norms are worth, without any run.

True epsilons of the noise that Kumar and Deisenroth (2019) print, on the instances that
show them too small, beside those of ours; the gap of Frank-Wolfe on the dual with both
steps; their Proposition 2. docs/errata.md says why.
"""

import math
from collections.abc import Callable

import numpy as np

from dp_erm_bench.accounting.bounds import gdp_epsilon, mu_for
from dp_erm_bench.datasets.base import Array
from dp_erm_bench.norms.base import SubmodularNorm
from dp_erm_bench.norms.cardinality import Cardinality
from dp_erm_bench.norms.groups import Groups
from dp_erm_bench.registry import check_choice

GROUP = 5
"""Coordinates of a group."""

NAMES = ("L1", "Linf", "sqrt", "log1p", f"groups of {GROUP}")


def norm_named(name: str, p: int) -> SubmodularNorm:
    """Return one of `NAMES` for p coordinates; of groups the last may be smaller."""
    check_choice("norm", name, list(NAMES))
    if name == NAMES[-1]:
        return Groups([[*range(k, min(k + GROUP, p))] for k in range(0, p, GROUP)])
    functions = {"L1": "count", "Linf": "one"}
    return Cardinality(functions.get(name, name))


def width(name: str, p: int) -> float:
    """Return the Gaussian width of |P|(F) in closed form."""
    return norm_named(name, p).width(p)


def width_error(name: str, p: int, draws: int = 4000) -> float:
    """Return how many standard errors a Monte Carlo width is from the closed form."""
    norm = norm_named(name, p)
    mean, error = norm.sampled_width(p, draws)
    return abs(mean - norm.width(p)) / error


def two_records(n: int, ridge: float = 0.0) -> tuple[float, float]:
    """Return how far the optimum of neighbours is apart, and the paper's lambda.

    Logistic loss, norm1, p = 2, L = R_2 = 1: n - 1 records are (1, 1) / sqrt 2, the
    last one is (1, 0) or (0, 1), all labels are 1. By symmetry one optimum is the other
    with its coordinates exchanged.

    References
    ----------
    Kumar, Deisenroth, 2019, equation (7) and Theorem 1, for lambda = sqrt n / G.
    """
    # Not at the top: scipy.optimize takes long to import.
    from scipy.optimize import minimize
    from scipy.special import expit

    strength = math.sqrt(n) / Cardinality().width(2)
    root = math.sqrt(0.5)

    def objective(w: Array) -> tuple[float, Array]:
        margin = root * (w[0] + w[1])
        value = (n - 1) * np.logaddexp(0.0, -margin) + np.logaddexp(0.0, -w[0])
        value += strength * (w[0] + w[1]) + 0.5 * n * ridge * (w @ w)
        common = strength - (n - 1) * root * expit(-margin)
        slope = np.array([common - expit(-w[0]), common]) + n * ridge * w
        return value / n, slope / n

    # Both coordinates are at least 0 at the optimum, where norm1 is linear.
    found = minimize(
        objective,
        np.array([1.0, 0.1]),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, None)] * 2,
        options={"ftol": 1e-16, "gtol": 1e-12, "maxiter": 10_000},
    )
    return math.sqrt(2.0) * abs(float(found.x[0] - found.x[1])), strength


def printed_output_epsilon(n: int, factor: float = 1.0, delta: float = 1e-5) -> float:
    """Return the true epsilon of printed output noise, times a factor, claimed 1."""
    moved, strength = two_records(n)
    sigma = factor * math.sqrt(math.log(1.0 / delta) + 1.0) / strength
    return gdp_epsilon(moved / sigma, delta)


def ridge_output_epsilon(n: int, ridge: float, delta: float = 1e-5) -> float:
    """Return the true epsilon of our output noise with a ridge, at budget epsilon 1."""
    moved, _ = two_records(n, ridge)
    sigma = 2.0 / (n * ridge * mu_for(1.0, delta))
    return gdp_epsilon(moved / sigma, delta)


def output_bound(
    name: str, n: int, p: int, kappa: float, radius: float, budget: tuple[float, float]
) -> float:
    """Return the bound on the mean excess of output perturbation at its best ridge.

    With L = R_2 = 1 and noise of deviation sigma = 2 / (n ridge mu) the excess without
    the ridge is at most sqrt(2 / pi) sigma + kappa sigma G + ridge B^2 / 2, B >= the
    norm of the minimiser: a / ridge + ridge B^2 / 2, least at ridge = sqrt(2 a) / B.

    Parameters
    ----------
    name : str
        Of the norm; G is its Gaussian width.
    n, p : int
    kappa, radius : float
        Strength of the norm; B.
    budget : (float, float)
        epsilon, delta.
    """
    noise = 2.0 / (n * mu_for(*budget))
    a = noise * (math.sqrt(2.0 / math.pi) + kappa * width(name, p))
    return radius * math.sqrt(2.0 * a)


NOISES = PRINTED, CORRECTED = "printed", "corrected"


def selection_epsilon(weight: float, noise: str, delta: float = 1e-5) -> float:
    """Return the exact epsilon of one noisy choice among two vertices, claimed 1.

    p = 1, n = 100, kappa = 1/2, T = 1: losses c (theta - y)^2 / 2, all (c, y) = (1, 0)
    but one, which is (C, 1) or (C, -1). Scores are +-theta / 2, theta = +-C / (99 + C),
    and the noise of their difference is that of two Laplace draws. The printed scale
    has the Lipschitz constant 3/2 of the dual and 1 / n; the corrected one has how far
    theta moves, 2 L_l / (Delta n), L_l = 2 C and Delta = (99 + C) / 100.

    References
    ----------
    Kumar, Deisenroth, 2019, Algorithm 2.
    """
    check_choice("noise", noise, list(NOISES))
    moved = 4.0 * weight / (99.0 + weight)
    reach = {PRINTED: 1.5 / 100.0, CORRECTED: moved}[noise]
    scale = reach * math.sqrt(8.0 * math.log(1.0 / delta))
    gap = weight / (99.0 + weight) / scale
    wrong = math.exp(-gap) * (2.0 + gap) / 4.0
    return math.log((1.0 - wrong - delta) / wrong)


STEPS: dict[str, Callable[[int], float]] = {
    "2/(t+2)": lambda t: 2.0 / (t + 2),
    "1/(t+2)": lambda t: 1.0 / (t + 3),
}
"""Steps of Frank-Wolfe, from t = 0 on; the printed one counts from 1."""


def dual_gaps(name: str, rule: str, steps: int) -> Array:
    """Return the gaps kappa Omega(theta) - s.theta of Frank-Wolfe on a dual, (T,).

    Least squares of 60 records of 8 normal features, 3 of which tell of the label, with
    a ridge of 1/10; kappa = 1/5.

    References
    ----------
    Kumar, Deisenroth, 2019, Algorithm 1.
    """
    n, p, kappa = 60, 8, 0.2
    random = np.random.default_rng(0)
    X = random.standard_normal((n, p))
    y = X @ np.repeat([1.0, -0.5, 0.25, 0.0], [1, 1, 1, p - 3])
    y += 0.5 * random.standard_normal(n)
    norm, step = norm_named(name, p), STEPS[rule]
    system, right = X.T @ X / n + 0.1 * np.eye(p), X.T @ y / n
    s, gaps = np.zeros(p), np.empty(steps)
    for t in range(steps):
        theta = np.linalg.solve(system, right - s)
        gaps[t] = kappa * norm.value(theta) - s @ theta
        s = s + step(t) * (kappa * norm.maximiser(theta) - s)
    return gaps


def shifted_dual() -> tuple[float, float]:
    """Return how far two readings of Proposition 2 are from the perturbed minimiser.

    That of norm2(theta - a)^2 / 2 + kappa Omega + b.theta / n, through the dual set
    that is shifted by b / n, and through the dual solution that is shifted by it.

    References
    ----------
    Kumar, Deisenroth, 2019, Proposition 2.
    """
    a, kappa, norm = np.array([1.0, -0.3, 0.2]), 0.4, Cardinality("sqrt")
    b = np.array([0.35, -0.2, -0.5])
    direct = norm.prox(a - b, kappa)
    set_shifted = a - (b + norm.project(a - b, kappa))
    point_shifted = a - (norm.project(a, kappa) + b)
    first, second = (np.abs(w - direct).max() for w in (set_shifted, point_shifted))
    return float(first), float(second)
