"""Test tuning on a user's own csv by the command line, and wrong keys."""

import contextlib
import json
import math
import os
import re
import signal
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from omegaconf import OmegaConf

import dp_erm_bench
from dp_erm_bench import registry
from dp_erm_bench.cli.app import BLIND
from dp_erm_bench.cli.main import main
from dp_erm_bench.errors import UsageError
from dp_erm_bench.estimators import DPClassifier
from dp_erm_bench.experiment.expand import expand_blocks
from dp_erm_bench.experiment.tune import tuners_of
from dp_erm_bench.experiment.tuned import PROFILES, start_of, tuned_blocks
from dp_erm_bench.report.view import View, rows_of_view, summary_of
from dp_erm_bench.results.runs import read_manifest
from dp_erm_bench.results.tuned import tuned_choices
from tests.loops import each
from tests.pages import find_block

ROOT = Path(__file__).resolve().parents[2]
DATA = (
    *("dataset=file", "dataset.path=my.csv", "dataset.clip_to_bounds=true"),
    "dataset.bounds={columns:3,norm:5}",
)
TINY = (*DATA, "profile=smoke", "runner.n_jobs=1", "runner.progress=false")
LOG = {"dataset": {"name": "log1", "n": 60, "p": 4}}
OWN = '''
from dataclasses import dataclass

from dp_erm_bench.extend import Solver, shape, value


@dataclass(frozen=True)
class Own(Solver):
    """Has fields of all kinds; measures nothing.

    References
    ----------
    None.
    """

    batch_size: int = shape(7, least=1, help="beyond the grid")
    share: float = value(0.5, least=0.0, most=1.0, help="cut at its limit")
    rounds: int = shape(2, least=1, help="the fourth in order, but a length is first")
    clip: float | None = value(None, above=0.0, help="in units of the data")
    step: float = value(2.0, above=0.0, help="around its default")
    n_iter: int = shape(10, least=0, help="a length")
    weight: float = value(0.0, least=0.0, help="zero by default")
    reach: float | None = value(None, above=0.0, most=8.0, help="none by default")
    word: str = shape("a", choices=("a", "b"), help="no number")

    def iterations(self, problem):
        return self.n_iter

    def passes_at(self, problem, iteration):
        return float(iteration)

    def releases(self, problem, adjacency, schedule):
        yield from ()

    def iterates(self, oracle, mechanisms, checkpoints, schedule):
        yield from ()
'''
ODD = '''
from dataclasses import dataclass

from dp_erm_bench.extend import Gaussian, Solver, UsageError, shape, value
from dp_erm_bench.extend import steps_between


@dataclass(frozen=True)
class Odd(Solver):
    """Adds noise to zero, once, whatever its fields are.

    References
    ----------
    None.
    """

    FIELDS

    def iterations(self, problem):
        return 1

    def passes_at(self, problem, iteration):
        return float(iteration)

    def releases(self, problem, adjacency, schedule):
        yield Gaussian("answer", adjacency.of_sum(1.0), 1)

    def iterates(self, oracle, mechanisms, checkpoints, schedule):
        yield oracle.w
        for k in steps_between(checkpoints):
            for _ in range(k):
                oracle.move_to(mechanisms["answer"](oracle.w))
            yield oracle.w
'''
RANKED = (
    *("approximate_minima_perturbation", "feature_covariance", "frank_wolfe", "gd"),
    *("greedy_cd", "mirror_descent", "newton", "objective_perturbation"),
    *("output_perturbation", "permutation_sgd", "random_cd", "sgd", "ssp", "svrg"),
)


