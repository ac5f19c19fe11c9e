"""Test DPClassifier and DPRegressor as scikit-learn estimators."""

import math
import pickle
import re
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
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from dp_erm_bench import (
    DPClassifier,
    DPRegressor,
    estimators,
    fit,
    problem_from_arrays,
    sweep,
    tune,
)
from dp_erm_bench.errors import (
    ClippedRecords,
    DoubtfulChoice,
    UndeclaredBounds,
    UsageError,
    WideBounds,
)
from dp_erm_bench.experiment.parameters import algorithm_of
from dp_erm_bench.results.tuned import best_choice, tuned_choices

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
    model = DPClassifier("gd", epsilon=math.inf, bounds=BOUNDS, parameters=n_iter)
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
        found = {scorer(one, X, y) for one in fitted}
        assert len(found) == 1, name
        # A rate, not a ratio of rates or the log of one.
        if "likelihood" not in name and "log" not in name:
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


def test_categories_of_a_container_declare_nothing(tmp_path):
    """Read off the records, as by read_csv, or declared: a Series does not tell."""
    pd.Series(WORDS, name="y").to_csv(tmp_path / "y.csv", index=False)
    read = pd.read_csv(tmp_path / "y.csv", dtype="category")["y"]
    assert read.dtype.categories.tolist() == CLASSES
    three = pd.Categorical(WORDS, [*CLASSES[::-1], "maybe"], ordered=True)
    for words in (read, pd.Series(three)):
        model = DPClassifier(epsilon=math.inf, bounds=BOUNDS).fit(FRAME, words)
        assert model.classes_.tolist() == CLASSES
        assert model.uncharged_ == ("classes",)
        assert roc_auc_score(WORDS, model.decision_function(FRAME)) > 0.98
        declared = model.set_params(classes=CLASSES).fit(FRAME, words)
        assert declared.uncharged_ == ()


@pytest.mark.parametrize("kind", [DPClassifier, DPRegressor])
def test_advice_on_missing_values_says_what_reads_the_records(kind):
    with pytest.raises(ValueError, match="NaN.*chosen without the records") as caught:
        kind(bounds=BOUNDS).fit(np.where(np.eye(*X.shape) > 0, np.nan, X), Y > 0.0)
    said = str(caught.value)
    assert "an imputer reads the records, which no budget covers" in said
    assert said.count("\n") == 0 and "preprocess" not in said


@pytest.mark.parametrize("bounds", [{"columns": 3}, {"columns": 0.2, "norm": 0.4}])
def test_a_regression_in_units_of_y_is_that_of_ridge(bounds):
    features, y = load_diabetes(return_X_y=True)
    features = features / features.std(axis=0) if bounds["columns"] == 3 else features
    bounds |= {"label": 350}
    model = DPRegressor(
        "gd", epsilon=math.inf, bounds=bounds, parameters={"n_iter": 4000}
    ).fit(features, y)
    ridge = Ridge().fit(features, y)
    # The weight of the intercept is penalised: that of Ridge is not.
    assert abs(model.score(features, y) - ridge.score(features, y)) < 0.02
    assert model.bounds_.label == 350.0
    usual = DPRegressor(epsilon=math.inf, bounds=bounds).fit(features, y)
    assert usual.score(features, y) > 0.4
    # In other units of y it is the same fit.
    far = DPRegressor("gd", epsilon=math.inf, bounds=bounds | {"label": 350 * 2.0**40})
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
        "gd",
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
        margins = made._clipped_margins(raw), plain._clipped_margins(FRAME)
        np.testing.assert_allclose(*margins, rtol=1e-7, atol=1e-9)
        assert made.uncharged_ == plain.uncharged_
        # What is far outside of its bounds counts as the bound.
        far, edge = raw.assign(age=1e9), raw.assign(age=100.0)
        np.testing.assert_array_equal(made.predict(far), made.predict(edge))


