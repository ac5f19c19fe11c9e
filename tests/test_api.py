"""Test the Python interface."""

import copy
import inspect
import math
import pickle
import re
import subprocess
import sys
from dataclasses import replace
from datetime import date

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from threadpoolctl import threadpool_info

import dp_erm_bench
from dp_erm_bench import (
    api,
    fit,
    fitted,
    load_problem,
    problem_from_arrays,
    registry,
    run,
)
from dp_erm_bench.errors import Diverged, NoGain, Unsupported, UsageError
from tests.loops import each
from tests.serving import RISKS, constraint_of, fits_noise, known, parameters

ALGORITHMS = RISKS
FAST = {
    "greedy_cd": {"n_iter": 6},
    "random_cd": {"passes": 2.0},
    "sgd": {"passes": 2},
    "svrg": {"n_epochs": 2, "batch_size": 5},
}
N, P = 60, 4


def arrays(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (N, P))
    return X, np.where(X[:, 0] + 0.3 * rng.normal(size=N) > 0.0, 1.0, -1.0)


def own_problem(loss="logistic", bounds=None, penalty="l2", **given):
    X, y = arrays()
    given = {"strength": 0.1, **given}
    return problem_from_arrays(X, y, loss=loss, penalty=penalty, bounds=bounds, **given)


def served(algorithm, loss="logistic", bounds=None):
    """The problem, on the set that the algorithm needs."""
    return own_problem(loss, bounds, constraint=constraint_of(algorithm))


def sentence(caught):
    text = str(caught.value)
    assert "\n" not in text and text
    return text


# Problems.


def test_the_names_are_the_public_ones():
    for name in ("load_problem", "problem_from_arrays", "fit", "load_results"):
        assert name in dp_erm_bench.__all__ and callable(getattr(dp_erm_bench, name))
    with pytest.raises(AttributeError):
        dp_erm_bench.no_such_thing  # noqa: B018


def test_signatures_are_those_of_the_issue():
    defaults = {
        k: p.default
        for k, p in inspect.signature(fit).parameters.items()
        if p.kind is p.KEYWORD_ONLY
    }
    assert defaults == {
        "epsilon": inspect.Parameter.empty,
        "delta": "1/n^2",
        "adjacency": "replace_one",
        "calibration": "certified",
        "seed": None,
        "checkpoints": 11,
    }
    given = inspect.signature(load_problem).parameters
    assert [given[k].default for k in ("loss", "penalty", "constraint")] == [
        "auto",
        "auto",
        "none",
    ]


def test_the_bundled_dataset_has_its_usual_objective():
    problem = load_problem("breast_cancer")
    assert (problem.n, problem.p) == (569, 30)
    assert (problem.loss.name, problem.penalty.name) == ("logistic", "l2")
    assert problem.penalty.strength == 1.0 / 569
    assert problem.value(np.zeros(30)) == pytest.approx(math.log(2.0))
    best = problem.optimum
    assert best.gap <= 1e-9 and best.w.shape == (30,)
    assert problem.value(best.w) == pytest.approx(best.value, rel=1e-9)


def test_objectives_and_overrides_are_taken_by_name():
    problem = load_problem(
        "breast_cancer",
        loss="squared",
        penalty={"name": "l1", "strength": "1/n"},
        standardise=False,
    )
    assert (problem.loss.name, problem.penalty.l1) == ("squared", 1.0 / 569)
    assert problem.dataset.uncharged == ()
    assert load_problem("breast_cancer").dataset.uncharged == ("standardisation",)


@each(
    "call, words",
    [
        (lambda: load_problem("brest_cancer"), "did you mean breast_cancer"),
        (lambda: load_problem("breast_cancer", loss="logstic"), "mean logistic"),
        (lambda: load_problem("breast_cancer", penalty="l3"), "penalty=l3"),
        (lambda: load_problem("breast_cancer", penalty=3), "penalty=3: must be one of"),
        (
            lambda: load_problem("breast_cancer", penalty={"strength": 1}),
            "the key name",
        ),
        (lambda: load_problem(None), "dataset=None"),
        (lambda: load_problem("breast_cancer", name="a9a"), "dataset.name=a9a"),
        (lambda: load_problem("breast_cancer", constraint="ball"), "constraint=ball"),
        (lambda: load_problem("breast_cancer", standardize=True), "mean standardise"),
        (lambda: load_problem("breast_cancer", test_fraction=2), "test_fraction=2"),
        (lambda: own_problem(loss="hinged"), "loss=hinged"),
        (lambda: own_problem(loss="auto"), "loss=auto"),
        (lambda: own_problem(strength=-1.0), "strength=-1.0"),
        (lambda: own_problem(strength="a lot"), "strength=a lot"),
    ],
)
def test_unknown_names_are_refused_in_one_sentence(call, words):
    with pytest.raises(UsageError) as caught:
        call()
    assert words in sentence(caught)


def test_arrays_are_copied_and_locked():
    X, y = arrays()
    problem = problem_from_arrays(X, y, loss="logistic")
    kept = problem.dataset.X.copy()
    X[:] = 7.0
    np.testing.assert_array_equal(problem.dataset.X, kept)
    with pytest.raises(ValueError, match="read-only"):
        problem.dataset.X[0, 0] = 1.0
    assert problem.key != problem_from_arrays(X, y, loss="logistic").key


@pytest.mark.parametrize(
    "X, y, words",
    [
        (np.zeros((3, 2)), np.ones(2), "shape"),
        (np.zeros(3), np.ones(3), "shape"),
        (np.zeros((0, 2)), np.ones(0), "empty"),
        (np.full((2, 2), np.nan), np.ones(2), "finite"),
        (np.zeros((2, 2)), np.array([1.0, np.inf]), "finite"),
        (np.zeros((2, 2)), np.array([0.0, 2.0]), "label 0 is not allowed"),
        ([["a", "b"]], [1.0], "must be an array of numbers"),
        (2**64 - 1, [1.0], "X of shape (): must be (n, p)"),
        ([2**64 - 1], [1.0], "X of shape (1,): must be (n, p)"),
        ([[2**64]], [1.0], "must be an array of numbers"),
        ([[1.0], [1.0, 2.0]], [1.0, 1.0], "must be an array of numbers"),
    ],
)
def test_wrong_arrays_are_refused_in_one_sentence(X, y, words):
    for bounds in (None, {"columns": 1.0}):
        with pytest.raises(UsageError) as caught:
            problem_from_arrays(X, y, loss="logistic", bounds=bounds)
        assert words in sentence(caught)


