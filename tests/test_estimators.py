"""DPClassifier and DPRegressor, as a user of scikit-learn types them."""

import math
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

from dp_erm_bench import DPClassifier, DPRegressor, fit, problem_from_arrays
from dp_erm_bench.errors import UndeclaredBounds, UsageError

KINDS = [DPClassifier, DPRegressor]
RNG = np.random.default_rng(0)
X = RNG.uniform(-1.0, 1.0, (300, 3))
Y = X @ [0.6, -0.3, 0.0] + 0.05 * RNG.normal(size=300)
FRAME = pd.DataFrame(X, columns=["age", "dose", "weight"])
WORDS = np.where(Y > 0.0, "yes", "no")
BOUNDS = {"columns": 1.0, "norm": 1.8, "label": 1.0}
CLASSES = ["no", "yes"]

EXEMPT = {
    "DPClassifier": {},
    "DPRegressor": {
        "check_regressors_train": "R^2 above 0.5 on 50 records of norm 1 is more than "
        "epsilon = 1 leaves"
    },
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epsilon", [math.inf, 1.0])
@pytest.mark.filterwarnings("ignore::dp_erm_bench.errors.UndeclaredBounds")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_checks_of_scikit_learn_are_kept(kind, epsilon):
    exempt = EXEMPT[kind.__name__] if math.isfinite(epsilon) else {}
    assert len(exempt) <= 8 and all(exempt.values())
    made = kind(epsilon=epsilon)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        done = check_estimator(made, expected_failed_checks=exempt, on_fail=None)
    broken = {
        one["check_name"]: one["exception"]
        for one in done
        if one["status"] not in ("passed", "xfail", "skipped")
    }
    assert not broken
    # Whatever is exempt fails: the list is no longer than it must be.
    failed = {one["check_name"] for one in done if one["status"] == "xfail"}
    assert failed == set(exempt)
    skipped = {one["check_name"] for one in done if one["status"] == "skipped"}
    assert skipped <= {"check_array_api_input"}


def test_a_classifier_of_a_data_frame():
    model = DPClassifier(epsilon=2.0, bounds=BOUNDS, classes=CLASSES)
    model.fit(FRAME, WORDS)
    assert model.score(FRAME, WORDS) > 0.7
    assert set(model.predict(FRAME)) <= {"no", "yes"}
    assert model.feature_names_in_.tolist() == ["age", "dose", "weight"]
    assert model.coef_.shape == (1, 3) and model.intercept_.shape == (1,)
    assert 1.9 < model.epsilon_certified_ <= 2.0
    assert model.uncharged_ == () and not model.reproducible_
    margins = FRAME.to_numpy() @ model.coef_[0] + model.intercept_[0]
    np.testing.assert_allclose(model.decision_function(FRAME), margins)
    other = DPClassifier(epsilon=2.0, bounds=BOUNDS).fit(FRAME, WORDS)
    assert other.uncharged_ == ("classes",) and other.classes_.tolist() == CLASSES
    turned = clone(model).set_params(classes=CLASSES[::-1], epsilon=math.inf)
    straight = clone(model).set_params(epsilon=math.inf)
    np.testing.assert_allclose(
        turned.fit(FRAME, WORDS).coef_, -straight.fit(FRAME, WORDS).coef_
    )


def test_a_regression_of_a_data_frame():
    model = DPRegressor(epsilon=5.0, bounds=BOUNDS, random_state=1).fit(FRAME, Y)
    assert model.score(FRAME, Y) > 0.4
    assert model.coef_.shape == (3,) and isinstance(model.intercept_, float)
    assert model.reproducible_ and 4.9 < model.epsilon_certified_ <= 5.0
    again = DPRegressor(epsilon=5.0, bounds=BOUNDS, random_state=1).fit(X, Y)
    np.testing.assert_array_equal(again.coef_, model.coef_)
    none = clone(model).set_params(intercept=None).fit(FRAME, Y)
    assert none.intercept_ == 0.0


def test_it_is_the_fit_of_the_problem():
    problem = problem_from_arrays(
        *(X, WORDS),
        loss="logistic",
        penalty="l2",
        strength="1/n",
        bounds=BOUNDS,
        positive="yes",
        intercept=0.5,
    )
    given = {"epsilon": 1.0, "passes": 2.0}
    plain = fit(problem, "random_cd", seed=3, **given)
    model = DPClassifier(
        "random_cd",
        epsilon=1.0,
        bounds=BOUNDS,
        classes=CLASSES,
        intercept=0.5,
        parameters={"passes": 2.0},
        random_state=3,
    ).fit(X, WORDS)
    np.testing.assert_array_equal(model.coef_[0], plain.w[:3])
    assert model.intercept_[0] == 0.5 * plain.w[3]
    assert model.epsilon_certified_ == plain.epsilon_certified


def test_without_bounds_each_record_is_clipped_and_it_is_said():
    far = X * 1e6
    with pytest.warns(UndeclaredBounds, match=r"clipped to norm 1 .*\[-1, 1\]"):
        model = DPRegressor(epsilon=math.inf).fit(far, 1e6 * Y)
    assert model.bounds_.norm == model.bounds_.label == 1.0
    # A record counts by its direction: a longer one moves nothing.
    np.testing.assert_allclose(model.predict(far), model.predict(2.0 * far))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UndeclaredBounds)
        DPRegressor(epsilon=1.0, bounds=BOUNDS).fit(X, Y)


def test_a_search_runs_and_counts_its_last_fit_only():
    model = make_pipeline(
        FunctionTransformer(), DPClassifier(bounds=BOUNDS, classes=CLASSES)
    )
    grid = {"dpclassifier__epsilon": [0.5, 1.0]}
    best = GridSearchCV(model, grid, cv=2).fit(FRAME, WORDS)
    assert best.best_estimator_[-1].epsilon_certified_ <= 1.0
    readme = (Path(__file__).resolve().parents[1] / "README.md").read_text()
    for text in (readme, DPClassifier.__doc__):
        assert "`GridSearchCV`" in text and "charged" in text


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"algorithm": "gdd"}, "did you mean gd"),
        ({"epsilon": -1.0}, "epsilon=-1"),
        ({"adjacency": "add"}, "adjacency=add"),
        ({"bounds": {"colums": 1}}, "did you mean columns"),
        ({"parameters": {"n_iters": 3}}, "did you mean n_iter"),
        ({"loss": "hinged"}, "loss=hinged"),
        ({"intercept": -1.0}, "intercept=-1"),
        ({"random_state": -1}, "seed=-1"),
        ({"classes": ["no", "maybe"]}, r"not in classes=\['no', 'maybe'\]"),
        ({"classes": ["no"]}, "holds one class"),
        ({"classes": ["no", "yes", "maybe"]}, "Only binary classification"),
    ],
)
def test_wrong_parameters_are_refused_in_one_sentence(given, said):
    with pytest.raises(UsageError, match=said) as caught:
        DPClassifier(**{"bounds": BOUNDS} | given).fit(FRAME, WORDS)
    assert "\n" not in str(caught.value)
