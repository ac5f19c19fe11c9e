"""Test that functions that define no norm are refused, with sets that show why."""

import math

import numpy as np
import pytest

from dp_erm_bench.errors import UsageError
from dp_erm_bench.norms.cardinality import CardinalityNorm
from dp_erm_bench.norms.groups import GroupNorm
from dp_erm_bench.norms.range import RangeNorm
from dp_erm_bench.norms.tabulated import Tabulated
from tests.norms.families import listed


def refusal(make, *given):
    with pytest.raises(UsageError) as error:
        make(*given)
    text = str(error.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("F", "text"),
    [
        ([0, 2, 1, 1], "values: F is not nondecreasing: F({0}) = 2 > F({0, 1}) = 1"),
        (
            [0, 1, 1, 3],
            "values: F is not submodular: F({0}) = 1 + F({1}) = 1 < F({0, 1}) = 3 + "
            "F({}) = 0",
        ),
        ([1, 1, 1, 1], "values: F({}) = 1, must be 0"),
        (
            [0, 0, 1, 1],
            "values: F is not a norm: F({0}) = 0, must be > 0 for each feature",
        ),
    ],
)
def test_the_sets_show_what_is_wrong(F, text):
    assert refusal(Tabulated, F) == text


def test_a_fault_in_one_set_of_thousands_is_found():
    values = listed(lambda A: float(len(A)), 12)
    Tabulated(values)
    for number in (0b101010101010, 0b111111111111, 0b11):
        spoilt = list(values)
        spoilt[number] *= 1.0 + 1e-3
        text = refusal(Tabulated, spoilt)
        members = [j for j in range(12) if number >> j & 1]
        assert f"F({{{', '.join(map(str, members))}}})" in text


def test_the_plain_range_is_not_submodular():
    text = refusal(Tabulated, listed(lambda A: float(max(A) - min(A) + 1), 4))
    assert text.startswith("values: F is not submodular")
    Tabulated(listed(lambda A: 2.0 + max(A) - min(A) + 1, 4))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([0.0, 1.0, 1.0], "must be the 2^p values of F on all sets of p features"),
        ([0.0], "must be the 2^p values"),
        ([[0.0, 1.0], [1.0, 1.0]], "must be the 2^p values"),
        (["a", "b"], "must be the 2^p values"),
        (None, "must be the 2^p values"),
        ([0.0, math.nan], "must be finite"),
        (
            np.zeros(2**17),
            "values of 131072 sets of p=17 features: must be for p <= 16",
        ),
        ("nowhere.npy", "cannot be read, No such file or directory"),
        ("table.txt", "must be the 2^p values"),
    ],
)
def test_what_is_no_table(values, words):
    assert words in refusal(Tabulated, values)


@pytest.mark.parametrize("suffix", ["npy", "csv"])
def test_files_are_read_when_the_norm_is_built(tmp_path, suffix):
    values, path = listed(lambda A: math.sqrt(len(A)), 3), tmp_path / f"F.{suffix}"
    if suffix == "npy":
        np.save(path, values)
    else:
        np.savetxt(path, values, delimiter=",")
    kept = Tabulated(str(path))
    path.unlink()
    assert kept == Tabulated(values) and str(path) not in repr(kept)
    assert "must be 2^p = 16, one for each" in refusal(kept.check_features, 4)


@pytest.mark.parametrize("wrong", [None, [], [[]], 3, "ab", [["a"]], [[0, 0]], [[-1]]])
def test_what_are_no_groups(wrong):
    assert "must be a list of groups, each a list of" in refusal(GroupNorm, wrong)


def test_indices_and_coordinates_without_a_group():
    text = refusal(GroupNorm([[0, 1], [2, 5]]).check_features, 5)
    assert text == (
        "groups=[2, 5]: group 1 has index 5; there are p=5 features, so that indices "
        "end at 4"
    )
    text = refusal(GroupNorm([[0, 1], [3]]).check_features, 5)
    assert text == (
        "groups: no group has coordinate 2, 4, whose penalty would be 0; add groups, "
        "or say uncovered=free"
    )
    free = GroupNorm([[0, 1], [3]], uncovered="free")
    free.check_features(5)
    w = np.array([0.0, 0.0, 7.0, 0.0, -2.0])
    assert free.value(w) == 0.0 and free.prox(w, 3.0).tolist() == w.tolist()
    assert free.dual(w)[0] == math.inf and free.spread(5) == math.inf


@pytest.mark.parametrize(
    "weights", [[1.0, 0.0], [1.0, -2.0], [1.0], [1.0, math.inf], "ab", 3.0, [1, "x"]]
)
def test_weights_are_positive_numbers(weights):
    text = refusal(GroupNorm, [[0], [1]], weights)
    assert text.endswith(
        "must be 2 finite numbers > 0, one per group, or null for 1 each"
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("squrt",), "function=squrt: must be one of count, one, sqrt, capped, log1p"),
        (("capped",), "cap=null: must be a finite number >= 1 with function=capped"),
        (("capped", 0.5), "cap=0.5: must be a finite number >= 1"),
        (("sqrt", 3), "cap=3: must be null with function=sqrt, which has none"),
    ],
)
def test_functions_of_the_cardinality(given, words):
    assert refusal(CardinalityNorm, *given).startswith(words)


def test_the_range_of_one_feature_is_zero():
    assert "at least 2 features" in refusal(RangeNorm().check_features, 1)