@each(
    "bounds, words",
    [
        ({"columns": 0.5}, "columns"),
        ({"columns": [1.0, 1.0, 1.0, 0.01]}, "feature 3"),
        ({"columns": 1.0, "norm": 0.1}, "norm"),
        ({"columns": 1.0, "label": 0.5}, "label"),
        ({"columns": [1.0, 2.0]}, "must be one number or 4"),
        ({"columns": -1.0}, "must be finite and >= 0"),
        ({"columns": math.nan}, "must be finite and >= 0"),
        ({"columns": 1.0, "norm": math.inf}, "must be finite and >= 0"),
        ({"columns": 1.0, "label": -1.0}, "must be finite and >= 0"),
        ({"columns": "wide"}, "must be an array of numbers"),
        ({"norm": -1.0}, "=-1.0: must be finite and >= 0"),
        ({"colums": 1.0}, "did you mean columns"),
    ],
)
def test_wrong_bounds_are_refused_in_one_sentence(bounds, words):
    with pytest.raises(UsageError) as caught:
        own_problem(bounds=bounds)
    assert words in sentence(caught)


def test_the_largest_integers_are_numbers():
    X = np.array([[2**64 - 1, 0], [1, 2**63]], np.uint64)
    made = problem_from_arrays(X, [1, -1], loss="logistic")
    np.testing.assert_array_equal(made.dataset.X, [[2.0**64, 0.0], [1.0, 2.0**63]])


def test_a_sentence_of_python_speaks_of_arguments():
    with pytest.raises(UsageError, match="bounds.columns of arrays.*=True") as caught:
        own_problem(bounds={"columns": 0.5})
    bare = problem_from_arrays(np.ones((2, 1)), [1, -1], loss="logistic")
    with pytest.raises(UsageError, match=r"clip_to_bounds=True") as other:
        fit(bare, "gd", epsilon=1.0, n_iter=2)
    for error in (caught, other):
        assert "dataset." not in str(error.value) and "=true" not in str(error.value)


@pytest.mark.parametrize("bounds", [2.0, 2, [2.0] * P, np.full(P, 2.0)])
def test_bounds_that_are_no_mapping_are_those_of_the_columns(bounds):
    plain, full = (own_problem(bounds=b).dataset for b in (bounds, {"columns": 2.0}))
    np.testing.assert_array_equal(plain.bounds.columns, full.bounds.columns)
    assert plain.bounds.norm == full.bounds.norm


def test_complex_features_are_refused_and_not_cut():
    X, y = arrays()
    with pytest.raises(UsageError, match="X: must be an array of numbers"):
        problem_from_arrays(X + 0j, y, loss="logistic")


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a.astype("M8[s]"),
        lambda a: a.astype("m8[s]"),
        lambda a: a.astype(object),
        lambda a: a.astype(str),
        lambda a: a.astype("S4"),
        lambda a: np.ma.masked_equal(a, a.flat[0]),
        lambda a: a.astype("f8,f8"),
        lambda a: a * 1j,
    ],
)
def test_arrays_that_are_no_real_numbers_are_refused_and_not_converted(change):
    X, y = arrays()
    for given, key in (((change(X), y), "X"), ((X, change(y)), "y")):
        with pytest.raises(UsageError) as caught:
            problem_from_arrays(*given, loss="logistic")
        said = sentence(caught)
        assert f"{key}: must be an array of numbers, not" in said


@pytest.mark.parametrize("kind", ["bool", "int8", "uint16", "float32", "int64"])
def test_arrays_of_real_numbers_of_any_size_are_taken(kind):
    X, y = np.eye(2).astype(kind), [-1, 1]
    found = problem_from_arrays(X, y, loss="logistic").dataset
    np.testing.assert_array_equal(found.X, np.eye(2))


def test_bounds_are_spread_over_the_columns():
    bounds = own_problem(bounds={"columns": 2.0, "label": None}).dataset.bounds
    np.testing.assert_array_equal(bounds.columns, np.full(P, 2.0))
    assert bounds.norm == pytest.approx(4.0) and bounds.label is None


# Fits.


@each("algorithm", ALGORITHMS)
@each("adjacency", ["replace_one", "zero_out"])
def test_a_fit_returns_what_it_promises(algorithm, adjacency):
    problem = served(algorithm, bounds={"columns": 1.0})
    result = fit(
        problem,
        algorithm,
        epsilon=1.0,
        adjacency=adjacency,
        seed=1,
        **FAST.get(algorithm, {}),
    )
    assert result.w.shape == (P,) and np.isfinite(result.w).all() and result.w.any()
    assert 0.0 < result.epsilon_certified <= 1.0
    # No budget is left unused, but where all steps that were drawn are paid for.
    assert result.epsilon_certified > 0.98 or not fits_noise(algorithm)
    assert result.calibration == "certified"
    assert result.reproducible is True
    assert result.uncharged == (*registry.target("algorithm", algorithm).uncharged,)
    names = {release.name for release in result.releases}
    assert names and all(release.times > 0 for release in result.releases)
    rows = result.trajectory
    assert list(rows.columns) == [
        "iteration",
        "passes",
        "seconds",
        "objective",
        "nnz",
        *["predicted_excess"] * (algorithm == "newton"),
        "train_risk",
        "optimum",
        "relative_error",
    ]
    assert rows.iteration[0] == 0 and rows.nnz[0] == 0
    assert rows.iteration.is_monotonic_increasing
    assert rows.seconds.is_monotonic_increasing
    assert rows.objective[0] == pytest.approx(math.log(2.0))
    assert rows.objective.iloc[-1] == pytest.approx(problem.value(result.w))
    best = problem.optimum.value
    np.testing.assert_allclose(rows.relative_error, rows.objective / best - 1.0)


def test_half_the_sensitivity_is_half_the_noise():
    problem = own_problem(bounds={"columns": 1.0})
    made = {
        adjacency: fit(
            problem, "random_cd", epsilon=1.0, adjacency=adjacency, seed=1, clip=None
        ).releases[0]
        for adjacency in ("replace_one", "zero_out")
    }
    np.testing.assert_allclose(
        made["replace_one"].sensitivity, 2.0 * made["zero_out"].sensitivity
    )
    np.testing.assert_allclose(made["replace_one"].sensitivity, 2.0 / N)


