"""Test problems built from names: the meaning of auto, and every error message."""

import dataclasses

import numpy as np
import pytest

from dp_erm_bench import registry
from dp_erm_bench.datasets.base import Dataset, Usual
from dp_erm_bench.errors import UsageError
from dp_erm_bench.problems.erm.build import (
    build_problem,
    erm_from_arrays,
    strength_of,
)
from tests.loops import each
from tests.pages import find_block

X = np.asfortranarray(np.random.default_rng(0).normal(size=(8, 3)))
LABELS = np.array([1.0, -1.0] * 4)
USUAL = Usual("logistic", "l2", "1/n")
DATA = Dataset("toy", X, LABELS, None, "hash", usual=USUAL)
BARE = dataclasses.replace(DATA, usual=None)
STRONG = [
    name
    for name in registry.names("penalty")
    if hasattr(registry.target("penalty", name), "strength")
]


def named(penalty, **given):
    """A penalty by name, with what it needs."""
    example = registry.target("penalty", penalty).example(BARE.p)
    return {"name": penalty, **example, **given}


def sentence(*arguments, **options):
    with pytest.raises(UsageError) as error:
        build_problem(*arguments, **options)
    text = str(error.value)
    assert text and "\n" not in text
    return text


def test_auto_is_the_usual_objective():
    problem = build_problem(DATA)
    assert (problem.loss.name, problem.penalty.name) == ("logistic", "l2")
    assert problem.penalty.l2 == 1 / 8
    assert problem.constraint.name == "none"
    assert problem.dataset is DATA


@each("loss", registry.names("loss"))
@each("penalty", registry.names("penalty"))
@each("constraint", registry.names("constraint"))
def test_every_name_builds(loss, penalty, constraint):
    part = named(penalty) | ({"strength": 0.25} if penalty in STRONG else {})
    size = registry.target("constraint", constraint).example(BARE.p)
    problem = build_problem(BARE, loss, part, {"name": constraint} | size)
    parts = (problem.loss, problem.penalty, problem.constraint)
    assert tuple(part.name for part in parts) == (loss, penalty, constraint)
    if penalty in STRONG:
        assert problem.penalty.strength == 0.25


@pytest.mark.parametrize("name", ["none", "auto", "l2"])
def test_names_and_mappings_are_the_same(name):
    by_name, by_mapping = (
        build_problem(DATA, penalty=p) for p in (name, {"name": name})
    )
    assert by_name.key == by_mapping.key


def test_a_part_of_the_registry_hides_its_target():
    given = {"name": "l2", "_target_": "os.system", "strength": 0.5}
    assert build_problem(DATA, penalty=given).penalty.l2 == 0.5


@pytest.mark.parametrize("strength", ["auto", None])
def test_the_usual_penalty_has_its_usual_strength(strength):
    part = {"name": "l2"} if strength is None else {"name": "l2", "strength": strength}
    assert build_problem(DATA, penalty=part).penalty.l2 == 1 / 8


def test_auto_takes_another_strength():
    assert (
        build_problem(DATA, penalty={"name": "auto", "strength": 3}).penalty.l2 == 3.0
    )


@each("strength", ["1/n", "1 / n", 0.125, "0.125", "1.25e-1"])
@each("penalty", STRONG)
def test_strengths_in_all_spellings(penalty, strength):
    made = build_problem(BARE, "logistic", named(penalty, strength=strength))
    assert made.penalty.strength == 0.125
    assert strength_of(strength, 8) == 0.125


@pytest.mark.parametrize("given", [{}, {"strength": "auto"}])
def test_no_penalty_needs_no_strength(given):
    problem = build_problem(BARE, "logistic", {"name": "none", **given})
    assert problem.penalty.parameters()[:2].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("key", ["loss", "penalty"])
def test_auto_without_a_usual_objective(key):
    given = {"loss": "logistic", "penalty": "none"} | {key: "auto"}
    assert sentence(BARE, **given) == (
        f"{key}=auto: dataset toy has no usual objective; choose a {key}"
    )


@pytest.mark.parametrize("data", [BARE, DATA])
def test_no_usual_strength(data):
    assert sentence(data, "logistic", "l1") == (
        "penalty.strength=auto: dataset toy has no usual strength for penalty l1; "
        "set penalty.strength"
    )


