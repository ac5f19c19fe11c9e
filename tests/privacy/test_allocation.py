"""Test random allocation: one pair dominates, and its profile is an upper bound."""

import math
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr

from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.calibration import Calibration, calibrate
from dp_erm_bench.accounting.certify import certify
from dp_erm_bench.accounting.pld import pld_epsilon
from dp_erm_bench.audit.profile import OK, VIOLATION, verdict
from dp_erm_bench.audit.statistic import named_attack
from dp_erm_bench.errors import NotSampled, UsageError
from dp_erm_bench.kernels.philox import uniforms
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.allocation_curve import (
    SERIES,
    allocation_delta,
    curve,
    curve_losses,
    geometric,
    hull,
    positive_part,
)
from dp_erm_bench.releases.allocation_gaussian import (
    AllocationGaussian,
    AllocationGaussianLaw,
    AllocationMechanism,
)
from dp_erm_bench.releases.base import make_mechanisms
from dp_erm_bench.releases.gaussian import GaussianLaw, gdp_delta
from dp_erm_bench.releases.poisson_gaussian import PoissonGaussian
from dp_erm_bench.trust.epsilons import proved_epsilon
from dp_erm_bench.trust.recount import listen_to_run, recount
from dp_erm_bench.trust.twins.allocation_gaussian import AllocationGaussianTwin
from tests.loops import each

REPLACE, ZERO = Adjacency
SLOPES = [(1.0, 0.0), (0.0, 1.0), (0.5, 0.5), (1.5, 0.0), (0.3, 0.0), (1.0, 1.0)]
TAIL = 1e-13


def made(times=8, rate=0.25, z=2.0, trials=3, kind=AllocationGaussian):
    release = kind("gradient", 2.0, times, rate=rate)
    return make_mechanisms([release], z, [f"trial {i}" for i in range(trials)])


def exact(epsilon, steps, up, down, count):
    """E (W_1 + ... + W_t)_+ / t: trapezoids, and the last outcome in closed form."""
    gamma = math.exp(epsilon)
    g = np.linspace(-9 - down, 9 + up, count)
    mass = np.exp(-g * g / 2) / math.sqrt(2 * math.pi) * (g[1] - g[0])
    W = np.exp(up * g - up * up / 2) - gamma * np.exp(-down * g - down * down / 2)
    S, M = W, mass
    for _ in range(steps - 2):
        S, M = np.add.outer(S, W).ravel(), np.multiply.outer(M, mass).ravel()
        S, M = S[M > 1e-20], M[M > 1e-20]
    with np.errstate(all="ignore"):
        if not down:
            root = (np.log(np.maximum(gamma - S, 0)) + up * up / 2) / up
        elif not up:
            root = -(np.log(np.maximum((1 + S) / gamma, 0)) + down * down / 2) / down
        else:  # a y^2 + S y = gamma a at y = e^(up g)
            assert up == down
            a = math.exp(-up * up / 2)
            d = np.sqrt(S * S + 4 * gamma * a * a)
            root = np.log(np.where(S > 0, 2 * gamma * a / (S + d), (d - S) / 2 / a))
            root /= up
    last = S * ndtr(-root) + ndtr(up - root) - gamma * ndtr(-root - down)
    return float(M @ np.maximum(last, 0.0)) / steps


@each("slopes", SLOPES)
@each("epsilon", [0.0, 0.1, 1.0, 3.0])
def test_one_step_is_the_gaussian_mechanism(slopes, epsilon):
    """Before it is cut down to the Gaussian's the bound is above it by little."""
    whole = gdp_delta(epsilon, sum(slopes))
    with patch("dp_erm_bench.releases.allocation_curve.gdp_delta", lambda *_: 1.0):
        found = allocation_delta(epsilon, 1, *slopes, TAIL)
    assert whole * (1 - 1e-12) <= found <= whole * 1.02 + 2 * TAIL
    assert allocation_delta(epsilon, 1, *slopes, TAIL) == min(whole, found)