def test_uses_of_the_data_that_are_not_paid_for_are_listed():
    assert fit(own_problem(), "sgd", epsilon=1.0, clip=1.0, seed=0).uncharged == (
        "smoothness",
    )
    result = fit(load_problem("breast_cancer"), "greedy_cd", epsilon=1.0, clip=1.0)
    assert result.uncharged == ("standardisation", "smoothness")


@each("algorithm", ALGORITHMS)
def test_a_budget_without_clip_and_bounds_is_refused_naming_both(algorithm):
    with pytest.raises(Unsupported) as caught:
        fit(served(algorithm), algorithm, epsilon=1.0)
    text = sentence(caught)
    assert "clip" in text and "declared bounds" in text


@each("algorithm", ALGORITHMS)
def test_squared_loss_on_the_whole_space_needs_clipping(algorithm):
    problem = served(algorithm, "squared", {"columns": 1.0, "label": 1.0})
    how = FAST.get(algorithm, {})
    fit(problem, algorithm, epsilon=math.inf, **how)
    # X'X and X'y are bounded by the records alone.
    if problem.constraint.bounded or algorithm == "ssp":
        fit(problem, algorithm, epsilon=1.0, **how)
        return
    if "clip" not in parameters(algorithm):
        with pytest.raises(Unsupported, match="loss=squared: .* bounded derivative"):
            fit(problem, algorithm, epsilon=1.0)
        return
    with pytest.raises(Unsupported, match="clip"):
        fit(problem, algorithm, epsilon=1.0, clip=None, **how)
    # Nobody gives a threshold: without a rule a sixteenth of what holds at w = 0.
    length = np.sqrt(problem.p)
    usual = fit(problem, algorithm, epsilon=1.0, seed=0, **how)
    if "-0: " in usual.rule:
        assert usual.params["clip"] == pytest.approx(length / 16, rel=1e-2)
    assert usual.rule and 0.0 < usual.params["clip"] <= length / 4
    given = {**how, "clip": usual.params["clip"]}
    assert np.array_equal(
        usual.w, fit(problem, algorithm, epsilon=1.0, seed=0, **given).w
    )


@each("algorithm", ALGORITHMS)
def test_without_a_budget_there_is_no_noise_and_no_proof(algorithm):
    problem = served(algorithm, bounds={"columns": 1.0})
    how = {**FAST.get(algorithm, {}), **known(algorithm, step=0.1)}
    first = fit(problem, algorithm, epsilon=math.inf, seed=1, **how)
    assert first.epsilon_certified == math.inf
    if algorithm == "greedy_cd":
        second = fit(problem, algorithm, epsilon="inf", **how)
        np.testing.assert_array_equal(first.w, second.w)
    assert first.trajectory.objective.iloc[-1] < first.trajectory.objective[0]


@each("algorithm", ALGORITHMS)
def test_seeds_reproduce_and_no_seed_does_not(algorithm):
    problem, how = served(algorithm, bounds={"columns": 1.0}), FAST.get(algorithm, {})
    if algorithm == "frank_wolfe":  # one step may end at the same vertex
        how = {"n_iter": 10, **how}

    def w(**given):
        return fit(problem, algorithm, **{"epsilon": 1.0, **how, **given}).w

    np.testing.assert_array_equal(w(seed=3), w(seed=3))
    longer = known(algorithm, step=0.9, ridge=0.1)
    for other in ({"seed": 4}, {"seed": None}, {"seed": 3, **longer}):
        assert not np.array_equal(w(seed=3), w(**other))
    assert not np.array_equal(w(), w())
    assert not fit(problem, algorithm, epsilon=1.0, **how).reproducible


def test_seeds_share_no_draw_between_fits_that_differ(monkeypatch):
    """Else the difference of two seeded fits would cancel the noise."""
    seen = []
    make = run.make_mechanisms

    def listen(releases, z, identities):
        seen.extend(identities)
        return make(releases, z, identities)

    monkeypatch.setattr(run, "make_mechanisms", listen)
    X, y = arrays()
    moved = problem_from_arrays(X + 1e-9, y, loss="logistic")
    problem = problem_from_arrays(X, y, loss="logistic")
    how = {"epsilon": 1.0, "clip": 1.0, "seed": 3, "n_iter": 2}
    for given in ({"epsilon": 2.0}, {"clip": 2.0}, {"delta": 1e-5}, {"step": 0.5}, {}):
        fit(problem, "greedy_cd", **{**how, **given})
    fit(problem, "greedy_cd", **how, adjacency="zero_out")
    fit(moved, "greedy_cd", **how)
    assert len(set(seen)) == len(seen) == 7


def test_numbers_of_numpy_are_numbers_for_a_dataset():
    plain, typed = (
        load_problem("log1", n=kind(50), p=kind(3), seed=kind(4))
        for kind in (int, np.int32)
    )
    assert typed.key == plain.key


def test_numbers_of_numpy_are_numbers():
    problem, given = own_problem(), {"clip": 2, "n_iter": 3, "seed": 5}
    plain = fit(problem, "greedy_cd", epsilon=1.0, **given)
    for kind in (np.int64, np.uint8):
        typed = {key: kind(value) for key, value in given.items()}
        same = fit(problem, "greedy_cd", epsilon=np.float32(1.0), **typed)
        np.testing.assert_array_equal(same.w, plain.w)
    with pytest.raises(UsageError, match="clip=nan"):
        fit(problem, "greedy_cd", epsilon=1.0, clip=np.float32("nan"))


def test_a_warning_in_code_without_a_name_is_given():
    how = {"fit": fit, "problem": own_problem(bounds=1.0)}
    with pytest.warns(NoGain):
        exec("fit(problem, 'gd', epsilon=1e-3)", how)


@pytest.mark.parametrize("seed", [-1, 1.5, "a", True, np.float64(1.0), np.array(3)])
def test_wrong_seeds_are_refused(seed):
    with pytest.raises(UsageError, match=re.escape(f"seed={seed}: must be")):
        fit(own_problem(), "greedy_cd", epsilon=1.0, clip=1.0, seed=seed)


@pytest.mark.parametrize("seed", [[], [0, 0], [1, -1], [0, None], (True,), ["a"]])
def test_wrong_lists_of_seeds_are_refused(seed):
    words = f"seed={seed}: must be a list of different integers >= 0"
    with pytest.raises(UsageError, match=re.escape(words)):
        fit(own_problem(), "gd", epsilon=1.0, clip=1.0, seed=seed)