def test_bounds_that_clip_many_records_are_warned_of_by_name():
    said = (
        r'^bounds: 100 % of the records are clipped .*more than 10 % .*"age", "dose", '
        r'"weight" \(not private: computed from the records'
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


def test_a_model_has_one_seed():
    for seed in ([1, 2], [5], range(1)):
        with pytest.raises(
            UsageError, match="random_state=.*: must be an integer >= 0"
        ):
            DPClassifier(epsilon=1.0, bounds=1.0, random_state=seed).fit(FRAME, WORDS)


def test_bounds_that_no_record_comes_near_are_warned_of():
    said = r"^bounds: all records are below 1 % of the declared bound of .*norm: noise"
    with pytest.warns(WideBounds, match=said):
        DPClassifier(epsilon=1.0, bounds=1e9).fit(FRAME, WORDS)
    problem = problem_from_arrays(FRAME, np.sign(Y), loss="logistic", bounds=1e9)
    with pytest.warns(WideBounds, match=said) as caught:
        fit(problem, "gd", epsilon=math.inf, n_iter=1)
    assert [Path(one.filename).name for one in caught] == [Path(__file__).name]


def test_a_search_runs_and_counts_its_last_fit_only():
    model = make_pipeline(
        FunctionTransformer(), DPClassifier(bounds=BOUNDS, classes=CLASSES)
    )
    grid = {"dpclassifier__epsilon": [0.5, 1.0]}
    best = GridSearchCV(model, grid, cv=2).fit(FRAME, WORDS)
    assert best.best_estimator_[-1].epsilon_certified_ <= 1.0


@pytest.mark.parametrize("labels", [("no", "yes"), (7, -3)])
def test_probabilities_are_those_of_the_logistic_model(labels):
    y = np.array(labels)[(Y > 0.0).astype(int)]
    model = DPClassifier(epsilon=math.inf, bounds=BOUNDS, classes=labels).fit(X, y)
    found, margins = model.predict_proba(X), model.decision_function(X)
    assert found.shape == (300, 2)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-15)
    for j, sign in enumerate((-1.0, 1.0)):
        np.testing.assert_allclose(found[:, j], 1.0 / (1.0 + np.exp(-sign * margins)))
    np.testing.assert_array_equal(
        model.classes_[found.argmax(axis=1)], model.predict(X)
    )
    # Far out neither is rounded to 1 minus the other.
    model.coef_, model.intercept_ = np.zeros((1, 3)), np.array([-700.0])
    assert 0.0 < model.predict_proba(X)[0, 1] < 1e-300
    assert "not calibrated" in " ".join(model.predict_proba.__doc__.lower().split())


