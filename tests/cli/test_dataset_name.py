"""Test that `dataset=libsvm dataset.name=a9a` keeps the name `libsvm:a9a`."""

import json
import os

import pandas as pd
import pytest

from dp_erm_bench.cli.line import parse_argument
from dp_erm_bench.cli.main import main
from dp_erm_bench.cli.sweep import dataset_of_member, place_key
from dp_erm_bench.datasets import libsvm
from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.expand import datasets_of
from dp_erm_bench.experiment.lines import line_of
from dp_erm_bench.experiment.schema import blocks_of


def datasets(given):
    """The names and keys of the datasets of a block as the command line makes it."""
    (block,) = blocks_of([{"algorithm": "random_cd", **given}])
    return datasets_of(block)


@pytest.mark.parametrize(
    ("base", "name", "expected"),
    [
        ("libsvm", "a9a", "libsvm:a9a"),
        ("libsvm:w8a", "a9a", "libsvm:a9a"),
        ("log1", "log1", "log1"),
    ],
)
def test_a_member_is_named_after_its_group(base, name, expected):
    assert dataset_of_member(base, name) == expected


@pytest.mark.parametrize("names", [["a9a"], ["a9a", "w8a"]])
def test_names_are_an_axis(names):
    block = {"dataset": {"name": "libsvm", "standardise": False}}
    place_key(block, parse_argument(f"dataset.name={','.join(names)}"))
    found = list(datasets(block))
    assert [name for name, _ in found] == [f"libsvm:{name}" for name in names]
    assert all(given == {"standardise": False} for _, given in found)


def test_a_name_in_another_dataset_is_refused():
    block = {"dataset": {"name": "log1"}}
    place_key(block, parse_argument("dataset.name=a9a"))
    with pytest.raises(UsageError, match="log1 is one dataset"):
        list(datasets(block))


def test_the_command_line_hands_the_name_on(line):
    (block,) = line("dataset=libsvm", "dataset.name=a9a").blocks
    assert block["dataset"] == {"name": "libsvm:a9a", "bounds": "auto"}
    (block,) = line("dataset=libsvm", "dataset.name=a9a,w8a").blocks
    assert block["dataset"]["name"] == ["libsvm:a9a", "libsvm:w8a"]


def test_lists_of_labels_and_bounds_reach_the_dataset_whole(line):
    (block,) = line(
        "dataset=file",
        "dataset.path=records.csv",
        "dataset.positive=[2,3]",
        "dataset.label=kind",
        "dataset.bounds.columns=[1,2]",
        "dataset.clip_to_bounds=true",
    ).blocks
    ((name, given),) = datasets(block)
    assert (name, given["path"], given["positive"]) == ("file", "records.csv", [2, 3])
    assert given["label"] == "kind"
    assert given["bounds"] == {"columns": [1, 2]} and given["clip_to_bounds"] is True


@pytest.mark.parametrize("listed", ["a1a,heart_scale"])
def test_a_run_names_its_sets_in_table_and_plan(listed, tmp_path, monkeypatch):
    if "DP_ERM_BENCH_DATA" not in os.environ:
        pytest.skip("no mirror of the real data: set DP_ERM_BENCH_DATA")
    monkeypatch.chdir(tmp_path)
    arguments = ["dataset=libsvm", f"dataset.name={listed}", "algorithm=greedy_cd"]
    arguments += ["algorithm.greedy_cd.n_iter=1", "algorithm.greedy_cd.clip=1"]
    assert main([*arguments, "runner.n_jobs=1", "runner.progress=false"]) == 0
    folder = tmp_path / "results" / "sweep"
    table = pd.read_parquet(folder / "results.parquet")
    assert set(table["dataset"]) == {f"libsvm:{name}" for name in listed.split(",")}
    assert set(table["status"]) == {"ok"}
    for entry in map(json.loads, (folder / "plan.jsonl").read_text().splitlines()):
        spec = entry["spec"]
        trial = line_of(spec).setting().trial(spec["seed"], spec["n_checkpoints"])
        assert trial.key == entry["key"]


WRONG = [
    (["dataset=libsvm"], "such as dataset.name=a9a"),
    (["dataset=libsvm", "dataset.name=w4a"], "libsvmdata downloads w1a"),
    (["dataset=libsvm", "dataset.name=a9b"], "the nearest are a9a"),
    (["dataset=log1", "dataset.name=a9a"], "log1 is one dataset"),
    (["dataset=file"], "such as dataset.path=data.csv"),
    (["dataset=file", "dataset.path=none.csv"], "there is no such file"),
    (["dataset=file", "dataset.path=text.csv"], 'column "a" holds text in row '),
    (["dataset=log1", "dataset.positive=[3]"], "must be some, but not all"),
    (["dataset=log1", "dataset.clip_to_bounds=true"], "dataset.clip_to_bounds=True"),
    (["dataset=log1", "dataset.n=1"], "dataset.n=1: must be an integer >= 2"),
    (["dataset=quasi_sparse", "dataset.tau=101"], "between 0 and p = 100"),
    (["dataset=quasi_sparse", "dataset.bounds.columns=1"], "clip_to_bounds=true"),
    (["dataset=mushrooms", "dataset.standardise=true"], "dataset.standardise=scale"),
]


@pytest.mark.parametrize(("arguments", "said"), WRONG)
def test_a_wrong_dataset_is_refused_in_one_sentence(
    arguments, said, tmp_path, monkeypatch, capsys
):
    if "mushrooms" in str(arguments) and "DP_ERM_BENCH_DATA" not in os.environ:
        pytest.skip("no mirror of the real data: set DP_ERM_BENCH_DATA")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.csv").write_text("a,y\nred,0\n1,1\n")
    assert main(arguments) == 2
    told = capsys.readouterr()
    assert said in told.err and told.err.count("\n") == 1 and not told.out
    assert not (tmp_path / "results").exists()


def test_a_dataset_without_file_is_not_run_with_the_way_to_get_it(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(libsvm, "is_reachable", lambda host: False)
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert main(["dataset=mtp"]) != 0
    told = capsys.readouterr().err
    assert "dataset mtp cannot be had" in told and "fetch_openml('mtp'" in told