@pytest.mark.parametrize(
    ("algorithm", "given"),
    [
        *(("gd", {"clip": 0.5}), ("greedy_cd", {"clip": 0.5}), ("sgd", {"clip": 0.5})),
        *(("boosting", {"clip": 0.5}), ("mirror_descent", {}), ("svrg", {})),
        *(("gd", {"smoothness": "private"}), ("newton", {"epsilon": math.inf})),
    ],
)
def test_a_list_of_seeds_gives_the_fits_of_these_seeds(algorithm, given, monkeypatch):
    monkeypatch.setattr(api, "MOST", 2)
    problem = own_problem(bounds={"columns": 1.0, "norm": 2.0})
    how = {"epsilon": 1.0, "checkpoints": 3, **known(algorithm, n_iter=4), **given}
    for seeds in (range(3), [7, 2, 4], np.array([1, 0])):
        results = fit(problem, algorithm, seed=seeds, **how)
        for seed, one in zip(seeds, results, strict=True):
            alone = fit(problem, algorithm, seed=int(seed), **how)
            np.testing.assert_allclose(one.w, alone.w, rtol=1e-12, atol=1e-14)
            assert one.w.any() and one.reproducible
            assert one.epsilon_certified == alone.epsilon_certified
            assert repr(one.releases) == repr(alone.releases)
            constants = one.problem.smoothness.norm, alone.problem.smoothness.norm
            np.testing.assert_array_equal(*constants)
            path, own = one.trajectory, alone.trajectory
            assert path.iteration.tolist() == own.iteration.tolist()
            np.testing.assert_allclose(path.objective, own.objective, rtol=1e-12)


def test_a_fit_of_a_list_that_diverges_stands_in_it(monkeypatch):
    problem = own_problem()
    record, broken = run.Run.record, [1]

    def breaking(batch, n_checkpoints):
        solved = record(batch, n_checkpoints)
        solved.rows.finite[broken] = False
        return solved

    monkeypatch.setattr(run.Run, "record", breaking)
    how = {"epsilon": 1.0, "clip": 1.0, "n_iter": 3}
    first, second, third = fit(problem, "gd", seed=[5, 6, 7], **how)
    assert first.w.any() and third.w.any() and isinstance(second, Diverged)
    assert second.epsilon_certified == first.epsilon_certified


@pytest.mark.parametrize("given", [1, 0, 2.0, "5", None])
def test_wrong_numbers_of_checkpoints_are_refused(given):
    with pytest.raises(UsageError, match="checkpoints=.*: must be an integer >= 2"):
        fit(own_problem(), "gd", epsilon=1.0, clip=1.0, checkpoints=given)


def test_a_fit_keeps_few_checkpoints_and_more_if_asked():
    how = {"epsilon": 1.0, "clip": 1.0, "n_iter": 200, "seed": 0}
    few, many = (
        fit(own_problem(), "gd", **how, **more) for more in ({}, {"checkpoints": 51})
    )
    assert (len(few.trajectory), len(many.trajectory)) == (11, 51)
    np.testing.assert_array_equal(few.w, many.w)


@each(
    "given, words",
    [
        ({"algorithm": "greedy"}, "did you mean greedy_cd"),
        ({"epsilon": 0.0}, "epsilon=0.0"),
        ({"epsilon": -1}, "epsilon=-1"),
        ({"epsilon": math.nan}, "epsilon=nan"),
        ({"epsilon": "one"}, "epsilon=one"),
        ({"epsilon": "1"}, "epsilon='1': must be a number, not a text"),
        ({"epsilon": "1e-3"}, "epsilon='1e-3': must be a number"),
        ({"epsilon": 1e-300}, "epsilon=1e-300: must be from 1e-60 to 1e+60"),
        ({"epsilon": 1e-300, "delta": 0}, "epsilon=1e-300: must be"),
        ({"epsilon": 1e308}, "epsilon=1e+308: must be"),
        ({"epsilon": 10**400}, "must be a number that a float holds"),
        ({"delta": "1e-5"}, "delta='1e-5': must be a number"),
        ({"n_iter": "3"}, "n_iter='3': must be a number"),
        ({"clip": "0.5"}, "clip='0.5': must be a number"),
        (
            {"algorithm": "random_cd", "passes": 2, "n_iter": 3},
            "algorithm.random_cd.n_iter: stands in place of passes",
        ),
        ({"algorithm": "sgd", "n_iter": 2, "passes": 3}, "in place of passes"),
        ({"algorithm": "svrg", "n_epochs": 2, "passes": 3}, "in place of passes"),
        ({"algorithm": "svrg", "n_epochs": 2, "n_iter": 3}, "in place of n_epochs"),
        ({"delta": 1.0}, "delta=1.0"),
        ({"delta": "1/m"}, "delta=1/m"),
        ({"adjacency": "add"}, "adjacency=add"),
        ({"calibration": "exact"}, "calibration=exact"),
        ({"n_iters": 3}, "did you mean n_iter"),
        ({"printed": "x"}, "greedy_cd=printed"),
        ({"n_iter": -3}, "n_iter=-3"),
        ({"step": 0.0}, "step=0.0"),
        ({"clip": -1.0}, "clip=-1.0"),
        ({"rule": "GS"}, "rule=GS"),
        ({"smoothness": "public"}, "smoothness=public"),
        ({"algorithm": "sgd", "batch_size": N + 1}, f"batch_size={N + 1}"),
        ({"algorithm": "random_cd", "n_inner": 7}, "n_inner=7"),
        ({"algorithm": "sgd", "calibration": "paper"}, "calibration=paper"),
        ({"calibration": "authors"}, "calibration=authors"),
        ({"algorithm": "random_cd", "calibration": "authors"}, "calibration=authors"),
        ({"calibration": "authors", "epsilon": math.inf}, "calibration=authors"),
        (
            {"algorithm": "sgd", "calibration": "paper", "epsilon": math.inf},
            "calibration=paper",
        ),
        ({"algorithm": "random_cd", "delta": 0.0}, "delta=0"),
    ],
)
def test_wrong_arguments_are_refused_in_one_sentence(given, words):
    how = {"algorithm": "greedy_cd", "epsilon": 1.0, "clip": 1.0, **given}
    with pytest.raises(UsageError) as caught:
        fit(own_problem(), **how)
    assert words in sentence(caught)


