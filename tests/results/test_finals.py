import contextlib
import math

import pandas as pd
import pytest

from dp_erm_bench.errors import UsageError
from dp_erm_bench.results import files
from dp_erm_bench.results.compare import (
    asked_columns,
    compare_sides,
    finals_with_settings,
    labels_and_settings,
    labels_of_settings,
)
from dp_erm_bench.results.store import Plan, RecordWriter

RUN = "00000000000000000001-here-1"
SPEC = {
    "dataset": {
        **{"name": "log1", "_target_": "a.b", "usual": {"loss": "logistic"}},
        **{"seed": 4, "n": 10, "bounds": {"columns": 1}},
    },
    "loss": {"name": "logistic"},
    "penalty": {"name": "l2", "strength": 0.5},
    "constraint": {"name": "none"},
    "algorithm": {"name": "random_cd", "params": {"passes": 2.0}},
    "budget": {"epsilon": "inf", "delta": "1/n^2", "adjacency": "replace_one"},
    "calibration": "certified",
    "seed": 9,
    "n_checkpoints": 3,
}
PATH = {"iteration": [0, 2], "objective": [1.0, 0.5]}


def key(number):
    return f"{number:064x}"


def line(number, spec=SPEC, **changes):
    usual = {"key": key(number), "experiment": "study", "panel": "p", "line": "l"}
    return {**usual, "phase": "sweep", "tuned": False, "spec": spec, **changes}


def with_seed(seed, **changes):
    return {**SPEC, "seed": seed, **changes}


@pytest.fixture
def written(tmp_path):
    """Write a folder of lines whose trials all ended the same way."""

    def write(name, lines, status="ok", facts=None):
        folder = tmp_path / name
        folder.mkdir()
        RecordWriter(folder, RUN).append(
            {
                **{"key": row["key"], "status": status, "facts": facts or {}},
                **{"message": "", "trajectory": PATH if status == "ok" else {}},
            }
            for row in lines
        )
        with Plan(folder, append=False) as plan:
            plan.add(lines)
        return folder

    return write


def settings(*lines, **changes):
    """The settings of lines of a plan whose trials all failed."""
    found = [
        {
            **{"dataset": one["spec"]["dataset"]["name"], "phase": one["phase"]},
            **{"algorithm": one["spec"]["algorithm"]["name"], "epsilon": math.inf},
            **{"adjacency": "replace_one", "standardise": False, "n": math.nan},
            **{"panel": "p", "line": "l", **changes},
            **asked_columns(one["spec"]),
        }
        for one in lines
    ]
    return labels_and_settings(pd.DataFrame(found))


def test_a_setting_is_what_was_asked_for():
    (found,) = settings(line(1)).to_dict("records")
    assert found == {
        **{"panel": "p", "line": "l", "phase": "sweep"},
        **{"random_cd.passes": "2", "log1.n": "10", "log1.bounds": "{columns:1}"},
        **{"algorithm": "random_cd", "dataset": "log1", "standardise": "false"},
        **{"calibration": "certified", "loss": "logistic", "penalty": "l2"},
        **{"strength": "0.5", "constraint": "none", "epsilon": "inf"},
        **{"delta": "1/n^2", "adjacency": "replace_one"},
    }


def test_seeds_and_checkpoints_name_no_setting():
    dataset = {**SPEC["dataset"], "seed": 5}
    other = with_seed(1, n_checkpoints=7, dataset=dataset)
    assert settings(line(1, other), line(2)).nunique().max() == 1


def test_a_key_of_a_dataset_that_came_later_names_a_trial_where_it_is_used():
    specs = [{**SPEC, "dataset": {**SPEC["dataset"], "plateau": k}} for k in (None, 5)]
    unused, used = (line(1, spec) for spec in specs)
    assert settings(unused).equals(settings(line(1)))
    assert settings(unused, used)["log1.plateau"].tolist() == ["null", "5"]


def test_what_tuning_chose_names_no_setting():
    chosen = {**SPEC, "algorithm": {"name": "random_cd", "params": {"passes": 9.0}}}
    lines = [line(1, spec, phase="report") for spec in (SPEC, chosen)]
    tuned = settings(*lines)
    assert tuned.nunique().max() == 1
    assert tuned["random_cd.passes"].tolist() == ["", ""]
    assert settings(line(1, chosen))["random_cd.passes"].tolist() == ["9"]


