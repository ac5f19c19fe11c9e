"""Test the bound on the loss's derivative over the domain of w."""

import itertools
import math

import numpy as np
import pytest

from dp_erm_bench import registry
from dp_erm_bench.datasets.base import Bounds
from dp_erm_bench.datasets.prepare import dataset_from_arrays
from dp_erm_bench.losses.smooth import Huber, Squared
from dp_erm_bench.penalties.separable import L2, Box, NoPenalty
from dp_erm_bench.problems.erm.build import build_problem
from dp_erm_bench.problems.erm.objective import lipschitz_constant
from tests.loops import each
from tests.serving import BALLS

COLUMNS = np.array([0.5, 2.0, 1.0, 0.0])
LABEL = 3.0
FULL = float(np.linalg.norm(COLUMNS))


def ball(name, radius=1.5):
    return registry.build("constraint", name, radius=radius)


def free():
    return registry.build("constraint", "none")


def bounds(norm=FULL, label=LABEL, columns=COLUMNS):
    return Bounds(columns, norm, label)


def constant(penalty=None, constraint=None, declared=None, loss=None):
    return lipschitz_constant(
        loss or Squared(),
        penalty or NoPenalty(),
        constraint or free(),
        bounds() if declared is None else declared,
    )


@pytest.mark.parametrize(
    "name, expected",
    [
        ("l1_ball", 1.5 * 2.0 + LABEL),
        ("simplex", 1.5 * 2.0 + LABEL),
        ("l2_ball", 1.5 * FULL + LABEL),
    ],
)
def test_constants_of_balls_are_those_of_the_table(name, expected):
    assert constant(constraint=ball(name)) == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("name", BALLS)
def test_a_small_norm_of_records_is_used(name):
    declared = bounds(norm=0.1)
    found = constant(constraint=ball(name), declared=declared)
    assert found == pytest.approx(1.5 * 0.1 + LABEL, rel=1e-15)


def test_the_constant_of_a_box_sums_its_sides():
    assert constant(Box(-0.5, 0.2)) == pytest.approx(0.5 * 3.5 + LABEL)
    assert constant(Box(-0.5, 0.7)) == pytest.approx(0.7 * 3.5 + LABEL)
    assert constant(Box(0.0, math.inf)) == math.inf
    # |x.w| <= norm2(w) R_2, and three of the columns are not zero.
    small = constant(Box(-1.0, 1.0), declared=bounds(norm=0.1))
    assert small == pytest.approx(math.sqrt(3.0) * 0.1 + LABEL)


def test_a_box_in_a_ball_has_the_smaller_constant():
    box, sphere = Box(-0.1, 0.1), ball("l2_ball")
    assert constant(box, sphere) == constant(box) < constant(None, sphere)
    wide = Box(-100.0, 100.0)
    assert constant(wide, sphere) == constant(None, sphere) < constant(wide)


@pytest.mark.parametrize("penalty", [NoPenalty(), L2(5.0)])
def test_without_a_bounded_domain_there_is_no_constant(penalty):
    assert constant(penalty) == math.inf


@pytest.mark.parametrize("constraint", [ball(name) for name in BALLS], ids=repr)
def test_without_declared_bounds_there_is_no_constant(constraint):
    parts = (Squared(), NoPenalty(), constraint)
    assert lipschitz_constant(*parts, None) == math.inf
    assert lipschitz_constant(*parts, bounds(label=None)) == math.inf
    assert math.isfinite(lipschitz_constant(*parts, bounds(label=0.0)))


@each("name", registry.names("loss"))
@each("declared", [None, bounds(label=None), bounds()])
def test_a_finite_constant_of_the_loss_is_kept(name, declared):
    loss = registry.build("loss", name)
    if math.isfinite(loss.lipschitz):
        for constraint in (free(), *map(ball, BALLS)):
            parts = (loss, NoPenalty(), constraint, declared)
            assert lipschitz_constant(*parts) == loss.lipschitz
    assert lipschitz_constant(Huber(7.0), L2(1.0), free(), declared) == 7.0


def test_records_that_are_all_zero_leave_the_label():
    nothing = bounds(0.0, columns=np.zeros(2))
    for constraint in (free(), *map(ball, BALLS)):
        assert constant(constraint=constraint, declared=nothing) == LABEL
    assert constant(Box(-math.inf, math.inf), declared=nothing) == LABEL


def records(norm):
    """Records at the corners of the bounds, scaled down to the norm."""
    signs = np.array(list(itertools.product([-1.0, 1.0], repeat=4)))
    X = np.concatenate([signs * COLUMNS, np.diag(COLUMNS), -np.diag(COLUMNS)])
    return X / np.maximum(np.linalg.norm(X, axis=1) / norm, 1.0)[:, None]


@each("norm", [0.4, 1.0, FULL, 9.0])
@each("name", [*BALLS, "box"])
def test_the_constant_is_reached_by_a_record_in_the_bounds(name, norm):
    """So a smaller one would be wrong, and a larger one a waste."""
    X, box = records(norm), Box(-0.5, 0.5)
    if name == "box":
        W, bound = 0.5 * np.sign(X), constant(box, declared=bounds(norm))
    else:
        W = ball(name).linear_minimiser(-X)
        bound = constant(constraint=ball(name), declared=bounds(norm))
    residuals = [
        np.abs(Squared().derivative(np.full(len(X), y), (X * W).sum(axis=1))).max()
        for y in (-LABEL, LABEL)
    ]
    assert max(residuals) <= bound * (1 + 1e-14)
    # Hoelder and Cauchy-Schwarz are tight one at a time in a box, not between.
    if name != "box" or norm >= FULL:
        assert max(residuals) >= bound * (1 - 1e-12)


def problem_of(penalty="none", constraint="none", loss="squared", label=LABEL):
    rng = np.random.default_rng(0)
    X = COLUMNS * rng.uniform(-1.0, 1.0, size=(12, 4))
    y = np.clip(X.sum(axis=1), -LABEL, LABEL)
    data = dataset_from_arrays(X, y, bounds=bounds(label=label))
    return build_problem(data, loss, penalty, constraint)


def test_a_problem_hands_out_its_constant():
    named = {"name": "l1_ball", "radius": 1.5}
    assert problem_of(constraint=named).lipschitz == 1.5 * 2.0 + LABEL
    box = {"name": "box", "lower": -1.0, "upper": 2.0}
    assert problem_of(box).lipschitz == 2.0 * 3.5 + LABEL
    assert problem_of().lipschitz == math.inf
    assert problem_of(constraint=named, label=None).lipschitz == math.inf
    assert problem_of(loss={"name": "huber", "kappa": 0.5}).lipschitz == 0.5


def test_constants_do_not_depend_on_the_data():
    """Two datasets of the same bounds have one constant."""
    rng = np.random.default_rng(1)
    found = set()
    for _ in range(3):
        X = COLUMNS * rng.uniform(-1.0, 1.0, size=(5, 4))
        data = dataset_from_arrays(X, rng.uniform(-1, 1, 5), bounds=bounds())
        problem = build_problem(data, "squared", "none", "l2_ball")
        found.add(problem.lipschitz)
    assert len(found) == 1


def test_parts_with_other_parameters_are_other_problems():
    keys = {
        problem_of(penalty, constraint, loss).key
        for penalty in ("none", "box", {"name": "box", "upper": 3.0})
        for constraint in ("none", "l1_ball", {"name": "l1_ball", "radius": 2.0})
        for loss in ("squared", "huber", {"name": "huber", "kappa": 2.0})
    }
    assert len(keys) == 27
