"""Test the panels and lines of sweeps, and which runs may be pooled."""

import json

import pandas as pd
import pytest

from dp_erm_bench import load_results
from dp_erm_bench.cli.main import main
from dp_erm_bench.errors import UsageError
from dp_erm_bench.results.settings import (
    differing_columns,
    label_table,
    settings_in_words,
)
from dp_erm_bench.results.statistics import check_alike
from dp_erm_bench.results.table import recorded_results

SWEEP = """
    dataset=log1 dataset.n=60,90 dataset.p=4 algorithm=random_cd,gd
    algorithm.random_cd.clip=0.5,1 algorithm.random_cd.passes=2
    algorithm.gd.clip=1 algorithm.gd.n_iter=2
    budget.epsilon=1,2 seed=range(0,3) runner.n_jobs=1
""".split()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A sweep over data, parameters, epsilon and seeds."""
    home = tmp_path_factory.mktemp("sweep")
    assert main([*SWEEP, f"results_dir={home}", "name=small"]) == 0
    return home / "small"


@pytest.fixture(scope="module")
def table(folder):
    return load_results(folder)


def rows(**columns):
    usual = {"algorithm": "gd", "dataset": "log1", "seed": [0], "phase": "sweep"}
    usual |= {"trial": "a", "panel": "", "line": "", "status": "ok", "epsilon": 1.0}
    return pd.DataFrame(usual | columns)


def test_a_sweep_is_labelled_by_its_data_and_by_what_varies_besides(table):
    assert set(table["panel"]) == {"log1, n=60", "log1, n=90"}
    lines = {"random_cd, clip=0.5", "random_cd, clip=1", "gd"}
    assert set(table["line"]) == lines


def test_the_records_and_their_keys_stay(folder, table):
    plain = recorded_results(folder)
    assert set(plain["line"]) == set(plain["panel"]) == {""}
    assert list(plain["trial"]) == list(table["trial"])
    pd.testing.assert_frame_equal(
        plain.drop(columns=["panel", "line"]), table.drop(columns=["panel", "line"])
    )


def test_two_sweeps_are_compared_by_what_was_asked_for(folder, capsys):
    """What else varies in a folder names no trial."""
    assert main(["compare", str(folder), str(folder)]) == 0
    assert "same" in capsys.readouterr().out


def test_labels_of_an_experiment_stay():
    given = rows(panel=["mine"], line=["my line"])
    assert label_table(given) is given


def test_keys_that_follow_from_others_are_not_named():
    given = rows(
        seed=[0, 1],
        trial=["a", "b"],
        dataset_options=[json.dumps({"n": n}) for n in (60, 90)],
        strength=[1 / 60, 1 / 90],
    )
    assert list(label_table(given)["panel"]) == ["log1, n=60", "log1, n=90"]
    assert list(label_table(given)["line"]) == ["gd", "gd"]


def test_a_run_that_was_refused_names_no_difference():
    """It has no defaults of the parameters, and its loss is still `auto`."""
    given = rows(
        seed=[0, 1],
        trial=["a", "b"],
        status=["ok", "skipped"],
        loss=["logistic", "auto"],
        params=['{"clip": 1.0, "step": 0.5}', '{"clip": 1.0}'],
    )
    assert list(label_table(given)["line"]) == ["gd", "gd"]


@pytest.mark.parametrize("params", ["", "[broken", "[1]", "3", "null"])
def test_parameters_that_nobody_can_read_are_none(params):
    assert list(label_table(rows(params=[params]))["line"]) == ["gd"]


def test_a_file_is_called_by_its_name_not_by_its_path():
    options = [json.dumps({"path": f"/home/me/{name}.csv"}) for name in "ab"]
    given = rows(seed=[0, 1], trial=["a", "b"], dataset_options=options)
    assert list(label_table(given)["panel"]) == ["log1, path=a.csv", "log1, path=b.csv"]


def test_empty_cells_differ_from_nothing():
    frame = pd.DataFrame({"a": ["", "1", "1"], "b": ["1", "2", ""]}, dtype=object)
    assert differing_columns(frame, frame[[]]) == ["b"]


def test_settings_that_differ_are_not_pooled(table):
    with pytest.raises(UsageError, match=r"3 values|2 values of epsilon"):
        check_alike(table, ["panel", "line"], "keep one")
    with pytest.raises(UsageError, match=r"random_cd.clip \(0.5, 1\); keep one"):
        check_alike(table, ["panel", "algorithm", "epsilon"], "keep one")
    whole = check_alike(table, ["panel", "line", "epsilon"], "keep one")
    assert whole == "3 seeds, 1 draw of the data"


def test_runs_that_tune_are_not_pooled_with_those_that_judge(table):
    one = table[table["epsilon"] == 1]
    chosen = one.assign(phase=one["seed"].map({0: "tune"}).fillna("report"))
    with pytest.raises(UsageError, match=r"2 values of phase|values of"):
        check_alike(chosen, ["panel", "line"], "keep one")
    report = chosen[chosen["phase"] == "report"]
    assert check_alike(report, ["panel", "line"], "keep one").startswith("2 seeds")


def test_several_folders_are_one_table(folder, table):
    both = load_results([folder, str(folder)])
    assert len(both) == len(table)  # one key is one run
    pd.testing.assert_frame_equal(load_results([folder]), table)
    with pytest.raises(UsageError, match="at least one"):
        load_results([])


def test_columns_need_not_be_there():
    assert settings_in_words(pd.DataFrame({"seed": [1, 2]})).empty