def test_a_file_may_lie_elsewhere_but_is_another_one_by_another_content():
    def side(path, content):
        file = {"name": "file", "path": path}
        row = {"dataset": "file", "algorithm": "gd", "content": content, "n": 9}
        row |= asked_columns({**SPEC, "dataset": file})
        row |= {name: "" for name in ("panel", "line", "phase")}
        return pd.DataFrame([row])

    sides = [side("here/my.csv", "a"), side("there/my.csv", "a"), side("my.csv", "b")]
    every = labels_and_settings(pd.concat(sides, ignore_index=True))
    one, same, other = every["file.path"]
    assert one == same == "here/my.csv" != other
    assert labels_and_settings(sides[0])["file.path"].tolist() == ["my.csv"]


def test_a_loss_or_a_solver_of_ones_own_has_its_name_after_edits():
    before, after = (
        settings(line(1), objective_options=f'{{"loss.content": "{one}"}}', solver=one)
        for one in ("before", "after")
    )
    assert before.equals(after)


def test_tuning_trials_are_left_out_and_a_row_is_a_trial(written):
    lines = [line(1), line(2, with_seed(1), phase="tune"), line(3, with_seed(2))]
    rows = finals_with_settings(written("a", lines))
    assert rows["trial"].tolist() == [key(1), key(3)]
    assert rows["objective"].tolist() == [0.5, 0.5]
    assert rows["setting"].nunique() == 1


def test_a_trial_keeps_its_name_when_key_and_outcome_change(written):
    """What only a trial that ran can tell names nothing: a failure pairs, too."""
    facts = {"n": 10, "params": {"passes": 2.0, "step": 1.0}, "delta": 0.01}
    fine = written("a", [line(1)], facts=facts)
    failed = written("b", [line(2)], status="error")
    row = compare_sides(finals_with_settings(fine), finals_with_settings(failed)).iloc[
        0
    ]
    assert (row["note"], row["verdict"]) == ("1 ok -> error", "worse")


@pytest.mark.parametrize("spec", [{}, {"dataset": 3}, None])
def test_a_damaged_line_of_the_plan_costs_its_own_row_only(written, spec, capsys):
    folder = written("a", [line(1), line(2, with_seed(1))])
    finals_with_settings(folder)
    damaged = [line(1), line(2, spec)]
    text = b"".join(files.sealed_lines(map(files.compact_json, damaged)))
    (folder / "plan.jsonl").write_bytes(text)
    assert finals_with_settings(folder)["trial"].tolist() == [key(1)]
    assert "damaged" in capsys.readouterr().err


@pytest.mark.parametrize("odd", [None, [], {"a": 1}, [[2]], "\x1b[2J", True])
def test_an_odd_plan_with_checksums_that_fit_is_compared_or_refused(written, odd):
    parts = ("dataset", "penalty", "algorithm", "budget")
    spec = {**SPEC, "calibration": odd}
    spec |= {part: {key: odd for key in SPEC[part]} for part in parts}
    one = {**SPEC, "penalty": {"name": "l2", "strength": odd}}
    lines = [line(1), line(2, with_seed(1)), line(3, spec), line(4, one)]
    rows = finals_with_settings(written("a", lines))
    assert {key(1), key(2)} <= {*rows["trial"]}
    for ignore in ([], ["dataset"], ["n"]):
        with contextlib.suppress(UsageError):
            assert {*compare_sides(rows, rows, ignore=ignore)["verdict"]} == {"same"}


def test_trials_that_the_plan_lost_are_told_where_the_table_is_all_there_is(
    written, capsys
):
    folder = written("a", [line(1), line(2, with_seed(1))])
    finals_with_settings(folder)
    (folder / "records.jsonl").unlink()
    lines = (folder / "plan.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "plan.jsonl").write_bytes(lines[1])
    assert finals_with_settings(folder)["trial"].tolist() == [key(2)]
    assert "1 trial without a whole line of plan.jsonl" in capsys.readouterr().err


def test_a_folder_without_a_plan_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no plan.jsonl"):
        finals_with_settings(tmp_path)
    with pytest.raises(UsageError, match="no such folder"):
        finals_with_settings(tmp_path / "absent")


def test_settings_are_labelled_by_what_differs_under_the_same_labels():
    def named(panel, **params):
        algorithm = {"name": "random_cd", "params": params}
        return settings(line(1, {**SPEC, "algorithm": algorithm}), panel=panel)

    sides = [named("x", clip=1.0), named("x", clip=2.0), named("x"), named("y", k=3)]
    told = labels_of_settings(pd.concat(sides, ignore_index=True).fillna(""))
    assert told["setting"].tolist() == ["clip=1", "clip=2", "", ""]
    assert told["epsilon"].tolist() == ["inf"] * 4
