"""Test that the yaml files on disk are the registry."""

import copy
import dataclasses
import inspect
import shutil

import pytest

from dp_erm_bench import registry
from dp_erm_bench.errors import UsageError

GROUPS = ["loss", "penalty", "constraint", "algorithm", "dataset"]
CHOICES = [(group, name) for group in GROUPS for name in registry.names(group)]
BUILT = [(group, name) for group, name in CHOICES if group != "dataset"]

each_choice = pytest.mark.parametrize("group, name", CHOICES)
each_built = pytest.mark.parametrize("group, name", BUILT)


def sentence(function, *arguments, **options):
    with pytest.raises(UsageError) as error:
        function(*arguments, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("group", GROUPS)
def test_names_are_the_files_sorted(group):
    files = [path.name for path in (registry.conf_dir() / group).iterdir()]
    assert registry.names(group) == sorted(file.removesuffix(".yaml") for file in files)
    assert registry.names(group)


@each_choice
def test_every_choice_names_an_object_of_the_package(group, name):
    made = registry.target(group, name)
    dotted = registry.read_choice(group, name)["_target_"]
    assert callable(made) and inspect.getdoc(made)
    assert dotted.startswith("dp_erm_bench.") and registry.locate(dotted) is made
    if inspect.isclass(made):
        assert dotted == f"{made.__module__}.{made.__name__}"


def needed(group, name):
    """The parameters that have no default: a polytope is nothing without vertices."""
    kind = registry.target(group, name)
    return kind.example(3) if name == "polytope" else {}


@each_built
def test_every_choice_builds_with_no_more_than_it_needs(group, name):
    made = registry.build(group, name, **needed(group, name))
    assert isinstance(made, registry.target(group, name))
    assert made == registry.build(group, name, **needed(group, name))
    for parameter in needed(group, name):
        assert f"{group}.{parameter}=None" in sentence(registry.build, group, name)


@each_built
def test_every_parameter_can_be_given_and_others_are_refused(group, name):
    made = registry.build(group, name, **needed(group, name))
    fields = [field.name for field in dataclasses.fields(made)]
    values = {field: getattr(made, field) for field in fields}
    assert registry.build(group, name, **values) == made
    text = sentence(registry.build, group, name, nonsense=1)
    assert text.startswith(f"parameter of {name}=nonsense")
    assert text.endswith(
        "must be one of " + ", ".join(sorted(fields)) if fields else "none"
    )


@each_choice
def test_what_is_read_may_be_changed_by_the_reader(group, name):
    first = registry.read_choice(group, name)
    untouched = copy.deepcopy(first)
    for value in first.values():
        if isinstance(value, dict):
            value["loss"] = "changed"
        if isinstance(value, list):
            value.append("changed")
    first["_target_"] = "changed"
    assert registry.read_choice(group, name) == untouched != first


def test_an_attribute_of_the_class_is_no_parameter():
    text = sentence(registry.build, "loss", "logistic", lipschitz=0.1)
    assert text == "parameter of logistic=lipschitz: there is none"


@pytest.mark.parametrize("group", GROUPS)
def test_an_unknown_choice_lists_those_there_are(group):
    for function in (registry.read_choice, registry.target, registry.build):
        text = sentence(function, group, "zzz")
        assert text == f"{group}=zzz: must be one of {', '.join(registry.names(group))}"


@each_choice
def test_a_misspelt_choice_is_told_the_nearest(group, name):
    if len(name) > 4:
        assert f"{group}={name}x (did you mean {name}?): " in sentence(
            registry.read_choice, group, f"{name}x"
        )


def test_choices_are_checked():
    registry.check_choice("key", "a", ["a", "b"])
    text = sentence(registry.check_choice, "key", "cyclik", ["cyclic", "uniform"])
    assert text == "key=cyclik (did you mean cyclic?): must be one of cyclic, uniform"
    assert sentence(registry.check_choice, "key", 3, []) == "key=3: there is none"
    assert (
        sentence(registry.check_choice, "key", None, ["a"])
        == "key=None: must be one of a"
    )


def test_names_cannot_leave_the_folder():
    sentence(registry.read_choice, "loss", "../penalty/l1")


def test_locate_finds_what_a_dotted_name_points_to():
    assert registry.locate("dp_erm_bench.errors.UsageError") is UsageError
    with pytest.raises(ModuleNotFoundError):
        registry.locate("dp_erm_bench.nowhere.Thing")
    with pytest.raises(AttributeError):
        registry.locate("dp_erm_bench.errors.Nothing")


def test_a_wheel_without_a_checkout_has_its_own_folder(tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "dp_erm_bench"
    monkeypatch.setattr(registry, "__file__", str(package / "registry.py"))
    assert registry.conf_dir() == package / "conf"
    shutil.copytree(
        registry.Path(inspect.getfile(UsageError)).parents[1] / "conf", package / "conf"
    )
    assert (
        registry.names("loss") and registry.build("loss", "logistic").name == "logistic"
    )
