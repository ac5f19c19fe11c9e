import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import gammaln, logsumexp

from dp_erm_bench.accounting.bounds import gdp_epsilon, pure_epsilon, rdp_epsilon
from dp_erm_bench.accounting.budget import LEAST_DELTA
from dp_erm_bench.accounting.certify import (
    Certificate,
    certify,
    pld_certificate,
    quick_certificate,
)
from dp_erm_bench.accounting.pld import pld_epsilon
from dp_erm_bench.errors import UsageError
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.law import Law
from tests.loops import each
from tests.privacy.made import LAWS as KINDS
from tests.privacy.made import law_of

REPLACE, ZERO = Adjacency

EVENTS = st.lists(
    st.builds(
        law_of,
        st.sampled_from(["gaussian", "laplace", "bounded_range", "pure"]),
        st.integers(0, 30),
        st.floats(0.5, 4),
    ),
    min_size=1,
    max_size=3,
).map(tuple)


def epsilon_of(
    events: tuple[Law, ...], z: float, delta: float, adjacency: Adjacency = REPLACE
) -> float:
    return certify(events, z, delta, adjacency).epsilon


@given(
    st.lists(st.tuples(st.integers(1, 50), st.floats(0.1, 10)), min_size=1, max_size=4),
    st.floats(1, 50),
)
def test_gaussians_of_any_weights_are_exact(
    uses: list[tuple[int, float]], z: float
) -> None:
    events = tuple(law_of("gaussian", times, weight) for times, weight in uses)
    mu = math.sqrt(sum(times / (z * weight) ** 2 for times, weight in uses))
    found = certify(events, z, 1e-6, REPLACE)
    assert found.accountant == "gdp"
    assert found.epsilon == pytest.approx(gdp_epsilon(mu, 1e-6), rel=1e-9)


@pytest.mark.parametrize(
    ("events", "accountant"),
    [
        ((law_of("gaussian", 5),), "gdp"),
        ((law_of("poisson_gaussian", 5, rate=1.0), law_of("gaussian", 1)), "gdp"),
        ((law_of("laplace", 50), law_of("bounded_range", 50)), "rdp"),
        ((law_of("laplace", 50), law_of("pure", 50)), "pld"),
        ((law_of("poisson_gaussian", 50, rate=0.1),), "pld"),
    ],
)
def test_who_wins_where(events: tuple[Law, ...], accountant: str) -> None:
    assert certify(events, 60.0, 1e-6, REPLACE).accountant == accountant


def test_pure_composition_wins_where_delta_is_tiny() -> None:
    events = (law_of("laplace", 2), law_of("pure", 2, spread=3.0))
    found = certify(events, 10.0, 1e-60, REPLACE)
    assert found.accountant == "pure"
    assert found.epsilon == pytest.approx(2 / 10 + 2 * 4 / 10)
    assert epsilon_of(events, 10.0, 0.0) == found.epsilon


def test_pure_composition_knows_no_gaussian() -> None:
    assert pure_epsilon((law_of("gaussian", 1),), 1.0) is None


@settings(max_examples=25)
@given(EVENTS, st.floats(2, 200), st.floats(-30, -3))
def test_certificate_is_the_smallest(
    events: tuple[Law, ...], z: float, log_delta: float
) -> None:
    delta = math.exp(log_delta)
    found = epsilon_of(events, z, delta)
    used = tuple(event for event in events if event.times)
    if used:
        assert found <= quick_certificate(used, z, delta).epsilon * (1 + 1e-12)
        assert found <= pld_certificate(used, z, delta, REPLACE).epsilon * (1 + 1e-12)
        levels = [event for event in used if event.name != "gaussian"]
        assert epsilon_of(tuple(levels), z, delta) <= found * (1 + 1e-3) + 1e-9
    else:
        assert found == 0


@settings(max_examples=25)
@given(EVENTS, st.floats(2, 200), st.floats(-30, -3), st.integers(0, 2))
def test_certificate_is_monotone(
    events: tuple[Law, ...], z: float, log_delta: float, which: int
) -> None:
    delta = math.exp(log_delta)
    at = epsilon_of(events, z, delta)
    slack = 2e-3 * at + 1e-9
    assert epsilon_of(events, 1.1 * z, delta) <= at + slack
    assert epsilon_of(events, z, 2 * delta) <= at + slack
    assert epsilon_of((*events, law_of(list(KINDS)[which], 3)), z, delta) >= at - slack


