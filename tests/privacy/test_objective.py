"""Test the accounting of objective perturbation against exact laws in 1-D."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from dp_erm_bench.accounting.bounds import rdp_epsilon
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.calibration import calibrate
from dp_erm_bench.accounting.certify import certify, profile_epsilon
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.objective_gaussian import objective_delta
from tests.loops import each
from tests.privacy.made import law_of, objective_rdp, printed_multiplier

BETA, GRID = 0.25, np.linspace(-400.0, 400.0, 400_001)
STEP = GRID[1] - GRID[0]


def objective(curvature=0.4, terms=1, times=1):
    return (law_of("objective", times, curvature=curvature, terms=terms),)


def density(records, ridge, sigma, law=stats.norm):
    """Exact law of the minimiser of sum logistic(x w) + ridge w^2 / 2 + b w."""
    w, slope, bend = GRID, 0.0, 0.0
    for x in records:
        right = 1 / (1 + np.exp(np.clip(x * w, -700, 700)))
        slope, bend = slope - right * x, bend + right * (1 - right) * x * x
    b = -(slope + ridge * w)
    return law.pdf(b / sigma) / sigma * (bend + ridge)


def hockey_stick(p, q, epsilon):
    return np.maximum(p - math.exp(epsilon) * q, 0.0).sum() * STEP


PAIRS = [
    (1, [1.0], []),
    (1, [], [1.0]),
    (2, [1.0], [-1.0]),
    (2, [1.0], [0.7]),
    (2, [-0.2], [1.0]),
]


@each("ridge", [0.3, 1.0, 5.0])
@each("sigma", [1.0, 3.0, 8.0])
@each(("terms", "first", "second"), PAIRS)
def test_no_exact_law_exceeds_the_profile(terms, first, second, ridge, sigma):
    common = [0.5, -0.8]
    p = density([*first, *common], ridge, sigma)
    q = density([*second, *common], ridge, sigma)
    assert p.sum() * STEP == pytest.approx(1.0, abs=1e-6)
    curvature, z = math.log1p(BETA / ridge), sigma / terms
    for epsilon in (0.01, 0.1, 0.3, 1.0, 2.0, 4.0):
        claimed = objective_delta(epsilon, z, curvature, terms)
        assert hockey_stick(p, q, epsilon) <= claimed + 1e-9


@each("ridge", [0.3, 2.0])
@each("sigma", [1.0, 4.0])
@each(("terms", "first", "second"), PAIRS)
def test_no_exact_divergence_exceeds_the_curve(terms, first, second, ridge, sigma):
    p, q = density(first, ridge, sigma), density(second, ridge, sigma)
    orders = np.array([1.1, 1.5, 2.0, 4.0])
    curve = objective_rdp(orders, sigma / terms, math.log1p(BETA / ridge))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = np.where(p > 0, p / np.maximum(q, 1e-300), 0.0)
        exact = [
            math.log((p * ratio ** (a - 1)).sum() * STEP) / (a - 1) for a in orders
        ]
    assert (np.array(exact) <= curve + 1e-9).all()


@each("ridge", [0.3, 2.0])
@each("scale", [1.0, 4.0])
@each(("terms", "first", "second"), PAIRS)
def test_no_exact_ratio_exceeds_the_pure_level(terms, first, second, ridge, scale):
    p, q = (density(r, ridge, scale, stats.laplace) for r in (first, second))
    level = law_of("objective_pure", 1, curvature=math.log1p(BETA / ridge)).level(
        scale / terms
    )
    seen = (p > 1e-250) & (q > 1e-250)
    ratio = np.abs(np.log(p[seen]) - np.log(q[seen])).max()
    assert ratio <= level + 1e-9
    # In one dimension two logistic gradients differ by 1 at most, not by 2.
    assert terms == 2 or ratio >= 0.3 * level


@each("z", [0.3, 2.0, 20.0])
@each("epsilon", [0.05, 0.41, 0.5, 1.0, 6.0])
def test_the_profile_is_the_integral_that_it_stands_for(z, epsilon):
    curvature, m = 0.4, 1 / z

    def part(u):
        loss = curvature + m * m / 2 + m * u
        return max(0.0, -math.expm1(epsilon - loss)) * 2 * stats.norm.pdf(u)

    corner = max(0.0, (epsilon - curvature - m * m / 2) / m)
    exact = integrate.quad(part, corner, corner + 12.0, epsabs=1e-14)[0]
    found = objective_delta(epsilon, z, curvature, 1)
    assert found == pytest.approx(exact, rel=1e-6, abs=1e-12)
    assert objective_delta(epsilon, z, curvature, 2) == min(1.0, 2 * found)


@pytest.mark.parametrize("z", [0.5, 3.0])
@pytest.mark.parametrize("order", [1.5, 2.0, 8.0])
def test_the_curve_is_the_integral_that_it_stands_for(z, order):
    m = 1 / z
    s = (order - 1) * m
    mean = integrate.quad(
        lambda u: math.exp(s * u - u * u / 2) * math.sqrt(2 / math.pi), 0.0, s + 40.0
    )[0]
    exact = 0.4 + m * m / 2 + math.log(mean) / (order - 1)
    assert objective_rdp(np.array([order]), z, 0.4)[0] == pytest.approx(exact, rel=1e-9)


def test_what_the_noise_of_kifer_proves():
    """One term: .779713 (zero_out). Two: the Renyi form and the profile, > 1."""
    curvature = math.log1p(0.25 / 0.5)
    one, two = objective(curvature), objective(curvature, terms=2)
    z = printed_multiplier("kifer2012", Budget(1.0, 1e-6, "zero_out"), one)
    assert z == pytest.approx(10.9576, rel=1e-5)
    assert profile_epsilon(one, z, 1e-6) == pytest.approx(0.779713, rel=1e-5)
    half = printed_multiplier("kifer2012", Budget(1.0, 1e-6, "replace_one"), two)
    assert half == pytest.approx(z / 2)
    assert profile_epsilon(two, half, 1e-6) == pytest.approx(1.21639, rel=1e-4)
    assert rdp_epsilon(two, half, 1e-6) == pytest.approx(1.24873, rel=1e-4)


def test_what_chaudhuri_prints():
    """n = 1000, logistic, l2 = .01: eps' = .950615, density exp(-eps' norm / 2)."""
    events = (law_of("objective_pure", 1, curvature=math.log1p(0.25 / 10)),)
    budget = Budget(1.0, 0, "replace_one")
    z = printed_multiplier("chaudhuri2011", budget, events)
    assert 2 * z == pytest.approx(2 / 0.950615, rel=1e-5)
    assert certify(events, z, 0, budget.adjacency).epsilon <= 1.0
    ours = calibrate(events, budget)
    assert ours.z < z
    assert ours.accountant == "pure"
    assert ours.epsilon_certified == pytest.approx(1.0, rel=1e-8)


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 5.0])
def test_calibration_is_tight_and_within_the_budget(epsilon, adjacency):
    events = objective(0.2, terms=2 if adjacency == "replace_one" else 1)
    found = calibrate(events, Budget(epsilon, 1e-6, adjacency))
    assert epsilon * (1 - 1e-6) <= found.epsilon_certified <= epsilon
    assert found.accountant in ("profile", "rdp")


def gaussian_delta(epsilon, mu):
    """The profile of N(mu, 1) against N(0, 1) at any real epsilon."""
    below = np.exp(epsilon + stats.norm.logcdf(-mu / 2 - epsilon / mu))
    return stats.norm.cdf(mu / 2 - epsilon / mu) - below


@each(("ridge", "sigma"), [(0.3, 4.0), (5.0, 1.0)])
@each("mu", [0.02, 0.5])
@each(("terms", "first", "second"), PAIRS)
def test_no_exact_law_of_a_minimiser_and_noise_beside_it_exceeds_the_profile(
    terms, first, second, mu, ridge, sigma
):
    """Given w the noisy copy is a Gaussian: the mean of its profile is exact."""
    p = density([*first, 0.5, -0.8], ridge, sigma)
    q = density([*second, 0.5, -0.8], ridge, sigma)
    # Every tenth point: the densities are smooth.
    p, q = p[::10], q[::10]
    seen = (p > 1e-250) & (q > 1e-250)
    p, losses = p[seen], np.log(p[seen] / q[seen])
    curvature, z = math.log1p(BETA / ridge), sigma / terms
    for epsilon in (0.01, 0.3, 1.0, 4.0):
        exact = (p * gaussian_delta(epsilon - losses, mu)).sum() * 10 * STEP
        claimed = objective_delta(epsilon, z, curvature, terms, mu)
        assert exact <= claimed + 1e-9
        assert claimed >= objective_delta(epsilon, z, curvature, terms) - 1e-15


@each("mu", [1e-3, 0.1, 2.0])
@each("z", [0.3, 2.0, 20.0])
@each("epsilon", [0.05, 0.5, 1.0, 6.0])
def test_noise_beside_a_minimiser_adds_in_quadrature(epsilon, z, mu):
    """Never below the integral that it bounds, and equal where deltas are small."""
    m = 1 / z
    u = 12.0 * (np.arange(40_000) + 0.5) / 40_000
    losses = 0.4 + m * m / 2 + m * u
    masses = 12.0 / 40_000 * 2 * stats.norm.pdf(u)
    exact = float(masses @ gaussian_delta(epsilon - losses, mu))
    found = objective_delta(epsilon, z, 0.4, 1, mu)
    assert found >= exact * (1 - 1e-6) - 1e-12
    if exact < 1e-3:
        assert found == pytest.approx(exact, rel=1e-2, abs=1e-12)


def test_a_minimiser_and_its_noisy_copy_compose_by_the_profile():
    alone = calibrate(objective(0.2), Budget(1.0, 1e-6, "zero_out"))
    for weight in (3.0, 32.0):
        both = (*objective(0.2), law_of("gaussian", 1, weight=weight))
        found = calibrate(both, alone.budget)
        assert found.accountant == "profile"
        assert found.z == pytest.approx(alone.z * math.hypot(1.0, 1 / weight))
        assert found.epsilon_certified < rdp_epsilon(both, found.z, 1e-6)


@pytest.mark.parametrize("kind", ["objective", "objective_pure"])
@pytest.mark.parametrize("mode", ["certified", "paper"])
def test_a_budget_that_no_noise_reaches_is_refused(kind, mode):
    events = (law_of(kind, 1, curvature=0.7),)
    printed = "kifer2012" if kind == "objective" else "chaudhuri2011"
    with pytest.raises(Unsupported, match="epsilon=0.7: .*curvature.*ridge"):
        calibrate(events, Budget(0.7, 1e-6), mode, printed)


def test_printed_constants_say_what_ridge_they_need():
    with pytest.raises(Unsupported, match=r"ridge of at least 2 beta"):
        printed_multiplier("kifer2012", Budget(1.0, 1e-6), objective(math.log(1.6)))
    pure = (law_of("objective_pure", 1, curvature=0.6),)
    with pytest.raises(Unsupported, match=r"must exceed 1\.2"):
        printed_multiplier("chaudhuri2011", Budget(1.0, 1e-6), pure)


@pytest.mark.parametrize(
    ("kind", "printed", "beside"),
    [
        ("objective", "kifer2012", law_of("gaussian", 1, weight=32.0)),
        ("objective_pure", "chaudhuri2011", law_of("norm_laplace", 1, weight=256.0)),
    ],
)
def test_printed_noise_is_certified_with_the_noise_beside_it(kind, printed, beside):
    alone, budget = (law_of(kind, 1, curvature=0.2),), Budget(1.0, 1e-6, "zero_out")
    bare = calibrate(alone, budget, "paper", printed)
    both = calibrate((*alone, beside), budget, "paper", printed)
    assert both.z == bare.z
    assert 1e-4 < both.epsilon_certified / bare.epsilon_certified - 1 < 1e-2


def test_the_printed_noise_of_frank_wolfe():
    for kind in ("pure", "bounded_range"):
        events, budget = (law_of(kind, 50),), Budget(1.0, 1e-6)
        z = printed_multiplier("talwar2015", budget, events)
        assert z * 2 / 1000 == pytest.approx(0.0743384, rel=1e-5)


@pytest.mark.parametrize("facts", [{"curvature": -1.0}, {"terms": 3}])
def test_impossible_events_are_refused(facts):
    with pytest.raises(ValueError, match=next(iter(facts))):
        law_of("objective", 1, **facts)


def test_extremes():
    assert profile_epsilon(objective(), 1.0, 0.0) == math.inf
    assert profile_epsilon((*objective(), *objective()), 1.0, 1e-6) is None
    assert profile_epsilon(objective(times=2), 1.0, 1e-6) is None
    other = (*objective(), law_of("laplace", 1))
    assert profile_epsilon(other, 1.0, 1e-6) is None
    assert objective_delta(0.1, 1e-3, 0.4, 2) == 1.0
    # As the noise grows the curvature is left: delta = 1 - e^(eps - c) below it.
    bare = profile_epsilon(objective(), 1e6, 1e-6)
    assert bare == pytest.approx(0.4 + math.log1p(-1e-6), abs=1e-6)
