"""Test one pass that reads records once: law, mechanism, printed constant."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from dp_erm_bench.accounting.bounds import gdp_epsilon, rdp_epsilon
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.calibration import calibrate
from dp_erm_bench.accounting.certify import certify, profile_epsilon
from dp_erm_bench.accounting.pld import pld_epsilon
from dp_erm_bench.errors import BudgetExhausted, NotSampled, Unsupported
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.base import make_mechanisms
from dp_erm_bench.releases.gaussian import GaussianLaw, gdp_delta
from dp_erm_bench.releases.single_use_gaussian import SingleUseGaussian
from dp_erm_bench.trust.epsilons import proved_epsilon
from dp_erm_bench.trust.twins.base import Answered
from dp_erm_bench.trust.twins.gaussian import GaussianTwin
from dp_erm_bench.trust.twins.single_use_gaussian import SingleUseGaussianTwin
from tests.loops import each
from tests.privacy.made import law_of, use_of

REPLACE, ZERO = Adjacency
GRID = np.linspace(-9.0, 9.0, 361)
CELL = (GRID[1] - GRID[0]) ** 2


def single(n, m=None, times=1):
    m = math.ceil(n / 2) if m is None else m
    return law_of("single_use", times, fresh=m, records=n)


def release_of(n, m, times, drawn=True, sensitivity=2.0):
    return SingleUseGaussian(
        "gradient", sensitivity, times, records=n, fresh=m, drawn=drawn
    )


def transcripts(records, orders, scale):
    """Return the density of two answers on a grid, adaptive in the second query.

    The second gradient of a record has the sign of the first answer.
    """
    first, second = GRID[:, None], GRID[None, :]
    total = np.zeros((GRID.size, GRID.size))
    for i, j in orders:
        law = stats.norm.pdf((first - records[i]) / scale)
        turned = np.where(first > 0.0, records[j], -records[j])
        total += law * stats.norm.pdf((second - turned) / scale)
    return total / len(orders) / scale**2


@pytest.mark.parametrize(("adjacency", "other"), [(REPLACE, -1.0), (ZERO, 0.0)])
def test_no_exact_law_of_a_secret_order_exceeds_the_profile(adjacency, other):
    n, m, scale, largest = 3, 2, 1.3, 0.0
    z, orders = scale / adjacency.of_sum(1.0), list(itertools.permutations(range(3), 2))
    for rest in itertools.product((-1.0, 0.0, 1.0), repeat=2):
        pair = [transcripts((one, *rest), orders, scale) for one in (1.0, other)]
        for (p, q), epsilon in itertools.product((pair, pair[::-1]), (0.0, 0.3, 1.0)):
            found = np.maximum(p - math.exp(epsilon) * q, 0.0).sum() * CELL
            claimed = single(n, m).delta(epsilon, z, 0.0)
            assert found <= claimed + 1e-6
            largest = max(largest, found / claimed)
    assert largest > 0.5


@pytest.mark.parametrize(("adjacency", "other"), [(REPLACE, -1.0), (ZERO, 0.0)])
def test_of_a_known_order_the_factor_is_one(adjacency, other):
    scale = 1.3
    z = scale / adjacency.of_sum(1.0)
    p, q = (transcripts((one, 0.0, 0.0), [(0, 1)], scale) for one in (1.0, other))
    found = np.maximum(p - math.exp(0.3) * q, 0.0).sum() * CELL
    assert found == pytest.approx(gdp_delta(0.3, 1 / z), rel=1e-3)
    assert found > 1.4 * single(3, 2).delta(0.3, z, 0.0)
    given, all_read = release_of(3, 2, 5, drawn=False), release_of(3, 3, 5)
    assert given.law() == all_read.law() == GaussianLaw(1)


@pytest.mark.parametrize("n", [1000, 10_000, 1_000_000])
def test_reference_numbers(n):
    """At the printed noise for e = 1 / (2 sqrt(n)), d = 1e-7: whatever n is."""
    scale = 8 * math.sqrt(-math.log(1e-7)) / (math.sqrt(n) * 0.5 / math.sqrt(n))
    found = certify((single(n),), scale / 2, 3e-7, REPLACE)
    assert found.accountant == "profile"
    assert found.epsilon == pytest.approx(0.11784, rel=0.01)
    half = gdp_epsilon(2 / scale, 2 * 3e-7)
    assert found.epsilon == pytest.approx(half, rel=1e-9)


@pytest.mark.slow
@each("z", [0.7, 3.0, 30.0])
@each(("n", "m"), [(1000, 500), (50, 1), (5, 3)])
@each("adjacency", Adjacency)
def test_every_accountant_is_recounted(z, n, m, adjacency):
    laws, use = (single(n, m),), (use_of("single_use", z, 1, share=m / n),)
    profile = profile_epsilon(laws, z, 1e-6)
    rdp, pld = rdp_epsilon(laws, z, 1e-6), pld_epsilon(laws, z, 1e-6, adjacency)
    assert profile <= rdp
    assert profile <= pld <= profile * (1 + 1e-5)
    for name, epsilon in {"profile": profile, "rdp": rdp, "pld": pld}.items():
        again = proved_epsilon(use, 1e-6, adjacency, name)
        assert again == pytest.approx(epsilon, rel=1e-3 if name == "rdp" else 1e-4)


def test_gaussian_releases_beside_it_are_composed():
    laws = (single(10), law_of("gaussian", 4))
    uses = (use_of("single_use", 6.0, 1, share=0.5), use_of("gaussian", 6.0, 4))
    found = certify(laws, 6.0, 1e-5, REPLACE)
    assert found.accountant == "profile"
    again = proved_epsilon(uses, 1e-5, REPLACE, "profile")
    assert again == pytest.approx(found.epsilon, rel=1e-4)
    assert pld_epsilon(laws, 6.0, 1e-5, REPLACE) == pytest.approx(again, rel=1e-3)
    alone, all_read = gdp_epsilon(2 / 6, 1e-5), gdp_epsilon(math.sqrt(5) / 6, 1e-5)
    assert alone < found.epsilon < all_read


def test_two_passes_are_composed_by_their_dominating_pair():
    two = (single(10, times=2),)
    exact = 0.25 * gdp_delta(1.0, math.sqrt(2) / 3) + 0.5 * gdp_delta(1.0, 1 / 3)
    assert pld_epsilon(two, 3.0, exact, REPLACE) == pytest.approx(1.0, rel=1e-4)
    assert profile_epsilon(two, 3.0, exact) is None


def test_the_printed_noise():
    n, theorem = 10_000, 0.004999
    epsilon = theorem * 8 * math.sqrt(-math.log(1e-7))
    for adjacency in Adjacency:
        budget = Budget(epsilon, 3e-7, adjacency)
        found = calibrate((single(n),), budget, "paper", "arora2020")
        scale = found.z * adjacency.of_sum(1.0)
        assert scale == pytest.approx(64.235757 * 0.005 / theorem, rel=1e-6)
        assert found.label == "paper"


@pytest.mark.parametrize(
    ("n", "epsilon", "delta", "sentence"),
    [
        (40, 0.1, 1e-6, "delta=1e-06: the printed constant needs a delta from 0.493"),
        (1000, 0.1, 0.06, "delta=0.06: .* from 4.31e-27 to 0.0549 at n=1000"),
        (1000, 0.6, 1e-6, "epsilon=0.6: .* at most 0.488 at n=1000"),
    ],
)
def test_the_printed_noise_is_refused_outside_its_range(n, epsilon, delta, sentence):
    with pytest.raises(Unsupported, match=sentence) as refused:
        calibrate((single(n),), Budget(epsilon, delta), "paper", "arora2020")
    assert "\n" not in str(refused.value)


def test_a_pass_draws_its_order_and_counts_what_it_reads():
    names = [f"trial {k}" for k in range(3000)]
    mechanism = make_mechanisms([release_of(5, 3, 4)], 1.5, names)["gradient"]
    orders = np.stack([mechanism.next_records(b, 3) for b in range(len(names))])
    assert all(len(set(order)) == 3 for order in orders.tolist())
    counts = np.bincount(orders @ [25, 5, 1], minlength=125)
    assert stats.chisquare(counts[counts > 0]).pvalue > 1e-4
    assert np.count_nonzero(counts) == 60
    with pytest.raises(BudgetExhausted, match="declared to read 3 records"):
        mechanism.next_records(0, 1)
    noise = mechanism.take_vectors(4, 2)
    assert stats.kstest(noise.ravel() / 3.0, "norm").pvalue > 1e-3
    mechanism.finish()


def test_a_pass_that_reads_too_few_records_is_refused():
    mechanism = make_mechanisms([release_of(5, 3, 4)], 1.5, "a")["gradient"]
    mechanism.next_records(0, 2)
    mechanism(np.zeros((1, 2)))
    with pytest.raises(NotSampled, match="reading 3 records .* but 2 were taken"):
        mechanism.finish()


def test_the_recount_takes_no_order_for_secret_that_is_another():
    def twin(release, order=None):
        mechanism = make_mechanisms([release], 1.5, "a")["gradient"]
        if order is not None:
            mechanism.permutation = lambda trial: order
        mechanism.next_records(0, 3)
        return SingleUseGaussianTwin.of(release, mechanism, 1.5, 4)

    assert twin(release_of(6, 3, 4)) == SingleUseGaussianTwin(1.5, 1, 0.5)
    known = twin(release_of(6, 3, 4), np.arange(6))
    assert known == SingleUseGaussianTwin(1.5, 1, 1.0)
    assert twin(release_of(6, 3, 4, drawn=False)) == GaussianTwin(1.5, 1)
    cost = proved_epsilon([known], 1e-6, REPLACE, "profile")
    assert cost == pytest.approx(gdp_epsilon(1 / 1.5, 1e-6), rel=1e-4)


@pytest.mark.parametrize("drawn", [True, False])
def test_the_log_ratio_is_that_of_the_exact_law(drawn):
    """Of two answers, one record and its neighbour, the rest being zero."""
    n, scale, rng = 3, 1.3, np.random.default_rng(0)
    orders = list(itertools.permutations(range(n), 2)) if drawn else [(0, 1)]
    answers = rng.normal(size=(2, 7))
    queries = np.array([[1.0, 1.0], [-0.4, -0.4]])
    if not drawn:
        queries[:, 1] = 0.0
    laws = []
    for value in (1.0, -0.4):
        records = (value, 0.0, 0.0)
        parts = [
            stats.norm.pdf((answers[0] - records[i]) / scale)
            * stats.norm.pdf((answers[1] - records[j]) / scale)
            for i, j in orders
        ]
        laws.append(np.log(np.mean(parts, axis=0)))
    uses = [
        Answered(
            answers[t][:, None],
            np.full((7, 1), queries[0, t]),
            np.full((7, 1), queries[1, t]),
            np.full((1, 1), scale),
        )
        for t in range(2)
    ]
    found = SingleUseGaussianTwin.log_ratio_of_run(release_of(n, 2, 2, drawn), uses)
    assert found == pytest.approx(laws[0] - laws[1], abs=1e-12)


@pytest.mark.slow
@each("mu", [1e-4, 0.3, 5.0, 25.0])
@each(("n", "m"), [(1000, 1), (10**9, 7), (10**15, 1)])
def test_no_loss_distribution_of_a_tiny_share_proves_less_than_the_profile(mu, n, m):
    laws = single(n, m), GaussianLaw(1, mu / 0.01)
    for delta, beside in itertools.product((1e-3, 1e-9, 1e-15), (0.0, 0.01)):
        found = pld_epsilon(laws if beside else laws[:1], 1 / mu, delta, ZERO)
        assert laws[0].delta(found, 1 / mu, beside) <= delta * (1 + 1e-9)


@pytest.mark.parametrize("times", [2, 1000])
@pytest.mark.parametrize("share", [1e-9, 1e-3])
def test_passes_compose_to_the_mixture_over_how_many_read_the_record(times, share):
    n = round(1 / share)
    reads = np.arange(min(times, 60) + 1)
    masses = stats.binom.pmf(reads, times, share)
    for mu, delta in itertools.product((0.1, 2.0), (1e-6, 1e-12)):
        found = pld_epsilon((single(n, 1, times),), 1 / mu, delta, ZERO)
        deltas = [0.0, *(gdp_delta(found, math.sqrt(k) * mu) for k in reads[1:])]
        assert masses @ deltas <= delta * (1 + 1e-9)
