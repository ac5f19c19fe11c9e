"""Test the execution of a batch: records are complete, even after errors."""

import json
import math
import re

import numpy as np
import pytest

from dp_erm_bench import registry
from dp_erm_bench.accounting.bounds import gdp_epsilon
from dp_erm_bench.datasets.spec import dataset_spec
from dp_erm_bench.experiment.lines import Setting, Trial
from dp_erm_bench.runner import execute
from dp_erm_bench.runner.execute import problem_of_trial, run_batch
from dp_erm_bench.solvers.one_solve import SingleAnswer
from tests.loops import each
from tests.serving import (
    RISKS,
    constraint_of,
    fits_noise,
    known,
    needs_bounds,
    parameters,
)

ALGORITHMS = RISKS
STRENGTH = 0.1
FACTS = {
    "references",
    "n",
    "p",
    "loss",
    "penalty",
    "strength",
    "constraint",
    "params",
    "delta",
    "accountant",
    "calibration",
    "epsilon_certified",
    "z",
    "uncharged",
    "smoothness",
    "batch_size",
    "optimum",
    "optimum_reason",
}
ROWS = {"iteration", "passes", "seconds", "objective", "nnz"}
TESTS = {"test_objective", "test_risk", "test_accuracy", "balanced_accuracy", "auc"}


def spec_of(algorithm, epsilon=1.0, n_checkpoints=5, dataset=None, **given):
    data = {
        **dataset_spec("log1"),
        "n": 80,
        "p": 12,
        **(dataset or {}),
    }
    if needs_bounds(algorithm):
        data |= {"bounds": {"columns": 3.0, "norm": 3.0}, "clip_to_bounds": True}
    params = known(algorithm, n_iter=12, clip=1.0) | given.pop("params", {})
    return {
        "dataset": data,
        "loss": {"name": "logistic"},
        "penalty": {"name": "l2", "strength": STRENGTH},
        "constraint": {"name": constraint_of(algorithm)},
        "algorithm": {"name": algorithm, "params": params},
        "budget": {"epsilon": epsilon, "delta": "1/n^2", "adjacency": "replace_one"},
        "calibration": "certified",
        "seed": 0,
        "n_checkpoints": n_checkpoints,
        **given,
    }


def trial(name, algorithm, **given):
    spec = spec_of(algorithm, **given)
    setting = Setting(spec, (), (), f"digest {name}")
    return Trial(setting, spec["seed"], spec["n_checkpoints"], f"key {name}")


def check(record):
    named = {"identity", "batch"} if record["trajectory"] else set()
    parts = {"key", "status", "message", "facts", "trajectory"}
    assert set(record) == parts | named
    text = json.dumps(record, allow_nan=False)
    assert json.loads(text) == record


@each("algorithm", ALGORITHMS)
@each("epsilon", [1.0, "inf"])
def test_records_are_complete_and_plain(algorithm, epsilon):
    (record,) = run_batch([trial("a", algorithm, epsilon=epsilon)])
    check(record)
    assert (record["key"], record["status"], record["message"]) == ("key a", "ok", "")
    facts, rows = record["facts"], record["trajectory"]
    told = {"predicted_excess"} if algorithm == "newton" else set()
    assert (set(facts), set(rows)) == (FACTS, ROWS | told | {"train_risk"})
    kind = registry.target("algorithm", algorithm)
    lasts = not issubclass(kind, SingleAnswer)
    assert rows["iteration"] == ([0, 3, 6, 9, 12] if lasts else [0, 1])
    assert {len(rows[k]) for k in ROWS} == {len(rows["iteration"])}
    assert (facts["n"], facts["p"], facts["batch_size"]) == (80, 12, 1)
    bounded = needs_bounds(algorithm)
    uses = ["smoothness"] if kind.uses_smoothness and not bounded else []
    assert facts["uncharged"] == [*uses, *kind.uncharged]
    assert facts["smoothness"] == ("public" if bounded else "data")
    assert facts["delta"] == 1.0 / 80**2
    assert (facts["penalty"], facts["strength"]) == ("l2", STRENGTH)
    if epsilon == "inf":
        assert facts["z"] == 0.0 and facts["epsilon_certified"] is None
    else:
        least = 0.9 if fits_noise(algorithm) else 0.0
        assert facts["z"] > 0.0 and least < facts["epsilon_certified"] <= 1.0
    problem = problem_of_trial(spec_of(algorithm))
    assert facts["optimum"] == pytest.approx(problem.optimum.value)
    assert facts["optimum_reason"] == ""