ARRAYS = "must be a Problem, as problem_from_arrays(X, y, loss='logistic') makes of"


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        ("log1", "problem=log1: must be a Problem, as load_problem('log1') is"),
        (None, f"problem=NoneType: {ARRAYS} arrays"),
        (np.eye(2), f"problem=ndarray: {ARRAYS} arrays"),
    ],
)
def test_what_is_no_problem_is_refused_in_one_sentence(problem, said):
    with pytest.raises(UsageError) as caught:
        fit(problem, "gd", epsilon=1.0, clip=1.0)
    assert str(caught.value) == said


def test_pure_privacy_is_had_from_pure_mechanisms():
    result = fit(own_problem(), "greedy_cd", epsilon=1.0, delta=0.0, clip=1.0, n_iter=2)
    assert 0.99 < result.epsilon_certified <= 1.0
    assert result.accountant == "pure"


def test_printed_constants_tell_what_they_really_cost():
    problem = own_problem()
    coordinate = fit(
        problem, "random_cd", epsilon=1.0, calibration="paper", clip=1.0, passes=5.0
    )
    assert coordinate.calibration == "paper"
    assert 0.5 < coordinate.epsilon_certified < 0.7  # printed with room
    greedy = fit(problem, "greedy_cd", epsilon=1.0, calibration="paper", clip=1.0)
    assert type(greedy.releases[0]).__name__ == "InsideNoisyMax"
    assert greedy.epsilon_certified > 0.0
    loose = fit(
        problem,
        "random_cd",
        epsilon=10.0,
        delta=0.3,
        calibration="paper",
        clip=1.0,
        passes=12.5,
    )
    assert loose.calibration == "paper (not proved)"
    assert loose.epsilon_certified > 10.0


def test_the_authors_noise_is_labelled_and_costs_more():
    result = fit(
        own_problem(), "sgd", epsilon=1.0, calibration="authors", clip=1.0, passes=1.0
    )
    assert result.calibration == "authors"
    assert math.isfinite(result.epsilon_certified)


def test_no_iterations_cost_nothing():
    for algorithm in ALGORITHMS:
        if "n_iter" not in parameters(algorithm):
            continue
        how = known(algorithm, clip=1.0) or {"ridge": 0.1}
        # Sums of outer products need bounds, whatever is clipped.
        free = "clip" in how and algorithm not in ("feature_covariance", "newton")
        bounds = None if free else {"columns": 1.0}
        problem = served(algorithm, bounds=bounds)
        result = fit(problem, algorithm, epsilon=1.0, n_iter=0, **how)
        assert not result.w.any() and result.epsilon_certified == 0.0
        assert result.trajectory.iteration.tolist() == [0]


def test_held_out_records_are_measured():
    problem = load_problem("breast_cancer", test_fraction=0.25)
    result = fit(problem, "greedy_cd", epsilon=math.inf, n_iter=30)
    rows = result.trajectory
    assert rows.test_accuracy.iloc[-1] > 0.9
    assert rows.test_objective[0] == pytest.approx(math.log(2.0))
    w, data = result.w, problem.dataset
    margins = data.y_test * (data.X_test @ w)
    assert rows.test_accuracy.iloc[-1] == pytest.approx(np.mean(margins > 0.0))
    penalty = problem.penalty.value(w)
    assert rows.test_objective.iloc[-1] == pytest.approx(
        np.log1p(np.exp(-margins)).mean() + penalty
    )


def test_divergence_is_raised():
    problem = own_problem("squared", penalty="none", strength=None)
    with pytest.raises(Diverged, match="sgd diverged"):
        fit(problem, "sgd", epsilon=math.inf, step=1e30, passes=300, batch_size="full")


def test_problems_of_other_declared_bounds_share_no_draw():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (30, 3)), np.where(rng.uniform(size=30) > 0.5, 1.0, -1.0)
    made = [
        problem_from_arrays(X, y, loss="logistic", bounds={"columns": radius})
        for radius in (1.0, 2.0)
    ]
    given = {"epsilon": 1.0, "seed": 3, "clip": 1.0, "smoothness": "data"}
    first, second = (fit(problem, "random_cd", **given).w for problem in made)
    assert (first != second).all()


def test_a_trajectory_is_made_when_it_is_first_read(monkeypatch):
    problem = own_problem()
    result = fit(problem, "gd", epsilon=1.0, clip=1.0, n_iter=3)
    assert "optimum" not in vars(problem)
    rows = result.trajectory
    assert vars(problem)["optimum"].value == rows["optimum"].iloc[-1]
    assert result.trajectory is rows and list(rows)[:2] == ["iteration", "passes"]
    at_end = problem.value(result.w)
    assert rows["objective"].iloc[-1] == pytest.approx(at_end, rel=1e-13)


def test_a_fit_whose_trajectory_nobody_reads_needs_no_pandas():
    code = (
        "import sys; from dp_erm_bench import fit, problem_from_arrays; "
        "X = [[1.0], [2.0]]; "
        "problem = problem_from_arrays(X, [1.0, -1.0], loss='logistic'); "
        "fit(problem, 'gd', epsilon=1.0, delta=0.1, clip=1.0, n_iter=2); "
        "print('pandas' in sys.modules)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_pickled_result_of_public_data_has_its_trajectory_and_no_records():
    X, y = arrays()
    declared = problem_from_arrays(X, np.sign(y), loss="logistic", public=True)
    for problem in (declared, load_problem("log1", n=40, p=3)):
        result = fit(problem, "gd", epsilon=1.0, clip=1.0, n_iter=3)
        sent = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(result))))
        assert sent.problem is None and sent.trajectory.equals(result.trajectory)
        np.testing.assert_array_equal(sent.w, result.w)
    with pytest.raises(UsageError, match="public=yes: must be True or False"):
        problem_from_arrays(X, np.sign(y), loss="logistic", public="yes")


W = (".w", ".model.w")


def told_by(value):
    """Yield what a pickled object holds, by its place in it."""
    if isinstance(value, dict | list | tuple):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for name, one in pairs:
            yield from ((f".{name}{rest}", leaf) for rest, leaf in told_by(one))
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        yield from told_by(vars(value))
    else:
        yield "", repr(value)


