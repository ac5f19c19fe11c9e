"""Test a first command line: a shipped dataset, an algorithm, and nothing else."""

import json

import numpy as np
import pytest

from dp_erm_bench import (
    fit,
    load_problem,
    load_results,
    problem_from_arrays,
    registry,
)
from dp_erm_bench.cli.main import main
from dp_erm_bench.datasets.spec import dataset_spec, default_bounds
from dp_erm_bench.errors import DataUnavailable, Unsupported, UsageError
from dp_erm_bench.experiment.expand import _needs_bounds, expand_blocks
from dp_erm_bench.experiment.lines import refusal_of_algorithm
from dp_erm_bench.experiment.parameters import algorithm_of
from dp_erm_bench.experiment.tuned import tuned_blocks
from dp_erm_bench.registry import names
from tests.contract.own import SOUND

LACKS = ("needs declared bounds", "clipping threshold")


def yaml_of(name):
    return registry.read_choice("dataset", name)


def refusals_of(dataset):
    """The reason of each algorithm that refuses a dataset as it ships."""
    for name in names("algorithm"):
        kind = "mean" if name.startswith("mean_") else "erm"
        data = {"name": dataset, "bounds": "auto"}
        try:
            lines, _ = expand_blocks(
                [{"dataset": data, "problem": kind, "algorithm": name}]
            )
        except UsageError as error:
            assert "dataset.task=unlabelled" in str(error)
            continue
        for line in lines:
            where = line.params, line.problem, line.budget, line.calibration
            yield name, refusal_of_algorithm(algorithm_of(name), *where)


HERE = [name for name in names("dataset") if "synthetic" in yaml_of(name)["_target_"]]
HERE += ["breast_cancer", "diabetes"]
ELSEWHERE = [name for name in names("dataset") if name not in (*HERE, "file", "libsvm")]


@pytest.mark.parametrize(
    "shipped",
    [
        HERE,
        pytest.param([*ELSEWHERE, "libsvm:a9a"], marks=pytest.mark.slow),
    ],
)
def test_no_shipped_dataset_lacks_a_bound_or_a_threshold(shipped):
    served = 0
    for dataset in shipped:
        for name, reason in refusals_of(dataset):
            served += not reason
            assert not any(one in reason for one in LACKS), (dataset, name, reason)
    assert served or shipped != HERE


def test_default_bounds_have_a_reason_and_stand_in_no_specification():
    offered = [n for n in names("dataset") if "default_bounds" in str(yaml_of(n))]
    assert len(offered) > 12
    for name in offered:
        yaml = yaml_of(name)
        for key in ("default_bounds", "default_bounds_standardised"):
            assert len(yaml.get(key, {"why": "a b c d"})["why"].split()) > 3
        assert not {key for key in dataset_spec(name) if key.startswith("default")}
        assert yaml["bounds"] is None