@each("algorithm", ALGORITHMS)
def test_all_parameters_are_recorded_even_those_not_given(algorithm):
    given = known(algorithm, step=0.25, ridge=0.5)
    (record,) = run_batch([trial("a", algorithm, params=given)])
    params = record["facts"]["params"]
    assert set(params) == parameters(algorithm)
    expected = known(algorithm, **given, clip=1.0, n_iter=12)
    assert {name: params[name] for name in expected} == expected


@each("algorithm", ALGORITHMS)
def test_a_batch_of_trials_is_the_trials_one_by_one(algorithm):
    steps = [0.1, 0.5, 1.0, 0.3, 0.7]
    trials = [
        trial(k, algorithm, params=known(algorithm, step=s, clip=1.0 + k))
        for k, s in enumerate(steps)
    ]
    if not registry.target("algorithm", algorithm).batchable:
        trials = trials[:1]
    together, backwards = run_batch(trials), run_batch(trials[::-1])[::-1]
    for one, record, other in zip(trials, together, backwards, strict=True):
        (single,) = run_batch([one])
        assert record["key"] == single["key"] == one.key
        for a in (record, other):
            assert a["facts"]["batch_size"] == len(trials)
            same = {**a["facts"], "batch_size": 1}
            assert same == single["facts"]
            for column in ("objective", "nnz", "iteration", "passes"):
                np.testing.assert_allclose(
                    a["trajectory"][column], single["trajectory"][column], rtol=1e-9
                )


@each("algorithm", ALGORITHMS)
def test_runs_repeat_to_the_bit(algorithm):
    trials = [trial(k, algorithm) for k in range(3)]
    alone = not registry.target("algorithm", algorithm).batchable
    groups = [[one] for one in trials] if alone else [trials]
    first, second = ([r for g in groups for r in run_batch(g)] for _ in range(2))
    for a, b in zip(first, second, strict=True):
        del a["trajectory"]["seconds"], b["trajectory"]["seconds"]
        assert a == b
    ends = {record["trajectory"]["objective"][-1] for record in first}
    assert len(ends) == 3


def test_checkpoints_do_not_change_the_numbers():
    def ends(count):
        made = trial("a", "random_cd", n_checkpoints=count)
        return run_batch([made])[0]["trajectory"]["objective"][-1]

    assert ends(2) == pytest.approx(ends(13), rel=1e-12)


@pytest.mark.parametrize(
    "given, words",
    [
        ({"params": {"clip": None}}, "clip"),
        ({"calibration": "authors"}, "calibration=authors"),
        ({"params": {"smoothness": "public"}}, "smoothness=public"),
        (
            {
                "params": {"noise": "poster", "rule": "GS-q"},
                "penalty": {"name": "l1", "strength": 0.1},
            },
            "rule=GS-s",
        ),
    ],
)
def test_pairs_that_are_not_served_are_skipped_with_the_reason(given, words):
    trials = [trial(k, "greedy_cd", **given) for k in "ab"]
    records = run_batch(trials)
    for one, record in zip(trials, records, strict=True):
        check(record)
        assert (record["key"], record["status"]) == (one.key, "skipped")
        assert words in record["message"] and "\n" not in record["message"]


@pytest.mark.parametrize(
    "given, words",
    [
        ({"params": {"step": -1.0}}, "step=-1.0"),
        ({"params": {"stp": 1.0}}, "did you mean step"),
        ({"dataset": {"p": 0}}, "p"),
        ({"loss": {"name": "ridge"}}, "loss=ridge"),
    ],
)
def test_wrong_values_are_errors_of_one_sentence(given, words):
    (record,) = run_batch([trial("a", "greedy_cd", **given)])
    check(record)
    assert record["status"] == "error"
    assert words in record["message"] and "Traceback" not in record["message"]


def test_a_fault_of_the_code_is_an_error_with_its_place(monkeypatch):
    def broken(*given):
        raise ZeroDivisionError("by hand")

    monkeypatch.setattr(execute, "Run", broken)
    records = run_batch([trial(k, "greedy_cd") for k in "ab"])
    for record in records:
        check(record)
        assert record["status"] == "error"
        place = r"ZeroDivisionError: by hand \(test_execute.py, line \d+\)\n"
        assert re.match(place, record["message"])
        assert "Traceback" in record["message"]


