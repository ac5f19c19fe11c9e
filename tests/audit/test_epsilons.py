"""Test the second implementation of the bounds, alone and against the first."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_erm_bench.accounting.certify import certify
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.trust import epsilons
from dp_erm_bench.trust.epsilons import epsilon_by_pld, least_epsilon, proved_epsilon
from tests.privacy.made import law_of, use_of

REPLACE, ZERO = Adjacency
T = 50


def uses(*kinds, ratio, times=T):
    return tuple(use_of(kind, ratio, times) for kind in kinds)


# n = 1000, L_j = 1, delta = 1e-6, replace_one: scale / sensitivity = 500 lambda.
@pytest.mark.parametrize(
    ("called", "accountant", "epsilon"),
    [
        (uses("laplace", "pure", ratio=105.130), "pld", 0.602430),
        (uses("laplace", "pure", ratio=105.130), "rdp", 0.646124),
        (uses("laplace", "pure", ratio=65.4745), "pld", 1.0),
        (uses("laplace", "bounded_range", ratio=44.66005), "rdp", 1.0),
        (uses("bounded_range", ratio=31.63105), "rdp", 1.0),
        (uses("bounded_range", ratio=33.9033), "pld", 1.0),
        (uses("gaussian", ratio=45.5228), "gdp", 0.635878),
        (uses("gaussian", ratio=32.03815), "rdp", 1.0),
        (uses("gaussian", ratio=4.22468, times=1), "gdp", 1.0),
        (uses("gaussian", ratio=0.541087, times=1), "gdp", 10.0),
        (uses("laplace", "pure", ratio=150.0), "pure", 1.0),
    ],
)
def test_reference_numbers(called, accountant, epsilon):
    found = proved_epsilon(called, 1e-6, REPLACE, accountant)
    assert found == pytest.approx(epsilon, rel=1e-3 if accountant == "rdp" else 1e-4)


@pytest.mark.parametrize(("adjacency", "ratio"), [(ZERO, 3.19589), (REPLACE, 2.986505)])
def test_reference_numbers_of_samples(adjacency, ratio):
    called = [use_of("poisson_gaussian", ratio, 200, rate=0.05)]
    found = proved_epsilon(called, 1e-6, adjacency, "pld")
    assert found == pytest.approx(1.0, rel=2e-4)


KINDS = st.sampled_from(["gaussian", "laplace", "bounded_range", "pure"])
USES = st.lists(
    st.tuples(KINDS, st.floats(2, 40), st.integers(1, 25)), min_size=1, max_size=3
)


@settings(max_examples=25)
@given(USES, st.floats(-20, -5), st.sampled_from(Adjacency))
def test_lower_and_upper_bounds_of_any_composition(called, log_delta, adjacency):
    delta = math.exp(log_delta)
    events = tuple(law_of(kind, times, ratio) for kind, ratio, times in called)
    called = [use_of(*one) for one in called]
    proof = certify(events, 1.0, delta, adjacency)
    # A lattice is coarse against the far tail of a few bounded losses.
    again = proved_epsilon(called, delta, adjacency, proof.accountant)
    assert again == pytest.approx(proof.epsilon, rel=1e-3, abs=1e-9)
    assert least_epsilon(called, delta, adjacency) <= proof.epsilon * (1 + 1e-6) + 1e-9


@pytest.mark.parametrize("kind", ["bounded_range", "pure", "laplace"])
def test_an_instance_is_a_case_of_what_dominates(kind):
    use, step = use_of(kind, 2.0, 1), 1 / 120
    least, most = (use.distribution(step, ZERO, least=flag) for flag in (True, False))
    for epsilon in np.linspace(0.0, 1.2, 25):
        upper = most.get_delta_for_epsilon(epsilon)
        assert least.get_delta_for_epsilon(epsilon) <= upper + 1e-12
    assert least.get_delta_for_epsilon(0.0) > 0.3 * most.get_delta_for_epsilon(0.0)


@pytest.mark.parametrize("kind", ["bounded_range", "pure"])
def test_the_dominating_profile_is_the_printed_one(kind):
    use = use_of(kind, 2.0, 1)
    made = use.distribution(1 / 120, ZERO, least=False)
    for cell in (-60, 0, 31, 90, 119):
        e = cell / 120
        exact = {
            "pure": (1 - math.exp(e - 1)) / (1 + math.exp(-1)),
            "bounded_range": (1 - math.exp((e - 1) / 2)) ** 2 / (1 - math.exp(-1)),
        }[kind]
        assert made.get_delta_for_epsilon(e) == pytest.approx(exact, rel=1e-9)


def test_replacing_a_record_is_not_doubled_twice():
    # Rate 1 is the Gaussian itself, in both adjacencies.
    plain = proved_epsilon([use_of("gaussian", 9.0, 5)], 1e-6, REPLACE, "gdp")
    for adjacency in Adjacency:
        called = [use_of("poisson_gaussian", 9.0, 5, rate=0.999999)]
        found = proved_epsilon(called, 1e-6, adjacency, "pld")
        assert found == pytest.approx(plain, rel=1e-3)


def test_gaussians_are_folded_into_one():
    both = [use_of("gaussian", 10.0, 4), use_of("poisson_gaussian", 20.0, 9, rate=1.0)]
    mu = math.sqrt(4 / 100 + 9 / 400)
    exact = epsilons.epsilon_of_gaussians(mu, 1e-6)
    assert proved_epsilon(both, 1e-6, ZERO, "gdp") == pytest.approx(exact)
    found = epsilon_by_pld(both, 1e-6, ZERO)
    assert found == pytest.approx(exact, rel=1e-4)


def test_trivial_compositions():
    assert proved_epsilon([], 1e-6, ZERO, "none") == 0.0
    assert least_epsilon([], 1e-6, ZERO) == 0.0
    loud = [use_of("laplace", 0.0, 1)]
    assert proved_epsilon(loud, 1e-6, ZERO, "pure") == math.inf
    assert least_epsilon(loud, 1e-6, ZERO) == math.inf
    assert epsilons.epsilon_of_gaussians(1e-9, 1e-3) == 0.0


def test_what_has_no_instance_bounds_nothing_from_below():
    hidden = [
        use_of("pure", 3.0, 5, spread=2.0),
        use_of("vector", 3.0, 1, epsilon_share=0.1),
    ]
    assert least_epsilon(hidden, 1e-6, ZERO) == 0.0
    seen = [use_of("laplace", 3.0, 5)]
    alone = least_epsilon(seen, 1e-6, ZERO)
    assert least_epsilon([*hidden, *seen], 1e-6, ZERO) == alone > 0


def test_vectors_are_added_to_the_rest():
    rest = [use_of("gaussian", 9.0, 5)]
    alone = proved_epsilon(rest, 1e-6, ZERO, "gdp")
    both = proved_epsilon(
        [use_of("vector", 20.0, 2, epsilon_share=0.1), *rest], 1e-6, ZERO, "gdp"
    )
    assert both == pytest.approx(alone + 0.1)
