"""Test tasks: trials that are not fits use the same plan, store and workers."""

import contextlib
import io
import json
import shutil

import pandas as pd
import pytest

from dp_erm_bench import registry
from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.expand import expand_blocks
from dp_erm_bench.experiment.lines import study_of, task_of
from dp_erm_bench.experiment.schema import blocks_of
from dp_erm_bench.report import figure
from dp_erm_bench.report.make import draw_and_judge
from dp_erm_bench.report.studies import Accounting, Audit
from dp_erm_bench.results.store import Store
from dp_erm_bench.results.table import load_results
from dp_erm_bench.runner.execute import run_batch
from dp_erm_bench.runner.experiment import run_experiment
from dp_erm_bench.runner.options import RunOptions
from tests.loops import each

BUDGET = {"epsilon": 4.0, "delta": 1e-6, "adjacency": ["replace_one", "zero_out"]}
AUDIT = {
    "panel": "audit",
    "line": "few",
    "task": {"name": "audit", "runs": 60},
    "algorithm": "random_cd",
    "budget": BUDGET,
    "seed": [0, 1],
}
COUNTED = {
    "panel": "noise",
    "line": "few",
    "task": {"name": "accounting", "lengths": [5]},
    "algorithm": ["random_cd"],
    "budget": {"epsilon": [1, 4], "delta": 1e-6},
}


def run(folder, *blocks, **options):
    made = RunOptions(n_jobs=2, progress=False, **options)
    return run_experiment(blocks, "study", folder, made)


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """The folder of a run audit, and what the run printed."""
    folder, printed = tmp_path_factory.mktemp("audited"), io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert run(folder, AUDIT) == 0
    return folder, printed.getvalue()


@pytest.fixture
def copied(audited, tmp_path):
    return shutil.copytree(audited[0], tmp_path / "audited")


def planned(block):
    return [one for one in study_of(blocks_of([block])[0]).sweep(51)]


def test_every_task_has_a_yaml_and_is_tried_here():
    assert registry.names("task") == ["accounting", "audit"]


def test_an_audit_is_every_variant_budget_and_side():
    trials = planned(AUDIT)
    told = {json.dumps(t.spec["algorithm"]["params"], sort_keys=True) for t in trials}
    sides = {t.spec["dataset"]["side"] for t in trials}
    assert sides == {0, 1}
    assert len(told) > 1
    assert len(trials) == len(told) * 2 * 2 * 2
    assert len({t.key for t in trials}) == len({t.identity for t in trials})
    assert len({t.key for t in trials}) == len(trials)


def test_all_algorithms_are_audited_by_default():
    block = {key: value for key, value in AUDIT.items() if key != "algorithm"}
    names = {one.spec["algorithm"]["name"] for one in planned(block)}
    assert names == set(registry.names("algorithm"))


def test_keys_depend_on_the_runs_and_the_budget():
    first = {one.key for one in planned(AUDIT)}
    more = {
        one.key for one in planned({**AUDIT, "task": {"name": "audit", "runs": 61}})
    }
    other = {
        one.key for one in planned({**AUDIT, "budget": {**BUDGET, "epsilon": 2.0}})
    }
    assert not first & more and not first & other
    assert first == {one.key for one in planned(AUDIT)}


def test_a_study_is_run_recorded_and_resumed(audited, copied, capsys):
    assert "run now" in audited[1] and "ok" in audited[1]
    assert run(copied, AUDIT) == 0
    assert "(0 run now)" in capsys.readouterr().out
    table = load_results(copied)
    assert set(table["status"]) == {"ok"}
    assert set(table["dataset"]) == {"worst_case"}
    assert table["epsilon_certified"].between(3.9, 4.0).all()
    rows = Audit().table(copied)
    assert set(rows["runs"]) == {120}
    assert set(rows["verdict"]) == {"ok"} and set(rows["budget"]) == {4.0}
    assert (rows["lower_bound"] <= rows["epsilon"]).all()


