"""Test measures on held-out records against scikit-learn."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csc_array
from sklearn.metrics import (
    accuracy_score,
    balanced_accuracy_score,
    log_loss,
    r2_score,
    roc_auc_score,
    root_mean_squared_error,
)

from dp_erm_bench.datasets.base import as_features
from dp_erm_bench.datasets.prepare import dataset_from_arrays
from dp_erm_bench.problems.base import Problem
from dp_erm_bench.problems.erm.build import build_problem
from dp_erm_bench.problems.erm.problem import area_under_curve, errors_of

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
Y = np.where(X @ [1.0, -2.0, 0.5] + RNG.normal(size=60) > 0.0, 1.0, -1.0)
W = np.vstack([np.zeros(3), RNG.normal(size=(3, 3)), np.round(X[0])])


def problem(loss="logistic", y_test=Y[40:], sparse=False, **given):
    kind = csc_array if sparse else np.asarray
    data = dataset_from_arrays(kind(X[:40]), Y[:40])
    held = None if y_test is None else as_features(kind(X[40:]))
    data = replace(data, X_test=held, y_test=y_test)
    return build_problem(data, loss, {"name": "l2", "strength": 0.3}, **given)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_measures_are_those_of_scikit_learn(sparse):
    ours = problem(sparse=sparse)
    found = ours.measures(W) | ours.last_measures(W)
    for b, w in enumerate(W):
        margins, y = X[40:] @ w, Y[40:]
        answers = np.where(margins >= 0.0, 1.0, -1.0)
        expected = {
            "test_risk": log_loss(y, 1.0 / (1.0 + np.exp(-margins))),
            "test_accuracy": accuracy_score(y, answers),
            "balanced_accuracy": balanced_accuracy_score(y, answers),
            "auc": roc_auc_score(y, margins),
        }
        expected["test_objective"] = expected["test_risk"] + 0.15 * w @ w
        assert {k: v[b] for k, v in found.items()} == pytest.approx(expected, rel=1e-12)


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=1, max_size=40))
def test_ties_count_one_half(records):
    scores, positive = map(np.array, zip(*records, strict=True))
    (found,) = area_under_curve(scores[None, :] / 3.0, positive)
    if positive.all() or not positive.any():
        assert np.isnan(found)
    else:
        assert found == pytest.approx(roc_auc_score(positive, scores), abs=1e-14)


def test_rows_do_not_see_each_other():
    scores = RNG.normal(size=(4, 20))
    scores[1], scores[2, 3], scores[3, 0] = 0.5, np.nan, np.inf
    both = area_under_curve(scores, Y[:20] > 0.0)
    assert both[1] == 0.5 and np.isnan(both[2])
    for row, found in zip(scores, both, strict=True):
        np.testing.assert_equal(area_under_curve(row[None, :], Y[:20] > 0.0)[0], found)


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_one_class_has_neither_auc_nor_balanced_accuracy(side):
    ours = problem(y_test=np.full(20, side))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = ours.measures(W) | ours.last_measures(W)
    assert np.isnan([found["auc"], found["balanced_accuracy"]]).all()
    assert np.isfinite([found["test_accuracy"], found["test_risk"]]).all()
    assert ours.lacking("test_accuracy") == ""
    assert ours.lacking("auc") == "all records of the test part are of one class"


def test_a_problem_says_why_it_lacks_a_quantity():
    whole, regression = problem(y_test=None), problem("squared")
    assert whole.measures(W) == {} and set(whole.last_measures(W)) == {"train_risk"}
    assert regression.last_measures(W) == {}
    numbers = {"rmse", "r2"}
    assert set(regression.measures(W)) == {"test_objective", "test_risk", *numbers}
    far = errors_of(np.full((1, 20), 1e200), Y[40:])
    assert far["rmse"] == np.inf and far["r2"] == -np.inf
    for quantity in numbers:
        assert regression.lacking(quantity) == ""
        assert "is for classification" in problem().lacking(quantity)
    assert "have the same label" in problem("squared", np.ones(20)).lacking("r2")
    for ours in (whole, regression, problem()):
        assert ours.lacking("objective") == ""
    for quantity in ("test_risk", "test_accuracy", "auc"):
        assert problem().lacking(quantity) == ""
        assert "set dataset.test_fraction" in whole.lacking(quantity)
    assert regression.lacking("test_risk") == ""
    assert "loss squared is for regression" in regression.lacking("auc")
    assert "only their objective" in Problem.lacking(whole, "auc")


def test_references_are_the_optimum_and_the_base_rate():
    ours = problem()
    found, y = ours.references, Y[40:]
    w, share = ours.optimum.w, np.mean(Y[:40] > 0.0)
    assert found["optimum"]["auc"] == pytest.approx(roc_auc_score(y, X[40:] @ w))
    expected = {name: values[0] for name, values in ours.measures(w[None]).items()}
    assert found["optimum"] | expected == found["optimum"]
    constant = np.full(len(y), share)
    assert found["base_rate"]["test_risk"] == pytest.approx(log_loss(y, constant))
    answers = np.full(len(y), 1.0 if share >= 0.5 else -1.0)
    assert found["base_rate"]["test_accuracy"] == accuracy_score(y, answers)
    assert found["base_rate"]["auc"] == found["base_rate"]["balanced_accuracy"] == 0.5
    assert ours.with_smoothness("data").references is found
    trained = {"train_risk": found["base_rate"]["train_risk"]}
    assert problem(y_test=None).references == {"base_rate": pytest.approx(trained)}


def test_references_of_a_regression_are_the_optimum_and_the_mean():
    found, y = problem("squared").references, Y[40:]
    assert set(found) == {"optimum", "mean"}
    off = y - np.mean(Y[:40])
    expected = {"test_risk": np.mean(off**2) / 2, "rmse": np.sqrt(np.mean(off**2))}
    expected["r2"] = r2_score(y, np.full(20, np.mean(Y[:40])))
    expected["train_risk"] = np.var(Y[:40]) / 2
    assert found["mean"] == pytest.approx(expected)
    answers = X[40:] @ problem("squared").optimum.w
    expected = {"test_risk": np.mean((y - answers) ** 2) / 2}
    expected["rmse"] = root_mean_squared_error(y, answers)
    expected["r2"] = r2_score(y, answers)
    assert found["optimum"] | expected == pytest.approx(found["optimum"])


def test_a_training_part_of_one_class_has_no_base_rate():
    data = replace(problem().dataset, y=np.ones(40))
    found = build_problem(data, "logistic", {"name": "l2", "strength": 0.3}).references
    assert np.isnan(found["base_rate"]["test_risk"])
    assert found["base_rate"]["test_accuracy"] == np.mean(Y[40:] > 0.0)