def test_a_csv_is_tuned_drawn_and_told(here, capsys):
    line = ["tune", *TINY, "algorithm=gd,random_cd,frank_wolfe", "budget.epsilon=1,10"]
    line += ["tune.report=range(100,106)"]
    assert main(line) == 0
    said = capsys.readouterr().out
    folder = here / "results" / "tune"
    for name in ("results.parquet", "choices.csv", "manifest.json"):
        assert (folder / name).is_file()
    for name in ("passes", "epsilon"):
        drawn = folder / "figures" / f"tune_curves_relative_error_{name}"
        for suffix in ("pdf", "png", "txt", "tex"):
            assert drawn.with_suffix(f".{suffix}").stat().st_size > 100
    rows = pd.read_csv(folder / "choices.csv")
    found = {*zip(rows["panel"], rows["line"], rows["epsilon"], strict=True)}
    assert found == {("my", a, e) for a in ("gd", "random_cd") for e in (1.0, 10.0)}
    assert said.count("frank_wolfe") == 1
    assert "constraint=none: frank_wolfe needs a set with vertices" in said
    assert len(re.findall(r"^ +(?:1|10) +(?:gd|random_cd) .*\[.*=", said, re.M)) == 4
    assert len(re.findall("^open: ", said, re.M)) == 1
    assert re.search(r"^not paid for by any budget: .*tuning", said, re.M)
    # w = 0 is in the table, and the last lines say in words who is best against it.
    assert len(re.findall(r"^ +(?:1|10) +w = 0 ", said, re.M)) == 2
    verdicts = re.findall(r"^epsilon (1|10): (.*)$", said, re.M)
    assert [epsilon for epsilon, _ in verdicts] == ["1", "10"]
    for _, told in verdicts:
        nothing = told.startswith("nothing beats w = 0 (w = 0 ")
        assert nothing or re.match(r"\w+ is best, .*\[.*\], against w = 0 ", told)
    assert main(line) == 0
    again = capsys.readouterr().out
    assert "(0 run now)" in again
    table = "median of 6 runs"
    assert again[again.index(table) :] == said[said.index(table) :]

    assert main(["compare", "results/tune", "--between", "algorithm"]) == 0
    compared = capsys.readouterr().out
    assert "A: algorithm=gd\nB: algorithm=random_cd\n" in compared
    (why,) = [one for one in compared.splitlines() if "frank_wolfe" in one]
    assert why.startswith(
        "not compared: algorithm=frank_wolfe was skipped: constraint="
    )
    assert "undecided" in compared and "only in" not in compared
    for where, told in (("frank_wolfe", "none that ran"), ("gd,frank_wolfe", "gd")):
        line = f"compare results/tune --between algorithm --where algorithm={where}"
        assert main(line.split()) == 2
        said = capsys.readouterr().err
        assert f"one value here, {told}; frank_wolfe was skipped: constraint=" in said


def test_a_doubt_of_the_best_is_marked_told_and_warned_of(here, capsys, monkeypatch):
    monkeypatch.setattr("dp_erm_bench.cli.app.WIDTH", 300)
    doubt = "checked, uncharged: solved"
    line = ["tune", *TINY, "algorithm=objective_perturbation,gd", "budget.epsilon=1000"]
    assert main([*line, "tune.report=range(100,106)"]) == 0
    said = capsys.readouterr().out
    found = tuned_choices("results/tune").set_index("line")["doubt"]
    assert found.to_dict() == {"objective_perturbation": doubt, "gd": ""}
    assert said.count(f"(in doubt: {doubt})") == 1
    (told,) = re.findall("^epsilon 1000: (.*)$", said, re.M)
    assert told.startswith("objective_perturbation is best, ")
    assert told.endswith(f"; objective_perturbation is in doubt: {doubt}")
    for name, times in found.ne("").items():
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            DPClassifier.from_results("results/tune", 1000.0, algorithm=name)
        texts = [str(one.message) for one in seen]
        assert sum(f"in doubt: {doubt}" in text for text in texts) == times


def own_csv(y):
    """Write own.csv with a label, or numbers around 5, and return what tunes gd."""
    random = np.random.default_rng(0)
    X = random.normal(size=(400, 4)).clip(-3.0, 3.0)
    y = 5.0 + X @ [0.2, -0.2, 0.0, 0.0] + random.normal(size=400) if y is None else y
    pd.DataFrame(X, columns=[*"abcd"]).assign(y=y).to_csv("own.csv", index=False)
    tune = ("tune.report=range(100,106)", "tune.search=null", "budget.epsilon=2")
    gd = ("algorithm=gd", "algorithm.gd.n_iter=10", "algorithm.gd.step=2")
    data = ("dataset=file", "dataset.path=own.csv", "dataset.test_fraction=0.25")
    return ["tune", *data, *TINY[2:], *gd, "dataset.intercept=0,1", *tune]


