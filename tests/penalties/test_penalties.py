"""Test properties of every separable penalty, and of the general form."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from dp_erm_bench import registry
from dp_erm_bench.contract.problems import separable_penalties
from dp_erm_bench.errors import UsageError
from dp_erm_bench.kernels.projections import prox as compiled_prox
from dp_erm_bench.penalties.base import SeparablePenalty
from dp_erm_bench.penalties.separable import Box, ElasticNet
from tests.loops import each
from tests.penalties.stationary import subdifferential_distance

NAMES = list(separable_penalties())
STRENGTHS = (0.0, 0.3, 2.0)
STEPS = (0.05, 1.0, 7.0)
POINTS = np.array([-6.0, -2.0, -0.31, -0.3, -1e-9, 0.0, 1e-9, 0.3, 0.31, 1.7, 6.0])


class General(SeparablePenalty):
    """Every part at once: what later penalties are made of."""

    name = "general"

    def __init__(self, l1, l2, lower, upper):
        self.l1, self.l2, self.lower, self.upper = l1, l2, lower, upper


def strong(name):
    return hasattr(registry.build("penalty", name), "strength")


def of_the_registry():
    for name in NAMES:
        if strong(name):
            yield from (registry.build("penalty", name, strength=s) for s in STRENGTHS)
        else:
            yield registry.build("penalty", name)


PENALTIES = [
    *of_the_registry(),
    *(ElasticNet(0.6, ratio) for ratio in (0.0, 0.2, 1.0)),
    Box(-0.3, 1.7),
    Box(0.0, math.inf),
    Box(-math.inf, 0.31),
    General(0.3, 0.7, -1.5, 2.0),
    General(0.0, 0.0, -0.5, 0.5),
    General(0.4, 0.0, 0.0, math.inf),
    General(0.2, 1.0, 0.25, 3.0),
]


@pytest.fixture(params=PENALTIES, ids=lambda p: f"{p.name}{p.parameters().tolist()}")
def penalty(request):
    return request.param


def feasible(penalty, points=POINTS):
    """Return points of the box, its borders among them."""
    borders = [b for b in (penalty.lower, penalty.upper) if math.isfinite(b)]
    return np.unique(np.clip(np.append(points, borders), penalty.lower, penalty.upper))


def one(penalty, u):
    return penalty.value(np.array([u]))


def test_there_are_penalties_and_they_are_named_like_their_yaml():
    assert NAMES
    assert [registry.build("penalty", name).name for name in NAMES] == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_parts_of_the_registry_agree_with_their_names(name):
    built = registry.build(
        "penalty", name, **({"strength": 0.7} if strong(name) else {})
    )
    parts = {"l1": (0.7, 0), "l2": (0, 0.7), "elastic_net": (0.35, 0.35)}
    assert (built.l1, built.l2) == parts.get(name, (0, 0))
    sides = {"box": (-1.0, 1.0)}
    assert (built.lower, built.upper) == sides.get(name, (-math.inf, math.inf))
    assert built.strong_convexity == built.l2


def test_value_is_the_formula(penalty):
    w = feasible(penalty)
    parts = [penalty.l1 * abs(u) + penalty.l2 / 2 * u * u for u in w.tolist()]
    assert penalty.value(w) == pytest.approx(sum(parts), rel=1e-14)
    assert one(penalty, w[0]) == pytest.approx(parts[0], rel=1e-14)


def test_value_is_infinite_outside_the_box(penalty):
    for border, outward in ((penalty.lower, -1e-9), (penalty.upper, 1e-9)):
        if math.isfinite(border):
            assert penalty.value(np.array([border + outward, border])) == math.inf


def test_value_sums_over_the_last_axis(penalty):
    low = max(penalty.lower, -3.0)
    w = np.random.default_rng(0).uniform(low, min(penalty.upper, 3.0), size=(3, 4, 5))
    assert np.shape(penalty.value(w[0, 0])) == ()
    assert penalty.value(w).shape == (3, 4)
    for a in range(3):
        single = [penalty.value(row) for row in w[a]]
        np.testing.assert_allclose(penalty.value(w)[a], single, rtol=1e-14)


def test_strong_convexity_is_the_modulus(penalty):
    points = feasible(penalty)
    a, b = points[:, None], points[None, :]
    values = np.vectorize(lambda u: one(penalty, u))
    bend = 0.5 * (values(a) + values(b)) - values((a + b) / 2)
    least = penalty.strong_convexity / 8 * (a - b) ** 2
    assert (bend >= least - 1e-12).all()
    if penalty.l1 == 0.0:
        np.testing.assert_allclose(bend, least, atol=1e-12)


@each("step", STEPS)
def test_prox_beats_a_scalar_minimiser(penalty, step):
    low, high = max(penalty.lower, -8.0), min(penalty.upper, 8.0)
    for v, u in zip(POINTS, penalty.prox(POINTS, step), strict=True):

        def objective(t, v=v):
            return (t - v) ** 2 / 2 + step * one(penalty, t)

        best = minimize_scalar(
            objective, bounds=(low, high), method="bounded", options={"xatol": 1e-10}
        )
        assert objective(u) <= best.fun + 1e-14
        assert abs(u - best.x) <= 1e-5


@each("step", STEPS)
def test_prox_is_a_contraction_by_the_strong_convexity(penalty, step):
    a, b = np.random.default_rng(1).normal(scale=3.0, size=(2, 1000))
    moved = np.abs(penalty.prox(a, step) - penalty.prox(b, step))
    assert (moved <= np.abs(a - b) / (1 + step * penalty.l2) + 1e-14).all()


def test_prox_of_step_zero_projects_on_the_box(penalty):
    projected = np.clip(POINTS, penalty.lower, penalty.upper)
    assert penalty.prox(POINTS, 0.0).tolist() == projected.tolist()


def test_prox_takes_a_step_per_entry(penalty):
    v = np.random.default_rng(2).normal(scale=3.0, size=(3, 4))
    steps = np.random.default_rng(3).exponential(size=(3, 4))
    entries = [
        [float(penalty.prox(v[b, j], steps[b, j])) for j in range(4)] for b in range(3)
    ]
    np.testing.assert_allclose(penalty.prox(v, steps), entries, rtol=1e-15)


@each("step", STEPS)
def test_parameters_are_what_the_kernels_take(penalty, step):
    psi = penalty.parameters()
    assert psi.tolist() == [penalty.l1, penalty.l2, penalty.lower, penalty.upper]
    compiled = [compiled_prox(v, step, psi) for v in POINTS]
    np.testing.assert_allclose(compiled, penalty.prox(POINTS, step), rtol=1e-15)


def least_subgradient(penalty, g, w):
    """Return the distance by one-sided difference quotients of g t + psi(t)."""
    t = 1e-7
    right = g + (one(penalty, w + t) - one(penalty, w)) / t
    left = g - (one(penalty, w - t) - one(penalty, w)) / t
    return max(left, -right, 0.0)


def test_subdifferential_distance_is_the_least_norm(penalty):
    for w in feasible(penalty, np.array([-2.0, -0.3, 0.0, 0.3, 1.7])):
        for g in (-3.0, -0.5, -0.1, 0.0, 0.1, 0.5, 3.0):
            distance = subdifferential_distance(penalty, np.array([g]), np.array([w]))
            assert distance[0] == pytest.approx(
                least_subgradient(penalty, g, w), abs=1e-6
            )


@each("step", STEPS)
def test_subdifferential_distance_is_zero_exactly_at_minimisers(penalty, step):
    v = np.random.default_rng(4).normal(scale=3.0, size=400)
    u = penalty.prox(v, step)
    assert np.abs(subdifferential_distance(penalty, (u - v) / step, u)).max() <= 1e-13
    for shift in (-0.01, 0.01):
        w = np.clip(u + shift, penalty.lower, penalty.upper)
        moved = np.abs(w - u) > 1e-9
        distance = subdifferential_distance(penalty, (w - v) / step, w)[moved]
        # The prox objective is 1/step + l2 strongly convex.
        least = (1 / step + penalty.l2) * np.abs(w - u)[moved]
        assert (distance >= least * (1 - 1e-9) - 1e-13).all()


@each("name", list(filter(strong, NAMES)))
@each("strength", [-1e-9, -1.0, math.inf, -math.inf, math.nan, "auto", "x", None, [1]])
def test_wrong_strengths_are_refused_in_one_sentence(name, strength):
    with pytest.raises(UsageError) as error:
        registry.build("penalty", name, strength=strength)
    text = str(error.value)
    assert text.startswith(
        f"penalty.strength={strength} of {name}: must be a number >= 0"
    )


@pytest.mark.parametrize("name", list(filter(strong, NAMES)))
def test_strengths_may_be_integers(name):
    built = registry.build("penalty", name, strength=2)
    assert built.value(np.array([1.0])) == registry.build(
        "penalty", name, strength=2.0
    ).value(np.array([1.0]))


def test_the_elastic_net_is_the_sum_of_its_parts():
    w = np.random.default_rng(5).normal(size=(7, 4))
    for ratio in (0.0, 0.3, 1.0):
        parts = registry.build("penalty", "l1", strength=2.0 * ratio).value(w)
        parts += registry.build("penalty", "l2", strength=2.0 * (1 - ratio)).value(w)
        np.testing.assert_allclose(ElasticNet(2.0, ratio).value(w), parts, rtol=1e-14)


@pytest.mark.parametrize("ratio", [-0.1, 1.1, math.nan, math.inf, "half", None])
def test_wrong_ratios_are_refused_in_one_sentence(ratio):
    with pytest.raises(UsageError) as error:
        ElasticNet(1.0, ratio)
    assert str(error.value) == (
        f"penalty.l1_ratio={ratio} of elastic_net: must be a number in [0, 1]"
    )


@pytest.mark.parametrize("wrong", [1e-9, 2.0, math.nan, math.inf, "low", [0.0], True])
def test_boxes_without_the_start_are_refused_in_one_sentence(wrong):
    opposite = -wrong if type(wrong) is float else wrong
    for key, given, sign in (("lower", wrong, "<="), ("upper", opposite, ">=")):
        with pytest.raises(UsageError) as error:
            Box(**{key: given})
        assert str(error.value) == (
            f"penalty.{key}={given} of box: must be a number {sign} 0 "
            "(runs start at w = 0), or null for no bound"
        )


def test_a_box_may_be_a_half_line_or_a_point():
    v = np.array([-2.0, 0.0, 3.0])
    assert Box(0.0, math.inf).prox(v, 1.0).tolist() == [0.0, 0.0, 3.0]
    assert Box(0, 0).prox(v, 1.0).tolist() == [0.0, 0.0, 0.0]
    assert Box(0.0, None) == Box(0, math.inf) and Box(None, 2) == Box(-math.inf, 2)
    assert repr(Box(0, None)) == repr(Box(0.0, math.inf))