def compared(steps, count, slopes, epsilons):
    for epsilon in epsilons:
        truth = exact(epsilon, steps, *slopes, count)
        found = allocation_delta(epsilon, steps, *slopes, TAIL)
        # What the trapezoids are good for.
        assert found >= truth * (1 - 1e-7) - 1e-15, epsilon
        assert found <= truth * 1.03 + 2 * TAIL, epsilon


@each("slopes", SLOPES)
def test_two_steps_by_quadrature(slopes):
    compared(2, 40_001, slopes, [0.0, 0.1, 0.5, 1.0, 2.0, 4.0])


@each("slopes", SLOPES)
def test_two_steps_by_quadrature_where_much_is_cut_off(slopes):
    for epsilon in (0.0, 0.5, 2.0):
        truth = exact(epsilon, 2, *slopes, 40_001)
        found = allocation_delta(epsilon, 2, *slopes, 1e-4 * truth)
        assert truth * (1 - 1e-7) - 1e-15 <= found <= truth * 1.03 + 1e-15


@each("steps", [2, 10_000, 1_000_000])
@each("slopes", [(0.0, 2.0), (0.0, 1.0), (0.5, 0.5)])
def test_what_is_cut_off_of_a_sum_is_its_one_far_term(steps, slopes):
    """The others stay: without their mass the sum of 10^6 loses a quarter."""
    fine = allocation_delta(0.0, steps, *slopes, 1e-18)
    found = allocation_delta(0.0, steps, *slopes, 1e-4 * fine)
    # The finer one may be the looser by as much.
    assert found >= fine * (1 - 5e-4)
    # Of any profile two points differ by the gammas at most.
    gap = math.expm1(1e-3)
    nearby = allocation_delta(1e-3, steps, *slopes, 1e-4 * fine)
    assert nearby >= fine * (1 - 5e-4) - gap


@each(
    ("epsilon", "steps", "slopes"),
    [(7.1056, 10_000, (1.0, 0.0)), (9.0, 100_000, (1.0, 1.0)), (0.01, 50, (0.0, 38.0))],
)
def test_extreme_slopes_and_numbers_of_steps_have_a_bound(epsilon, steps, slopes):
    found = allocation_delta(epsilon, steps, *slopes, 1e-13)
    assert 0 <= found <= gdp_delta(epsilon, sum(slopes))


@each("z", [1 / 36, 1 / 100])
def test_hardly_any_noise_has_an_epsilon(z):
    found = certify((AllocationGaussianLaw(1, 1.0, 2),), z, 1e-6, REPLACE).epsilon
    whole = certify((GaussianLaw(1, 1.0),), z, 1e-6, REPLACE).epsilon
    assert 0.9 * whole < found < 1.2 * whole


