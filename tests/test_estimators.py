"""DPClassifier and DPRegressor, as a user of scikit-learn types them."""

import math
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import get_scorer, get_scorer_names, roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

from dp_erm_bench import DPClassifier, DPRegressor, fit, problem_from_arrays
from dp_erm_bench.errors import ClippedRecords, UndeclaredBounds, UsageError

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


@pytest.mark.parametrize(
    "labels",
    [("no", "yes"), (0, 1), (-1.0, 1.0), (False, True), ("10", "9"), (7, -3)],
    ids=str,
)
def test_no_order_of_classes_turns_a_score(labels):
    y = np.array(labels)[(Y > 0.0).astype(int)]
    least, most = sorted(labels)
    n_iter = {"n_iter": 100}
    model = DPClassifier(epsilon=math.inf, bounds=BOUNDS, parameters=n_iter)
    given = [[least, most], (most, least), {most, least}, np.array([most, least, most])]
    fitted = [clone(model).set_params(classes=one).fit(X, y) for one in given]
    other = LogisticRegression().fit(X, y)
    for one in fitted:
        assert one.classes_.tolist() == other.classes_.tolist() == [least, most]
        np.testing.assert_array_equal(one.coef_, fitted[0].coef_)
        second = one.decision_function(X) > 0.0
        np.testing.assert_array_equal(one.predict(X), one.classes_[second.astype(int)])
    assert roc_auc_score(y, fitted[1].decision_function(X)) > 0.98
    scored = 0
    for name in get_scorer_names():
        scorer = get_scorer(name)
        of = scorer._score_func.__module__
        if name == "top_k_accuracy" or "cluster" in of or "regression" in of:
            continue
        try:
            expected = scorer(other, X, y)
        except ValueError:  # of labels 0 and 1 only
            continue
        if scorer._response_method == "predict_proba":
            continue
        found = {scorer(one, X, y) for one in fitted}
        assert len(found) == 1, name
        if "likelihood" not in name:  # a rate, not a ratio of rates
            assert abs(found.pop() - expected) < 0.1, name
        scored += 1
    assert scored > 10


def test_a_search_with_classes_in_any_order_finds_the_larger_epsilon():
    pipe = make_pipeline(
        FunctionTransformer(), DPClassifier(bounds=BOUNDS, random_state=0)
    )
    grid = {
        "dpclassifier__epsilon": [0.01, 50.0],
        "dpclassifier__classes": [CLASSES, CLASSES[::-1]],
    }
    best = GridSearchCV(pipe, grid, cv=2, scoring="roc_auc").fit(FRAME, WORDS)
    assert best.best_params_["dpclassifier__epsilon"] == 50.0 and best.best_score_ > 0.9
    one, other = best.cv_results_["mean_test_score"].reshape(2, 2)
    np.testing.assert_array_equal(one, other)


def test_categories_in_another_order_are_a_set():
    words = pd.Series(pd.Categorical(WORDS, CLASSES[::-1], ordered=True))
    model = DPClassifier(epsilon=math.inf, bounds=BOUNDS).fit(FRAME, words)
    assert model.classes_.tolist() == CLASSES and model.uncharged_ == ()
    assert roc_auc_score(WORDS, model.decision_function(FRAME)) > 0.98


@pytest.mark.parametrize("bounds", [{"columns": 3}, {"columns": 0.2, "norm": 0.4}])
def test_a_regression_in_units_of_y_is_that_of_ridge(bounds):
    features, y = load_diabetes(return_X_y=True)
    features = features / features.std(axis=0) if bounds["columns"] == 3 else features
    bounds |= {"label": 350}
    model = DPRegressor(
        epsilon=math.inf, bounds=bounds, parameters={"n_iter": 4000}
    ).fit(features, y)
    ridge = Ridge().fit(features, y)
    # The weight of the intercept is penalised: that of Ridge is not.
    assert abs(model.score(features, y) - ridge.score(features, y)) < 0.02
    assert model.bounds_.label == 350.0
    usual = DPRegressor(epsilon=math.inf, bounds=bounds).fit(features, y)
    assert usual.score(features, y) > 0.4
    # In other units of y it is the same fit.
    far = DPRegressor(epsilon=math.inf, bounds=bounds | {"label": 350 * 2.0**40})
    far = far.set_params(parameters={"n_iter": 4000}).fit(features, y * 2.0**40)
    np.testing.assert_array_equal(far.coef_, model.coef_ * 2.0**40)
    assert far.intercept_ == model.intercept_ * 2.0**40