def test_probabilities_are_of_the_logistic_loss_only():
    assert hasattr(DPClassifier(loss={"name": "logistic"}), "predict_proba")
    for loss in ("hinge", {"name": "smoothed_hinge"}):
        model = DPClassifier("gd", loss=loss, bounds=BOUNDS, parameters={"clip": 1.0})
        assert not hasattr(model, "predict_proba")
        with pytest.raises(AttributeError) as caught:
            _ = model.predict_proba
        why = caught.value.__cause__ or caught.value
        assert "loss='logistic', whose margins are log odds" in str(why)
    assert not hasattr(DPRegressor(), "predict_proba")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Return a folder where two algorithms were tuned on FRAME, and one on log1."""
    place = tmp_path_factory.mktemp("tuned")
    FRAME.assign(answer=WORDS).to_csv(place / "people.csv", index=False)
    data = {"name": "file", "path": str(place / "people.csv"), "classes": CLASSES}
    data |= {"positive": ["yes"], "clip_to_bounds": True}
    data["bounds"] = {"columns": {"age": 1.0}, "default": 1.0, "norm": 1.8}
    penalty = {"name": "elastic_net", "strength": 1e-3, "l1_ratio": 0.3}
    own = {"dataset": data, "loss": "logistic", "penalty": penalty}
    own |= {"algorithm": ["gd", "random_cd"], "budget": {"epsilon": [0.5, 10.0]}}
    log = {"dataset": {"name": "log1", "n": 60, "p": 4}, "algorithm": "gd"}
    log["budget"] = {"epsilon": 0.5, "delta": 1e-5}
    how = {"profile": "smoke", "n_jobs": 1, "progress": False}
    tune([own, log], place / "tune", **how)
    return place / "tune"


def test_what_was_tuned_is_fitted_and_said(results):
    best = tuned_choices(results).query("epsilon == 10").iloc[0]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model = DPClassifier.from_results(results, epsilon=10, random_state=1)
    doubts = [str(one.message) for one in said if one.category is DoubtfulChoice]
    assert any(best["open"] in text for text in doubts) == bool(best["open"])
    assert any("w = 0" in text for text in doubts) == (best["beats_zero"] != "yes")
    assert (model.algorithm, model.parameters) == (best["algorithm"], best["chosen"])
    assert (model.epsilon, model.delta, model.intercept) == (10.0, "1/n^2", None)
    assert model.penalty == {"name": "elastic_net", "strength": 1e-3, "l1_ratio": 0.3}
    assert model.bounds["columns"] == {"age": 1.0} and model.tuned
    assert model.classes == CLASSES
    fitted = clone(model).fit(FRAME, WORDS)
    assert fitted.uncharged_.count("tuning") == 1 and "classes" not in fitted.uncharged_
    by_hand = DPClassifier(
        best["algorithm"],
        epsilon=10.0,
        bounds={"columns": 1.0, "norm": 1.8},
        intercept=None,
        penalty={"name": "elastic_net", "l1_ratio": 0.3},
        strength=1e-3,
        classes=CLASSES,
        parameters=best["chosen"],
        random_state=1,
    ).fit(FRAME, WORDS)
    np.testing.assert_array_equal(fitted.coef_, by_hand.coef_)
    assert "tuning" not in by_hand.uncharged_
    public = clone(model).set_params(tuned=False).fit(FRAME, WORDS)
    assert "tuning" not in public.uncharged_


@pytest.mark.filterwarnings("ignore::dp_erm_bench.errors.DoubtfulChoice")
def test_one_of_several_problems_and_algorithms_is_named(results):
    log = DPClassifier.from_results(results, epsilon=0.5, dataset="log1")
    assert (log.algorithm, log.delta, log.bounds) == ("gd", 1e-5, None)
    (panel,) = tuned_choices(results).query("dataset == 'log1'")["panel"].unique()
    assert DPClassifier.from_results(results, 0.5, panel=panel).delta == 1e-5
    for name in ("gd", "random_cd"):
        found = DPClassifier.from_results(results, 10, algorithm=name, penalty="l2")
        assert (found.algorithm, found.penalty) == (name, "l2")


OWN = '''
from dataclasses import dataclass

from dp_erm_bench.extend import Solver, shape, value


@dataclass(frozen=True)
class Mine(Solver):
    """Is never run.

    References
    ----------
    None.
    """

    n_iter: int = shape(10, least=0, help="a length")
    step: float = value(2.0, above=0.0, help="around its default")

    def iterations(self, problem):
        return self.n_iter

    def passes_at(self, problem, iteration):
        return float(iteration)

    def releases(self, problem, adjacency, schedule):
        yield from ()

    def iterates(self, oracle, mechanisms, checkpoints, schedule):
        yield from ()
'''


@pytest.mark.filterwarnings("ignore::dp_erm_bench.errors.DoubtfulChoice")
def test_a_solver_of_a_file_is_the_one_that_is_named(results, monkeypatch, tmp_path):
    """A folder names none: whoever reads it does."""
    row, spec = best_choice(results, 10.0, algorithm="gd")
    mine = {**row, "algorithm": "mine", "chosen": {"step": 3}}
    monkeypatch.setattr(estimators, "best_choice", lambda *_: (mine, spec))
    path = tmp_path / "mine.py"
    path.write_text(OWN)
    model = DPClassifier.from_results(results, 10.0, algorithm=str(path))
    assert (model.algorithm, model.parameters) == (str(path), {"step": 3.0})
    with pytest.raises(UsageError, match=r"algorithm='path/to/mine\.py'"):
        DPClassifier.from_results(results, 10.0)
    plain = {**row, "chosen": {"step": 3.0}}
    monkeypatch.setattr(estimators, "best_choice", lambda *_: (plain, spec))
    model = DPClassifier.from_results(results, 10.0)
    default = algorithm_of("gd").solver({"step": 3.0})
    rest = {"n_iter": default.n_iter, "clip": default.clip}
    assert model.parameters == {"step": 3.0, **rest}


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"epsilon": 2}, r"^epsilon=2: must be one of those tuned in .*: 0\.5, 10$"),
        ({"epsilon": "1"}, "^epsilon=1: must be one of those"),
        (
            {"epsilon": 0.5},
            "holds choices for 2 problems, name one by dataset='file' or",
        ),
        ({"epsilon": 10, "dataset": "log1"}, "^dataset=log1: must be one .*: file$"),
        ({"epsilon": 10, "panel": "b"}, "^panel=b: must be one of those tuned in"),
        (
            {"epsilon": 10, "algorithm": "sgd"},
            "^algorithm=sgd: must be one .* random_cd",
        ),
        ({"epsilon": 10, "algorithm": "gdd"}, "did you mean gd"),
    ],
)
def test_what_was_not_tuned_is_refused_in_one_sentence(results, how, said):
    with pytest.raises(UsageError, match=said) as caught:
        DPClassifier.from_results(results, **how)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "row", "spec", "said"),
    [
        (
            DPRegressor,
            {},
            {},
            "loss=logistic is of a classification, take DPClassifier",
        ),
        (DPClassifier, {}, {"loss": {"name": "huber"}}, "regression, take DPRegressor"),
        (DPRegressor, {}, {"loss": {"name": "huber"}}, r"in the units of y; .* y / B"),
        (DPClassifier, {}, {"problem": {"name": "mean"}}, "problem=mean, which no"),
        (
            DPClassifier,
            {},
            {"calibration": "paper"},
            "calibration=paper, estimators add",
        ),
        (DPClassifier, {"algorithm": "mine"}, {}, "algorithm='path/to/mine.py'"),
        (
            DPClassifier,
            {},
            {"loss": {"file": "/x/my.py", "content": "0"}},
            "loss my is",
        ),
        (DPClassifier, {"chosen": {"step": -1}}, {}, "step=-1"),
        (DPClassifier, {"chosen": {"step": "print(1)"}}, {}, "step=print"),
        (DPClassifier, {"chosen": {"stp": 1.0}}, {}, "did you mean step"),
        (DPClassifier, {}, {"dataset": None}, "its line of the plan is damaged"),
    ],
)
def test_a_folder_is_not_trusted(results, monkeypatch, kind, row, spec, said):
    found = best_choice(results, 10.0, algorithm="gd")
    sound = {"open": "", "beats_zero": "yes"}
    changed = {**found[0], **sound, **row}, {**found[1], **spec}
    monkeypatch.setattr(estimators, "best_choice", lambda *_: changed)
    with pytest.raises(UsageError, match=said) as caught:
        kind.from_results(results, 10.0)
    assert "\n" not in str(caught.value)


def test_a_choice_that_may_be_no_good_is_warned_of(results, monkeypatch):
    row, spec = best_choice(results, 10.0, algorithm="gd")
    sound = {**row, "open": "", "beats_zero": "yes"}
    data = {**spec["dataset"], "bounds": {"columns": 1, "label": 1}}
    regression = {**spec, "loss": {"name": "huber"}, "dataset": data}
    standardised = {**spec, "dataset": {**data, "standardise": True}}
    wrong = [
        (DPClassifier, {**sound, "open": "step top"}, spec, r"open \(step top\)"),
        (DPClassifier, {**sound, "beats_zero": "no"}, spec, "does not beat w = 0"),
        (
            DPClassifier,
            {**sound, "beats_zero": "tie"},
            spec,
            "not told apart from w = 0",
        ),
        (DPClassifier, sound, standardised, "dataset.standardise=true, on columns"),
    ]
    # Labels of a scaled regression are divided by their bound, as an estimator does.
    data = {**data, "bounds": {"columns": 1, "label": 50}, "scale": "bounds"}
    right = [
        (DPRegressor, sound, one, "")
        for one in (regression, {**regression, "dataset": data})
    ]
    for kind, chosen, how, said in [*wrong, *right]:
        monkeypatch.setattr(estimators, "best_choice", lambda *_, c=(chosen, how): c)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            kind.from_results(results, 10.0)
        assert [one.category for one in told] == [DoubtfulChoice] * bool(said)
        assert not said or re.search(said, str(told[0].message))


def test_what_docs_say_of_weights_pipelines_and_searches():
    """A weight is refused; what a step before or a search takes is not known to us."""
    with pytest.raises(TypeError, match="sample_weight"):
        DPClassifier(bounds=BOUNDS).fit(X, WORDS, sample_weight=np.ones(300))
    with pytest.raises(TypeError, match="class_weight"):
        DPClassifier(class_weight="balanced")
    pipe = make_pipeline(StandardScaler(), DPClassifier(bounds=BOUNDS, classes=CLASSES))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClippedRecords)
        pipe.fit(FRAME, WORDS)
    assert pipe[0].mean_.any() and pipe[-1].uncharged_ == ()
    scaled = DPClassifier(bounds=BOUNDS, classes=CLASSES, scale="bounds")
    assert scaled.fit(FRAME, WORDS).uncharged_ == ()
    fits = []

    class Counted(DPClassifier):
        def fit(self, X, y):
            fits.append(self.epsilon)
            return super().fit(X, y)

    model = Counted(bounds=BOUNDS, classes=CLASSES)
    best = GridSearchCV(model, {"epsilon": [0.5, 1.0]}, cv=3).fit(X, WORDS)
    assert sorted(fits[:-1]) == [0.5] * 3 + [1.0] * 3 and len(fits) == 2 * 3 + 1
    assert best.best_estimator_.epsilon_certified_ <= fits[-1]
    assert best.best_estimator_.uncharged_ == ()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"algorithm": "gdd"}, "did you mean gd"),
        ({"epsilon": -1.0}, "epsilon=-1"),
        ({"adjacency": "add"}, "adjacency=add"),
        ({"bounds": {"colums": 1}}, "did you mean columns"),
        ({"bounds": {"columns": {"dos": 1}, "default": 1}}, r"dos \(did you mean dose"),
        ({"bounds": {"columns": {"dose": 1}}}, '^bounds.columns=.* column "age"'),
        (
            {"bounds": {"columns": 1, "norm": [1, 2]}},
            r"bounds.norm of shape \(2,\): mus",
        ),
        (
            {"bounds": {"columns": 1, "label": [0, 2]}},
            r"label of shape \(2,\): must be",
        ),
        ({"bounds": {"columns": [[2, 1], 1, 1]}}, r"^bounds.columns=\[2,1\]: must be"),
        ({"scale": "bound"}, "^scale=bound: must be"),
        ({"algorithm": "gd", "parameters": {"n_iters": 3}}, "did you mean n_iter"),
        ({"parameters": {"n_iter": 3}}, "^algorithm=auto: takes no parameters; name"),
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


@pytest.mark.filterwarnings("ignore::dp_erm_bench.errors.DoubtfulChoice")
def test_lines_that_nobody_named_have_reports_too(tmp_path, capsys):
    data = {"name": "log1", "n": 60, "p": 3}
    tune = {"axes": {"step": [0.5, 1.0]}, "seeds": [0], "report": [*range(10, 17)]}
    one = {"dataset": data, "budget": {"epsilon": [1.0, 8.0]}, "tune": tune}
    blocks = [
        {**one, "algorithm": {"name": "gd", "clip": [0.5, 1.0], "n_iter": 2}},
        {**one, "algorithm": {"name": "random_cd", "clip": 1.0, "passes": 2}},
    ]
    how = {"n_jobs": 1, "progress": False}
    sweep(blocks, tmp_path / "bare", **how)
    assert "log1 / gd (epsilon 1.0)" in capsys.readouterr().out
    found = tuned_choices(tmp_path / "bare")
    assert [*found["runs"]] == [7] * 6 and {*found["panel"]} == {"log1"}
    assert {one["clip"] for one in found.query("line == 'gd'")["chosen"]} == {0.5, 1.0}
    model = DPClassifier.from_results(tmp_path / "bare", epsilon=8, algorithm="gd")
    best = found.query("epsilon == 8 and algorithm == 'gd'").iloc[0]
    assert model.parameters == best["chosen"]
    # Two problems of one name: the trial of a choice says whose it is.
    sweep(
        [*blocks, {**blocks[1], "dataset": {**data, "n": 70}}], tmp_path / "two", **how
    )
    found = tuned_choices(tmp_path / "two")
    assert [*found["runs"]] == [7] * 8 and len({*found["panel"]}) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_masked_arrays_are_refused(kind):
    """scikit-learn drops the masks: what was hidden was fitted."""
    y = WORDS if kind is DPClassifier else Y
    model = kind(bounds=BOUNDS, epsilon=math.inf).fit(X, y)
    for one, call in (
        ("y", lambda: kind(bounds=BOUNDS).fit(X, np.ma.array(y))),
        ("X", lambda: kind(bounds=BOUNDS).fit(np.ma.array(X), y)),
        ("X", lambda: model.predict(np.ma.array(X))),
        ("X", lambda: model.predict([np.ma.array(row) for row in X])),
    ):
        with pytest.raises(UsageError, match=f"^{one}: must be .* not masked ones"):
            call()


@pytest.mark.filterwarnings("ignore::dp_erm_bench.errors.WideBounds")
def test_a_pickled_model_says_what_it_spent_and_nothing_else_of_its_records():
    """Also where sensitivities are made of constants of the records."""
    for how in ({}, {"clip": 1.0, "smoothness": "data"}):
        held = []
        for records in (X, np.vstack([[0.9, -0.9, 0.9], X[1:]])):
            model = DPClassifier(
                "random_cd", bounds=BOUNDS, classes=CLASSES, parameters=how
            )
            sent = pickle.loads(pickle.dumps(model.fit(records, WORDS)))
            spent = sent.epsilon_certified_, sent.delta_, sent.adjacency_
            assert spent == (pytest.approx(1.0), 1 / 300**2, "replace_one")
            assert sent.n_samples_fit_ == 300 and len(sent.releases_)
            released = [{**vars(release)} for release in sent.releases_]
            others = {k: v for k, v in vars(sent).items() if k not in RELEASED}
            held.append(repr((released, others)))
        assert held[0] == held[1]
        assert sent.uncharged_ == (("smoothness",) if how else ())


RELEASED = ("coef_", "intercept_", "releases_")
