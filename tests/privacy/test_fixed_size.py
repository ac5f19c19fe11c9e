"""Test samples of fixed size: what is drawn, and what is charged for it."""

import itertools
import math
import time
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from dp_erm_bench import load_problem
from dp_erm_bench.accounting.bounds import converted_epsilon, default_orders
from dp_erm_bench.errors import NotSampled
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.base import make_mechanisms
from dp_erm_bench.releases.fixed_size_gaussian import (
    FixedSizeGaussian,
    FixedSizeGaussianLaw,
    log_moments,
    log_row_moments,
    whole_orders,
)
from dp_erm_bench.releases.gaussian import gaussian_rdp
from dp_erm_bench.solvers.bias_reduced_sgd import BiasReducedSGD
from dp_erm_bench.trust.twins.fixed_size_gaussian import (
    FixedSizeGaussianTwin,
    log_moment,
)
from tests.loops import each

RATES = (1e-3, 0.1, 0.5, 0.95)
ORDERS = np.array([2.0, 3.0, 5.0, 12.0])


def mechanism_of(rate, names=("a",), times=100):
    release = FixedSizeGaussian("sum", 1.0, times, rate=rate)
    return make_mechanisms([release], 1.0, names)["sum"]


def samples_of(rate, n, steps, **how):
    records, offsets = mechanism_of(rate, **how).sample(0, n, steps)
    assert (np.diff(offsets) == round(rate * n)).all()
    return records.reshape(steps, -1)


def test_ordered_samples_are_uniform():
    drawn = samples_of(3 / 5, 5, 30_000)
    counts = {order: 0 for order in itertools.permutations(range(5), 3)}
    for row in drawn.tolist():
        counts[tuple(row)] += 1
    assert stats.chisquare(list(counts.values())).pvalue > 1e-3


@pytest.mark.parametrize("n", [2, 64, 1000])
@pytest.mark.parametrize("size", [1, 2])
def test_records_of_a_sample_are_distinct(n, size):
    drawn = samples_of(size / n, n, 50)
    assert ((drawn >= 0) & (drawn < n)).all()
    assert all(len(set(row)) == size for row in drawn.tolist())


def test_all_records_come_in_random_order():
    drawn = samples_of(1.0, 6, 40)
    assert (np.sort(drawn) == np.arange(6)).all()
    assert len({tuple(row) for row in drawn.tolist()}) > 30


def test_samples_belong_to_the_trial_and_the_step():
    together = mechanism_of(0.25, names=("a", "b"))
    first = [together.sample(trial, 8, 3)[0].tolist() for trial in (0, 1)]
    alone = mechanism_of(0.25, names=("b",))
    steps = [alone.sample(0, 8, 1)[0].tolist() for _ in range(3)]
    assert first[1] == sum(steps, []) != first[0]


def test_a_use_without_its_sample_is_refused():
    mechanism = mechanism_of(0.5)
    with pytest.raises(NotSampled, match="one sample of fixed size of rate 0.5"):
        mechanism(np.zeros((1, 2)))


def test_a_rate_is_a_number_of_records():
    with pytest.raises(NotSampled, match="no whole number of the 10 records"):
        mechanism_of(0.25).sample(0, 10, 1)


@each("d", [0.05, 0.3, 1.0, 2.5])
@each("j", [2, 3, 4, 7, 40])
def test_no_three_laws_within_d_have_a_larger_moment(d, j):
    grid = np.linspace(0.0, d, 7) ** 2
    most = max(
        log_moment(j, first, second, apart)
        for first, second in itertools.product(grid, repeat=2)
        for apart in grid[1:]
        if abs(first**0.5 - second**0.5) <= apart**0.5 <= first**0.5 + second**0.5
    )
    assert most <= log_moments(d)[j - 2] <= most + 2e-6


