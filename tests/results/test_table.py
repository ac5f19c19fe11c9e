import json
import shutil

import numpy as np
import pandas as pd
import pytest

from dp_erm_bench.datasets.spec import dataset_spec
from dp_erm_bench.errors import UsageError
from dp_erm_bench.results import table
from dp_erm_bench.results.store import Plan, RecordWriter, Store
from dp_erm_bench.results.table import (
    COLUMNS,
    MEASURED,
    bring_up_to_date,
    collect_table,
    is_stale,
    load_results,
)

RUN = "00000000000000000001-here-1"
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


def replace_plan(folder, lines):
    with Plan(folder, append=False) as plan:
        plan.add(lines)


@pytest.fixture
def load(tmp_path):
    def made(plan, records):
        RecordWriter(tmp_path, RUN).append(records)
        replace_plan(tmp_path, plan)
        return load_results(tmp_path)

    return made


def test_one_row_per_checkpoint_with_every_column(load):
    frame = load([line(1)], [record(1)])
    assert list(frame.columns) == list(COLUMNS)
    assert len(frame) == 3
    empty = [name for name in frame if frame[name].isna().all()]
    assert empty == [*MEASURED, "clipped"]
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


def test_parameters_and_options_are_columns_that_collide_with_none(load, tmp_path):
    params = (
        {"passes": 2, "step": 0.5, "order": "cyclic", "mean": True, "cap": 3},
        {"passes": 4, "step": "auto", "order": None, "blocks": [1, 2]},
    )
    specs = [
        {**SPEC, "dataset": dataset_spec("log1", n=50 * k), "loss": loss}
        for k, loss in ((1, {"name": "logistic"}), (2, {"name": "huber", "kappa": 2.0}))
    ]
    plan = [line(k, spec=spec) for k, spec in enumerate(specs)]
    facts = [{**FACTS, "params": one} for one in params]
    plain = load(plan, [record(k, facts=own) for k, own in enumerate(facts)])
    table = load_results(tmp_path, expand=True)
    pd.testing.assert_frame_equal(table[[*plain]], plain)
    assert not any("." in name for name in COLUMNS)
    rows = table.drop_duplicates("trial").set_index("trial")
    first, second = (
        {name: x for name, x in row.items() if "." in name and not pd.isna(x)}
        for row in rows.to_dict("records")
    )
    assert first == {
        **{"params.passes": 2, "params.step": "0.5", "params.order": "cyclic"},
        **{"params.mean": "true", "params.cap": 3.0, "dataset_options.n": 50},
    }
    assert second == {
        **{"params.passes": 4, "params.step": "auto", "params.blocks": "[1,2]"},
        **{"dataset_options.n": 100, "objective_options.loss.kappa": 2.0},
    }
    kinds = {name: one.kind for name, one in table.dtypes.items() if "." in name}
    numbers = {name for name, kind in kinds.items() if kind in "iuf"}
    assert numbers == {
        *("params.passes", "params.cap", "dataset_options.n"),
        "objective_options.loss.kappa",
    }
    assert len(load_results([tmp_path, tmp_path], expand=True)) == len(table)