def test_no_record_moves_the_unit_of_a_regression():
    y = np.where(np.arange(300) == 7, 1e9, Y)
    bounds = BOUNDS | {"label": 2.0}
    models = [
        DPRegressor(epsilon=math.inf, bounds=bounds).fit(X, one)
        for one in (y, np.minimum(y, 2.0))
    ]
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)
    huber = {"name": "huber", "kappa": 0.25}
    scaled = problem_from_arrays(
        *(X, np.clip(Y, -2.0, 2.0) / 2.0),
        loss=huber,
        penalty="l2",
        strength=0.01,
        bounds=BOUNDS,
        clip_to_bounds=True,
        intercept=1.0,
    )
    plain = fit(scaled, "gd", epsilon=1.0, seed=4, n_iter=9)
    model = DPRegressor(
        bounds=bounds,
        loss=huber,
        strength=0.01,
        parameters={"n_iter": 9},
        random_state=4,
    ).fit(X, Y)
    np.testing.assert_array_equal(model.coef_, 2.0 * plain.w[:3])


@pytest.mark.parametrize("bounds", [1.0, {"columns": 1.0}, {"norm": 1, "label": 0}])
def test_a_regression_needs_a_label_bound(bounds):
    with pytest.raises(UsageError, match=r"bounds\.label=.*public bound on \|y\|"):
        DPRegressor(bounds=bounds).fit(X, Y)


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


def test_columns_are_mapped_by_their_bounds_in_predictions_too():
    raw = FRAME * [50.0, 20.0, 3.0] + [50.0, 0.0, 0.0]
    bounds = {"columns": {"age": [0, 100], "dose": 20}, "default": 3, "norm": 1.8}
    how = {"epsilon": math.inf}
    for kind, y in ((DPClassifier, WORDS), (DPRegressor, Y)):
        made = kind(bounds={**bounds, "label": 1.0}, scale="bounds", **how).fit(raw, y)
        plain = kind(bounds=BOUNDS, **how).fit(FRAME, y)
        np.testing.assert_allclose(made.coef_, plain.coef_, rtol=1e-9)
        margins = made._margins(raw), plain._margins(FRAME)
        np.testing.assert_allclose(*margins, rtol=1e-7, atol=1e-9)
        assert made.uncharged_ == plain.uncharged_
        # What is far outside of its bounds counts as the bound.
        far, edge = raw.assign(age=1e9), raw.assign(age=100.0)
        np.testing.assert_array_equal(made.predict(far), made.predict(edge))


def test_bounds_that_clip_many_records_are_warned_of_by_name():
    said = (
        r'^bounds: 100 % of the records are clipped .*more than 10 % .*"age", "dose", '
        r'"weight" \(as private as the objective: computed from the records'
    )
    with pytest.warns(ClippedRecords, match=said):
        DPClassifier(epsilon=math.inf, bounds=1e-6).fit(FRAME, WORDS)
    with pytest.warns(ClippedRecords, match="beyond the bound of label"):
        bounds = {"columns": 1.0, "norm": 1.8, "label": 0.01}
        DPRegressor(epsilon=1.0, bounds=bounds).fit(FRAME, Y)
    # So does a fit without an estimator, once.
    how = {"loss": "logistic", "bounds": 1e-6, "clip_to_bounds": True}
    problem = problem_from_arrays(FRAME, np.sign(Y), **how)
    with pytest.warns(ClippedRecords, match=said) as caught:
        fit(problem, "gd", epsilon=math.inf, n_iter=1)
    assert [Path(one.filename).name for one in caught] == [Path(__file__).name]


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
        ({"bounds": {"columns": {"dos": 1}, "default": 1}}, r"dos \(did you mean dose"),
        ({"bounds": {"columns": {"dose": 1}}}, '^bounds.columns=.* column "age"'),
        ({"bounds": {"columns": [[2, 1], 1, 1]}}, r"^bounds.columns=\[2,1\]: must be"),
        ({"scale": "bound"}, "^scale=bound: must be"),
        ({"parameters": {"n_iters": 3}}, "did you mean n_iter"),
        ({"loss": "hinged"}, "loss=hinged"),
        ({"intercept": -1.0}, "intercept=-1"),
        ({"random_state": -1}, "seed=-1"),
        ({"classes": ["no", "maybe"]}, r"not in classes=\['maybe', 'no'\]"),
        ({"classes": ["no"]}, "holds one class"),
        ({"classes": ["no", "yes", "maybe"]}, "Only binary classification"),
        ({"classes": "yes"}, "classes=yes: must be a set or sequence"),
        ({"classes": 2}, "classes=2: must be a set or sequence"),
        ({"classes": ["no", None]}, "none of them missing"),
        ({"classes": [math.nan, 1.0]}, "none of them missing"),
        ({"classes": ["no", 1]}, "all texts or all numbers"),
        ({"classes": [0, 1]}, r"not in classes=\[0, 1\]"),
    ],
)
def test_wrong_parameters_are_refused_in_one_sentence(given, said):
    with pytest.raises(UsageError, match=said) as caught:
        DPClassifier(**{"bounds": BOUNDS} | given).fit(FRAME, WORDS)
    assert "\n" not in str(caught.value)