def divergence(rate, one, other, orders):
    """The Renyi divergence of two mixtures with N(0, 1), by quadrature in the plane."""
    axis = np.arange(-12, 40, 0.05)
    x, y = np.meshgrid(axis, np.arange(-12, 25, 0.05))

    def density(a):
        gain = x * a[0] + y * a[1] - (a[0] ** 2 + a[1] ** 2) / 2
        mixed = np.logaddexp(math.log1p(-rate), math.log(rate) + gain)
        return mixed - (x * x + y * y) / 2 + 2 * math.log(0.05) - math.log(2 * math.pi)

    p, q = density(one), density(other)
    logs = [logsumexp(a * p + (1 - a) * q) / (a - 1) for a in orders]
    return np.array(logs)


def placed(d, kind):
    half, high = d / 2, d * math.sqrt(3) / 2
    return {
        "triangle": ((high, half), (high, -half)),
        "gone": ((d, 0.0), (0.0, 0.0)),
        "new": ((0.0, 0.0), (d, 0.0)),
        "opposite": ((half, 0.0), (-half, 0.0)),
    }[kind]


@each("rate", RATES)
@each("d", [0.2, 0.8])
@each("kind", ["triangle", "gone", "new", "opposite"])
def test_exact_instances_are_covered(rate, d, kind):
    bound = FixedSizeGaussianLaw(1, 1.0, rate).rdp(1 / d, ORDERS)
    exact = divergence(rate, *placed(d, kind), ORDERS)
    assert (exact <= bound * (1 + 1e-9)).all()
    if kind == "triangle":
        assert exact[0] > 0.7 * bound[0]


@each("rate", RATES)
@each("z", [0.5, 2.0, 9.0])
def test_the_bound_is_within_those_of_others(rate, z):
    from dp_accounting.rdp import rdp_privacy_accountant as library

    orders = np.array([1.5, 2.0, 2.7, 9.0, 33.0, 60.0])
    bound = FixedSizeGaussianLaw(1, 1.0, rate).rdp(z, orders)
    published = library._compute_rdp_sample_wor_gaussian(rate, z, orders)
    assert (bound <= published * (1 + 1e-6)).all()
    assert (bound <= gaussian_rdp(orders, z)).all()
    assert (np.diff(bound * (orders - 1)) > 0).all()


@each("rate", RATES)
@each("z", [0.5, 3.0, 20.0])
@each("zeroed", [False, True])
def test_the_twin_counts_the_same(rate, z, zeroed):
    orders = default_orders()
    bound = FixedSizeGaussianLaw(1, 1.0, rate, zeroed).rdp(z, orders)
    again = FixedSizeGaussianTwin(z, 1, rate, zeroed=zeroed).renyi(orders)
    for times in (1, 30, 1000):
        counted = converted_epsilon(orders, times * again, 1e-6)
        proved = converted_epsilon(orders, times * bound, 1e-6)
        assert counted == pytest.approx(proved, rel=1e-3)


@each("c", [0.2, 1.0])
@each("rate", [0.01, 0.5])
def test_what_becomes_zero_is_charged_between_its_term_and_an_exchange(c, rate):
    # Zero-out: the other records are at -C, ours at C or at 0, in units of the noise.
    exact = divergence(rate, (2 * c, 0.0), (c, 0.0), ORDERS)
    law = FixedSizeGaussianLaw(1, 1.0, rate, zeroed=True)
    zeroed = law.rdp(1 / c, ORDERS)
    assert (exact <= zeroed * (1 + 1e-9)).all()
    assert (zeroed <= FixedSizeGaussianLaw(1, 1.0, rate).rdp(1 / (2 * c), ORDERS)).all()
    assert (zeroed <= gaussian_rdp(ORDERS, 1 / c)).all()
    if rate == 0.01 and c == 1.0:  # C, C, C for C, C, 2 C
        assert (
            exact[:2] > 3 * FixedSizeGaussianLaw(1, 1.0, rate).rdp(1, ORDERS)[:2]
        ).all()


@each("rate", [1e-3, 0.03, 0.5, 0.95])
@each("d", [0.2, 0.6, 1.5])
def test_opposite_terms_nearly_reach_the_bound(rate, d):
    bound = FixedSizeGaussianLaw(1, 1.0, rate, zeroed=True).rdp(1 / d, ORDERS)
    exact = divergence(rate, (2 * d, 0.0), (d, 0.0), ORDERS)
    assert (exact > bound / 1.25).all()