@pytest.mark.parametrize("name", ["", "absent", "absent/deeper"])
def test_a_folder_without_results_is_refused_and_left_alone(name, tmp_path):
    with pytest.raises(UsageError, match="no results folder"):
        load_results(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_plan_is_an_empty_table(load):
    frame = load([], [])
    assert len(frame) == 0
    assert list(frame.columns) == list(COLUMNS)


def test_the_table_is_made_again_when_there_are_more_records(tmp_path):
    writer = RecordWriter(tmp_path, RUN)
    writer.append([record(1)])
    replace_plan(tmp_path, [line(1), line(2)])
    assert is_stale(tmp_path)
    assert len(load_results(tmp_path)) == 3
    assert not is_stale(tmp_path)
    writer.append([record(2)])
    assert is_stale(tmp_path)
    assert len(load_results(str(tmp_path))) == 6


def test_the_table_is_made_again_when_another_plan_has_the_same_length(tmp_path):
    RecordWriter(tmp_path, RUN).append([record(1), record(2)])
    for number in (1, 2):
        replace_plan(tmp_path, [line(number)])
        assert load_results(tmp_path)["trial"].unique() == [key(number)]


def test_a_copy_of_a_folder_is_not_stale(tmp_path):
    (tmp_path / "a").mkdir()
    RecordWriter(tmp_path / "a", RUN).append([record(1)])
    replace_plan(tmp_path / "a", [line(1)])
    collect_table(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b", copy_function=shutil.copyfile)
    assert not is_stale(tmp_path / "b")


def test_a_table_whose_records_are_gone_is_kept(tmp_path):
    RecordWriter(tmp_path, RUN).append([record(1)])
    replace_plan(tmp_path, [line(1)])
    before = load_results(tmp_path)
    (tmp_path / "records.jsonl").unlink()
    replace_plan(tmp_path, [line(1), line(2)])
    pd.testing.assert_frame_equal(load_results(tmp_path), before)


@pytest.mark.parametrize("where", [0, 0.3, 0.6, -1])
def test_a_damaged_table_is_made_again(tmp_path, where):
    RecordWriter(tmp_path, RUN).append([record(n) for n in range(50)])
    replace_plan(tmp_path, [line(n) for n in range(50)])
    path = collect_table(tmp_path)
    before, data = load_results(tmp_path), bytearray(path.read_bytes())
    data[int(where * len(data)) if where > 0 else where] ^= 0x55
    path.write_bytes(data)
    pd.testing.assert_frame_equal(load_results(tmp_path), before)


def test_a_damaged_table_without_records_is_a_sentence(tmp_path):
    replace_plan(tmp_path, [line(1)])
    (tmp_path / table.NAME).write_bytes(b"no table")
    with pytest.raises(UsageError, match="is damaged"):
        load_results(tmp_path)


def test_a_table_with_other_columns_is_made_again(tmp_path):
    RecordWriter(tmp_path, RUN).append([record(1)])
    replace_plan(tmp_path, [line(1)])
    path = collect_table(tmp_path)
    pd.read_parquet(path).drop(columns=["run", "auc"]).to_parquet(path)
    assert list(load_results(tmp_path).columns) == list(COLUMNS)


def test_records_that_cannot_be_read_leave_the_table_as_it_is(tmp_path):
    RecordWriter(tmp_path, RUN).append([record(1)])
    replace_plan(tmp_path, [line(1)])
    before = collect_table(tmp_path).read_bytes()
    (tmp_path / "records.jsonl").rename(tmp_path.parent / f"{tmp_path.name}.jsonl")
    (tmp_path / "records.jsonl").symlink_to(tmp_path.parent / f"{tmp_path.name}.jsonl")
    with pytest.raises(UsageError, match="leads out of its folder; results.parquet is"):
        collect_table(tmp_path)
    assert (tmp_path / table.NAME).read_bytes() == before


def test_references_are_a_column_of_json(load):
    facts = {**FACTS, "references": {"base_rate": {"auc": 0.5, "test_risk": None}}}
    frame = load([line(1), line(2)], [record(1, facts=facts), record(2)])
    texts = frame.groupby("trial")["references"].first()
    assert json.loads(texts[key(1)]) == facts["references"] and texts[key(2)] == "{}"


def test_every_row_names_the_run_that_computed_it(tmp_path):
    other = RUN.replace("here", "there")
    RecordWriter(tmp_path, RUN).append([record(1)])
    RecordWriter(tmp_path, other).append([record(2), record(1)])
    replace_plan(tmp_path, [line(1), line(2)])
    runs = load_results(tmp_path).groupby("trial")["run"].unique()
    assert runs[key(1)] == [other] and runs[key(2)] == [other]
    RecordWriter(tmp_path, other).append([record(1, "error", facts={}, path={})])
    assert load_results(tmp_path)["status"].eq("ok").all()


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({}, {}),
        ({"n": 7, "noise": 0.5}, {"n": 7, "noise": 0.5}),
        ({"standardise": True, "usual": None}, {"standardise": True, "usual": None}),
    ],
)
def test_what_differs_from_the_yaml_of_a_dataset_is_told(load, changes, expected):
    spec = {**SPEC, "dataset": dataset_spec("log1") | changes}
    frame = load([line(1, spec=spec)], [record(1)])
    assert [json.loads(text) for text in frame["dataset_options"]] == [expected] * 3


def test_a_dataset_that_is_no_more_keeps_all_its_options(load):
    spec = {**SPEC, "dataset": {"name": "gone", "b": 1, "a": [2], "_target_": "x.y"}}
    frame = load([line(1, spec=spec)], [record(1)])
    assert set(frame["dataset_options"]) == {'{"a": [2], "b": 1}'}


@pytest.mark.parametrize(
    "wrong",
    [
        {"spec": 1},
        {"spec": {}},
        {"spec": {**SPEC, "dataset": "log1"}},
        {"spec": {**SPEC, "budget": {"epsilon": "much"}}},
        {"panel": ["a"]},
    ],
)
def test_a_plan_line_of_no_use_costs_only_itself(load, wrong, capsys):
    plan = [line(1), line(2, **wrong), line(3)]
    frame = load(plan, [record(n) for n in (1, 2, 3)])
    assert frame["trial"].unique().tolist() == [key(1), key(3)]
    assert "results.parquet lacks 1 planned trial" in capsys.readouterr().err


def test_a_run_that_ends_puts_its_plan_back(tmp_path):
    RecordWriter(tmp_path, RUN).append([record(1), record(2)])
    with Plan(tmp_path, append=False) as mine, Plan(tmp_path, append=False) as other:
        mine.add([line(1)])
        other.add([line(2)])
        bring_up_to_date(Store(tmp_path), mine)
        assert load_results(tmp_path)["trial"].unique() == [key(1)]
        bring_up_to_date(Store(tmp_path), other)
        assert load_results(tmp_path)["trial"].unique() == [key(2)]


def test_a_table_that_is_right_is_not_written_again(tmp_path):
    RecordWriter(tmp_path, RUN).append([record(1)])
    with Plan(tmp_path, append=True) as plan:
        plan.add([line(1)])
        bring_up_to_date(Store(tmp_path), plan)
        before = (tmp_path / table.NAME).stat().st_ino
        plan.add([line(1)])
        bring_up_to_date(Store(tmp_path), plan)
        assert (tmp_path / table.NAME).stat().st_ino == before


def test_a_failed_collect_leaves_the_old_table(tmp_path, monkeypatch):
    RecordWriter(tmp_path, RUN).append([record(1)])
    replace_plan(tmp_path, [line(1)])
    before = collect_table(tmp_path).read_bytes()
    monkeypatch.setattr(table, "table_of", lambda *given: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        collect_table(tmp_path)
    assert (tmp_path / table.NAME).read_bytes() == before
    assert [path.name for path in tmp_path.glob(".*")] == [".lock"]


def test_types_survive_a_table_of_failures_only(load):
    frame = load([line(1)], [record(1, "killed", "died", {}, {})])
    assert pd.api.types.is_float_dtype(frame["objective"])
    assert pd.api.types.is_bool_dtype(frame["tuned"])
