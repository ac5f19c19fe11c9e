import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_erm_bench.errors import DataUnavailable, UsageError
from dp_erm_bench.experiment.expand import expand_blocks
from dp_erm_bench.experiment.parameters import algorithm_of
from dp_erm_bench.experiment.schema import (
    convert_value,
    distinct_values,
    points_of,
    values_of,
    write_out_blocks,
)
from dp_erm_bench.problems.erm import build
from tests.loops import each


def trials(*blocks):
    lines, _ = expand_blocks(blocks)
    return [one for line in lines for one in line.sweep(51)]


def test_a_block_is_the_product_of_its_lists(block):
    made = block(
        dataset={"name": "log1", "n": [50, 60], "p": 5},
        penalty={"name": "l2", "strength": [0.1, 0.2]},
        algorithm={"name": ["random_cd", "sgd"], "clip": [1, 2], "passes": 1},
        budget={"epsilon": [1, "inf"], "delta": ["1/n", 1e-5]},
        calibration=["certified", "authors"],
        seed=list(range(3)),
    )
    found = trials(made)
    assert len(found) == 2 * 2 * 2 * 2 * 2 * 2 * 2 * 3
    assert len({trial.key for trial in found}) == len(found)
    assert {trial.spec["dataset"]["n"] for trial in found} == {50, 60}
    assert {trial.spec["penalty"]["strength"] for trial in found} == {0.1, 0.2}


def test_panels_and_lines_are_written_out():
    plain = {"panel": "p", "line": "l"}
    many = {
        "loss": "logistic",
        "panels": {"a": {"dataset": 1}, "b": {"dataset": 2, "loss": "huber"}},
        "lines": [{"line": "x"}, {"line": "y", "loss": "squared"}],
    }
    assert write_out_blocks([plain, many, "no block"]) == [
        plain,
        {"panel": "a", "dataset": 1, "line": "x", "loss": "logistic"},
        {"panel": "a", "dataset": 1, "line": "y", "loss": "squared"},
        {"panel": "b", "dataset": 2, "line": "x", "loss": "huber"},
        {"panel": "b", "dataset": 2, "line": "y", "loss": "squared"},
        "no block",
    ]