def test_a_pickled_result_of_own_records_tells_two_of_them_apart_by_its_weights_alone(
    tmp_path,
):
    """Who has all records but one has nothing to check a guess by."""
    X, y = arrays()
    X, y = np.clip(X, -1.0, 1.0), np.sign(y)
    other = np.vstack([[0.9, -0.9, 0.9, 0.9], X[1:]])
    for algorithm, more in {
        "gd": {"clip": 1.0, "n_iter": 3},
        "random_cd": {"clip": 1.0, "passes": 1},
        "greedy_cd": {"clip": 1.0, "n_iter": 3},
    }.items():
        held = []
        for records in (X, other):
            np.savez(tmp_path / "own.npz", X=records, y=y)
            file = load_problem("file", path=str(tmp_path / "own.npz"))
            own = problem_from_arrays(records, y, loss="logistic", penalty="none")
            for problem in (own, file):
                result = fit(problem, algorithm, epsilon=1.0, **more)
                _ = result.trajectory
                sent = pickle.loads(pickle.dumps(result))
                with pytest.raises(AttributeError, match="nobody declared public"):
                    _ = sent.trajectory
                assert not sent.columns and sent.n == 60
                held.append({k: v for k, v in told_by(vars(sent)) if k not in W})
        assert held[:2] == held[2:]


def test_a_copy_within_a_process_loses_nothing():
    result = fit(own_problem(), "gd", epsilon=1.0, clip=1.0, n_iter=3)
    for same in (copy.copy(result), copy.deepcopy(result)):
        assert same.problem is result.problem
        assert same.trajectory.equals(result.trajectory)


def test_libraries_with_threads_are_found_anew_after_an_import(monkeypatch):
    made, plain = [], fitted.ThreadpoolController

    def counting():
        made.append(1)
        return plain()

    monkeypatch.setattr(fitted, "ThreadpoolController", counting)
    for number in range(6):
        monkeypatch.setitem(sys.modules, f"a_new_module_{number // 3}", api)
        with api.one_thread():
            assert {one["num_threads"] for one in threadpool_info()} == {1}
    assert len(made) == 2


# A fit as a model.


def named_frame(X):
    return pd.DataFrame(X, columns=["age", "dose", "weight", "size"])


@pytest.mark.parametrize("intercept", [None, 2.0])
def test_a_fit_predicts_for_records_with_names(intercept):
    X, y = arrays()
    labels = np.where(y > 0.0, "yes", "no")
    problem = problem_from_arrays(
        named_frame(X), labels, loss="logistic", positive="yes", intercept=intercept
    )
    result = fit(problem, "gd", epsilon=math.inf, n_iter=200)
    assert result.feature_names == (
        *("age", "dose", "weight", "size"),
        *["intercept"] * bool(intercept),
    )
    margins = problem.dataset.X @ result.w
    for given in (X, named_frame(X), named_frame(X)[["size", "age", "weight", "dose"]]):
        np.testing.assert_allclose(result.decision_function(given), margins)
    np.testing.assert_allclose(result.decision_function(problem.dataset.X), margins)
    np.testing.assert_array_equal(result.predict(X), np.where(margins >= 0, 1.0, -1.0))
    assert result.score(X, y) == np.mean(result.predict(X) == y) > 0.8
    sent = pickle.loads(pickle.dumps(result))
    assert sent.score(X, y) == result.score(X, y) and repr(sent) == repr(result)


def test_a_regression_predicts_margins_and_scores_r2():
    X, _ = arrays()
    y = X @ [1.0, -2.0, 0.0, 0.5]
    problem = problem_from_arrays(X, y, loss="squared")
    result = fit(problem, "gd", epsilon=math.inf, n_iter=300)
    np.testing.assert_allclose(result.predict(X), X @ result.w)
    assert 0.99 < result.score(X, y) <= 1.0 and result.score(X, -y) < 0.0
    assert result.feature_names == ("x0", "x1", "x2", "x3")


def test_a_result_is_three_lines():
    result = fit(own_problem(), "gd", epsilon=1.0, clip=1.0, n_iter=3, seed=1)
    what, how, weights = repr(result).splitlines()
    assert what == "FitResult of gd on logistic + l2: n=60, p=4"
    assert "(certified) at delta 0.000278, replace_one; uncharged: smoothness" in how
    assert "seeded: not private" in how and f"{result.epsilon_certified:.4g}" in how
    largest = np.abs(result.w).argmax()
    assert f"the largest: x{largest} {result.w[largest]:+.3g}, " in weights


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda X: X[:, :2],
            r"X of shape \(60, 2\): must have the 4 columns age, dose",
        ),
        (lambda X: X[0], r"X of shape \(4,\): must be \(n, p\)"),
        (lambda X: named_frame(X).drop(columns="dose"), "X: has no column dose"),
        (lambda X: X.astype(str), "must be an array of numbers"),
    ],
)
def test_records_that_do_not_fit_a_model_are_refused(change, said):
    X, y = arrays()
    result = fit(
        problem_from_arrays(named_frame(X), y, loss="logistic"), "gd", epsilon=math.inf
    )
    with pytest.raises(UsageError, match=said):
        result.predict(change(X))
    with pytest.raises(UsageError, match="labels must be -1 or"):
        result.score(X, y * 2)
    with pytest.raises(UsageError, match=r"words with numpy\.where\(y == 'yes'"):
        result.score(X, np.where(y > 0, "yes", "no"))
    with pytest.raises(
        UsageError, match=r"y of shape \(3,\): must be of shape \(60,\)"
    ):
        result.score(X, y[:3])


TEXTS = {"hue": ["red", "blue", "red", "blue"], "a": [1, 2, 3, -1], "k": [1, 2, 2, 1]}


