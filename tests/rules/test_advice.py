"""Test the expected error of untuned algorithms, `algorithm=auto` and `advise`."""

import json
import math
import re
import warnings

import numpy as np
import pandas as pd
import pytest

from benchmarks.rules import UNTUNED, cells_judged, fit_rows, guesses_of, rows_judged
from dp_erm_bench import (
    DPClassifier,
    DPRegressor,
    advise,
    fit,
    problem_from_arrays,
    problem_from_records,
    sweep,
)
from dp_erm_bench.cli.main import main
from dp_erm_bench.errors import NoGain, UsageError
from dp_erm_bench.experiment.automatic import resolve_auto, untuned_sentence
from dp_erm_bench.experiment.lines import FitLine
from dp_erm_bench.rules import advice
from dp_erm_bench.rules.advice import evidence, is_good, public_of_cell, rank_rules
from tests.loops import each
from tests.rules.test_settings import BUDGET, posed

ASKED = {"n": 40_000, "p": 30, "norm": 4.0, "epsilon": 1.0}
HOPELESS = BUDGET | {"epsilon": 1e-3}


def hopeless(**how):
    """A problem with 40 records and 200 features."""
    random = np.random.default_rng(0)
    X, y = random.uniform(-1.0, 1.0, (40, 200)), np.repeat([-1.0, 1.0], 20)
    given = {"loss": "logistic", "penalty": "l2", "strength": 1e-3}
    return problem_from_arrays(X, y, bounds={"columns": 1.0}, **{**given, **how})


def test_on_left_out_families_auto_is_near_the_best_and_its_ranges_hold():
    rows = pd.DataFrame(rows_judged(cells_judged())).set_index("kind")
    most = {"ridge": 2.0, "huber": 2.4, "numbers": 2.4, "ball": 4.0}
    assert all(rows["times"][kind] <= most[kind] for kind in rows.index)
    most = {"ridge": 5.0, "huber": 5.0, "numbers": 9.0, "ball": 12.0}
    assert all(rows["nine in ten"][kind] <= most[kind] for kind in rows.index)
    # On a ball the best may be at the optimum, so that a quotient says little.
    assert (rows["worst"].drop("ball") <= 12).all()
    cells = rows["cells"]
    assert rows["above"].sum() <= 0.05 * cells.sum()
    shares = {key: (rows[key] * cells).sum() / cells.sum() for key in rows.columns[6:]}
    assert 0.65 <= shares["covered"] <= 0.92 and shares["width"] <= 0.85
    assert 0.65 <= shares["gain"] <= 0.92 and shares["gain_width"] <= 0.6


def test_ranges_that_know_nothing_are_found_out(monkeypatch):
    def constant(cells, values, public, key):
        """Return the range of all cells, wherever one asks."""
        return advice.ForecastRange(np.median(values), *np.quantile(values, (0.1, 0.9)))

    monkeypatch.setattr(advice, "_range_of", constant)
    rows = pd.DataFrame(rows_judged(cells_judged()))
    cells = rows["cells"] / rows["cells"].sum()
    assert (rows["covered"] * cells).sum() > 0.6  # they are wide enough
    assert (rows["width"] * cells).sum() > 0.85  # and say nothing


def test_no_record_chooses():
    ball = {"strength": None, "constraint": {"name": "l1_ball", "radius": 1.0}}
    for how in ({}, {**ball, "penalty": "none"}):
        for epsilon in (1e-3, 0.3, 1.0, 10.0):
            sound, poisoned = hopeless(**how), hopeless(**how)
            far = np.full_like(poisoned.dataset.X, math.nan)
            object.__setattr__(poisoned.dataset, "X", far)
            object.__setattr__(poisoned.dataset, "y", far[:, 0])
            budget, told = BUDGET | {"epsilon": epsilon}, set()
            for one in (sound, poisoned):
                name, params = resolve_auto(one, budget)
                line = FitLine(name, one, params, budget, "certified")
                told.add((name, str(line.params), untuned_sentence(line)))
            assert len(told) == 1


