import os

import numpy as np
import pandas as pd
import pytest

from dp_erm_bench.errors import UsageError
from dp_erm_bench.results import table
from dp_erm_bench.results.segment import Segment
from dp_erm_bench.results.store import Store
from dp_erm_bench.results.table import COLUMNS, collect, is_stale, load_results

SPEC = {
    "dataset": {"name": "log1", "standardise": True, "seed": 4},
    "loss": {"name": "logistic"},
    "penalty": {"name": "l2", "strength": 0.5},
    "constraint": {"name": "none"},
    "algorithm": {"name": "random_cd", "params": {"passes": 2.0}},
    "budget": {"epsilon": "inf", "delta": "1/n^2", "adjacency": "replace_one"},
    "calibration": "certified",
    "seed": 9,
    "n_checkpoints": 3,
}
FACTS = {
    "n": 10,
    "p": 2,
    "loss": "logistic",
    "penalty": "l2",
    "strength": 0.5,
    "constraint": "none",
    "params": {"passes": 2.0, "step": 1.0},
    "delta": 0.01,
    "accountant": "gdp",
    "calibration": "paper (not proved)",
    "epsilon_certified": 1.5,
    "z": 3.0,
    "uncharged": ["smoothness", "standardisation"],
    "smoothness": "data",
    "batch_size": 4,
    "optimum": 0.25,
    "optimum_reason": "",
}
PATH = {
    "iteration": [0, 2, 4],
    "passes": [0.0, 1.0, 2.0],
    "seconds": [0.0, 0.1, 0.2],
    "objective": [1.0, 0.5, 0.25],
    "nnz": [0, 1, 2],
    "test_objective": [],
    "test_accuracy": [],
}


def key(number):
    return f"{number:064x}"


def line(number, **changes):
    usual = {
        "key": key(number),
        "experiment": "study",
        "panel": "panel",
        "line": "line",
        "phase": "sweep",
        "tuned": False,
        "spec": SPEC,
    }
    return {**usual, **changes}


def record(number, status="ok", message="", facts=FACTS, path=PATH):
    return {
        "key": key(number),
        "status": status,
        "message": message,
        "facts": facts,
        "trajectory": path,
    }


@pytest.fixture
def load(tmp_path):
    def made(plan, records):
        Segment(tmp_path, "1").append(records)
        Store(tmp_path).replace_plan(plan)
        return load_results(tmp_path)

    return made


def test_one_row_per_checkpoint_with_every_column(load):
    frame = load([line(1)], [record(1)])
    assert list(frame.columns) == list(COLUMNS)
    assert len(frame) == 3
    empty = [name for name in frame if frame[name].isna().all()]
    assert empty == ["test_objective", "test_accuracy"]
    first = frame.iloc[0]
    assert first["epsilon"] == np.inf
    assert (first["delta"], first["epsilon_certified"]) == (0.01, 1.5)
    assert first["calibration"] == "paper (not proved)"
    assert first["uncharged"] == "smoothness,standardisation"
    assert (first["seed"], first["dataset_seed"]) == (9, 4)
    assert bool(first["standardise"]) is True
    np.testing.assert_allclose(frame["relative_error"], [3.0, 1.0, 0.0])


def test_a_tuned_trial_says_that_tuning_was_not_charged(load):
    frame = load([line(1, phase="report", tuned=True)], [record(1)])
    assert set(frame["uncharged"]) == {"smoothness,standardisation,tuning"}
    assert frame["tuned"].all()


def test_a_threshold_in_units_of_the_data_was_chosen_by_looking(load):
    frame = load([line(1, measured=True), line(2, measured=False)], [record(1)])
    assert set(frame["uncharged"]) == {"smoothness,standardisation,tuning"}
    assert not frame["tuned"].any()


def test_a_trial_without_trajectory_is_one_row(load):
    frame = load([line(1)], [record(1, "error", "Boom: why", {}, {})])
    assert len(frame) == 1
    row = frame.iloc[0]
    assert (row["status"], row["message"]) == ("error", "Boom: why")
    assert (row["dataset"], row["algorithm"]) == ("log1", "random_cd")
    assert row["strength"] == 0.5
    assert np.isnan(row["delta"]) and np.isnan(row["objective"])


@pytest.mark.parametrize("optimum", [None, 0.0])
def test_without_optimum_the_error_is_empty_and_the_reason_told(load, optimum):
    facts = {**FACTS, "optimum": optimum, "optimum_reason": "separable data"}
    frame = load([line(1)], [record(1, facts=facts)])
    assert frame["relative_error"].isna().all()
    assert set(frame["message"]) == {"separable data"}


def test_a_diverged_objective_is_empty(load):
    path = {**PATH, "objective": [1.0, np.nan, np.inf]}
    frame = load([line(1)], [record(1, "diverged", "not finite", path=path)])
    assert frame["objective"].isna().tolist() == [False, True, True]
    assert frame["relative_error"].isna().tolist() == [False, True, True]


def test_rows_follow_the_plan_and_a_trial_may_serve_two_lines(load):
    plan = [line(2), line(3), line(1), line(2, line="other", phase="tune")]
    frame = load(plan, [record(1), record(2)])
    trials = frame.drop_duplicates(["trial", "line"])["trial"].tolist()
    assert trials == [key(2), key(1), key(2)]
    assert set(frame.loc[frame["line"] == "other", "phase"]) == {"tune"}


def test_many_chunks_are_one_table(load, monkeypatch):
    monkeypatch.setattr(table, "CHUNK", 3)
    numbers = range(10)
    frame = load([line(n) for n in numbers], [record(n) for n in numbers])
    assert len(frame) == 30
    assert frame["trial"].nunique() == 10


@pytest.mark.parametrize("name", ["", "absent", "absent/deeper"])
def test_a_folder_without_results_is_refused_and_left_alone(name, tmp_path):
    with pytest.raises(UsageError, match="no results folder"):
        load_results(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_plan_is_an_empty_table(load):
    frame = load([], [])
    assert len(frame) == 0
    assert list(frame.columns) == list(COLUMNS)


def test_the_table_is_made_again_when_a_segment_is_newer(tmp_path):
    Segment(tmp_path, "1").append([record(1)])
    Store(tmp_path).replace_plan([line(1), line(2)])
    assert is_stale(tmp_path)
    assert len(load_results(tmp_path)) == 3
    assert not is_stale(tmp_path)
    Segment(tmp_path, "1").append([record(2)])
    later = (tmp_path / table.NAME).stat().st_mtime_ns + 10**9
    os.utime(max((tmp_path / "segments").iterdir()), ns=(later, later))
    assert len(load_results(str(tmp_path))) == 6


def test_a_failed_collect_leaves_the_old_table(tmp_path, monkeypatch):
    Segment(tmp_path, "1").append([record(1)])
    Store(tmp_path).replace_plan([line(1)])
    before = collect(tmp_path).read_bytes()
    monkeypatch.setattr(table, "_table", lambda *given: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        collect(tmp_path)
    assert (tmp_path / table.NAME).read_bytes() == before
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_types_survive_a_table_of_failures_only(load):
    frame = load([line(1)], [record(1, "killed", "died", {}, {})])
    assert pd.api.types.is_float_dtype(frame["objective"])
    assert pd.api.types.is_bool_dtype(frame["tuned"])