@pytest.mark.parametrize("intercept", [None, 2.0])
def test_a_fit_predicts_for_the_texts_of_its_own_csv(intercept, tmp_path):
    table = pd.DataFrame(TEXTS, index=[7, 7, 1, 2])
    labels = pd.Series([1, -1, 1, -1], table.index, name="ill")
    path = tmp_path / "my.csv"
    table.assign(ill=labels).to_csv(path, index=False)
    onehot = {"hue": ["blue", "red", "green"], "k": [2, 1]}
    problem = load_problem(
        *("file", "logistic"), path=str(path), onehot=onehot, intercept=intercept
    )
    result = fit(problem, "gd", epsilon=math.inf, n_iter=20)
    names = ["hue=blue", "hue=red", "hue=green", "a", "k=2", "k=1"]
    assert [*result.feature_names] == names + ["intercept"] * bool(intercept)
    margins = problem.dataset.X @ result.w
    assert len({*margins.round(9)}) == 4
    encoded = pd.DataFrame(np.asarray(problem.dataset.X)[:, :6], columns=names)
    half = encoded.drop(columns=["k=1", "k=2"]).assign(k=TEXTS["k"])
    floats = table.astype({"k": float, "hue": "category"})
    raw = table.iloc[:, ::-1].assign(ill=labels, note="text that no model reads")
    for given in (table, raw, TEXTS, dict(table), floats, encoded, half):
        np.testing.assert_allclose(result.decision_function(given), margins)
    np.testing.assert_array_equal(result.predict(table), np.sign(margins))
    sent = pickle.loads(pickle.dumps(result))
    assert sent.score(TEXTS, labels) == np.mean(np.sign(margins) == labels)
    read = load_problem("file", "logistic", path=str(path), onehot=["hue", "k"])
    other = fit(read, "gd", epsilon=math.inf, n_iter=20)
    np.testing.assert_allclose(other.predict(table), np.sign(margins))
    for wrong, said in (
        (
            {"hue": ["red", "blue", "teal", None]},
            "hue. holds a word in row 2 .* red, g",
        ),
        ({"hue": ["red", None, "blue", "red"]}, "hue. has no value in row 1"),
        (
            {"k": [1, 2, 3, 1]},
            "X: column .k. holds a word in row 2 .* categories 2, 1$",
        ),
        ({"a": ["x"] * 4}, "column .a. holds .*, features must be numbers"),
        ({"a": [1]}, "X: its columns must have the same length"),
    ):
        with pytest.raises(UsageError, match=said):
            result.predict(TEXTS | wrong)
    with pytest.raises(UsageError, match="X: has no column hue, which"):
        result.predict(table.drop(columns="hue"))


def test_arrays_are_clipped_where_that_is_asked_for():
    X, y = arrays()
    given = {"loss": "huber", "bounds": {"columns": 0.5, "norm": 0.6, "label": 0.2}}
    with pytest.raises(UsageError, match="exceeds its declared bound"):
        problem_from_arrays(X, y, **given)
    data = problem_from_arrays(X, y, clip_to_bounds=True, **given).dataset
    assert np.abs(data.X).max() == 0.5 and np.abs(data.y).max() == 0.2
    assert data.row_norms.max() <= 0.6 * (1.0 + 1e-12)
    wider = problem_from_arrays(X, y, clip_to_bounds=True, intercept=2, **given).dataset
    np.testing.assert_array_equal(wider.X, np.column_stack([data.X, np.full(N, 2.0)]))
    assert wider.bounds.norm == pytest.approx(math.hypot(0.6, 2.0))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"clip_to_bounds": True}, "clip_to_bounds=True: needs bounds"),
        ({"intercept": -1}, "intercept=-1: must be a finite number >= 0"),
        ({"loss": "huber", "positive": [1, -1]}, r"positive=\[1, -1\]"),
        ({"positive": "yes"}, r"positive=\['yes'\].*some, but not all.*-1, 1"),
    ],
)
def test_wrong_preparations_are_refused(given, said):
    with pytest.raises(UsageError, match=said):
        problem_from_arrays(*arrays(), **{"loss": "logistic"} | given)


@each("kind", [list, np.array, pd.Series, pd.Categorical])
@each(("no", "yes"), [("no", "yes"), (0, 1), (False, True)])
def test_labels_are_named_as_the_user_has_them(kind, no, yes):
    X, y = arrays()
    labels = kind([yes if one > 0.0 else no for one in y])
    problem = problem_from_arrays(X, labels, loss="logistic", positive=yes)
    np.testing.assert_array_equal(problem.dataset.y, y)
    if no != "no":  # 0 and 1, and booleans, need no name
        read = problem_from_arrays(X, labels, loss="logistic").dataset
        np.testing.assert_array_equal(read.y, y)
        assert read.uncharged == ("classes",)
        return
    with pytest.raises(UsageError, match=r"what becomes \+1"):
        problem_from_arrays(X, labels, loss="logistic")


def test_a_column_of_text_is_named():
    table = named_frame(arrays()[0]).assign(dose="high")
    with pytest.raises(UsageError, match='X: column "dose" holds .*must be numbers'):
        problem_from_arrays(table, arrays()[1], loss="logistic")


WORDS = ["yes", None, "no", "yes"]
FLAGS = [True, None, False, True]


@each(
    ("y", "how"),
    [
        (WORDS, {}),
        (["yes", math.nan, "no", "yes"], {}),
        (np.array(WORDS, object), {}),
        (np.array(["yes", math.nan, "no", "yes"]), {}),
        (np.array([b"yes", b"nan", b"no", b"yes"]), {}),
        (pd.Series(WORDS), {}),
        (pd.Series(WORDS, dtype="string"), {}),
        (pd.Series(WORDS, dtype="category"), {}),
        (pd.Series(["yes", pd.NA, "no", "yes"], dtype=object), {}),
        (pd.Series(["yes", pd.NaT, "no", "yes"], dtype=object), {}),
        (pd.Series(["yes", "NA", "no", "yes"]), {}),
        (["yes", "", "no", "yes"], {}),
        (pd.Series(pd.to_datetime(["2020-01-01", None])), {"positive": "2020-01-01"}),
        *(
            (y, how)
            for how in ({"positive": 1}, {"classes": [0, 1]}, {"loss": "squared"}, None)
            for y in (
                [1, math.nan, 0, 1],
                FLAGS,
                pd.Series([1, None, 0, 1]),
                pd.Series([1, None, 0, 1], dtype="Int64"),
                pd.Series([1, None, 0, 1], dtype="Float64"),
                pd.Series(FLAGS, dtype="boolean"),
                pd.Series([1, pd.NA, 0, 1], dtype=object),
            )
        ),
    ],
)
def test_a_label_that_is_missing_is_refused_in_every_container(y, how):
    """They became -1, or raised a TypeError."""
    how = {"positive": "yes"} if how == {} else how or {}
    said = "y: has no value in record 1$|y holds a value that is not finite: record 1,"
    with pytest.raises(UsageError, match=said):
        problem_from_arrays(np.eye(len(y)), y, **{"loss": "logistic"} | how)