def test_a_chunk_without_its_other_side_does_not_count(tmp_path):
    run(tmp_path, {**AUDIT, "seed": 0})
    whole = Audit().table(tmp_path)
    path = tmp_path / "records.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    records = [line for line in lines if line.startswith('{"key"')]
    path.write_text("".join(records[1:]))
    assert len(Audit().table(tmp_path)) < len(whole)


def test_chunks_are_independent_and_repeat():
    trials = planned(AUDIT)[:2]
    records = run_batch(trials)
    again = run_batch(trials)
    assert [r["status"] for r in records] == ["ok", "ok"]
    first, second = (r["facts"]["statistics"] for r in records)
    assert first == again[0]["facts"]["statistics"]
    assert not set(first) & set(second)


def test_the_accounting_study_is_a_table(tmp_path):
    violation = {
        "panel": "noise",
        "line": "unequal",
        "task": {"name": "accounting", "violation": True},
    }
    assert run(tmp_path, COUNTED, violation) == 0
    rows = Accounting().table(tmp_path)
    assert set(rows["study"]) >= {"noise"}
    best = rows[(rows["accountant"] == "best") & (rows["epsilon"] == 1)]
    assert best["relative"].tolist() == [1.0]
    assert rows["factor"].max() > 20


def test_figures_and_claims_are_made_of_the_study(copied):
    claim = {
        "id": "sound",
        "figure": "audit",
        "measure": "violations",
        "at_most": 0,
        "statement": "none",
    }
    figures = registry.read_choice("experiment", "audit")["figures"]
    draw_and_judge(copied, {"figures": figures, "claims": [claim]})
    assert pd.read_csv(copied / "claims.csv")["verdict"].tolist() == ["holds"]
    assert (copied / "figures" / "audit.png").is_file()
    assert len(pd.read_csv(copied / "audits.csv")) > 2


def test_an_algorithm_that_is_refuted_fails_the_claim(tmp_path, monkeypatch):
    """The recorded statistics decide: those of half the noise are a violation."""
    run(tmp_path, {**AUDIT, "task": {"name": "audit", "runs": 600}, "seed": 0})
    honest = figure.facts_in

    def louder(folder):
        for spec, facts in honest(folder):
            shift = 10.0 if spec["dataset"]["side"] == 0 else -10.0
            values = [value + shift for value in facts["statistics"]]
            yield spec, {**facts, "statistics": values}

    monkeypatch.setattr(figure, "facts_in", louder)
    assert set(Audit().table(tmp_path)["verdict"]) == {"VIOLATION"}


@each(
    ("changes", "said"),
    [
        ({"task": "audit"}, "task=audit: must be a mapping with `name`"),
        ({"task": {"runs": 5}}, "must be a mapping with `name`"),
        ({"task": {"name": "adit"}}, "did you mean audit"),
        ({"task": {"name": "audit", "run": 5}}, "parameter of audit=run"),
        ({"task": {"name": "audit", "runs": 1}}, "must be an integer, at least 2"),
        ({"task": {"name": "audit", "runs": "x"}}, "task.runs=x: must be an integer"),
        ({"task": {"name": "accounting", "lengths": []}}, "task.lengths"),
        ({"task": {"name": "accounting", "lengths": ["x"]}}, "task.lengths"),
        ({"algorithm": "sgdd"}, "did you mean sgd"),
        ({"budget": {"epsilon": 0}}, "epsilon=0"),
        ({"budget": {"epsilon": "inf"}}, "epsilon"),
        ({"tune": {"axes": {}}}, "tune"),
        ({"dataset": "log1"}, "dataset"),
        ({"calibration": "paper"}, "calibration"),
    ],
)
def test_wrong_blocks_are_refused_in_one_sentence(changes, said):
    with pytest.raises(UsageError) as refused:
        expand_blocks([{**AUDIT, **changes}])
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_task_says_what_it_costs():
    for name in registry.names("task"):
        assert task_of({"name": name}).work({}) > 0


def test_a_failing_trial_is_a_record(tmp_path):
    broken = {**AUDIT, "budget": {"epsilon": 4.0, "delta": 0.0}}
    run(tmp_path, {**broken, "seed": 0})
    statuses = {*map(Store(tmp_path).status, Store(tmp_path))}
    assert statuses <= {"error", "skipped"} and statuses