@pytest.mark.parametrize("adjacency", Adjacency)
def test_sampling_helps_and_never_hurts(adjacency: Adjacency) -> None:
    found = [
        epsilon_of((law_of("poisson_gaussian", 100, rate=q),), 10.0, 1e-6, adjacency)
        for q in (0.01, 0.1, 0.5, 1.0)
    ]
    assert found == sorted(found)
    assert found[0] < 0.1 * found[-1]


def test_both_adjacencies_meet_at_full_batch() -> None:
    full = (law_of("poisson_gaussian", 100, rate=1.0),)
    assert epsilon_of(full, 10.0, 1e-6) == epsilon_of(full, 10.0, 1e-6, ZERO)


def test_trivial_compositions() -> None:
    assert certify((), 1.0, 1e-6, REPLACE) == Certificate(0.0, "none")
    nothing = (law_of("laplace", 0),)
    assert certify(nothing, 0.0, 0.0, REPLACE) == Certificate(0.0, "none")
    loud = certify((law_of("laplace", 1),), 0.0, 1e-6, REPLACE)
    assert loud == Certificate(math.inf, "none")


@each("z", [1e-150, 1e-6, 1e-2, 1e6, 1e150])
@each("kind", KINDS)
def test_extreme_noise_is_safe(kind: str, z: float) -> None:
    rate = 0.01 if kind in ("poisson_gaussian", "fixed_size_gaussian") else None
    found = epsilon_of((law_of(kind, 10, rate=rate),), z, 1e-6)
    assert found >= 0 and not math.isnan(found)
    assert found > 100 if z < 0.1 else found < 1e-2


def test_unknown_events_are_loud() -> None:
    with pytest.raises(TypeError, match="'magic': no accountant knows it"):
        certify((law_of("gaussian", 1), law_of("magic", 1)), 1.0, 1e-6, REPLACE)


@pytest.mark.parametrize("kind", ["gaussian", "poisson_gaussian"])
def test_zero_delta_needs_pure_laws(kind: str) -> None:
    rate = {"rate": 0.1} if kind == "poisson_gaussian" else {}
    with pytest.raises(UsageError, match="^delta=0: must be positive"):
        certify((law_of("laplace", 1), law_of(kind, 1, **rate)), 1.0, 0.0, REPLACE)


def responses_epsilon(times: int, level: float, delta: float) -> float:
    """Return the exact epsilon of randomised responses, from logs of the binomial."""
    lost = np.arange(times + 1)
    ways = gammaln(times + 1) - gammaln(lost + 1) - gammaln(times - lost + 1)
    logs = ways - times * math.log1p(math.exp(-level)) - lost * level
    losses = (times - 2 * lost) * level

    def excess(epsilon: float) -> float:
        above = losses > epsilon
        gains = np.log(-np.expm1(epsilon - losses[above]))
        return float(logsumexp(logs[above] + gains)) - math.log(delta)

    return float(brentq(excess, 0.0, times * level * (1 - 1e-12)))


@pytest.mark.parametrize("delta", [LEAST_DELTA, 1e-20])
@pytest.mark.parametrize(
    ("kind", "times", "z"),
    [
        ("gaussian", 1, 5.0),
        ("gaussian", 1000, 100.0),
        ("pure", 1000, 100.0),
        ("pure", 100_000, 1000.0),
    ],
)
def test_both_accountants_resolve_the_least_delta(
    kind: str, times: int, z: float, delta: float
) -> None:
    events = (law_of(kind, times),)
    if kind == "gaussian":
        exact = gdp_epsilon(math.sqrt(times) / z, delta)
    else:
        exact = responses_epsilon(times, 2 / z, delta)
    lattice = pld_epsilon(events, z, delta, REPLACE)
    renyi = rdp_epsilon(events, z, delta)
    assert lattice is not None and renyi is not None
    assert exact * (1 - 1e-9) <= lattice <= exact * (1 + 5e-4)
    assert exact <= renyi <= exact * (1.011 if delta == LEAST_DELTA else 1.03)