@each(
    "y",
    [
        [0, 1, 1, 0],
        [False, True, True, False],
        np.array([0.0, 1.0, 1.0, 0.0]),
        np.array([False, True, True, False], object),
        pd.Series([0, 1, 1, 0], dtype="Int64"),
        pd.Series([False, True, True, False], dtype="boolean"),
        pd.Series([0, 1, 1, 0], dtype="category"),
    ],
)
def test_labels_0_and_1_and_booleans_are_taken_as_a_csv_takes_them(y):
    for how, uncharged in (({}, ("classes",)), ({"classes": [0, 1]}, ())):
        data = problem_from_arrays(np.eye(4), y, loss="logistic", **how).dataset
        np.testing.assert_array_equal(data.y, [-1, 1, 1, -1])
        assert data.uncharged == uncharged
    plain = problem_from_arrays(np.eye(4), y, loss="squared").dataset
    np.testing.assert_array_equal(plain.y, [0, 1, 1, 0])
    assert plain.uncharged == ()
    own = problem_from_arrays(np.eye(4), [-1, 1, 1, -1], loss="logistic")
    assert own.dataset.uncharged == ()
    result = fit(own, "gd", epsilon=math.inf, n_iter=3)
    assert result.score(np.eye(4), y) == result.score(np.eye(4), [-1, 1, 1, -1])


@each(
    ("y", "how", "expected"),
    [
        ([1.0, 2.0, 1, 2], {"positive": ["1"]}, [1, -1, 1, -1]),
        (["1.0", "2", "1", "2"], {"positive": [1]}, [1, -1, 1, -1]),
        ([10**15 + 1, 10**15 + 2, 1], {"positive": [10**15 + 1]}, [1, -1, -1]),
        ([True, False], {"positive": "True"}, [1, -1]),
        (["True", "False"], {"positive": True}, [1, -1]),
        ([date(2020, 1, 2), date(2020, 1, 1)], {"positive": "2020-01-02"}, [1, -1]),
        (
            pd.to_datetime(["2020-01-02", "2020-01-01"]),
            {"positive": [date(2020, 1, 2)]},
            [1, -1],
        ),
        ([100000, 100000.0, 7], {"positive": ["100000"]}, [1, 1, -1]),
    ],
)
def test_labels_of_arrays_are_told_by_the_rule_of_files(y, how, expected):
    found = problem_from_arrays(np.eye(len(y)), y, loss="logistic", **how).dataset.y
    np.testing.assert_array_equal(found, expected)


CODES = {"code": ["A1", "1E5", "10E4", "100000", "7"]}


@each(
    ("table", "told"),
    [
        (CODES, [0, 1, 2, 3, 4]),
        ({"code": [100000, 7]}, [3, 4]),
        ({"code": [7.0]}, [4]),
        ({"code": pd.Categorical(["A1", "7"])}, [0, 4]),
        ({"code": [100000.0]}, "holds a word in row 0"),
        ({"code": ["7.0"]}, "holds a word in row 0"),
        ({"code": ["A1", None]}, "has no value in row 1"),
        ({"code": ["A1", math.nan]}, "has no value in row 1"),
        ({"code": [7, math.nan]}, "has no value in row 1"),
    ],
)
def test_a_word_of_a_table_is_the_word_of_the_file(table, told, tmp_path):
    path = tmp_path / "codes.csv"
    rows = [f"{code},{j % 2}" for j, code in enumerate(CODES["code"])]
    path.write_text("\n".join(["code,y", *rows]))
    problem = load_problem("file", "logistic", path=str(path), onehot=CODES)
    result = fit(problem, "gd", epsilon=math.inf, n_iter=2)
    model = replace(result.model, w=np.arange(5.0))
    if isinstance(told, str):
        with pytest.raises(UsageError, match=f'column "code" {told}'):
            model.decision_function(pd.DataFrame(table))
        return
    for X in (pd.DataFrame(table), table):
        np.testing.assert_array_equal(model.decision_function(X), told)


PAIR = {"a": [1.0, 2.0], "b": [3.0, 4.0]}


@each("intercept", [None, 1.0])
@each(
    ("X", "said"),
    [
        ([[1.0, 2.0], [math.nan, 1.0]], "X: has no value in record 1, feature 0"),
        ([[1.0, 2.0], [None, 1.0]], "X: has no value in record 1, feature 0"),
        (pd.DataFrame(PAIR | {"a": [1.0, None]}), "X: has no value in record 1"),
        (
            pd.DataFrame(PAIR | {"a": pd.array([1, None], "Int64")}),
            'X: column "a": has no value in record 1',
        ),
        (PAIR | {"b": [1.0, math.nan]}, "X: has no value in record 1, feature 1"),
        (PAIR | {"b": [1.0, None]}, 'X: column "b": has no value in record 1'),
        (sp.csr_array([[1.0, math.nan]]), "not finite: record 0, feature 1"),
        ([[math.inf, 1.0]], "not finite: record 0, feature 0"),
        ([[1e308, 1e308], [-1e308, 1e308]], "the margin of record 0 overflows"),
        (np.ma.array([[1.0, 2.0]], mask=[[0, 1]]), "not masked ones"),
        (pd.DataFrame([[1, 2, 3]], columns=["a", "a", "b"]), '"a" appears twice'),
        (pd.DataFrame([[1, 2, 3]], columns=["a", "b", "b"]), '"b" appears twice'),
        (pd.DataFrame([[1, 2]], columns=[0, 0]), "heading 0 appears twice"),
    ],
)
def test_records_without_a_margin_are_refused_and_not_called_negative(
    X, said, intercept
):
    table = pd.DataFrame(np.eye(4)[:, :2], columns=["a", "b"])
    y = [1, 1, -1, -1]
    how = {"loss": "logistic", "intercept": intercept}
    result = fit(problem_from_arrays(table, y, **how), "gd", epsilon=math.inf, n_iter=2)
    model = replace(result.model, w=np.array([1e6, -1e6, 1.0][: result.w.size]))
    for ask in (
        model.predict,
        model.decision_function,
        lambda X: model.score(X, [1] * len(X)),
    ):
        if ask == model.predict or not sp.issparse(X):
            with pytest.raises(UsageError, match=said):
                ask(X)
    if isinstance(X, pd.DataFrame) and X.columns.has_duplicates:
        with pytest.raises(UsageError, match=said):
            problem_from_arrays(X, [1], loss="logistic")


@each(
    "y",
    [
        [1, math.nan],
        [1, None],
        pd.Series([1, None]),
        pd.Series([1, None], dtype="Int64"),
        pd.Series([True, None], dtype="boolean"),
        ["yes", None],
    ],
)
@each("loss", ["logistic", "squared"])
def test_a_score_of_missing_labels_is_refused(y, loss):
    problem = problem_from_arrays(np.eye(4)[:, :2], [1, 1, -1, -1], loss=loss)
    result = fit(problem, "gd", epsilon=math.inf, n_iter=2)
    with pytest.raises(UsageError, match="^y: has no value in record 1"):
        result.score(np.eye(2), y)
