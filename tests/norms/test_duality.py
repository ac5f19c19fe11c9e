"""Test norms of any size: duality, and the cost of large ones."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_erm_bench.norms.cardinality import FUNCTIONS, CardinalityNorm
from dp_erm_bench.norms.general import FromGains
from dp_erm_bench.norms.groups import GroupNorm
from dp_erm_bench.norms.range import RangeNorm
from dp_erm_bench.norms.tabulated import Tabulated
from tests.norms.families import Gains, listed, mixed


@st.composite
def cases(draw):
    """A norm on p features, a point and a length."""
    p = draw(st.integers(2, 40))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from([*FUNCTIONS, "groups", "lapped", "range", "table"]))
    if kind in FUNCTIONS:
        norm = CardinalityNorm(kind, random.uniform(1, p) if kind == "capped" else None)
    elif kind == "range":
        norm = RangeNorm()
    elif kind == "table":
        p = min(p, 7)
        # A sum of covers is submodular.
        hit = random.random((5, p)) < 0.5
        value = lambda A: len(A) ** 0.7 + hit[:, A].any(axis=1).sum()  # noqa: E731
        norm = Tabulated(listed(value, p))
    else:
        order, cuts = random.permutation(p), np.sort(random.integers(0, p, 3))
        groups = [g.tolist() for g in np.split(order, cuts) if g.size]
        if kind == "lapped":
            groups += [random.permutation(p)[: random.integers(1, p + 1)].tolist()]
            groups += [random.permutation(p)[: random.integers(1, p + 1)].tolist()]
        norm = GroupNorm(groups, random.uniform(0.1, 3.0, len(groups)).tolist())
    w = random.normal(size=p) * 10.0 ** random.uniform(-3, 3)
    if draw(st.booleans()):
        w = np.round(w / np.abs(w).max(), 1)
    return norm, w, draw(st.floats(1e-3, 3.0))


@settings(max_examples=150, deadline=None)
@given(cases())
def test_duality(case):
    norm, w, tau = case
    norm.check_features(w.size)
    omega, s = float(norm.value(w)), norm.maximiser(w)
    assert s @ w == pytest.approx(omega, rel=1e-12)
    assert norm.dual(s)[0] <= 1.0 + 1e-9
    assert norm.slack(w, s, 1.0) <= 1e-11 * omega
    dual, mask = norm.dual(w)
    # The set of the dual norm is a point of the ball that attains it.
    point = np.copysign(mask, w) / norm.of_masks(mask[None, :])[0]
    assert point @ w == pytest.approx(dual, rel=1e-9)
    assert norm.value(point) == pytest.approx(1.0, rel=1e-12)
    # What is left by the prox is in tau |P|(F), and attains tau Omega there.
    moved = norm.prox(w, tau * dual)
    left = w - moved
    assert norm.dual(left)[0] <= tau * dual * (1 + 1e-8)
    assert norm.slack(moved, left, tau * dual) <= 1e-9 * dual * omega
    assert tau < 1.0 or not moved.any() or np.abs(moved).max() <= 1e-7 * np.abs(w).max()
    np.testing.assert_allclose(norm.project(w, tau * dual), left, atol=1e-300)


@settings(max_examples=60, deadline=None)
@given(cases())
def test_it_is_a_norm_and_prox_does_not_expand(case):
    norm, w, tau = case
    v = np.roll(w, 1) + 0.1
    value = float(norm.value(w))
    assert norm.value(-2.0 * w) == pytest.approx(2.0 * value, rel=1e-12)
    assert norm.value(w + v) <= (value + norm.value(v)) * (1 + 1e-12)
    moved = np.linalg.norm(norm.prox(w, tau) - norm.prox(v, tau))
    assert moved <= np.linalg.norm(w - v) * (1 + 1e-9) + 1e-9
    sizes = np.linalg.norm(norm.maximiser(w)), np.linalg.norm(w) / max(value, 1e-300)
    assert sizes[0] <= norm.reach(w.size) * (1 + 1e-12)
    assert sizes[1] <= norm.spread(w.size) * (1 + 1e-9)


def test_rows_are_independent_and_have_their_own_steps():
    random = np.random.default_rng(0)
    z, steps = random.normal(size=(3, 4, 6)), random.uniform(0, 0.5, (3, 4, 1))
    for norm in (
        CardinalityNorm("sqrt"),
        GroupNorm([[0, 1, 2], [2, 3, 4, 5]]),
        RangeNorm(),
    ):
        moved, tops = norm.prox(z, steps), norm.maximiser(z)
        assert norm.value(z).shape == (3, 4)
        for a in range(3):
            for b in range(4):
                one = norm.prox(z[a, b], float(steps[a, b, 0]))
                np.testing.assert_array_equal(moved[a, b], one)
                np.testing.assert_array_equal(tops[a, b], norm.maximiser(z[a, b]))


def test_what_is_not_finite_stays_visible():
    z = np.array([[1.0, np.nan, 0.0], [3.0, 1.0, 0.5]])
    moved = RangeNorm().prox(z, 0.1)
    assert np.isnan(moved[0]).all() and np.isfinite(moved[1]).all()


def fastest(work, times=5):
    best = np.inf
    for _ in range(times):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


@pytest.mark.parametrize("kind", ["side by side", "anywhere"])
def test_the_prox_of_overlapping_groups_is_certified_at_2000_features(kind):
    random = np.random.default_rng(1)
    starts = range(0, 1900, 95)
    groups = [[(j + k) % 2000 for k in range(150)] for j in starts]
    if kind == "anywhere":
        groups = [random.permutation(2000)[:150].tolist() for _ in range(20)]
    norm, z = GroupNorm(groups, uncovered="free"), np.abs(random.normal(size=2000))
    for tau in (1.0, 20.0):
        w = norm.prox(z, tau)
        left = z - w
        # The dual point made feasible: the gap is then a certificate.
        rho = norm.dual(left)[0]
        s = left * min(1.0, tau / rho)
        gap = tau * norm.value(w) - s @ w + 0.5 * np.square(left - s).sum()
        assert 0.0 <= gap + 1e-12 and gap <= 1e-9 * 0.5 * (z @ z)
    assert fastest(lambda: norm.prox(z, 20.0), 2) <= 1.0


def test_large_norms_are_fast():
    random = np.random.default_rng(2)
    z = random.normal(size=2000)
    split = GroupNorm(np.arange(2000).reshape(200, 10).tolist())
    for norm in (CardinalityNorm("sqrt"), CardinalityNorm("capped", 30), split):
        assert fastest(lambda norm=norm: norm.prox(z, 0.5), 20) <= 1e-3
    root = CardinalityNorm("sqrt")
    mean, error = root.sampled_width(1000, 20_000)
    assert error <= 0.005 * mean and abs(mean - root.width(1000)) <= 4 * error


def test_gains_that_are_no_submodular_function_are_found():
    from dp_erm_bench.errors import UsageError

    FromGains(Gains(mixed)).check_features(6)
    wrong = {
        "submodular": lambda A: float(len(A)) ** 2,
        "monotone": lambda A: 3.0 if len(A) == 1 else 2.0,
        "> 0 on": lambda A: float(len(A) > 1),
    }
    for words, F in wrong.items():
        with pytest.raises(UsageError, match=f"F of the object is not {words}"):
            FromGains(Gains(F)).check_features(6)
    with pytest.raises(UsageError, match=r"must be the 2\^p values of F"):
        FromGains(object())
