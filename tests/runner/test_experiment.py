import json

import pytest

from dp_erm_bench.errors import DataUnavailable, UsageError
from dp_erm_bench.problems.erm import build
from dp_erm_bench.results.runs import read_manifest
from dp_erm_bench.results.store import Store
from dp_erm_bench.results.table import load_results
from dp_erm_bench.runner import session, worker
from dp_erm_bench.runner.options import RunOptions


def test_a_run_leaves_a_table_a_plan_and_a_manifest(inline, block):
    command = ("bin/dp-erm-bench", "seed=1")
    config = {"a": float("inf")}
    assert inline(block(), command=command, config=config, profile="smoke") == 0
    names = {path.name for path in inline.folder.iterdir()}
    assert names == {
        "records.jsonl",
        "plan.jsonl",
        "results.parquet",
        "choices.csv",
        "manifest.json",
        "runs",
        ".lock",
    }
    manifest = read_manifest(inline.folder)
    assert manifest["outcome"] == "complete"
    assert manifest["counts"] == {"ok": 3}
    assert manifest["command"] == ["dp-erm-bench", "seed=1"]
    assert manifest["config"] == {"a": "inf"}
    assert manifest["profile"] == "smoke"
    assert manifest["started"] <= manifest["ended"]
    table = load_results(inline.folder)
    assert set(table["experiment"]) == {"study"}
    assert set(table["panel"]) == {"panel"} and set(table["line"]) == {"line"}


def test_the_second_run_computes_nothing(inline, block, monkeypatch, capsys):
    assert inline(block()) == 0
    files = [inline.folder / name for name in ("plan.jsonl", "results.parquet")]
    before = [path.stat().st_mtime_ns for path in files]

    def fail(*given):
        raise AssertionError("a batch was run")

    monkeypatch.setattr(worker, "run_recorded", fail)
    monkeypatch.setattr(session, "batches_of", fail)
    assert inline(block()) == 0
    assert [path.stat().st_mtime_ns for path in files] == before
    assert "3 trials (0 run now): 3 ok" in capsys.readouterr().out


def test_to_rename_a_line_runs_nothing(inline, block, capsys):
    inline(block(line="before"))
    records = Store(inline.folder).size
    inline(block(line="after", panel="elsewhere"))
    assert "3 trials (0 run now): 3 ok" in capsys.readouterr().out
    assert Store(inline.folder).size == records
    table = load_results(inline.folder)
    assert set(table["line"]) == {"after"} and set(table["panel"]) == {"elsewhere"}


def test_new_trials_join_those_recorded(inline, block, capsys):
    inline(block(seed=[0, 1]))
    inline(block(seed=[0, 1, 2, 3]))
    assert "4 trials (2 run now): 4 ok" in capsys.readouterr().out
    assert load_results(inline.folder)["seed"].nunique() == 4


def test_an_experiment_replaces_the_plan_and_a_sweep_appends(inline, block):
    inline(block(seed=[0, 1]))
    inline(block(seed=[2]))
    assert set(load_results(inline.folder)["seed"]) == {2}
    inline(block(seed=[0, 2]), append_plan=True)
    inline(block(seed=[7]), append_plan=True)
    table = load_results(inline.folder)
    assert set(table["seed"]) == {0, 2, 7}
    assert not table.duplicated(["trial", "iteration"]).any()
    assert len(Store(inline.folder)) == 4


def test_going_back_to_an_earlier_plan_makes_its_table_again(inline, block):
    for seeds in ([0, 1], [2], [0, 1]):
        inline(block(seed=seeds))
    assert set(load_results(inline.folder)["seed"]) == {0, 1}


def test_a_trial_of_two_lines_runs_once(inline, block, capsys):
    assert inline(block(line="a"), block(line="b")) == 0
    assert "3 trials (3 run now)" in capsys.readouterr().out
    table = load_results(inline.folder)
    assert table.groupby("line")["trial"].nunique().to_dict() == {"a": 3, "b": 3}


@pytest.mark.parametrize(
    "execute, code, status",
    [
        ("bowl", 0, "ok"),
        ("skipping", 1, "skipped"),
        ("all_diverging", 0, "diverged"),
        ("raising", 1, "error"),
    ],
)
def test_the_exit_code_is_that_of_the_worst_trial_now_or_earlier(
    inline, block, execute, code, status
):
    made = block(seed=[3])
    assert inline(made, execute=execute) == code
    assert set(load_results(inline.folder)["status"]) == {status}
    assert inline(made, execute="bowl") == code


