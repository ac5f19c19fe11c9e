"""Test the constant model: the best constant margin for each loss and domain."""

import dataclasses
import math

import numpy as np
import pytest
from scipy.sparse import csc_array
from scipy.special import xlogy

from dp_erm_bench.datasets.base import as_features
from dp_erm_bench.datasets.prepare import dataset_from_arrays
from dp_erm_bench.experiment.parameters import problem_named
from dp_erm_bench.problems.erm.build import build_problem, erm_from_arrays
from tests.loops import each

RNG = np.random.default_rng(0)
N, CLOSE = 80, 1e-7
X = RNG.normal(size=(N, 3))
SIGNS = np.where(RNG.random(N) < 0.1, 1.0, -1.0)
FAR = 1e6 + RNG.exponential(2.0, N)
CLASSES = {"logistic", "hinge", "smoothed_hinge", "sigmoid"}
LOSSES = (
    *sorted(CLASSES),
    *("squared", "absolute", {"name": "huber", "kappa": 0.5}),
)
DOMAINS = {
    "l2": {"penalty": {"name": "l2", "strength": 0.1}},
    "l1": {"penalty": {"name": "l1", "strength": 0.05}},
    "box": {"penalty": {"name": "box", "lower": -0.3, "upper": 0.2}},
    "l2 ball": {"penalty": "none", "constraint": {"name": "l2_ball", "radius": 0.4}},
    "l1 ball": {"penalty": "none", "constraint": {"name": "l1_ball", "radius": 0.4}},
    # Its last coordinate reaches 1, but on its axis only 0.5.
    "polytope": {
        "penalty": "none",
        "constraint": {
            "name": "polytope",
            "vertices": [[1, 0, 0, 1], [-1, 0, 0, 0], [0, 1, 0, -1], [0, -1, 0, -1]]
            + [[0, 0, 1, 0], [0, 0, -1, 0]],
        },
    },
}


def constant(problem):
    """Return the constant model of a problem, the one that was trained."""
    (own,) = [one for one in problem.references.values() if "train_risk" in one]
    return own


def labels_of(loss, labels=None):
    name = loss if isinstance(loss, str) else loss["name"]
    return (SIGNS if name in CLASSES else FAR) if labels is None else labels


@each("loss", LOSSES, ids=str)
def test_no_number_answers_all_records_better(loss):
    y = labels_of(loss)
    sparse = csc_array(X * (np.abs(X) > 1.0))
    for features in (X, sparse):
        ours = erm_from_arrays(features, y, loss=loss, penalty="none")
        found, value = constant(ours)["train_risk"], ours.loss.value
        grid = np.concatenate([np.linspace(-5, 5, 2001), y, [y.mean(), np.median(y)]])
        least = min(value(y, np.full(N, one)).mean() for one in grid)
        assert found <= least * (1.0 + CLOSE) and set(constant(ours)) == {"train_risk"}
        near = grid[np.abs(grid) <= 5] if y is SIGNS else y
        assert found >= 0.9 * min(value(y, np.full(N, at)).mean() for at in near)


def test_the_constants_are_those_of_textbooks():
    share = np.mean(SIGNS > 0.0)
    entropy = -xlogy(share, share) - xlogy(1.0 - share, 1.0 - share)
    known = {"logistic": entropy, "hinge": 2.0 * share, "squared": np.var(FAR) / 2.0}
    known["absolute"] = np.abs(FAR - np.median(FAR)).mean()
    for loss, expected in known.items():
        ours = erm_from_arrays(X, labels_of(loss), loss=loss, penalty="none")
        assert constant(ours)["train_risk"] == pytest.approx(expected, rel=CLOSE), loss


@each("name", sorted(DOMAINS))
def test_with_an_intercept_it_is_the_best_point_of_the_domain_on_its_axis(name):
    for loss in ("logistic", "squared", "absolute", {"name": "huber", "kappa": 0.5}):
        y = labels_of(loss, None if loss == "logistic" else FAR - 1e6)
        ours = erm_from_arrays(X, y, loss=loss, intercept=0.7, **DOMAINS[name])
        found, grid = constant(ours)["objective"], np.linspace(-9, 9, 3601)
        grid = np.append(grid, (np.median(y) / 0.7, y.mean() / 0.7))
        points = np.outer(grid, [0.0, 0.0, 0.0, 1.0])
        points = points[[bool(ours.constraint.contains(one)) for one in points]]
        values = ours.value(points)
        least = values[np.isfinite(values)].min()
        assert least * 0.97 <= found <= least * (1.0 + CLOSE), (name, loss)
        if (best := ours.optimum.value) is not None:
            assert found >= best * (1.0 - 1e-8)
            told = constant(ours)["relative_error"]
            assert told == pytest.approx(found / best - 1.0, abs=1e-12)


def test_where_features_say_nothing_it_is_the_minimum():
    ours = erm_from_arrays(0.0 * X, SIGNS, loss="logistic", intercept=1.0)
    assert constant(ours)["relative_error"] == pytest.approx(0.0, abs=1e-8)


def test_one_class_and_equal_labels_leave_nothing_to_lose():
    with np.errstate(all="raise"):
        for loss in ("logistic", "hinge", "squared", "absolute"):
            ours = erm_from_arrays(X, np.ones(N), loss=loss, penalty="none")
            assert constant(ours) == {"train_risk": pytest.approx(0.0, abs=1e-12)}
    # The loss -y z falls without end but on a bounded set.
    y = np.linspace(0.0, 1.0, N)
    ball = {"name": "l2_ball", "radius": 2.0}
    ours = erm_from_arrays(
        X, y, loss="linear", penalty="none", constraint=ball, intercept=1.0
    )
    found = constant(ours)
    assert found["train_risk"] == -math.inf
    assert found["objective"] == pytest.approx(-1.0)


def test_held_out_records_judge_it_by_the_loss_of_the_problem():
    for loss, y in (("logistic", SIGNS), ({"name": "huber", "kappa": 0.5}, FAR)):
        data = dataset_from_arrays(X[:60], y[:60])
        data = dataclasses.replace(data, X_test=as_features(X[60:]), y_test=y[60:])
        ours = build_problem(data, loss, {"name": "l2", "strength": 0.1})
        found, value = constant(ours), ours.loss.value
        grid = np.unique(np.append(np.linspace(-5, 5, 4001), y + 0.0))
        risks = [value(y[:60], np.full(60, one)).mean() for one in grid]
        best = grid[int(np.argmin(risks))]
        expected = value(y[60:], np.full(20, best)).mean()
        assert found["test_risk"] == pytest.approx(expected, rel=0.05)
        assert "objective" not in found


def test_a_mean_has_none():
    parts = ["none", "none", "none"]
    ours = problem_named("log1", {"n": 50, "p": 3}, *parts, kind="mean")
    assert ours.references == {}