def told_by(found, constant):
    """Check that lines beat w = 0 alone; return those without an intercept and with."""
    without, whole = (
        found[found["constant"].eq(name)].iloc[0]
        for name in (f"{constant} by test risk, no intercept", constant)
    )
    for row in (without, whole):
        assert (row["beats_zero"], row["place"]) == ("yes", "")
        assert row["beats_constant"] == "no" and row["unbeaten"] == row["constant"]
    return without, whole


def test_no_rare_class_is_won_that_the_base_rate_predicts_as_well(here, capsys):
    rare = np.random.default_rng(1).random(400) < 0.03
    assert main([*own_csv(np.where(rare, 1, 0)), "loss=logistic"]) == 0
    said = capsys.readouterr().out
    without, whole = told_by(tuned_choices("results/tune"), "the base rate")
    for row in (without, whole):
        assert f"nothing beats {row['unbeaten']} (w = 0 " in said
    name = "base rate (not private)"
    risk, level = without["test_risk"], without["baselines"]["test_risk"][name]
    assert risk > 2 * level and np.isnan(without[name])
    text = f"gd has a test risk of {risk:.3g}, the base rate {level:.3g})"
    assert text in said and f"{name} {whole[name]:.3g}" in said
    assert whole["median"] > 2 * whole[name]
    # What is exported and drawn says the same.
    assert main(["export", "results/tune", "--format", "md"]) == 0
    text = capsys.readouterr().out
    assert "**" not in text and name in text
    assert f"(nothing beats {without['unbeaten']})" in text
    assert "(nothing beats the base rate)" in text
    # A model is not chosen by what no budget pays for, nor doubted: it is said.
    aside = f"; from_results takes gd: {BLIND}\n"
    assert said.count(aside) == 2 and "computed from the records" in BLIND
    with warnings.catch_warnings(record=True) as doubts:
        warnings.simplefilter("always")
        DPClassifier.from_results("results/tune", 2.0, panel=str(whole["panel"]))
    assert not [one for one in doubts if "does not beat" in str(one.message)]


def test_no_label_far_from_0_is_won_that_hubers_location_predicts_as_well(here):
    own_csv(None)
    lines = {
        "dataset": {
            **{"name": "file", "path": "own.csv", "test_fraction": 0.25},
            **{"bounds": {"columns": 3, "norm": 5}, "clip_to_bounds": True},
            "intercept": [0.0, 1.0],
        },
        "loss": "huber",
        "algorithm": {"name": "gd", "n_iter": 10, "step": 2},
        "budget": {"epsilon": 2.0},
    }
    how = {"profile": "smoke", "n_jobs": 1, "progress": False}
    found = dp_erm_bench.tune(lines, "mine", {"report": [*range(100, 106)]}, **how)
    without, whole = told_by(found, "the constant model")
    assert without["r2"] < without["baselines"]["r2"]["constant model (not private)"]
    assert whole["median"] > 2 * whole["constant model (not private)"]


