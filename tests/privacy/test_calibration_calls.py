"""Test how often a calibration calls accountants, and that noise is monotone."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_erm_bench.accounting import certify, least, pld
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.calibration import calibrate, compute_calibration
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.law import compose_laws
from tests.loops import each
from tests.privacy.made import law_of

REPLACE, ZERO = Adjacency
EPSILONS = (0.1, 1.0, 10.0)
each_epsilon = pytest.mark.parametrize("epsilon", EPSILONS)
each_adjacency = pytest.mark.parametrize("adjacency", Adjacency)


@pytest.fixture
def asked(monkeypatch):
    """Every (z, cells) that a PLD was asked at."""
    calls = []
    original = certify.pld_epsilon

    def listen(events, z, delta, adjacency, *cells):
        calls.append((z, *cells))
        return original(events, z, delta, adjacency, *cells)

    monkeypatch.setattr(certify, "pld_epsilon", listen)
    monkeypatch.setattr(least, "pld_epsilon", listen)
    return calls


@pytest.fixture
def sizes(monkeypatch):
    """The length of every array that was transformed."""
    seen = []
    original = pld.Composition.tilted_bounds

    def listen(self, t, low, size):
        seen.append(size)
        return original(self, t, low, size)

    monkeypatch.setattr(pld.Composition, "tilted_bounds", listen)
    return seen


def noise_of(events, epsilon, adjacency=REPLACE, delta=1e-6):
    """Calibrate without any memory."""
    return compute_calibration(
        compose_laws(events), Budget(epsilon, delta, adjacency), "certified", None
    )


@each_epsilon
@pytest.mark.parametrize("times", [10, 100_000])
def test_a_closed_form_asks_nothing_slow(asked, epsilon, times):
    noise_of((law_of("gaussian", times),), epsilon)
    noise_of((law_of("poisson_gaussian", times, rate=1.0),), epsilon)
    assert asked == []


@pytest.mark.parametrize("times", [10, 100, 1000, 100_000])
@pytest.mark.parametrize("epsilon", [1.0, 10.0])
def test_renyi_is_asked_once_whether_pld_would_be_less(asked, times, epsilon):
    events = (law_of("bounded_range", times), law_of("laplace", times))
    assert noise_of(events, epsilon).accountant == "rdp"
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("times", "epsilon"), [(10, 0.1), (10, 10.0), (1000, 1.0), (100_000, 1.0)]
)
def test_pld_is_searched_from_the_renyi_answer(asked, sizes, times, epsilon):
    events = (law_of("pure", times), law_of("laplace", times))
    found = noise_of(events, epsilon)
    assert found.accountant == "pld"
    assert len(asked) <= 6
    assert all(0.8 * found.z < z < 1.3 * found.z for (z,) in asked)
    assert max(sizes) <= pld.LARGEST / 2


@each_adjacency
@pytest.mark.parametrize(
    ("rate", "times", "epsilon"),
    [(0.05, 200, 0.1), (0.05, 200, 10.0), (1e-3, 1000, 1.0), (1e-5, 1000, 0.1)],
)
def test_samples_are_searched_coarsely_first(
    asked, sizes, rate, times, adjacency, epsilon
):
    laws = (law_of("poisson_gaussian", times, rate=rate),)
    found = noise_of(laws, epsilon, adjacency)
    assert found.accountant == "pld"
    fine = [call for call in asked if len(call) == 1]
    assert len(asked) <= 16 and len(fine) <= 5
    assert all(0.9 * found.z < z < 1.1 * found.z for (z,) in fine)
    assert max(sizes) <= pld.LARGEST


@each_adjacency
def test_many_tiny_batches_stay_small(asked, sizes, adjacency):
    events = (law_of("poisson_gaussian", 50 * 45312, rate=1 / 45312),)
    noise_of(events, 1.0, adjacency, 1 / 45312**2)
    assert len(asked) <= 16 and max(sizes) <= pld.LARGEST / 2


SAMPLED = st.builds(
    lambda times, rate: law_of("poisson_gaussian", times, rate=rate),
    st.integers(2, 500),
    st.floats(5e-3, 0.5),
)


@settings(max_examples=6)
@given(SAMPLED, st.floats(0.2, 5), st.floats(-20, -5), st.sampled_from(Adjacency))
def test_noise_of_samples_is_monotone(event, epsilon, log_delta, adjacency):
    delta = math.exp(log_delta)

    def z(event=event, epsilon=epsilon, delta=delta):
        return calibrate((event,), Budget(epsilon, delta, adjacency)).z

    more = law_of("poisson_gaussian", 2 * event.times, rate=event.rate)
    denser = law_of("poisson_gaussian", event.times, rate=1.5 * event.rate)
    slack = 1 + 1e-4
    assert z(epsilon=1.2 * epsilon) < z()
    assert z(delta=2 * delta) <= z() * slack
    assert z(event=more) >= z() / slack
    assert z(event=denser) >= z() / slack


@settings(max_examples=20)
@given(
    st.sampled_from(["gaussian", "laplace", "bounded_range", "pure"]),
    st.integers(1, 300),
    st.integers(1, 300),
    st.floats(0.1, 8),
)
def test_more_uses_need_more_noise(kind, times, extra, epsilon):
    few, many = (
        calibrate((law_of(kind, count),), Budget(epsilon, 1e-6)).z
        for count in (times, times + extra)
    )
    assert few < many * (1 + 1e-4)


@settings(max_examples=20)
@given(st.floats(0.1, 8), st.floats(1, 8), st.integers(1, 100))
def test_a_wider_spread_needs_more_noise(epsilon, spread, times):
    even, wide = (
        calibrate((law_of("pure", times, spread=s),), Budget(epsilon, 1e-6)).z
        for s in (1.0, spread)
    )
    # A level (1 + spread) / z takes z in proportion.
    assert wide == pytest.approx(even * (1 + spread) / 2, rel=1e-3)


@each("delta", [1e-3, 1e-6, 1e-12, 1e-30])
@each("epsilon", [1e-3, 0.1, 1.0, 50.0])
@each("kind", ["gaussian", "laplace", "bounded_range", "pure"])
def test_corners_stay_within_the_budget(kind, epsilon, delta):
    found = noise_of((law_of(kind, 7),), epsilon, delta=delta)
    assert 0.999 * epsilon <= found.epsilon_certified <= epsilon
    assert 0 < found.z < math.inf