@each("rate", [1e-9, 1e-5, 1e-3, 0.3, 4.0, 740.0, 800.0])
@each(("size", "count"), [(64, 64), (64, 1), (1 << 16, 50_001), (98_415, 98_415)])
def test_a_geometric_series_is_the_sum_of_its_terms(rate, size, count):
    """In more digits: it is within what is paid, and that is not much.

    Of the sum of the terms 1e-18 of them is off.
    """
    frequencies = np.array([0, 1, 2, size // 5, size // 4, size // 2])
    series, most = geometric(rate, frequencies, size, count)
    m = np.arange(count)
    lengths = m * np.exp(-np.longdouble(rate) * m)
    for k, found, bound in zip(frequencies, series, most, strict=True):
        turn = 2 * np.arccos(np.longdouble(-1)) * (k * m % size) / size
        truth = [np.sum(lengths * part(turn)) for part in (np.cos, np.sin)]
        error = math.hypot(found.real - truth[0], found.imag - truth[1])
        assert error < SERIES * bound + 1e-18 * float(lengths.sum())
        assert math.hypot(*truth) <= bound * (1 + 1e-12)
    if rate * count > 10:
        assert most[0] <= 2 * lengths.sum() + 2e-300


def convolved(masses, steps):
    """Of whole numbers from 0 on, without cancellation."""
    law = np.ones(1)
    for _ in range(steps):
        law = np.convolve(law, masses)
    return law


WHOLE = [  # law on whole numbers, its first, steps, how far the bound may be above
    ([0.5, 0.25, 0.25], -1, 1, 1e-8),
    ([0.75, 0.0, 0.0, 0.25], -1, 2, 1e-8),
    ([1 - 2**-40, *[0.0] * 6, 2**-40], -3, 3, 1e3),
    ([1 - 2**-40, *[0.0] * 900, 2**-40], -300, 4, 1e6),
    ([1 - 2**-20, *[0.0] * 6, 2**-20], -1, 40, 1e-8),
    ([0.625, 0.25, 0.125], -1, 300, 1e-3),
    ([0.375, 0.3125, 0.3125], -1, 3000, 1e-8),
]


@each(("masses", "low", "steps", "above"), WHOLE)
def test_sums_of_whole_numbers_are_bounded_closely(masses, low, steps, above):
    """Down to tiny ones; loosely in gaps of a law, where the rounding is paid, too."""
    masses = np.array(masses)
    law = convolved(masses, steps)
    sums = low * steps + np.arange(law.size)
    truth = float(law @ np.maximum(sums, 0))
    found = positive_part(low + np.arange(masses.size) * 1.0, masses, steps, 1.0)
    assert truth <= found <= truth * (1 + above)


@each(
    ("epsilon", "steps", "slopes", "tail", "bound"),
    [
        (12.5, 2, (1.0, 1.0), 1e-300, 2.5e-11),
        (12.5, 4, (0.916, 0.916), 1e-300, 2e-12),
        (20.0, 4, (0.0, 1.84), 1e-283, 2.5e-35),
        (20.0, 38, (5.0686, 0.0), 1.35e-7, 0.012552),
    ],
)
def test_roundings_that_are_paid_are_small_where_the_tilt_is_bad(
    epsilon, steps, slopes, tail, bound
):
    """Terms are too far out: 1e-12 of the terms of a series would be up to 80 times."""
    assert allocation_delta(epsilon, steps, *slopes, tail) < bound


@pytest.mark.slow
@each("slopes", SLOPES)
def test_three_steps_by_quadrature(slopes):
    for epsilon in (0.0, 0.3, 1.0, 2.0):
        truth = exact(epsilon, 3, *slopes, 1800)
        found = allocation_delta(epsilon, 3, *slopes, TAIL)
        assert truth * (1 - 1e-4) - 1e-15 <= found <= truth * 1.03 + 2 * TAIL


@pytest.mark.slow
@each("slopes", [(0.3, 0.0), (0.0, 1.0), (0.5, 0.5)])
def test_four_steps_by_quadrature(slopes):
    for epsilon in (0.1, 0.5, 1.0):
        truth = exact(epsilon, 4, *slopes, 200)
        found = allocation_delta(epsilon, 4, *slopes, TAIL)
        assert truth * (1 - 1e-4) - 1e-15 <= found <= truth * 1.03 + 2 * TAIL


@each("slopes", [(1.0, 0.0), (0.0, 1.0), (0.6, 0.6)])
@each("steps", [5, 40])
def test_the_profile_is_that_of_the_dominating_pair(slopes, steps):
    """By Monte Carlo: both mixtures are drawn, not the terms of their ratio."""
    up, down = slopes
    rng = np.random.default_rng(5)
    x = rng.standard_normal((50_000, steps))
    x[np.arange(len(x)), rng.integers(steps, size=len(x))] += up
    first = np.exp(up * x - up * up / 2).mean(axis=1)
    second = np.exp(-down * x - down * down / 2).mean(axis=1)
    for epsilon in (0.1, 0.4):
        part = np.maximum(1 - math.exp(epsilon) * second / first, 0.0)
        error = part.std() / math.sqrt(len(part))
        found = allocation_delta(epsilon, steps, up, down, TAIL)
        assert abs(part.mean() - found) < 4 * error + 1e-3 * found


def adaptive(rng, steps, m, strategy, runs):
    """log dP/dR and log dQ/dR of a round under R, terms chosen by earlier outcomes."""
    p, q = np.zeros((runs, steps)), np.zeros((runs, steps))
    total = np.zeros(runs)
    a, b, c, length = strategy
    for i in range(steps):
        z = rng.standard_normal((runs, 2))
        angle = a * i + b * np.sign(total) + c * total
        size = np.where(total > 0, length, 1.0) * m
        v = size[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        turned = angle + math.pi * np.where(total > c, 1.0, length)
        w = m * np.stack([np.cos(turned), np.sin(turned)], axis=1)
        p[:, i] = (z * v).sum(axis=1) - (v * v).sum(axis=1) / 2
        q[:, i] = (z * w).sum(axis=1) - (w * w).sum(axis=1) / 2
        total += p[:, i] - q[:, i]
    return np.exp(p).mean(axis=1), np.exp(q).mean(axis=1)


@each("seed", range(6))
def test_no_adaptive_strategy_exceeds_the_pair(seed):
    rng = np.random.default_rng(seed)
    strategy, m, steps = rng.uniform(0, 1, 4), rng.uniform(0.3, 1.2), 6
    first, second = adaptive(rng, steps, m, strategy, 50_000)
    one = np.ones_like(first)
    for epsilon in (0.05, 0.3):
        gamma = math.exp(epsilon)
        for (p, q), slopes in {
            ((0, 1), (m, m)),
            ((1, 0), (m, m)),
            ((0, 2), (m, 0.0)),
            ((2, 0), (0.0, m)),
        }:
            sides = (first, second, one)
            part = np.maximum(sides[p] - gamma * sides[q], 0.0)
            error = part.std() / math.sqrt(len(part))
            bound = allocation_delta(epsilon, steps, *slopes, TAIL)
            assert part.mean() < bound + 4 * error


@each("order", [(0.5, 0.5), (0.9, 0.0)])
def test_losses_have_the_profile_of_the_curves(order):
    scale = 0.2
    first = curve(20, *order, scale, 1e-9)
    second = curve(20, *order[::-1], scale, 1e-9)
    law = curve_losses(first, second)
    assert law.masses.min() >= 0
    assert math.isclose(law.masses.sum() + law.infinite, 1.0, rel_tol=1e-12)
    top = max(first[1][0], second[1][0])
    for (epsilons, deltas), sign in ((first, 1), (second, -1)):
        # A hull of bounds is one: it may be lower than a single one.
        deltas = np.interp(np.expm1(epsilons), *hull(np.expm1(epsilons), deltas))
        for epsilon, delta in list(zip(epsilons, deltas, strict=True))[::5]:
            gains = -np.expm1(sign * epsilon - law.losses)
            found = float(law.masses @ np.maximum(gains, 0.0)) + law.infinite
            if sign < 0:  # H_gamma = 1 - gamma + gamma H_(1 / gamma) of the others
                gamma = math.exp(-epsilon)
                delta = 1 - gamma + gamma * delta
            assert found >= delta * (1 - 1e-9) - 1e-12
            assert found <= max(delta, top if not epsilon else 0) * (1 + 1e-6) + 1e-9


def test_a_hull_is_convex_and_below():
    x, y = np.arange(5.0), np.array([9.0, 5.0, 4.0, 0.5, 0.0])
    corners = hull(x, y)
    assert corners[0].tolist() == [0.0, 1.0, 3.0, 4.0]
    assert (np.interp(x, *corners) <= y).all()


@each("adjacency", list(Adjacency))
@each(("rounds", "steps", "z"), [(1, 4, 2.0), (3, 4, 2.0), (2, 30, 1.0)])
def test_the_twin_proves_nearly_the_same(adjacency, rounds, steps, z):
    law = AllocationGaussianLaw(rounds, 1.0, steps)
    proved = pld_epsilon((law,), z, 1e-5, adjacency)
    twin = AllocationGaussianTwin(z, rounds, 1 / steps)
    other = proved_epsilon([twin], 1e-5, adjacency, "pld")
    assert other * (1 - 1e-4) < proved < other * (1 + twin.slack)


SETTINGS = [
    (t, epsilon, delta)
    for t, epsilon in (
        (10, 1.0),
        (10, 0.3),
        (30, 1.0),
        (100, 1.0),
        (100, 0.5),
        (100, 0.1),
        (300, 0.3),
        (1000, 1.0),
        (1000, 0.1),
        (10000, 0.2),
    )
    for delta in (1e-5, 1e-7)
]


def below_poisson(t, epsilon, delta):
    """Return whether 1.01 times the noise of Poisson sampling is enough."""
    budget = Budget(epsilon, delta, ZERO)
    poisson = PoissonGaussian("any", 1.0, t, rate=1 / t).law()
    mu = 1 / (1.01 * calibrate((poisson,), budget).z)
    return all(
        allocation_delta(epsilon, t, *slopes, 1e-4 * delta) <= delta
        for slopes in ((mu, 0.0), (0.0, mu))
    )


@each("setting", SETTINGS[:4])
def test_the_noise_is_at_most_that_of_poisson_sampling(setting):
    assert below_poisson(*setting)


@pytest.mark.slow
@each("setting", SETTINGS[4:])
def test_the_noise_is_at_most_that_of_poisson_sampling_at_others(setting):
    assert below_poisson(*setting)


def test_the_noise_of_one_setting_with_many_steps():
    """Between .70 and .71 of the bound on a term (zero_out), .71 and .72 (replace)."""
    steps, epsilon, delta = 100_000, 0.0557, 1e-8
    for bound, orders in {
        0.71: lambda mu: ((mu, 0.0), (0.0, mu)),
        0.72: lambda mu: ((mu, mu),),
    }.items():
        found = [
            max(
                allocation_delta(epsilon, steps, *order, 1e-12)
                for order in orders(1 / s)
            )
            for s in (bound, bound - 0.01)
        ]
        assert found[0] <= delta < found[1]


def test_the_law_counts_rounds_begun():
    for times, rounds in ((4, 1), (5, 2), (8, 2)):
        law = AllocationGaussian("any", 1.0, times, rate=0.25).law()
        assert law == AllocationGaussianLaw(rounds, 1.0, 4)
    assert AllocationGaussian("any", 1.0, 7).law() == GaussianLaw(7, 1.0)
    with pytest.raises(UsageError, match="must be 1 / t for a whole number t"):
        AllocationGaussian("any", 1.0, 4, rate=0.3)


def test_each_record_is_in_one_uniform_step_of_a_round():
    mechanism = made(times=4000, rate=0.25, trials=1)["gradient"]
    sizes, n = np.zeros((1000, 4)), 12
    steps = []
    for i in range(1000):
        records, offsets = mechanism.sample(0, n, 4)
        assert sorted(records) == list(range(n))
        sizes[i] = np.diff(offsets)
        place = np.repeat(np.arange(4), np.diff(offsets))
        steps.append(place[np.argsort(records)])
    steps = np.array(steps)
    for record in range(n):
        counts = np.bincount(steps[:, record], minlength=4)
        assert stats.chisquare(counts).pvalue > 1e-5
    pairs = np.bincount(4 * steps[:-1, 0] + steps[1:, 0], minlength=16)
    assert stats.chisquare(pairs).pvalue > 1e-5
    both = np.bincount(4 * steps[:, 0] + steps[:, 1], minlength=16)
    assert stats.chisquare(both).pvalue > 1e-5
    assert (sizes == 0).any()


def test_samples_do_not_depend_on_how_many_are_drawn_at_once():
    one, other = (made(trials=1)["gradient"] for _ in range(2))
    whole, offsets = one.sample(0, 9, 8)
    parts = [other.sample(0, 9, k) for k in (1, 2, 3, 2)]
    assert np.array_equal(whole, np.concatenate([records for records, _ in parts]))
    sizes = np.concatenate([np.diff(ends) for _, ends in parts])
    assert np.array_equal(np.diff(offsets), sizes)


def test_a_use_without_its_sample_is_refused():
    mechanism = made()["gradient"]
    with pytest.raises(NotSampled, match="one random allocation of rate 0.25"):
        mechanism.publish(np.zeros((3, 2)))


class Chosen(AllocationMechanism):
    """Steps that depend on the record's number, as if on its data."""

    def allocation(self, trial, n, index):
        chosen = np.arange(n) % self.steps
        sizes = np.bincount(chosen, minlength=self.steps)
        return np.argsort(chosen, kind="stable"), np.append(0, np.cumsum(sizes))


class OneMore(AllocationMechanism):
    """Draws one of t + 1 steps."""

    def __init__(self, *args):
        super().__init__(*args)
        self.steps += 1


class Same(AllocationMechanism):
    """The steps of the first round in all."""

    def allocation(self, trial, n, index):
        return super().allocation(trial, n, 0)


class Silent(AllocationMechanism):
    """Adds no noise to the sum over an empty step."""

    def sample(self, trial, n, steps):
        found = super().sample(trial, n, steps)
        self.empty = found[1][-1] == 0
        return found

    def publish(self, value, coordinate=None):
        plain = value.copy()
        noisy = super().publish(value, coordinate)
        return plain if self.empty else noisy


def recounted(mechanism=AllocationMechanism, charged=REPLACE, noise=1.0):
    """Return the complaint of a recount of a run with a mechanism of a kind."""
    kind = type("Mine", (AllocationGaussian,), {"mechanism": mechanism})
    kind.twin = AllocationGaussianTwin
    release = kind("gradient", 2.0, 8, rate=0.25)
    budget = Budget(2.0, 1e-5, charged)
    found = calibrate((release.law(),), budget)
    claim: Calibration = replace(found, budget=replace(budget, adjacency=REPLACE))
    mechanisms = make_mechanisms([release], noise * found.z, ["a", "b"])
    witnesses = listen_to_run(mechanisms)
    for _ in range(8):
        for trial in range(2):
            mechanisms["gradient"].sample(trial, 2, 1)
        mechanisms["gradient"](np.zeros((2, 3)))
    mechanisms.finish()
    return recount(mechanisms, claim, witnesses=witnesses).complaint(claim)


def test_planted_faults_are_recounted():
    assert recounted() == ""
    for fault in (Chosen, OneMore, Same, Silent):
        assert "was run" in recounted(fault), fault
    assert "was run" in recounted(charged=ZERO, noise=0.5)  # of half the change


def test_steps_are_those_of_the_secret_stream():
    mechanism = made()["gradient"]
    records, offsets = mechanism.sample(1, 50, 4)
    chosen = np.floor(4 * uniforms(mechanism.sample_seeds[1], 0, 50))
    assert np.array_equal(chosen[records], np.repeat(np.arange(4), np.diff(offsets)))


@pytest.mark.slow
@each("adjacency", list(Adjacency))
def test_the_audit_refutes_nothing_that_is_sound(adjacency):
    """The log-ratio is exact: its exponential has mean 1 under the other law."""
    params = {"n_iter": 10, "sampling": "allocation"}
    attack = named_attack("sgd", params, Budget(8.0, 1e-6, adjacency))
    sides = [attack.run(side, 600, "allocation") for side in (0, 1)]
    assert verdict(*sides, attack.guarantee, 1e-3).verdict == OK
    assert sides[0].mean() > 0 > sides[1].mean()
    for sample in (np.exp(-sides[0]), np.exp(sides[1])):
        off = abs(sample.mean() - 1.0)
        assert off < 5.0 * sample.std() / math.sqrt(sample.size)
    # A claim of much more noise is refuted.
    louder = replace(attack.guarantee, z=20 * attack.guarantee.z, epsilon=math.inf)
    assert verdict(*sides, louder, 1e-3).verdict == VIOLATION


def test_allocation_costs_less_than_all_records():
    law = AllocationGaussian("any", 1.0, 50, rate=0.02).law()
    whole = certify((GaussianLaw(1),), 1.0, 1e-6, REPLACE).epsilon
    found = certify((law,), 1.0, 1e-6, REPLACE)
    assert found.accountant == "pld" and found.epsilon < whole / 3