def places(d, count=12):
    """Where a and b are from c at 0: both a and c up to d from b, most often at d."""
    rng = np.random.default_rng(3)
    for k in range(count):
        sizes = d * (np.ones(2) if k % 3 else rng.random(2))
        turns = rng.random(2) * 2 * math.pi
        own, other = sizes[:, None] * np.stack([np.cos(turns), np.sin(turns)], axis=1)
        yield own - other, -other


@each("rate", [0.01, 0.5])
@each("d", [0.3, 1.2])
def test_terms_in_any_direction_are_covered_where_one_becomes_zero(rate, d):
    bound = FixedSizeGaussianLaw(1, 1.0, rate, zeroed=True).rdp(1 / d, ORDERS)
    for a, b in places(d, count=4):
        for one, other in ((a, b), (b, a)):
            exact = divergence(rate, one, other, ORDERS)
            assert (exact <= bound * (1 + 1e-9)).all()


def hockey_stick(rate, one, other, factor):
    """The largest P(S) - factor Q(S) of two mixtures with N(0, 1) in the plane."""
    step = 0.05
    x, y = np.meshgrid(*[np.arange(-9, 9, step)] * 2)
    densities = []
    for a in (one, other):
        gain = x * a[0] + y * a[1] - (a[0] ** 2 + a[1] ** 2) / 2
        densities.append(
            (1 - rate + rate * np.exp(gain)) * np.exp(-(x * x + y * y) / 2)
        )
    p, q = densities
    return np.maximum(p - factor * q, 0.0).sum() * step**2 / (2 * math.pi)


@each("factor", [1.0, 1.05, 1.5])
@each("rate", [0.1, 0.6])
def test_opposite_terms_are_worst_in_one_direction_and_equal_ones_in_the_other(
    factor, rate
):
    d = 0.9
    opposite = hockey_stick(rate, (2 * d, 0.0), (d, 0.0), factor)
    equal = hockey_stick(rate, (-d, 0.0), (0.0, 0.0), factor)
    for a, b in places(d):
        assert hockey_stick(rate, a, b, factor) <= opposite + 1e-4
        assert hockey_stick(rate, b, a, factor) <= equal + 1e-4


@each("d", [0.05, 0.3, 1.0, 2.5])
@each("j", [2, 3, 7, 40])
def test_no_three_laws_in_a_row_have_a_larger_moment(d, j):
    grid = np.linspace(0.0, d, 5)
    most = max(
        log_moment(j, (near + apart * share) ** 2, near**2, apart**2)
        for near, apart in itertools.product(grid, grid[1:])
        for share in (-1.0, 0.0, 0.5, 1.0)
        if near + apart * share >= 0
    )
    assert most <= log_row_moments(d)[j - 2] <= most + 2e-6


def test_all_records_are_the_gaussian_mechanism():
    law = FixedSizeGaussian("sum", 1.0, 3, rate=1.0).law()
    assert law.name == "gaussian" and law.times == 3


def test_a_schedule_is_accounted_at_once():
    log_moments.cache_clear()
    start, orders = time.process_time(), default_orders()
    for step in range(500):
        level = (step * 7) % 15
        FixedSizeGaussianLaw(1, 1.0, 2.0 ** (level - 15)).rdp(3.21, orders)
    assert time.process_time() - start < 0.5
    assert whole_orders()[-1] == 512


def test_a_release_and_its_solvers_tell_the_law_of_the_adjacency():
    release = FixedSizeGaussian("sum", 1.0, 3, 0.7, rate=0.1, zeroed=True)
    assert release.law() == FixedSizeGaussianLaw(3, 0.7, 0.1, True)
    assert replace(release, zeroed=False).law() == FixedSizeGaussianLaw(3, 0.7, 0.1)
    problem = load_problem("sparse_classification", n=64, p=8)
    for adjacency in Adjacency:
        zeroed = adjacency is Adjacency.ZERO_OUT
        found = [
            one.zeroed
            for kind in BiasReducedSGD(clip=1.0).kinds(problem, adjacency)
            for one in kind
            if isinstance(one, FixedSizeGaussian)
        ]
        assert found and set(found) == {zeroed}