@pytest.mark.parametrize("strength", ["1/m", "", "n", [1], None])
def test_strengths_that_are_no_numbers(strength):
    text = sentence(DATA, penalty={"name": "l2", "strength": strength})
    assert (
        text == f"penalty.strength={strength}: must be a number >= 0, '1/n' or 'auto'"
    )


@pytest.mark.parametrize("strength", [-1, "-0.1", "inf", "nan"])
def test_strengths_out_of_range(strength):
    text = sentence(DATA, penalty={"name": "l2", "strength": strength})
    assert text.startswith("penalty.strength=") and "must be a number >= 0" in text


@pytest.mark.parametrize("group", ["loss", "penalty", "constraint"])
def test_unknown_names_list_the_choices(group):
    text = sentence(DATA, **{group: "nothing"})
    assert text.startswith(f"{group}=nothing")
    assert text.endswith("must be one of " + ", ".join(registry.names(group)))


def test_near_misses_are_suggested():
    assert "(did you mean logistic?)" in sentence(DATA, loss="logistics")


@pytest.mark.parametrize("strong", STRONG)
def test_stray_parameters_of_a_penalty_are_named(strong):
    given = {"name": strong, "strength": 1.0, "strenght": 2.0}
    text = sentence(DATA, penalty=given)
    assert text.startswith(
        f"parameter of {strong}=strenght (did you mean strength?): must be one of "
    )
    assert "strength" in text.split(": must be one of ")[1].split(", ")


@pytest.mark.parametrize(
    "part",
    [
        {"loss": {"name": "squared", "strength": 1}},
        {"penalty": {"name": "none", "strength": 1}},
        {"constraint": {"name": "none", "strength": 1}},
    ],
)
def test_parameters_of_what_has_none_are_named(part):
    ((group, given),) = part.items()
    text = sentence(DATA, **part)
    assert text == f"parameter of {given['name']}=strength: there is none"


@pytest.mark.parametrize("group", ["loss", "penalty", "constraint"])
def test_a_mapping_needs_a_name(group):
    text = sentence(DATA, **{group: {"strength": 1}})
    assert text == "{'strength': 1}: must have the key name besides its parameters"


@each("group", ["loss", "penalty", "constraint"])
@each(("part", "said"), [(None, "null"), (3, "3"), (["l2"], "[l2]"), (True, "true")])
def test_what_is_neither_a_name_nor_a_mapping_is_refused(group, part, said):
    choices = ", ".join(registry.names(group))
    expected = (
        f"{group}={said}: must be one of {choices}, a mapping with `name`, or a "
        f"{group.capitalize()}"
    )
    assert sentence(DATA, **{group: part}) == expected
    given = {"loss": "logistic", group: part}
    with pytest.raises(UsageError) as error:
        erm_from_arrays(X, LABELS, **given, strength=0.1)
    assert str(error.value) == expected or group != "penalty"


@pytest.mark.parametrize("value", ["much", None, [1.0], True, 1j])
def test_a_parameter_of_a_file_s_loss_must_be_a_number(value, tmp_path):
    (tmp_path / "tilted.py").write_text(find_block("The smoothed quantile loss"))
    loss = {"name": str(tmp_path / "tilted.py"), "tau": value}
    assert sentence(DATA, loss=loss) == f"loss.tau={value} of tilted: must be a number"


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64])
def test_numbers_of_numpy_are_as_good_as_others(kind):
    made = build_problem(
        BARE,
        {"name": "huber", "kappa": kind(2)},
        {"name": "elastic_net", "strength": kind(1), "l1_ratio": kind(0)},
        {"name": "l2_ball", "radius": kind(2)},
    )
    same = build_problem(
        BARE,
        {"name": "huber", "kappa": 2.0},
        {"name": "elastic_net", "strength": 1.0, "l1_ratio": kind(0).item()},
        {"name": "l2_ball", "radius": 2.0},
    )
    assert made.identity == same.identity and made.key == same.key


def test_labels_must_suit_the_loss():
    real = dataclasses.replace(DATA, y=0.5 * LABELS)
    assert "labels must be -1 or +1" in sentence(real, "logistic")
    assert build_problem(real, "squared").loss.name == "squared"
