"""Test whole commands: run, rerun, plan, collect, in this process and in another.

Commands are also interrupted.
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from dp_erm_bench.cli.main import main
from tests.contract.own import STEP, broken

ROOT = Path(__file__).resolve().parents[2]
SWEEP = [
    *("dataset=log1", "dataset.n=60", "dataset.p=5", "seed=range(0,3)"),
    *("algorithm=random_cd,greedy_cd", "budget.epsilon=1,inf", "runner.n_jobs=1"),
    *("algorithm.random_cd.clip=1", "algorithm.greedy_cd.clip=1"),
]
DELTAS = ("0.02", "1/n")
EXPERIMENT = """
blocks:
  - panel: log1
    line: DP-CD cyclic
    dataset: {name: log1, n: 60, p: 5}
    algorithm: {name: random_cd, order: cyclic}
    tune:
      axes: {step: [0.5, 1], clip: {unit: gradient_rms, values: [1]}}
      seeds: range(0,2)
      report: range(100,102)
claims:
  - {id: zero, figure: log1, line: DP-CD cyclic, measure: error_at_zero, equals: 1,
     within: 100, whose: ours, good: none, reason: w = 0 itself,
     statement: There is an error at 0}
  - {id: never, figure: log1, line: DP-CD cyclic, epsilon: 9, measure: share_left,
     reason: not there, statement: Later, at_least: 0, whose: ours, good: none}
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run a command here: only its workers are processes of their own."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        code = main(list(arguments))
        said = capsys.readouterr()
        return SimpleNamespace(returncode=code, stdout=said.out, stderr=said.err)

    return run