def test_failures_run_again_only_when_asked(inline, block, capsys):
    made = block(seed=[1, 2, 3])
    assert inline(made, execute="raising") == 1
    assert "error: 1 trial\n  1 x ArithmeticError" in capsys.readouterr().out
    assert inline(made) == 1
    assert inline(made, retry=("killed",)) == 1
    assert inline(made, retry=("error",)) == 0
    assert "3 trials (1 run now): 3 ok" in capsys.readouterr().out
    assert set(load_results(inline.folder)["status"]) == {"ok"}


def test_a_plan_counts_and_leaves_no_trace(inline, block, tuned, capsys):
    blocks = [block(), tuned(line="tuned")]
    assert inline(*blocks, mode="plan") == 0
    assert not inline.folder.exists()
    line, tune, total = capsys.readouterr().out.splitlines()[1:4]
    assert line.split()[2:6] == ["3", "0", "0", "3"]
    assert tune.split()[2:6] == ["26", "0", "0", "26"]
    assert total.split()[1:5] == ["29", "0", "0", "29"]
    inline(*blocks, execute="raising")
    capsys.readouterr()
    inline(block(seed=[0, 1, 2, 3]), tuned(line="tuned"), mode="plan")
    line, tune, _ = capsys.readouterr().out.splitlines()[1:4]
    assert line.split()[2:6] == ["4", "3", "0", "1"]
    assert tune.split()[2:6] == ["26", "26", "0", "0"]


def far_away(monkeypatch):
    load = build.load_dataset

    def fetch(spec):
        if spec["n"] == 43:
            raise DataUnavailable("log1 is far away: walk there")
        return load(spec)

    monkeypatch.setattr(build, "load_dataset", fetch)
    return {"name": "log1", "n": 43, "p": 5}


def test_a_dataset_that_cannot_be_had_is_listed(inline, block, monkeypatch, capsys):
    gone = block(dataset=far_away(monkeypatch), line="gone")
    assert inline(gone, block()) == 0
    assert "not run: log1: log1 is far away: walk there" in capsys.readouterr().out
    (missing,) = read_manifest(inline.folder)["not_run"]
    assert (missing["line"], missing["dataset"]) == ("gone", "log1")
    assert set(load_results(inline.folder)["line"]) == {"line"}


def test_a_run_of_skipped_trials_alone_fails_whatever_data_are_missing(
    inline, block, monkeypatch
):
    gone = block(dataset=far_away(monkeypatch), line="gone")
    assert inline(gone, block(), execute="skipping") == 1
    # Trials that ran beside them, now or earlier, are a result.
    beside = block(line="beside", seed=[7])
    assert inline(gone, block(), beside) == 0
    assert inline(block()) == 1


def test_alone_it_is_an_error_of_a_sweep_but_not_of_an_experiment(
    inline, block, monkeypatch
):
    gone = block(dataset=far_away(monkeypatch))
    assert inline(gone) == 0
    assert len(load_results(inline.folder)) == 0
    with pytest.raises(DataUnavailable, match="far away"):
        inline(gone, append_plan=True)


def test_nothing_runs_before_every_block_is_checked(inline, block):
    with pytest.raises(UsageError, match="epsilon=-1"):
        inline(block(), block(line="other", budget={"epsilon": -1}))
    assert not inline.folder.exists()


def test_an_interrupted_run_says_so_and_keeps_its_records(inline, block, monkeypatch):
    def interrupt(progress, statuses):
        raise KeyboardInterrupt

    monkeypatch.setattr(session.Progress, "advance", interrupt)
    with pytest.raises(KeyboardInterrupt):
        inline(block(), batch_trials=1)
    manifest = read_manifest(inline.folder)
    assert manifest["outcome"] == "interrupted"
    assert len(Store(inline.folder)) == 1
    assert len(load_results(inline.folder).drop_duplicates("trial")) == 1
    monkeypatch.undo()


def test_the_plan_line_holds_the_spec(inline, block):
    inline(block(seed=5))
    (line,) = map(json.loads, (inline.folder / "plan.jsonl").read_text().splitlines())
    assert line["spec"]["seed"] == 5
    params = {"clip": 1.0, "passes": 2.0, "step": 1.0}
    assert line["spec"]["algorithm"]["params"] == params
    assert (line["phase"], line["tuned"]) == ("sweep", False)


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_jobs": 0},
        {"n_jobs": True},
        {"n_checkpoints": 1},
        {"batch_trials": 0},
        {"batch_work": 0.0},
        {"mode": "walk"},
        {"retry": ("ok",)},
    ],
)
def test_options_out_of_range_are_refused(wrong):
    (name,) = wrong
    with pytest.raises(UsageError, match=name):
        RunOptions(**wrong)