@pytest.mark.slow
def test_an_interrupted_search_ends_cleanly_and_resumes_to_the_same(
    here, start, capsys
):
    line = ["tune", *TINY, "algorithm=gd,random_cd", "budget.epsilon=0.1,0.3,1,3,10"]
    line += ["runner.batch_trials=1"]
    folder = here / "results" / "tune"
    counted = 0
    for number, code, more in ((signal.SIGINT, 130, 3), (signal.SIGTERM, 143, 20)):
        process = start(here, *line)
        deadline = time.monotonic() + 60
        while recorded(folder) < counted + more:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        os.killpg(process.pid, number)
        _, said = process.communicate(timeout=30)
        assert process.returncode == code and "Traceback" not in said
        assert read_manifest(folder)["outcome"] == "interrupted"
        counted = recorded(folder)
    assert main(line) == 0
    total, run_now = re.search(
        r"tune: (\d+) trials \((\d+) run now\)", capsys.readouterr().out
    ).groups()
    # What was recorded before an end is not run again.
    assert recorded(folder) == int(total) == counted + int(run_now)
    assert int(run_now) > 0
    assert main([*line, "name=whole"]) == 0
    whole = folder.with_name("whole")
    found, expected = (
        pd.read_csv(one / "choices.csv").drop(columns="experiment")
        for one in (folder, whole)
    )
    pd.testing.assert_frame_equal(found, expected)
    columns = ["trial", "seed", "iteration", "objective", "epsilon_certified", "status"]
    found, expected = (
        dp_erm_bench.load_results(one)[columns].sort_values(["trial", "iteration"])
        for one in (folder, whole)
    )
    pd.testing.assert_frame_equal(
        found.reset_index(drop=True), expected.reset_index(drop=True)
    )


def recorded(folder):
    """Return how many trials the records of a folder hold."""
    records = folder / "records.jsonl"
    lines = records.read_bytes().splitlines() if records.exists() else []
    return sum(line.startswith(b'{"key"') for line in lines)


def test_the_table_is_that_of_the_runs_on_fresh_seeds(here):
    lines = {"dataset": {"name": "file", "path": "my.csv"}, "algorithm": ["gd", "sgd"]}
    found = dp_erm_bench.tune(lines, "mine", profile="smoke", n_jobs=1, progress=False)
    assert [*found["line"]] == ["gd", "sgd"] or [*found["line"]] == ["sgd", "gd"]
    assert found["median"].is_monotonic_increasing
    table = dp_erm_bench.load_results("mine")
    for row in found.to_dict("records"):
        own = table[table["line"].eq(row["line"]) & table["phase"].eq("report")]
        ends = own.groupby("seed")["relative_error"].last()
        assert sorted(ends.index) == [100, 101]
        assert row["median"] == pytest.approx(ends.median())
        assert np.isnan([row["ci_low"], row["ci_high"]]).all()  # of two runs
        params = json.loads(own["params"].iloc[0])
        assert {key: params[key] for key in row["chosen"]} == row["chosen"]
        assert "tuning" in row["uncharged"]
    sgd = found.set_index("line").loc["sgd", "chosen"]
    assert sgd["batch_size"] == 120  # the leaderboard's 200 are more than there are
    # A choice that nobody named and that has no runs costs no other one.
    choices = pd.read_csv("mine/choices.csv", keep_default_na=False)
    more = pd.concat([choices.assign(panel="", line=""), choices])
    more.to_csv("mine/choices.csv", index=False)
    pd.testing.assert_frame_equal(tuned_choices("mine"), found)