def test_a_sweep_runs_once_and_adds_to_its_folder(run, tmp_path, environment):
    first = subprocess.run(
        [sys.executable, "-m", "dp_erm_bench", *SWEEP],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert first.returncode == 0, first.stderr
    table = pd.read_parquet(tmp_path / "results" / "sweep" / "results.parquet")
    assert table.groupby("trial").ngroups == 12
    assert set(table["status"]) == {"ok"}
    assert set(table["epsilon"]) == {1.0, float("inf")}

    again = run(*SWEEP)
    assert again.returncode == 0
    assert re.search(r"12 trials \(0 run now\)", again.stdout)

    more = run(*SWEEP[:3], "seed=range(2,5)", *SWEEP[4:])
    assert re.search(r"\(8 run now\)", more.stdout)

    plan = run(*SWEEP, "mode=plan")
    assert re.search(r"total +12 +12 +0 +0", plan.stdout)

    (tmp_path / "results" / "sweep" / "results.parquet").unlink()
    assert run("collect", "results/sweep").returncode == 0
    table = pd.read_parquet(tmp_path / "results" / "sweep" / "results.parquet")
    assert table.groupby("trial").ngroups == 20


def test_a_delta_of_one_over_n_is_told_once_a_run(run):
    line = ["dataset=log1,log2", "dataset.n=60", "dataset.p=5", "seed=1,2"]
    line += ["algorithm=random_cd", "algorithm.random_cd.clip=1", "runner.n_jobs=1"]
    for mode in ("run", "plan"):
        told = run(*line, "budget.delta=1e-6,0.02,1/n", f"mode={mode}")
        assert told.returncode == 0
        (said,) = [one for one in told.stderr.splitlines() if "budget.delta" in one]
        found = [
            f"{name} (n=60, delta={d})" for name in ("log1", "log2") for d in DELTAS
        ]
        assert said == (
            f"dp-erm-bench: budget.delta of {', '.join(found)}: is at least 1/n, which "
            "allows to publish one record of n as it is; use 1/n^2"
        )


def test_wide_bounds_and_a_label_among_the_features_are_told(run, tmp_path):
    rows = [f"{i % 60 + 20},{2 - 6 * (i % 2)},{i % 2}" for i in range(40)]
    (tmp_path / "my.csv").write_text("\n".join(["age,code,ill", *rows]) + "\n")
    line = ["dataset=file", "dataset.path=my.csv", "algorithm=gd,random_cd", "seed=1,2"]
    line += ["dataset.bounds={columns:{age:1e6,code:4}}", "runner.n_jobs=1"]
    done = run(*line, "algorithm.random_cd.clip=1", "runner.progress=false")
    assert done.returncode == 0, done.stderr
    private = "(not private: computed from the records)"
    assert [one for one in done.stderr.splitlines() if "dataset file" in one] == [
        "dp-erm-bench: dataset file my.csv, bounds={columns:{age:1000000.0,code:4}}: "
        'all records are below 1 % of the declared bound of "age", norm: noise for '
        f"such a bound drowns them {private}",
        'dp-erm-bench: dataset file my.csv: the label is "code", up to '
        f"shift and scale; leave it out if it is no feature {private}",
    ]


def test_what_the_bounds_did_is_told_after_a_run_and_in_the_table(run, tmp_path):
    """Bounds of 1e-6 gave an error of 1e-9 that nobody doubted."""
    rows = [f"{i % 60 + 20},{i % 7},{i % 2}" for i in range(40)]
    (tmp_path / "my.csv").write_text("\n".join(["age,crp,ill", *rows]) + "\n")
    bounds = "{columns:1e-6},{columns:{crp:6},default:200}"
    line = ["dataset=file", "dataset.path=my.csv", f"dataset.bounds={bounds}"]
    line += ["dataset.clip_to_bounds=true", "algorithm=random_cd", "seed=1,2"]
    line += ["algorithm.random_cd.clip=1", "runner.n_jobs=1", "runner.progress=false"]
    done = run(*line)
    assert done.returncode == 0, done.stderr
    (said,) = [one for one in done.stderr.splitlines() if "are clipped" in one]
    assert said == (
        "dp-erm-bench: dataset file my.csv, bounds={columns:1e-06}: 100 % of the "
        "records are clipped to declared bounds, more than 10 % beyond the bound of "
        '"age", "crp" (not private: computed from the records)'
    )
    table = pd.read_parquet(tmp_path / "results" / "sweep" / "results.parquet")
    ends = table.drop_duplicates("trial", keep="last").sort_values("clipped")
    assert ends["clipped"].tolist() == [0.0, 0.0, 1.0, 1.0]
    assert ends["at_bound"].tolist() == ["", "", *['["age", "crp"]'] * 2]
    # Joined in one panel, or compared, they get a word.
    word = "the optimum and the relative error differ and cannot be compared"
    joined = ["export", "results/sweep", "--panel", "dataset"]
    assert word in run(*joined, "--y", "relative_error").stderr
    assert word not in run(*joined, "--y", "nnz").stderr
    assert word not in run(*joined[:2], "--y", "relative_error").stderr
    assert word in run("compare", "results/sweep", "--between", "bounds").stdout


def test_a_plan_runs_nothing(run, tmp_path):
    plan = run(*SWEEP, "mode=plan")
    assert plan.returncode == 0
    assert re.search(r"total +12 +0 +0 +12", plan.stdout)
    assert not (tmp_path / "results").exists()


def test_an_experiment_of_ones_own_ends_with_its_claims(run, experiments, tmp_path):
    done = run(experiments(EXPERIMENT), "experiment=tiny", "runner.n_jobs=1")
    assert done.returncode == 0, done.stderr
    assert "tiny: 1 holds, 1 not run" in done.stdout
    folder = tmp_path / "results" / "tiny"
    claims = pd.read_csv(folder / "claims.csv")
    assert list(claims["statement"]) == ["There is an error at 0", "Later"]
    phases = pd.read_parquet(folder / "results.parquet").groupby("phase")["trial"]
    assert phases.nunique().to_dict() == {"tune": 4, "report": 2}


def test_a_changed_experiment_leaves_the_published_one_alone(
    run, experiments, tmp_path
):
    command = [experiments(EXPERIMENT), "experiment=tiny", "runner.n_jobs=1"]
    assert run(*command).returncode == 0
    folder = tmp_path / "results" / "tiny"
    own = tmp_path / "results" / "tiny+budget.epsilon=2"
    kept = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    table = pd.read_parquet(folder / "results.parquet")

    done = run(*command, "budget.epsilon=2")
    assert done.returncode == 0, done.stderr
    assert "changed: budget.epsilon=2" in done.stdout
    claims = pd.read_csv(own / "claims.csv")
    assert set(claims["profile"]) == {"changed: budget.epsilon=2"}
    again = run("report", str(own))
    assert again.returncode == 0 and "changed: budget.epsilon=2" in again.stdout
    resumed = run(*command, "budget.epsilon=2")
    assert "(0 run now)" in resumed.stdout

    now = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert now == kept
    assert set(pd.read_parquet(own / "results.parquet")["epsilon"]) == {2.0}
    assert set(table["epsilon"]) == {1.0}


FIGURES = """
blocks:
  - {panel: a, line: x, dataset: {name: log1, n: 60, p: 5},
     algorithm: {name: random_cd, passes: 1, clip: 1}, seed: 0}
  - {panel: b, dataset: {name: log1, n: 70, p: 5},
     algorithm: {name: random_cd, passes: 1, clip: 1}, seed: 0}
figures: [{kind: panels_of_mine.py}]
claims:
  - {id: never, figure: a, line: x, epsilon: 9, measure: share_left,
     reason: not there, statement: Later, at_least: 0, whose: ours, good: none}
"""
DRAW = """
from dataclasses import dataclass
from dp_erm_bench.report.figure import Figure

@dataclass(frozen=True)
class Mine(Figure):
    def draw(self, drawing):
        panels, endings = sorted(set(drawing.table["panel"])), ("png", "pdf")
        paths = [drawing.folder / f"{p}.{end}" for p in panels for end in endings]
        for path in paths:
            path.write_text("drawn")
        return paths
"""


def test_only_what_this_run_drew_is_listed(run, experiments, tmp_path):
    (tmp_path / "panels_of_mine.py").write_text(DRAW)
    command = [experiments(FIGURES), "experiment=tiny", "runner.n_jobs=1", "name=own"]

    def listed(done):
        assert done.returncode == 0, done.stderr
        return re.findall(r"figure: .*figures/(\w+)\.pdf", done.stdout)

    assert listed(run(*command)) == ["a", "b"]
    assert listed(run(*command, "panel=a")) == ["a"]
    folder = tmp_path / "results" / "own"
    assert (folder / "figures" / "b.png").is_file()
    assert listed(run("report", str(folder))) == ["a"]
    assert "1 not run" in run("report", str(folder)).stdout
    assert listed(run("collect", str(folder))) == ["a"]
    assert listed(run(*command, "panel=b")) == ["b"]

    experiments(FIGURES.partition("figures:")[0])
    done = run(*command)
    assert listed(done) == [] and "no claims and no figures" in done.stdout
    # A folder that no run of this version wrote says nothing: all is listed.
    for manifest in folder.rglob("*.json"):
        manifest.unlink()
    assert listed(run("report", str(folder))) == ["a", "b"]


def test_another_profile_says_whose_table_was_there(run, experiments, tmp_path):
    text = "profile: long\nprofiles: {long: {n: 3}, smoke: {n: 1}}\n" + EXPERIMENT
    command = [experiments(text), "experiment=tiny", "runner.n_jobs=1"]
    assert "held profile" not in run(*command).stderr
    assert "results/tiny: held profile=long" in run(*command, "profile=smoke").stderr


def test_an_interrupt_is_130_and_keeps_what_is_recorded(tmp_path, start):
    long = ["algorithm.random_cd.passes=20000", "runner.batch_trials=1"]
    line = [*SWEEP[:3], "seed=range(0,5000)", "algorithm.random_cd.clip=1"]
    process = start(tmp_path, *line, "runner.n_jobs=1", *long)
    records = tmp_path / "results" / "sweep" / "records.jsonl"
    deadline = time.monotonic() + 60
    while not records.exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err.splitlines()[-1].startswith("dp-erm-bench: interrupted")
    assert "Traceback" not in err
    assert records.stat().st_size


def test_the_end_of_a_run_names_every_reason_once_with_its_count(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    typed = ["dataset=log1", "dataset.n=60", "dataset.bounds=null"]
    typed += ["algorithm=gd,output_perturbation,sgd"]
    typed += ["algorithm.gd.step=1,1e200", "algorithm.gd.clip=1", "penalty=none"]
    typed += ["budget.epsilon=1,2", "seed=0", "runner.progress=false"]
    typed += ["algorithm.sgd.batch_size=99", "algorithm.sgd.clip=1"]
    assert main(typed) == 0
    first = capsys.readouterr().out
    counts, *lines = first.splitlines()
    assert counts == "sweep: 8 trials (8 run now): 2 diverged, 2 ok, 4 skipped"
    assert lines[0] == "skipped: 4 trials"
    assert sorted(lines[1:3])[1] == "  2 x batch_size=99: must be at most n=60, or full"
    assert sorted(lines[1:3])[0].startswith(
        "  2 x OutputPerturbation needs strong conv"
    )
    assert lines[3:] == ["diverged: 2 trials", "  2 x the last objective is not finite"]
    # A second run runs nothing, and says the same of what is recorded.
    assert main(typed) == 0
    again = capsys.readouterr().out
    assert again == first.replace("8 run now", "0 run now")


SLOW = '''
import time
from dataclasses import dataclass

from dp_erm_bench.extend import Solver, shape


@dataclass(frozen=True)
class Slow(Solver):
    """Takes its time, and breaks.

    References
    ----------
    None.
    """

    n_iter: int = shape(1, least=0, help="a length")

    def iterations(self, problem):
        return self.n_iter

    def passes_at(self, problem, iteration):
        return float(iteration)

    def releases(self, problem, adjacency, schedule):
        yield from ()

    def iterates(self, oracle, mechanisms, checkpoints, schedule):
        time.sleep(1.0)
        raise RuntimeError("out of luck")
'''


def test_a_run_that_did_less_than_it_declared_is_an_error(run, tmp_path):
    text = broken((STEP, f"{' ' * 16}noisy = 0.0 * oracle.w\n"))
    (tmp_path / "never.py").write_text(text)
    typed = ["dataset=log1", "dataset.n=40", "algorithm=never.py", "seed=0,1"]
    found = run(*typed, "algorithm.never.clip=1.0", "runner.n_jobs=1")
    assert found.returncode == 1
    lines = found.stdout.splitlines()
    assert lines[0] == "sweep: 2 trials (2 run now): 2 error"
    sentence = "release gradient was used 0 of 10 times"
    assert lines[1:3] == ["error: 2 trials", f"  2 x {sentence}"]


def test_a_log_tells_of_progress_and_the_end_tells_of_errors(run, tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    typed = ["dataset=log1", "dataset.n=40", "algorithm=slow.py", "seed=0,1,2,3"]
    # Of 40 records both strengths are one: two settings, one trial a seed.
    typed += ["penalty.strength=1/n,0.025", "runner.n_jobs=1"]
    found = run(*typed, "runner.batch_trials=1")
    assert found.returncode == 1 and "Traceback" not in found.stderr
    told = re.findall(
        r"^sweep: (\d+) % \((\d) of 4 trials, \2 failed, \d+ s, (\d+ s left|time)",
        found.stderr,
        re.M,
    )
    done = [int(one[1]) for one in told]
    assert len(done) >= 2 and done == sorted(done) and done[-1] == 4
    assert all(int(one[0]) == 25 * int(one[1]) for one in told)
    lines = found.stdout.splitlines()
    assert lines[0] == "sweep: 4 trials (4 run now): 4 error"
    assert lines[1] == "error: 4 trials"
    assert lines[2].startswith("  4 x RuntimeError: out of luck (slow.py, line ")


def test_smoke_says_once_that_it_judges_nothing_and_the_table_stands_once(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiment").mkdir()
    text = ROOT / "tests/extending/paper/experiment/ridge_paper.yaml"
    changed = text.read_text().replace("quick", "smoke")
    (tmp_path / "experiment" / "tiny.yaml").write_text(changed)
    typed = ["-cd", str(tmp_path), "experiment=tiny", "runner.n_jobs=1"]
    assert main(typed) == 0
    out = capsys.readouterr().out
    assert out.count("tiny (profile smoke): 4 not judged") == 1
    assert out.count("it only shows that everything runs; no claim is judged") == 1
    assert set(pd.read_csv("results/tiny/claims.csv")["verdict"]) == {"not judged"}
    assert not any(word in out.split() for word in ("holds", "fails"))


def test_make_prints_each_table_of_claims_once():
    lines = subprocess.run(
        ["make", "-n", "-C", ROOT, "reproduce-figures", "EXPERIMENT=mangold2022 audit"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "dp-erm-bench experiment=" in lines
    (report,) = [one for one in lines.splitlines() if "dp-erm-bench report" in one]
    assert ">/dev/null" in report  # each run has printed its own