def test_auto_is_the_run_of_what_it_names():
    problem = posed()
    name, params = resolve_auto(problem, BUDGET)
    own = fit(problem, name, epsilon=1.0, seed=3, **params)
    auto = fit(problem, "auto", epsilon=1.0, seed=3)
    assert auto.algorithm == name == "gd" and auto.rule.startswith("gd-3: ")
    assert np.array_equal(auto.w, own.w)
    ball = {"penalty": "none", "constraint": {"name": "l1_ball", "radius": 1.0}}
    # Numbers, and more features than the other was judged at, have gd alone.
    many = public_of_cell("ridge", 3000.0, 600)
    numbers = public_of_cell("ridge", 3000.0, 30, signs=False)
    signs = public_of_cell("ridge", 3000.0, 30)
    named = [[one.algorithm for one in rank_rules(p)] for p in (many, numbers, signs)]
    assert named == [["gd"], ["gd"], ["feature_covariance", "gd"]]
    few = hopeless(**ball, strength=None)
    assert resolve_auto(few, BUDGET)[0] == "frank_wolfe"
    # The vertices of an l2 ball are too many: the next one takes the problem.
    ball["constraint"] = {"name": "l2_ball", "radius": 1.0}
    assert resolve_auto(hopeless(**ball, strength=None), BUDGET)[0] == "gd"