@each(
    "block, said",
    [
        ({"panels": {"a": {}}}, "lines=null: must be mappings, at least one"),
        ({"lines": [{}]}, "panels=null: must be names with a mapping each"),
        (
            {"panels": {"a": {}}, "lines": [{}], "panel": "b"},
            "panel=b: must be left out, panels has it",
        ),
        ({"panels": {}, "lines": [{}]}, "panels={}: must be names"),
        ({"panels": {"a": 1}, "lines": [{}]}, "panels={a:1}: must be names"),
        ({"panels": {"a": {}}, "lines": {"a": 1}}, "lines={a:1}: must be mappings"),
        ({"panels": {"a": {}}, "lines": ["gd"]}, "lines=[gd]: must be mappings"),
    ],
)
def test_panels_and_lines_are_needed_both(block, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        write_out_blocks([block])


def test_choices_may_be_lists_of_names_and_mappings(block):
    small = {"name": "log1", "n": 50, "p": 5}
    made = block(dataset=[small, {"name": "log2", "n": 50, "p": 5}], loss=["logistic"])
    names = {trial.spec["dataset"]["name"] for trial in trials(made)}
    assert names == {"log1", "log2"}


def test_the_usual_objective_stands_for_auto(block):
    spec = trials(block())[0].spec
    assert spec["loss"] == {"name": "logistic"}
    assert spec["penalty"] == {"name": "l2", "strength": 0.001}
    assert spec["constraint"] == {"name": "none"}


def test_values_that_mean_the_same_are_one(block):
    algorithm = {"name": "random_cd", "passes": [1, 1.0, "1"], "clip": 1}
    assert len(trials(block(algorithm=algorithm, seed=[1, 1]))) == 1


def test_equal_numbers_of_an_axis_are_one(block):
    made = block(
        dataset={"name": "log1", "n": [50, 50.0], "p": 5, "seed": [1, 1]},
        penalty={"name": "l2", "strength": [1, 1.0, 0.1]},
        algorithm={"name": "random_cd", "clip": [1, 1.0]},
        budget={"epsilon": [1, 1.0, "inf", math.inf], "delta": [1e-5, 0.00001]},
        seed=[0],
    )
    found = trials(made)
    assert len(found) == 2 * 2 and len({trial.key for trial in found}) == 4
    assert distinct_values([1, True, 1.0, [1], [1.0], {"a": 1}, {"a": 1.0}, "1"]) == [
        *(1, True, [1], {"a": 1}, "1")
    ]


def test_relative_thresholds_are_multiples_of_the_gradient(block):
    clip = {"unit": "gradient_rms", "values": [0.5, 2]}
    lines, _ = expand_blocks([block(algorithm={"name": "random_cd", "clip": clip})])
    unit = lines[0].problem.gradient_rms
    found = [s.spec["algorithm"]["params"]["clip"] for c in lines for s in c.settings]
    assert found == pytest.approx([0.5 * unit, 2 * unit], rel=1e-11)


@pytest.mark.parametrize("where", ["fixed", "axis", "nowhere"])
def test_a_threshold_in_units_of_the_data_is_marked(block, tuned, where):
    clip = {"unit": "gradient_rms", "values": [0.5, 2]}
    made = {
        "fixed": lambda: block(algorithm={"name": "random_cd", "clip": clip}),
        "axis": lambda: tuned({"axes": {"step": [1.0], "clip": clip}}),
        "nowhere": lambda: block(algorithm={"name": "random_cd", "clip": [1, 2]}),
    }
    lines, _ = expand_blocks([made[where]()])
    assert {line.measured for line in lines} == {where != "nowhere"}
    for line in lines:
        rows = [one.row("name") for one in line.sweep(51)] if line.seeds else []
        assert all(row["measured"] is line.measured for row in rows)


def test_the_unit_is_rounded_so_that_threads_do_not_change_keys(block):
    clip = {"unit": "gradient_rms", "values": [1]}
    (line,), _ = expand_blocks([block(algorithm={"name": "random_cd", "clip": clip})])
    unit = line.params["clip"]
    assert unit == float(f"{unit:.12g}")
    assert unit == pytest.approx(line.problem.gradient_rms, rel=1e-11)


WRONG = {
    "unknown key of a block": ({"sed": 1}, "sed: no such key; did you mean seed?"),
    "unknown dataset": ({"dataset": "log9"}, "log9"),
    "unknown key of a dataset": ({"dataset": {"name": "log1", "rows": 3}}, "rows"),
    "a dataset's number": ({"dataset": {"name": "log1", "n": "many"}}, "dataset.n"),
    "no dataset": ({"dataset": None}, "dataset"),
    "unknown loss": ({"loss": "hinged"}, "hinged"),
    "negative strength": ({"penalty": {"name": "l2", "strength": -1}}, "strength"),
    "unknown algorithm": ({"algorithm": "newtom"}, "did you mean newton"),
    "unknown parameter": ({"algorithm": {"name": "sgd", "lr": 1}}, "lr"),
    "parameter of no type": (
        {"algorithm": {"name": "sgd", "step": "big"}},
        "algorithm.sgd.step=big",
    ),
    "fraction of a step": (
        {"algorithm": {"name": "greedy_cd", "n_iter": 1.5}},
        "algorithm.greedy_cd.n_iter=1.5",
    ),
    "out of range": ({"algorithm": {"name": "greedy_cd", "n_iter": -1}}, "n_iter=-1"),
    "one bad value of an axis": (
        {"algorithm": {"name": "random_cd", "clip": [1.0, -2.0]}},
        "clip=-2.0",
    ),
    "empty axis": ({"algorithm": {"name": "sgd", "step": []}}, "step=[]"),
    "unknown rule": ({"algorithm": {"name": "greedy_cd", "rule": "x"}}, "rule=x"),
    "epsilon too small": (
        {"budget": {"epsilon": 1e-300}},
        "epsilon=1e-300",
    ),
    "a length said twice": (
        {"algorithm": {"name": "sgd", "passes": [1, 2], "n_iter": 3}},
        "sgd.n_iter: stands in place of passes",
    ),
    "epsilon zero": ({"budget": {"epsilon": 0}}, "epsilon=0"),
    "delta two": ({"budget": {"delta": 2}}, "delta=2"),
    "unknown key of a budget": ({"budget": {"eps": 1}}, "budget.eps"),
    "null budget": ({"budget": {"epsilon": None}}, "budget.epsilon=null"),
    "null seed": ({"seed": None}, "seed=null: must be a value"),
    "unknown calibration": ({"calibration": "cheap"}, "cheap"),
    "negative seed": ({"seed": -1}, "seed=-1"),
    "seed as text": ({"seed": "range(0,3)"}, "seed=range(0,3)"),
    "no seeds": ({"seed": []}, "seed=[]"),
    "unit": (
        {"algorithm": {"name": "sgd", "clip": {"unit": "cm", "values": [1]}}},
        "unit=cm",
    ),
    "multiples": (
        {"algorithm": {"name": "sgd", "clip": {"unit": "gradient_rms", "values": 0}}},
        "values=0",
    ),
}


@each("name", WRONG)
def test_wrong_blocks_die_with_one_sentence(block, name):
    changes, told = WRONG[name]
    with pytest.raises(UsageError) as caught:
        expand_blocks([block(**changes)])
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


WRONG_TUNE = {
    "no report": ({"report": None}, "tune.report"),
    "no axes": ({"axes": None}, "tune.axes"),
    "unknown key": ({"seed": [1]}, "tune.seed"),
    "report on a tuning seed": ({"report": [5, 1]}, "tune.report=1"),
    "aside no axis": ({"aside": ["passes"]}, "aside=passes"),
    "axis of no parameter": ({"axes": {"steps": [1]}}, "steps"),
    "axis that is fixed": ({"axes": {"passes": [1, 2]}}, "passes: is given twice"),
    "wrong value": ({"axes": {"step": [0.1, "x"]}}, "step=x"),
    "refused value": ({"axes": {"step": [0.1, -3]}}, "step=-3"),
    "another line's choice": ({"inherit": {"line": "line"}}, "tune.inherit"),
}


@each("name", WRONG_TUNE)
def test_wrong_tuning_dies_with_one_sentence(tuned, name):
    changes, told = WRONG_TUNE[name]
    with pytest.raises(UsageError) as caught:
        expand_blocks([tuned(changes)])
    assert told in str(caught.value)


def test_tuned_blocks_have_no_seed_of_their_own(tuned):
    with pytest.raises(UsageError, match="seed: a block with `tune`"):
        expand_blocks([{**tuned(), "seed": 1}])


def test_lines_without_data_are_listed_and_the_others_stay(block, monkeypatch):
    load = build.load_dataset

    def fetch(spec):
        if spec["name"] == "log2":
            raise DataUnavailable("log2 is far away")
        return load(spec)

    monkeypatch.setattr(build, "load_dataset", fetch)
    gone = {"name": "log2", "n": 41}
    lines, missing = expand_blocks([block(dataset=gone, line="gone"), block()])
    assert [line.line for line in lines] == ["line"]
    (one,) = missing
    assert (one.line, one.dataset, one.reason) == ("gone", "log2", "log2 is far away")


@given(st.dictionaries(st.sampled_from("abc"), st.lists(st.integers(), max_size=4)))
def test_the_product_has_every_point_once(axes):
    points = [tuple(point.items()) for point in points_of(axes)]
    assert len(points) == math.prod(len(values) for values in axes.values())
    assert all(set(dict(p)) == set(axes) for p in points)


def test_a_list_by_nature_is_one_value():
    assert values_of("columns", [1, 2], [0, 0, 0]) == [[1, 2]]
    assert values_of("columns", [[1, 2], [3]], [0]) == [[1, 2], [3]]
    assert values_of("drop", [None, ["b"]], []) == [None, ["b"]]
    assert values_of("n", [1, 2], 5) == [1, 2]


@pytest.mark.parametrize(
    "value, hint, expected",
    [
        (1, float, 1.0),
        ("1e-3", float, 1e-3),
        (3.0, int, 3),
        ("3", int, 3),
        (None, float | None, None),
        (2, float | None, 2.0),
        ("full", int | str, "full"),
        (True, bool, True),
    ],
)
def test_values_take_the_type_of_their_field(value, hint, expected):
    found = convert_value("key", value, hint)
    assert found == expected and type(found) is type(expected)


@pytest.mark.parametrize(
    "value, hint",
    [
        (True, int),
        (1, bool),
        (float("nan"), float),
        (None, float),
        ("x", int | None),
        ([1], str),
        (1.5, int),
    ],
)
def test_values_of_no_allowed_type_are_refused(value, hint):
    with pytest.raises(UsageError, match="key=.*: must be"):
        convert_value("key", value, hint)


def test_an_algorithm_tells_shape_from_value():
    found = algorithm_of("random_cd")
    assert all(map(found.shares, ("passes", "order")))
    assert not any(map(found.shares, ("step", "clip")))
    full = found.full({"step": 0.5})
    assert full["step"] == 0.5 and full["clip"] is None
