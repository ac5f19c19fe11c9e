import numpy as np
import pytest

from dp_erm_bench.datasets.base import Usual
from dp_erm_bench.datasets.spec import check_spec, dataset_spec
from dp_erm_bench.errors import UsageError
from dp_erm_bench.registry import names
from tests.loops import each

ASKED = {"libsvm": {"set": "a1a"}}


@each("name", names("dataset"))
def test_every_yaml_is_a_valid_specification_of_its_own_name(name):
    found = check_spec(dataset_spec(name, **ASKED.get(name, {})))
    assert found.name.partition(":")[0] == name
    assert (found.usual is None) == (not found.recipe.labelled)
    assert callable(found.loader)


def test_overrides_replace_the_yaml():
    assert dataset_spec("log1", n=50)["n"] == 50
    assert check_spec(dataset_spec("log1", seed=3)).options["seed"] == 3
    assert "seed" not in check_spec(dataset_spec("electricity", seed=3)).options


def test_an_unknown_key_is_refused_by_name_with_what_is_allowed():
    with pytest.raises(UsageError, match="standardize.*did you mean standardise.*seed"):
        dataset_spec("electricity", standardize=True)
    with pytest.raises(UsageError, match="sigma"):
        check_spec({**dataset_spec("electricity"), "sigma": 2.0})


@each(
    ("key", "value"),
    [
        ("standardise", "yes"),
        ("standardise", 1),
        ("seed", -1),
        ("seed", 0.5),
        ("seed", True),
        ("test_fraction", 1.0),
        ("test_fraction", -0.1),
        ("test_fraction", "half"),
        ("test_fraction", float("nan")),
        ("usual", "logistic"),
        ("usual", {"loss": "logistic"}),
        ("bounds", [1, 7]),
        ("bounds", {"column": [1]}),
    ],
)
def test_a_wrong_value_is_refused_by_key_and_value(key, value):
    with pytest.raises(UsageError, match=rf"dataset\.{key}=.*: must be "):
        check_spec(dataset_spec("electricity", **{key: value}))


@pytest.mark.parametrize("bound", [-1, float("inf"), "one", None, True])
def test_a_wrong_bound_is_refused(bound):
    with pytest.raises(UsageError, match=r"dataset\.bounds\.columns="):
        check_spec(dataset_spec("electricity", bounds={"columns": [bound]}))


def test_an_unknown_task_is_refused():
    with pytest.raises(UsageError, match="classification, regression"):
        check_spec(dataset_spec("electricity", task="ranking"))


def test_a_specification_needs_name_and_loader():
    with pytest.raises(UsageError, match="_target_"):
        check_spec({"name": "toy"})


def test_standardising_drops_bounds_and_chooses_the_other_usual_objective():
    raw = check_spec(dataset_spec("electricity"))
    np.testing.assert_array_equal(raw.bounds.columns, [1, 7, 1, 1, 1, 1, 1, 1])
    declared = raw.bounds.bounds_of("electricity", 8)
    assert declared.norm == pytest.approx(np.sqrt(56.0))
    assert check_spec(dataset_spec("electricity", standardise=True)).bounds is None
    usual = {
        form: check_spec(dataset_spec("california", standardise=form)).usual
        for form in (False, True)
    }
    assert usual[False] == Usual("squared", "l1", 1.0)
    assert usual[True] == Usual("squared", "l1", 0.1)


def test_bounds_may_be_declared_by_an_override():
    bounds = {"columns": [2] * 100, "norm": 15, "label": 1}
    found = check_spec(dataset_spec("log1", bounds=bounds)).bounds
    assert (found.columns == 2.0).all() and not found.columns.flags.writeable
    assert (found.norm, found.label) == (15.0, 1.0)