def test_nothing_is_an_answer_that_costs_nothing():
    problem = hopeless()
    with pytest.warns(NoGain, match="n=40, p=200, epsilon=0.001: w = 0") as caught:
        found = fit(problem, "auto", epsilon=1e-3)
    assert not found.w.any() and found.epsilon_certified == 0.0
    (told,) = [str(one.message) for one in caught if one.category is NoGain]
    n = int(told.partition("about n=")[2].split()[0])
    random = np.random.default_rng(0)
    X, y = random.uniform(-1.0, 1.0, (n, 200)), np.repeat([-1.0, 1.0], n // 2)
    given = {"loss": "logistic", "penalty": "l2", "strength": 1e-3}
    enough = problem_from_arrays(X, y, bounds={"columns": 1.0}, **given)
    assert "n_iter" not in [
        k for k, v in resolve_auto(enough, HOPELESS)[1].items() if v == 0
    ]
    # A set without 0 has no such answer.
    simplex = {"penalty": "none", "strength": None, "constraint": {"name": "simplex"}}
    assert resolve_auto(hopeless(**simplex), HOPELESS)[1]["n_iter"] == "auto"
    assert resolve_auto(problem, BUDGET | {"epsilon": math.inf}) == (
        "gd",
        {"n_iter": "auto", "step": "auto", "clip": "auto"},
    )


def test_an_estimator_takes_nothing_for_an_answer():
    random = np.random.default_rng(0)
    X = random.uniform(-1.0, 1.0, (40, 200))
    how = {"epsilon": 1e-3, "bounds": {"columns": 1.0, "label": 5.0}}
    with pytest.warns(NoGain, match="w = 0 is expected"):
        model = DPClassifier(**how, classes=["no", "yes"]).fit(X, ["no", "yes"] * 20)
    assert set(model.predict(X)) == {"no"} and model.epsilon_certified_ == 0.0
    assert model.algorithm_ == "gd" and not model.coef_.any()
    with pytest.warns(NoGain, match="w = 0 is expected"):
        numbers = DPRegressor(**how).fit(X, X[:, 0])
    assert not numbers.predict(X).any()


@each(
    "algorithm, epsilon, given, said",
    [
        ("gd", 1.0, {}, ""),
        ("gd", 1e-3, {}, "is expected to end no better than w = 0"),
        ("gd", 1e-3, {"n_iter": 5}, ""),
        ("svrg", 1.0, {"batch_size": 10}, "no rule of its settings .* algorithm=auto"),
        ("svrg", 1.0, {"batch_size": 10, "step": 0.1}, ""),
        ("newton", 1.0, {}, "no rule of its settings"),
        ("gd", math.inf, {}, ""),
    ],
)
def test_settings_that_nobody_gave_are_spoken_of(algorithm, epsilon, given, said):
    problem = posed() if epsilon >= 1.0 else hopeless()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", NoGain)
        fit(problem, algorithm, epsilon=epsilon, seed=0, **given)
    told = [str(one.message) for one in caught if one.category is NoGain]
    assert len(told) == bool(said)
    assert not said or re.search(said, told[0])


def test_a_sweep_names_what_auto_is_and_speaks_of_nothing(tmp_path, capsys):
    data = {"name": "log1", "n": 60, "p": 3, "bounds": {"columns": 3.0}}
    block = {"dataset": {**data, "clip_to_bounds": True}, "loss": "logistic"}
    block |= {"penalty": {"name": "l2", "strength": 0.1}, "seed": [0]}
    block |= {"algorithm": "auto", "budget": {"epsilon": [1e-4, 10.0]}}
    table = sweep(block, tmp_path / "out", progress=False)
    ends = table.groupby("epsilon")["epsilon_certified"].last()
    assert set(table["algorithm"]) == {"gd"} and ends[1e-4] == 0.0 and ends[10.0] > 9.0
    assert "w = 0 is expected to be as good as any rule" in capsys.readouterr().err
    with pytest.raises(UsageError, match="takes no parameters; name one for step"):
        sweep({**block, "algorithm": {"name": "auto", "step": 1.0}}, tmp_path / "no")
    with pytest.raises(UsageError, match="takes no parameters; name one for step"):
        tune = {"axes": {"step": [1.0]}, "seeds": [0], "report": [1]}
        own = {key: value for key, value in block.items() if key != "seed"}
        sweep({**own, "tune": tune}, tmp_path / "no")


def test_auto_is_for_risks():
    problem = problem_from_records(np.eye(4), bounds={"norm": 1.0})
    with pytest.raises(UsageError, match="algorithm=auto: is for empirical risk"):
        fit(problem, "auto", epsilon=1.0)


def test_what_refuses_a_problem_is_not_named():
    """A kink is for steps along samples; of delta = 0 the refusal is that of gd."""
    hinge = posed(loss="hinge")
    assert resolve_auto(hinge, BUDGET)[0] == "sgd"
    with pytest.raises(UsageError, match="delta=0"):
        fit(hopeless(), "auto", epsilon=1e-3, delta=0.0)
    ball = {"penalty": "none", "constraint": {"name": "l2_ball", "radius": 5.0}}
    with pytest.warns(NoGain, match="w = 0 is expected"):
        found = fit(hopeless(**ball, strength=None), "auto", epsilon=1e-3)
    assert found.epsilon_certified == 0.0


def test_what_may_be_a_default_was_judged():
    good = {key for key in evidence() if is_good(*key)}
    named = {(kind, one) for kind, all_ in advice.CANDIDATES.items() for one in all_}
    assert named < good and ("ridge", "newton") not in good
    assert not is_good("ridge", "svrg")


@each(
    "given, said",
    [
        ({"n": 0}, "^n=0: must be an integer from 1"),
        ({"n": 10**400}, "must be an integer from 1"),
        ({"p": 10**12}, "^p=1000000000000: must be"),
        ({"norm": "far"}, "^norm=far: must be a number > 0"),
        ({"strength": 0.0}, "^strength=0.0: must be"),
        ({"loss": "hinge"}, "^loss=hinge: must be smooth"),
        ({"delta": 0}, "^delta=0: must be > 0"),
        ({"nonzeros": 31}, "^nonzeros=31: must be"),
        ({"p": 2.5}, "^p=2.5: must be"),
        ({"norm": -1.0}, "^norm=-1.0: must be a number > 0"),
        ({"norm": math.nan}, "^norm=nan: must be"),
        ({"epsilon": math.inf}, "^epsilon=inf: must be finite"),
        ({"epsilon": -1.0}, "^epsilon=-1.0: must be"),
        ({"loss": "logistics"}, "did you mean logistic"),
        ({"loss": "squared"}, "^label=null: must be given: a public bound"),
        ({"algorithm": "svrg"}, "^algorithm=svrg: must be one of .* have a rule"),
        ({"nonzeros": 0}, "^nonzeros=0: must be"),
        ({"delta": 2.0}, "^delta=2.0: must be"),
    ],
)
def test_advice_refuses_in_one_sentence(given, said):
    with pytest.raises(UsageError, match=said) as caught:
        advise(**{**ASKED, **given})
    assert "\n" not in str(caught.value)


def test_advice_is_what_auto_does():
    problem = posed(strength=1 / 300)
    R = problem.dataset.bounds.norm
    found = advise(n=300, p=4, norm=R, epsilon=1.0)
    auto = fit(problem, "auto", epsilon=1.0, seed=0)
    assert found.algorithm == auto.algorithm
    ball = {"penalty": "none", "constraint": {"name": "l1_ball", "radius": 2.0}}
    own = posed(strength=None, **ball)
    there = advise(n=300, p=4, norm=R, column=1.0, epsilon=1.0, radius=2.0)
    run = fit(own, "auto", epsilon=1.0, seed=0)
    assert there.algorithm == run.algorithm
    assert {k: run.params[k] for k in there.settings} == dict(there.settings)
    assert {k: auto.params[k] for k in found.settings} == dict(found.settings)


def test_advice_says_what_it_rests_on(capsys):
    asked = [word for key, value in ASKED.items() for word in (f"--{key}", str(value))]
    assert main(["advise", *asked, "--rows"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Run feature_covariance, with n_iter=")
    assert "nothing of classes, sparsity" in said
    published = set(pd.read_csv(UNTUNED)["panel"])
    panels = {line.split(" ")[1] for line in said.splitlines()[-8:]}
    assert panels <= published
    assert main(["advise", *asked, "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["algorithm"] == "feature_covariance" and len(plain["cells"]) == 8
    assert main(["advise", *asked, "--n", "20", "--p", "4000"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Do not fit: ") and "extrapolated" in said
    assert (
        main(["advise", *asked, "--loss", "squared", "--label", "1", "--radius", "2"])
        == 0
    )
    assert "extrapolated" in capsys.readouterr().out
    assert main(["advise", *asked, "--p", "4000", "--nonzeros", "5"]) == 0
    assert "one generated data set" in capsys.readouterr().out


def test_a_guess_is_judged_on_the_families_that_did_not_choose_it():
    rows = [
        {"algorithm": "gd", "kind": "l2", "panel": f"{family}_l2", "family": family}
        | {"epsilon": 1.0, "constants": guess, "of_zero": value}
        for guess, values in (("a", (0.1, 0.1, 4.0)), ("b", (0.2, 0.2, 0.2)))
        for family, value in zip("xyz", values, strict=True)
    ]
    (found,) = fit_rows(pd.DataFrame(rows))
    assert found["constants"] == "b" and found["of_zero"] == pytest.approx(0.2)
    # Without z the first guess is the best, and z pays for it.
    assert found["left_out"] == pytest.approx((0.2 * 0.2 * 4.0) ** (1 / 3))
    assert found["above"] == pytest.approx(1 / 3)
    assert [*guesses_of(["a=1,2", "b=3"])] == [{"a": 1, "b": 3}, {"a": 2, "b": 3}]
    with pytest.raises(UsageError, match="a=x: must be NAME=VALUE"):
        [*guesses_of(["a=x"])]