def test_the_row_says_that_records_are_clipped_by_default(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    typed = "dataset=log1 dataset.n=80 algorithm=greedy_cd,gd runner.progress=false"
    assert main([*typed.split(), "name=usual"]) == 0
    rows = load_results("results/usual").drop_duplicates("trial", keep="last")
    assert [*rows["by_default"]] == ["clip=default"] * 2
    bounds = json.loads(rows["dataset_options"].iloc[0])["bounds"]
    assert bounds == default_bounds("log1", {}) == {"columns": 4, "norm": 11.7}
    # Who names them has the same trials; who names a threshold needs no bounds.
    named = "dataset.bounds.columns=4 dataset.bounds.norm=11.7"
    more = f"{named} dataset.clip_to_bounds=true name=named"
    assert main([*typed.split(), *more.split()]) == 0
    again = load_results("results/named").drop_duplicates("trial", keep="last")
    assert sorted(again["trial"]) == sorted(rows["trial"])
    assert main([*typed.split(), "algorithm.gd.clip=1", "name=own"]) == 0
    own = load_results("results/own").drop_duplicates("trial", keep="last")
    own = own.set_index("algorithm")["by_default"]
    assert (own["gd"] or "", own["greedy_cd"]) == ("", "clip=default")


def test_all_budgets_of_a_sweep_have_the_same_records():
    block = {"dataset": {"name": "log1", "bounds": "auto"}, "algorithm": "gd"}
    lines, _ = expand_blocks([{**block, "budget": {"epsilon": [1.0, "inf"]}}])
    assert [line.clipping_notes["by_default"] for line in lines] == ["clip=default"] * 2
    (alone,), _ = expand_blocks([{**block, "budget": {"epsilon": ["inf"]}}])
    assert not alone.clipping_notes


def test_in_python_default_bounds_are_asked_for_by_their_name():
    problem = load_problem("log1", n=60, bounds="default")
    assert problem.dataset.bounds.norm == 11.7
    hint = r"load_problem\('log1', bounds='default'\)"
    with pytest.raises(Unsupported, match=hint):
        fit(load_problem("log1", n=60), "gd", epsilon=1.0)
    with pytest.raises(UsageError, match="communities has no default bounds"):
        try:
            load_problem("communities", bounds="default")
        except DataUnavailable:
            pytest.skip("the data are not here")
    with pytest.raises(UsageError, match="must be auto, default, null"):
        load_problem("log1", bounds="defualt")


def test_a_solver_of_ones_own_has_the_records_of_ours(tmp_path, monkeypatch):
    (tmp_path / "noisy_gd.py").write_text(SOUND)
    monkeypatch.chdir(tmp_path)
    typed = "dataset=log1 dataset.n=80 algorithm=noisy_gd.py,gd runner.progress=false"
    assert main(typed.split()) == 0
    rows = load_results("results/sweep").drop_duplicates("trial", keep="last")
    assert [*rows["by_default"]] == ["clip=default"] * 2 and rows["status"].eq(
        "ok"
    ).all()
    blocks = {"dataset": {"name": "log1", "bounds": "auto"}}
    own = {"name": "noisy_gd.py", "clip": 1.0}
    (line,), _ = expand_blocks([{**blocks, "algorithm": own}])
    assert not line.clipping_notes


def test_what_is_tuned_together_has_the_same_records():
    block = {"dataset": {"name": "log1", "bounds": "auto"}, "seed": 0}
    gd, solved = ({**block, "algorithm": one} for one in ("gd", "output_perturbation"))
    (alone,) = tuned_blocks([gd], {})
    assert alone["dataset"]["bounds"] == "auto"  # its thresholds are searched
    both = tuned_blocks([gd, solved], {})
    assert [one["dataset"]["bounds"] for one in both] == ["default"] * 2
    assert all("tune" in one for one in both)


def test_default_bounds_are_always_clipped_to():
    block = {"name": "log1", "bounds": "auto", "clip_to_bounds": False}
    (line,), _ = expand_blocks([{"dataset": block, "algorithm": "gd"}])
    assert line.problem.dataset.bounds is None
    with pytest.raises(UsageError, match="clip_to_bounds=False: must be true"):
        load_problem("log1", bounds="default", clip_to_bounds=False)


def test_whether_bounds_are_needed_does_not_rest_on_the_records():
    """Of records that are all zero no coordinate ever moves, and none is refused."""
    y = np.repeat([-1.0, 1.0], 15)
    zeros = problem_from_arrays(np.zeros((30, 4)), y, loss="logistic")
    budget = {"epsilon": 1.0, "delta": 0.01, "adjacency": "replace_one"}
    for name in ("greedy_cd", "random_cd", "gd", "svrg"):
        assert _needs_bounds(name, {}, zeros, [(budget, "certified")]), name
        clip = {"clip": ([1.0], False)}
        assert not _needs_bounds(name, clip, zeros, [(budget, "certified")]), name


def test_an_experiments_block_says_all_of_its_parameters():
    data = {"name": "diabetes", "bounds": "auto"}
    block = {"dataset": data, "algorithm": {"name": "svrg", "batch_size": 1}}
    (line,), _ = expand_blocks([block])
    assert line.params["clip"] > 0.0 and line.rule == "svrg-0: clip"
    (labelled,), _ = expand_blocks([{**block, "panel": "diabetes", "line": "greedy"}])
    assert "clip" not in labelled.params and labelled.rule == ""
