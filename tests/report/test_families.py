"""Test comparisons over families of data: known answers, and chance."""

import math

import numpy as np
import pytest

from dp_erm_bench.datasets.spec import family_of
from dp_erm_bench.report.families import Contrast, compare_pairs
from tests.loops import each

SETS = ("breast_cancer", "w8a", "electricity", "madelon", "dense", "dorothea")
RNG = np.random.default_rng(5)


def errors_of(sets, lines, spread=0.05, runs=20, epsilons=(0.1, 1.0)):
    """Runs around each line's factor times what a set at an epsilon costs."""
    return {
        (name, epsilon): {
            line: cost * factor * np.exp(spread * RNG.normal(size=runs))
            for line, factor in lines.items()
        }
        for name in sets
        for epsilon, cost in zip(epsilons, np.exp(2 * RNG.normal(size=9)), strict=False)
    }


@each(
    "name, expected",
    [
        *[("libsvm:a1a", "adult"), ("libsvm:a9a", "adult"), ("libsvm:w8a", "w8a")],
        *[("mtp", "melting_point"), ("log1", "log1"), ("libsvm:rcv1", "rcv1")],
    ],
)
def test_samples_of_the_same_records_are_one_family(name, expected):
    assert family_of(name) == expected


def test_half_the_error_on_every_family_is_better():
    found = compare_pairs(errors_of(SETS, {"a": 0.5, "b": 1.0, "c": 1.05}))
    assert found["a", "b"].better > 0.999 and found["b", "a"].within < 0.001
    assert found["a", "b"].ratio == pytest.approx(0.5, rel=0.03)
    assert found["a", "b"].families == len(SETS) and found["a", "b"].problems == 12
    # Worse by 5 %: surely worse, with runs that alike, and surely within 10 %.
    assert found["c", "b"].better < 0.02 < 0.98 < found["c", "b"].within
    for (first, second), pair in found.items():
        assert pair.better + found[second, first].better == pytest.approx(1.0)


def test_equal_lines_are_not_told_apart():
    """Equal in all runs: by runs drawn again; of runs without spread one half."""
    same = errors_of(SETS, {"a": 1.0})
    twice = {key: {"a": own["a"], "b": own["a"]} for key, own in same.items()}
    assert compare_pairs(twice)["a", "b"].better == pytest.approx(0.5, abs=0.05)
    flat = {key: dict.fromkeys("ab", np.full(20, 0.3)) for key in same}
    assert compare_pairs(flat)["a", "b"] == Contrast(6, 12, 1.0, 0.5, 1.0)


def test_a_family_counts_once_however_many_sets_it_has():
    """Five samples of adult say one thing, three other sets the contrary."""
    adult = errors_of([f"a{k}a" for k in range(1, 6)], {"a": 0.25, "b": 1.0}, 0.001)
    others = errors_of(["w8a", "madelon", "dense"], {"a": 2.0, "b": 1.0}, 0.001)
    families = {name: "adult" for name, _ in adult}
    pair = compare_pairs(adult | others, families)["a", "b"]
    assert (pair.families, pair.problems) == (4, 16)
    assert pair.ratio == pytest.approx((0.25 * 2.0**3) ** 0.25, rel=1e-3)
    assert 0.2 < pair.better < 0.8


def test_one_family_tells_nothing_of_others():
    errors = errors_of(["a1a", "a5a"], {"a": 0.5, "b": 1.0})
    families = {name: "adult" for name, _ in errors}
    pair = compare_pairs(errors, families)["a", "b"]
    assert (pair.families, pair.problems) == (1, 4)
    assert math.isnan(pair.better) and math.isnan(pair.within)
    assert pair.ratio == pytest.approx(0.5, rel=0.1)


def test_pairs_are_of_the_problems_on_which_both_ran():
    errors = errors_of(SETS, {"a": 0.5, "b": 1.0, "c": 1.0})
    for name in SETS[2:]:
        for epsilon in (0.1, 1.0):
            del errors[name, epsilon]["c"]
    del errors[SETS[0], 0.1]["b"]
    found = compare_pairs(errors)
    assert found["a", "c"][:2] == (2, 4) and found["b", "c"][:2] == (2, 3)
    assert found["a", "b"][:2] == (6, 11)
    alone = {("w8a", 1.0): {"a": np.ones(3)}, ("dense", 1.0): {"b": np.ones(3)}}
    assert compare_pairs(alone) == {}


def test_runs_that_are_lost_are_infinitely_bad():
    """Most of them on one set: no other set makes up for it; both lost are equal."""
    errors = errors_of(SETS, {"a": 0.1, "b": 1.0})
    errors["w8a", 1.0]["a"][:19] = np.inf
    pair = compare_pairs(errors)["a", "b"]
    assert pair.ratio == math.inf and pair.better == 0.0 and pair.within == 0.0
    errors["w8a", 1.0]["b"][:] = np.inf
    pair = compare_pairs(errors)["a", "b"]
    assert math.isfinite(pair.ratio) and pair.better > 0.9
    errors["w8a", 1.0]["b"][:] = 1.0
    errors["w8a", 1.0]["a"][:] = np.inf
    errors["dense", 1.0]["b"][:] = np.inf
    pair = compare_pairs(errors)["a", "b"]
    assert math.isnan(pair.ratio) and (pair.better, pair.within) == (0.5, 0.5)


def test_some_lost_runs_leave_the_families_their_weights():
    """9 of 20 lost: a few drawn medians are infinite, the others still move."""
    errors = errors_of(SETS[:3], {"a": 1.0, "b": 1.0}, 0.001)
    for k, name in enumerate(SETS[:3]):
        for epsilon in (0.1, 1.0):
            errors[name, epsilon]["a"] *= (0.5, 0.5, 3.0)[k]
    whole = compare_pairs(errors)["a", "b"].better
    errors["w8a", 1.0]["a"][:7] = np.inf
    some = compare_pairs(errors)["a", "b"].better
    assert 0.0 < some < whole < 1.0 and some > 0.5 * whole


def test_names_and_orders_of_runs_and_other_lines_change_nothing():
    errors = errors_of(SETS, {"a": 0.9, "b": 1.0}, 0.5)
    found = compare_pairs(errors)
    shuffled = {
        key: {line: own[line][::-1] for line in ("b", "a")} | {"c": own["a"]}
        for key, own in reversed(errors.items())
    }
    again = compare_pairs(shuffled)
    for one, two in zip(found["a", "b"], again["a", "b"], strict=True):
        assert one == pytest.approx(two, abs=1e-9)


def test_chance_is_above_95_percent_as_often_as_the_page_says():
    """Equal lines, each family with a normal difference of its own."""
    rng, count, above = np.random.default_rng(0), 300, 0
    lines = [f"{k}" for k in range(count)]
    made = {
        (name, 1.0): {"zero": np.ones(1)}
        | {line: np.exp(rng.normal(size=1)) for line in lines}
        for name in (*SETS, "x", "y")
    }
    for line in lines:
        own = {key: {k: of[k] for k in ("zero", line)} for key, of in made.items()}
        above += compare_pairs(own)["zero", line].better > 0.95
    # One in 12, with the deviation of 300 draws: .016.
    assert 0.035 < above / count < 0.13