def test_interruptions_are_not_swallowed(monkeypatch):
    def stopped(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(execute, "Run", stopped)
    with pytest.raises(KeyboardInterrupt):
        run_batch([trial("a", "greedy_cd")])


def test_divergence_is_a_status_of_that_trial_alone():
    loss = {"loss": {"name": "squared"}}
    given = {"n_iter": 400, "clip": None, "batch_size": "full"}
    trials = [
        trial(step, "sgd", epsilon="inf", params={**given, "step": step}, **loss)
        for step in (0.5, 1e30)
    ]
    fine, diverged = run_batch(trials)
    check(fine)
    check(diverged)
    assert (fine["status"], diverged["status"]) == ("ok", "diverged")
    assert fine["message"] == "" and "not finite" in diverged["message"]
    assert diverged["trajectory"]["objective"][-1] is None
    assert math.isfinite(diverged["trajectory"]["objective"][0])
    assert fine["trajectory"]["objective"][-1] < fine["trajectory"]["objective"][0]


def test_of_an_iterate_that_is_not_finite_nothing_is_measured():
    given = {"penalty": {"name": "none"}, "dataset": {"test_fraction": 0.25}}
    (record,) = run_batch([trial("a", "gd", params={"step": 1e308}, **given)])
    check(record)
    assert record["status"] == "diverged"
    assert record["message"] == "an iterate is not finite"
    for measure in ("objective", "test_accuracy", "auc"):
        *_, last = record["trajectory"][measure]
        assert last is None
    assert record["trajectory"]["test_accuracy"][0] is not None


def test_an_optimum_that_is_not_certified_is_null_with_the_reason():
    given = {"dataset": {"n": 20, "p": 40}, "penalty": {"name": "none"}}
    (record,) = run_batch([trial("a", "greedy_cd", **given)])
    check(record)
    assert record["status"] == "ok"
    assert record["facts"]["optimum"] is None
    assert record["facts"]["optimum_reason"]


def test_held_out_records_are_measured():
    (record,) = run_batch([trial("a", "greedy_cd", dataset={"test_fraction": 0.25})])
    check(record)
    rows = record["trajectory"]
    assert {len(rows[k]) for k in ROWS | TESTS} == {5}
    assert all(0.0 <= value <= 1.0 for value in rows["test_accuracy"])
    models = record["facts"]["references"]
    assert set(models) == {"optimum", "base_rate"} and models["base_rate"]["auc"] == 0.5
    # A sort at every checkpoint would take a fifth of the time.
    assert rows["auc"][:-1] == [None] * 4 and 0.0 <= rows["auc"][-1] <= 1.0


def test_standardisation_is_listed_as_uncharged():
    (record,) = run_batch([trial("a", "sgd", dataset={"standardise": True})])
    assert record["facts"]["uncharged"] == ["standardisation", "smoothness"]


def test_printed_constants_are_recorded_with_their_real_cost():
    (record,) = run_batch([trial("a", "random_cd", calibration="paper")])
    facts = record["facts"]
    assert facts["calibration"] == "paper"
    # T = 12 times 1 / (2 z^2) with z^2 = 3 T log(1/delta): the exact epsilon of
    # a Gaussian of mu = 1 / sqrt(3 log(n^2)), less than the 1 that is printed.
    mu = 1.0 / math.sqrt(3.0 * math.log(80**2))
    assert facts["epsilon_certified"] == pytest.approx(gdp_epsilon(mu, 80**-2))
    assert facts["epsilon_certified"] < 0.6


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_algorithm_is_warmed_up_once_and_runs(monkeypatch, name):
    seen = []
    record = execute.Run.record
    execute.warm_up.cache_clear()
    monkeypatch.setattr(
        execute.Run,
        "record",
        lambda run, rows: record(run, rows) and seen.extend(run.solvers),
    )
    for _ in range(2):
        execute.warm_up(name)
    (solver,) = seen
    assert type(solver) is registry.target("algorithm", name)


def test_a_solver_of_ones_own_runs_in_its_trials_only(monkeypatch):
    seen = []
    monkeypatch.setattr(registry, "target", lambda *given: seen.append(given))
    execute.warm_up("somewhere/own_solver.py")
    assert seen == []


def test_what_cannot_be_warmed_up_is_left_to_its_trials(monkeypatch):
    def fail(*given):
        raise ArithmeticError("not on four records")

    execute.warm_up.cache_clear()
    monkeypatch.setattr(execute, "Run", fail)
    execute.warm_up("sgd")