def test_a_quantity_of_held_out_records_chooses_and_is_told(here, capsys):
    held = ["dataset.test_fraction=0.3", "tune.quantity=test_accuracy", "name=held"]
    assert main(["tune", *TINY, "algorithm=gd", *held]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "test accuracy" in said and "(chosen on the held-out" in said
    assert "[95 % interval, over noise on one split]" in said
    found = tuned_choices("results/held")
    assert found["quantity"].tolist() == ["test_accuracy"]
    assert 0.3 < found["median"].iloc[0] <= 1.0


def test_splits_repeat_all_of_it_over_the_seed_of_the_data(here, capsys):
    line = ["tune", *TINY, "algorithm=gd", "tune.splits=3", "name=split"]
    assert main([*line, "dataset.test_fraction=0.3"]) == 0
    said = capsys.readouterr().out
    assert "mean over 3 splits of the median of 2 runs on fresh seeds" in said
    assert "[95 % interval, over splits]" in said
    rows = pd.read_csv(here / "results" / "split" / "choices.csv")
    assert rows["dataset_seed"].tolist() == [0, 1, 2]
    (row,) = tuned_choices("results/split").to_dict("records")
    assert (row["runs"], row["splits"]) == (2, 3)
    table = dp_erm_bench.load_results("results/split")
    ends = table[table["phase"].eq("report")].groupby("trial").last()
    medians = ends.groupby("dataset_seed")["relative_error"].median()
    assert len(medians) == 3 and row["median"] == pytest.approx(medians.mean())
    # Student's interval, whose quantile is 4.303 for three splits.
    half = 4.303 * medians.std() / 3**0.5
    assert row["ci_high"] - row["median"] == pytest.approx(half, rel=0.02)
    # What `export` says is what the verdict is of.
    exported = summary_of(rows_of_view(table, View("epsilon"))).iloc[0]
    for name in ("median", "ci_low", "ci_high", "place"):
        assert exported[name] == row[name], name
    for more, told in (
        (["dataset.test_fraction=0"], "has one split only; give dataset.test_fraction"),
        (["tune.splits=0"], "tune.splits=0: must be a number >= 1"),
    ):
        keys = {one.partition("=")[0] for one in more}
        kept = [one for one in line if one.partition("=")[0] not in keys]
        assert main([*kept, *more]) == 2
        assert told in capsys.readouterr().err


def test_a_solver_of_ones_own_is_searched_under_any_profile(here, capsys):
    """In all fields that have limits; what is searched of them is told."""
    (here / "own.py").write_text(find_block("class MomentumSGD"))
    line = ["tune", *TINY, "algorithm=./own.py"]
    fields = ["n_iter", "step", "clip", "batch_size", "momentum"]
    wide = ["tune.axes.own.momentum=0,0.5,0.9", "tune.axes.own.batch_size=2,5"]
    alone = ["tune.search=null", "algorithm.own.n_iter=10"]
    for name, more, searched in (
        ("usual", [], fields),
        ("wide", wide, [*fields[:3], "momentum", "batch_size"]),
        ("alone", alone, fields[1:3]),
    ):
        assert main([*line, *more, f"name={name}"]) == 0
        said = " ".join(capsys.readouterr().out.split())
        (row,) = pd.read_csv(here / "results" / name / "choices.csv").to_dict("records")
        assert row["searched"].split() == searched
        assert f"(searched: {', '.join(searched)}; at their default: " in said
        left = {
            "smoothness",
            "smoothness_bounds",
            *(fields[3:] if name == "alone" else ()),
        }
        assert {*json.loads(row["default"])} == left
        # In 6 trials nothing can be moved that is not in the grid, and that is said.
        untried = {one for one in fields[3:] if f"{one} untried" in str(row["open"])}
        assert untried == ({*fields[3:]} if name == "usual" else set())
    assert "smoothness=auto" in said


def test_fields_beyond_the_grid_are_moved_by_the_search(here):
    """And no more trials are asked for than a search may have."""
    (here / "own.py").write_text(OWN)
    (block,) = tuned_blocks([{**LOG, "algorithm": "own.py"}], {})
    tune, finals = block["tune"], {}
    assert tune["aside"] == ["batch_size", "share", "rounds", "weight", "reach"]
    (tuner,) = tuners_of(expand_blocks([block])[0], 2, finals)
    best = {"share": 0.9, "rounds": 5, "weight": 0.3, "reach": 2.0}
    tried = {key: set() for key in tune["axes"]}

    def score(params):
        far = [abs(math.log((params[k] or 1e-3) / v)) for k, v in best.items()]
        return sum(far)

    for stage in tuner.stages():
        for one in stage:
            params = one.spec["algorithm"]["params"]
            finals[one.key] = {"objective": score(params)}
            for key, values in tried.items():
                values.add(params[key])
    assert min(map(len, tried.values())) > 1
    assert None in tried["reach"] and 0.0 in tried["weight"]
    assert all(0.0 <= one <= 1.0 for one in tried["share"])
    assert len(tuner.choice.tried) <= tune["search"]["trials"] == 300
    start = {"share": 0.5, "rounds": 2, "weight": 0.0, "reach": None}
    assert score(tuner.choice.values) < 0.3 * score(start)
    assert not [one for one in tuner.choice.open if "untried" in one]


FIELDS = {
    "nothing to tune": "",
    "words": 'mode: str = shape("a", choices=("a", "b"), help="a word")',
    "a pair": """rate: float = value(0.2, above=0.0, most=0.5, help="a share")
    other: float = value(0.5, above=0.4, most=1.0, help="above it")

    def __post_init__(self):
        super().__post_init__()
        if self.rate >= self.other:
            raise UsageError(f"rate={self.rate}: must be below other={self.other}")
""",
    "zeros": """a: float = value(0.0, least=0.0, most=0.9, help="from 0")
    b: int = shape(0, least=0, help="from 0")
    c: float | None = value(None, above=0.0, help="or none")
    d: int | None = shape(None, least=3, most=9, help="or none")
    e: float = value(-1.0, least=-2.0, most=2.0, help="below 0")
    f: float = value(3, help="without limits")
""",
    "batches": 'batch_size: int = shape(64, least=1, help="more than there are")',
    "ends": """g: float = value(1.0, least=1.0, most=1.0, help="one value")
    h: float = value(0.0, least=0.0, most=0.0, help="zero alone")
    n_iter: int = shape(1, least=1, most=1, help="one step")
""",
}


@each("fields", FIELDS.values())
def test_smoke_runs_with_any_solver(here, fields):
    (here / "odd.py").write_text(ODD.replace("FIELDS", fields))
    assert main(["tune", *TINY, "algorithm=./odd.py", "tune.report=100"]) == 0


def test_a_start_is_that_of_the_leaderboard_and_no_parameter():
    """Under each of its profiles: the first block of each algorithm that it tunes."""
    config = OmegaConf.load(registry.conf_dir() / "experiment" / "leaderboard.yaml")
    every = [one for block in config.blocks for one in block.lines if "tune" in one]
    names = [getattr(one.algorithm, "name", one.algorithm) for one in every]
    assert {*names} == {*RANKED}
    for profile, sizes in PROFILES.items():
        config.profile = profile
        for name in registry.built_in("algorithm"):
            assert "tune" not in registry.read_choice("algorithm", name)
            fixed, tune = start_of(name, profile)
            if name not in RANKED:
                continue
            block = every[names.index(name)]
            own, expected = (
                OmegaConf.to_container(one, resolve=True)
                for one in (block.tune, OmegaConf.create({"of": block.algorithm}))
            )
            assert {"name": name, **fixed} in (expected["of"], {"name": expected["of"]})
            for key in ("seeds", "report"):
                first, last = map(int, re.findall(r"\d+", own[key]))
                assert tune[key] == sizes[key] == [*range(first, last)]
            assert tune == {**own, **{k: tune[k] for k in ("seeds", "report")}}


def test_a_file_that_has_changed_is_read_again(here):
    gd = {"name": "gd", "clip": 1, "n_iter": 2}
    block = {"dataset": {"name": "file", "path": "my.csv"}, "algorithm": gd}
    lines = (here / "my.csv").read_text().splitlines(keepends=True)
    for rows in (40, 60):
        (here / "my.csv").write_text("".join(lines[: 1 + rows]))
        table = dp_erm_bench.sweep({**block, "seed": 0}, f"out{rows}", n_jobs=1)
        assert set(table["n"]) == {rows}


def test_a_plan_runs_nothing(here, capsys):
    line = ["tune", *TINY, "algorithm=gd", "budget.epsilon=1,10", "mode=plan"]
    assert main(line) == 0
    assert re.search(r"^my +gd +16 ", capsys.readouterr().out, re.M)
    assert not (here / "results").exists()


def test_another_command_in_the_same_folder_is_said(here, capsys):
    assert main(["tune", *TINY, "algorithm=gd", "algorithm.gd.step=8"]) == 0
    assert main(["tune", *TINY, "algorithm=gd", "algorithm.gd.step=4"]) == 0
    said = capsys.readouterr().err
    assert said.count("held the results of another command until now") == 1
    assert "algorithm.gd.step=8" in said


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["algorithm=gdd"], "algorithm=gdd (did you mean gd?)"),
        (["algorithm=frank_wolfe,mean_noise"], "needs a set with vertices"),
        (["seed=0,1"], "seed=0,1: tune.seeds are tried on to choose"),
        (["experiment=leaderboard"], "blocks have their own `tune`"),
        (["panel=a"], "panel: belongs to an experiment"),
        (["profile=quick"], "must be one of default, paper, published, smoke"),
        (["tune.trials=3"], "tune.trials: no such key; did you mean tune.search."),
        (["tune.search.trials=1"], "tune.search.trials=1: must be at least"),
        (["tune.search.trials=many"], "tune.search.trials=many"),
        (["tune.search.race=1,1,1"], "tune.search.race=[1,1,1]"),
        (["tune.search.name=grid"], "tune.search.name: no such key"),
        (["tune.seeds=0,1", "tune.report=1"], "tune.report=1: is a tuning seed"),
        (["tune.quantity=auc"], "tune.quantity=auc: "),
        (["tune.quantity=speed"], "tune.quantity=speed: must be one of"),
        (["tune.axes.step=1,2"], "write tune.axes.ALGORITHM.PARAMETER"),
        (["tune.axes.sgd.step=1,2"], "tune.axes=sgd (did you mean gd?)"),
        (["tune.axes.gd.stp=1,2"], "stp (did you mean step?)"),
        (["tune.axes.gd.step=-1,2"], "step=-1"),
        (["tune.limits.gd.step=[4,2]"], "tune.limits.step=[4,2]: must be two numbers"),
        (["tune.limits.gd.ridge=[4,2]"], "parameter of gd=ridge"),
        (["tune.axes.gd.step=1", "tune.axes.gd.step=2"], "given twice"),
        (["algorithm.sgd.step=1"], "algorithm sgd is not chosen"),
        (["dataset.path=none.csv"], "none.csv"),
    ],
)
def test_what_is_wrong_gets_one_sentence(here, capsys, arguments, sentence):
    keys = {one.partition("=")[0] for one in arguments}
    usual = [one for one in TINY if one.partition("=")[0] not in keys]
    chosen = [] if "algorithm" in keys else ["algorithm=gd"]
    assert main(["tune", *usual, *chosen, *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert sentence in captured.err
    assert captured.err.count("\n") == 1
    assert not (here / "results").exists()


BOUNDED = {"clip_to_bounds": True, "bounds": {"columns": 3.0, "norm": 5.0}}
SMALL = {"dataset": {"name": "log1", "n": 60, "p": 4, **BOUNDED}}
POSED = (
    {**SMALL, "penalty": {"name": "l2", "strength": 0.1}},
    {**SMALL, "penalty": "none", "constraint": {"name": "l1_ball", "radius": 1.0}},
    {**SMALL, "penalty": {"name": "elastic_net", "strength": 0.1}},
    {"problem": "mean", "dataset": {"name": "hard_mean", "n": 50, "p": 2000}},
)


@each("name", registry.names("algorithm"))
def test_every_algorithm_has_somewhere_to_start(name):
    lines = []
    for posed in POSED:
        with contextlib.suppress(UsageError):
            (made,) = tuned_blocks([{**posed, "algorithm": name}], {})
            assert "tune" in made or name in ("mean_noise", "mean_projection")
            lines, missing = expand_blocks([made])
            assert not missing
            break
    assert lines, "no problem of POSED is served: add one"


def test_what_is_typed_is_fixed_and_a_list_is_an_axis():
    algorithm = {"name": "random_cd", "clip": 0.5, "step": [1, 2]}
    (block,) = tuned_blocks([{**LOG, "algorithm": algorithm}], {})
    assert block["algorithm"] == {"name": "random_cd", "clip": 0.5}
    assert block["tune"]["axes"] == {"passes": [1.0, 4.0, 16.0], "step": [1.0, 2.0]}
    assert (block["panel"], block["line"]) == ("log1", "random_cd")


def test_one_length_leaves_no_room_for_another():
    (block,) = tuned_blocks([{**LOG, "algorithm": {"name": "sgd", "n_iter": 9}}], {})
    assert block["algorithm"] == {"name": "sgd", "batch_size": 60, "n_iter": 9}
    assert [*block["tune"]["axes"]] == ["step", "clip"]
    assert block["tune"]["limits"] == {}


def test_axes_limits_and_searches_are_replaced():
    asked = {
        "axes": {"gd": {"n_iter": [2, 4]}},
        "limits": {"gd": {"n_iter": [1, 8]}},
        "search": {"trials": 99},
        "seeds": [*range(20)],
    }
    (block,) = tuned_blocks([{**LOG, "algorithm": "gd"}], asked, "paper")
    tune = block["tune"]
    assert tune["axes"]["n_iter"] == [2, 4]
    assert tune["axes"]["step"] == [1.0, 8.0, 64.0]
    assert (tune["limits"], tune["search"]) == ({"n_iter": [1, 8]}, {"trials": 99})
    assert (tune["seeds"], tune["report"]) == ([*range(20)], [*range(100, 140)])


def test_without_a_search_the_grid_is_all_there_is():
    (block,) = tuned_blocks([{**LOG, "algorithm": "sgd"}], {"search": None})
    assert block["tune"]["limits"] == {}
    ((line,), _) = expand_blocks([block])
    assert line.tune.search is None


def test_an_algorithm_of_ones_own_starts_around_its_defaults(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(OWN)
    (block,) = tuned_blocks([{**LOG, "algorithm": str(path)}], {})
    assert block["line"] == "own"
    axes = block["tune"]["axes"]
    assert axes["n_iter"] == [2, 10, 40]
    assert axes["step"] == [0.5, 2.0, 8.0]
    assert axes["clip"] == {"unit": "gradient_rms", "values": [0.1, 0.3, 1, 3]}
    assert [*axes][:3] == ["n_iter", "step", "clip"]
    assert [*axes][3:] == block["tune"]["aside"]
    assert axes["batch_size"] == [7, 2, 28] and axes["share"] == [0.5, 0.125]
    assert axes["rounds"] == [2, 1, 8] and axes["weight"] == [0.0, 1.0]
    assert axes["reach"] == [None, 4.0] and "word" not in axes
    small = start_of(block["algorithm"]["name"], "smoke")[1]["axes"]
    usual = {"n_iter": [10], "step": [2.0], "batch_size": [7], "share": [0.5]}
    usual |= {"rounds": [2], "weight": [0.0], "reach": [None]}
    clip = {"unit": "gradient_rms", "values": [0.3]}
    assert small == {**usual, "clip": clip}
    fixed = {"name": str(path), "step": 1.0, "clip": 1.0}
    (block,) = tuned_blocks([{**LOG, "algorithm": fixed}], {})
    assert {*axes} - {*block["tune"]["axes"]} == {"step", "clip"}
    (block,) = tuned_blocks([{**LOG, "algorithm": str(path)}], {"search": None})
    assert [*block["tune"]["axes"]] == ["n_iter", "step", "clip"]


def test_problems_are_told_apart_by_what_varies():
    data = [
        {"name": "file", "path": "a/one.csv"},
        {"name": "file", "path": "b/two.csv"},
    ]
    with pytest.raises(UsageError, match=r"one\.csv"):
        tuned_blocks([{"dataset": data, "algorithm": "gd"}], {})
    section = {
        "dataset": {"name": "log1", "n": 60, "p": 4, "seed": [1, 2]},
        "penalty": [{"name": "l2", "strength": [0.1, 1.0]}, "none"],
        "algorithm": "gd",
        "calibration": ["certified", "paper"],
        "budget": {"epsilon": [1.0, 2.0]},
    }
    blocks = tuned_blocks([section], {})
    found = {(block["panel"], block["line"]) for block in blocks}
    assert len(found) == len(blocks) == 12
    assert ("log1, seed=1, penalty=l2, strength=0.1", "gd, calibration=paper") in found
    assert all(block["budget"]["epsilon"] == [1.0, 2.0] for block in blocks)
