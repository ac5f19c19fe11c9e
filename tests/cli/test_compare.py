"""Test the command compare, on real sweeps and on wrong folders."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from dp_erm_bench import __version__
from dp_erm_bench.cli.main import main

ROOT = str(Path(__file__).resolve().parents[2])
SWEEP = [
    *("dataset=log1", "dataset.n=500", "dataset.p=3", "seed=range(0,7)"),
    *("algorithm=random_cd", "algorithm.random_cd.clip=1", "budget.epsilon=100"),
    "runner.n_jobs=1",
]


RUN = "import json, sys; from dp_erm_bench.cli.main import main\n"
RUN += "sys.exit(any([main(line) for line in json.loads(sys.argv[1])]))"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A sweep, the very same again, and one with fewer iterations."""
    folder = tmp_path_factory.mktemp("results")
    usual = [*SWEEP, f"results_dir={folder}", "runner.progress=false"]
    passes = {"base": 20, "again": 20, "less": 1}
    lines = [
        [*usual, f"name={name}", f"algorithm.random_cd.passes={number}"]
        for name, number in passes.items()
    ]
    done = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps(lines)],
        env={**os.environ, "PYTHONPATH": ROOT},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def run(results, capsys, monkeypatch):
    """Compare and return exit code, standard output, standard error."""
    monkeypatch.chdir(results)

    def compare(*arguments):
        code = main(["compare", *map(str, arguments)])
        return code, *capsys.readouterr()

    return compare


@pytest.mark.slow
def test_the_same_sweep_again_is_the_same_to_the_last_bit(run):
    code, said, _ = run("base", "again", "--on", "objective,relative_error")
    assert code == 0
    assert said.endswith("2 same\n")
    assert len(re.findall(r" 7 .* 0  .* same", said)) == 2


def test_fewer_iterations_are_a_regression_and_more_are_none(run):
    code, said, _ = run("base", "less", "--ignore", "passes")
    assert code == 1
    assert said.endswith("1 worse\n")
    assert re.search(r"\+\S+ %   \+\S+ % to \+\S+ %   worse", said)
    code, said, _ = run("less", "base", "--ignore", "passes", "--by", "setting")
    assert code == 0
    assert said.endswith("1 better\n")


def test_each_side_says_what_computed_it(run, results):
    _, said, _ = run("base", "again")
    assert said.startswith(f"A: base (version {__version__}")
    (results / "again" / "manifest.json").write_text("{}")
    for manifest in (results / "again" / "runs").iterdir():
        manifest.unlink()
    assert run("base", "again")[1].splitlines()[1] == "B: again"


def test_a_wide_tolerance_forgives(run):
    assert run("base", "less", "--ignore=passes", "--tolerance=1e9")[0] == 0


def test_a_run_that_has_recorded_nothing_yet_is_one_sentence(run, results):
    begun = results / "begun"
    begun.mkdir(exist_ok=True)
    shutil.copy(results / "base" / "plan.jsonl", begun)
    for folders, side in ((("begun", "base"), "A"), (("base", "begun"), "B")):
        code, _, said = run(*folders)
        assert code == 2
        assert said == f"dp-erm-bench: compare: {side} has no recorded trials yet\n"


def test_all_rows_can_be_written(run, tmp_path):
    file = tmp_path / "rows.csv"
    assert run("base", "again", "--csv", file)[0] == 0
    (row,) = pd.read_csv(file).to_dict("records")
    assert (row["dataset"], row["runs_a"], row["change"]) == ("log1", 7, 0.0)
    assert run("base", "again", "--csv", tmp_path)[2].count("\n") == 1


def test_long_tables_are_cut_and_say_so(run, monkeypatch):
    monkeypatch.setattr("dp_erm_bench.cli.plots.SHOWN", 1)
    _, said, _ = run("base", "again", "--on", "objective,epsilon_certified")
    assert "and 1 more: --csv FILE writes all" in said


def test_too_few_seeds_are_told(run):
    given = ("base", "less", "--ignore", "passes", "--interval", "0.999")
    code, said, _ = run(*given)
    assert code == 0
    assert "1 undecided for want of seeds: it takes 11" in said


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        ("base", "compare: name two folders, or one; as in"),
        ("base again less", "compare: name two folders, or one; as in"),
        ("base absent", "absent: no such folder"),
        ("base .", "no results folder, it has no plan.jsonl"),
        ("base less", "no common trial (7 trials in A, 7 in B)"),
        ("base less --by setting", "no common setting (7 trials in A, 7 in B)"),
        ("base again --on test_accuracy", "no common trial has a value of it"),
        ("base again --on secnds", "did you mean seconds?"),
        ("base again --by seed", "must be one of trial, setting"),
        ("base again --tolerance some", "invalid float value: 'some'"),
        ("base again --tolerance -1", "--tolerance=-1.0: must be 0 or more"),
        ("base again --interval 95", "--interval=95.0: must lie between 0 and 1"),
        ("base again --ignore seed", "--ignore=seed: must be one of adjacency"),
        ("base again --of objective", "unrecognized arguments: --of"),
    ],
)
def test_bad_input_is_one_sentence(run, arguments, sentence):
    code, said, error = run(*arguments.split())
    assert (code, said) == (2, "")
    assert sentence in error
    assert error.startswith("dp-erm-bench: ") and error.count("\n") == 1
