import json
import math

import numpy as np
import pandas as pd
import pytest

from dp_erm_bench.errors import UsageError
from dp_erm_bench.results.compare import (
    ComparisonRule,
    compare_sides,
    judge_difference,
    sides_by_key,
)

SETTING = {
    "dataset": "log1",
    "dataset.n": 1000,
    "algorithm": "random_cd",
    "algorithm.random_cd.clip": 1.0,
    "budget.epsilon": 1.0,
}
BETTER = [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]


def finals(values, *, start=0, status="ok", measure="objective", keys=(), **labels):
    """Final rows of one setting, one per seed."""
    given = {**SETTING, **dict(keys)}
    options, params = (
        json.dumps({k[len(g) :]: v for k, v in given.items() if k.startswith(g)})
        for g in ("dataset.", "algorithm.random_cd.")
    )
    usual = {"panel": "panel", "line": "line", "phase": "sweep", "dataset_seed": 0}
    usual |= {"dataset": given["dataset"], "algorithm": given["algorithm"]}
    usual |= {"dataset_options": options, "params": params}
    usual |= {"epsilon": given["budget.epsilon"], "n": 1000}
    return pd.DataFrame(
        {
            **usual,
            "strength": given.get("penalty.strength", math.nan),
            "seed": np.arange(start, start + len(values)),
            "trial": [f"{params}{options}{k}" for k in range(len(values))],
            "status": status,
            "objective": math.nan,
            measure: np.asarray(values, float),
            **labels,
        }
    )


def only(frame):
    (row,) = frame.to_dict("records")
    return row


def verdict(a, b, measure="objective", **rule):
    sides = (finals(values, measure=measure) for values in (a, b))
    return only(compare_sides(*sides, [measure], ComparisonRule(**rule)))["verdict"]


def times(values, factor):
    return [factor * value for value in values]


@pytest.mark.parametrize("by", ["trial", "setting"])
@pytest.mark.parametrize("values", [BETTER, [0.0] * 6, [math.pi], [1.0, 9.0]])
def test_identical_numbers_are_the_same_exactly(by, values):
    row = only(
        compare_sides(
            finals(values), finals(values), rule=ComparisonRule(by, tolerance=0.0)
        )
    )
    assert (row["change"], row["verdict"]) == (0.0, "same")
    assert row["median_a"] == row["median_b"] == np.median(values)
    assert (row["runs_a"], row["runs_b"]) == (len(values),) * 2
    ends = [row["low"], row["high"]]
    assert ends == [0.0, 0.0] if len(values) >= 6 else np.isnan(ends).all()


@pytest.mark.parametrize("by", ["trial", "setting"])
def test_a_common_factor_is_the_change(by):
    found = compare_sides(
        finals(BETTER), finals(times(BETTER, 3)), rule=ComparisonRule(by)
    )
    assert only(found)["change"] == 2.0
    assert only(found)["median_b"] == 3 * only(found)["median_a"] == 13.5


def test_a_common_factor_has_no_noise_between_pairs_but_some_between_medians():
    sides = finals(BETTER), finals(times(BETTER, 1.25))
    pairs = only(compare_sides(*sides))
    assert pairs["low"] == pairs["change"] == pairs["high"] == 0.25
    assert pairs["verdict"] == "worse"
    medians = only(compare_sides(*sides, rule=ComparisonRule("setting")))
    assert medians["low"] < 0 < 0.25 == medians["change"] < medians["high"]
    assert medians["verdict"] == "undecided"


def test_the_median_of_the_changes_is_not_the_change_of_the_medians():
    a, b = [1.0, 2.0, 4.0], [2.0, 1.0, 12.0]
    assert only(compare_sides(finals(a), finals(b)))["change"] == 1.0
    unpaired = compare_sides(finals(a), finals(b), rule=ComparisonRule("setting"))
    assert only(unpaired)["change"] == 0.0


@pytest.mark.parametrize(
    "factor, tolerance, expected",
    [
        (1.2, 0.05, "worse"),
        (1.2, 0.25, "same"),
        (0.5, 0.05, "better"),
        (0.5, 0.55, "same"),
        (1.04, 0.05, "same"),
        (0.96, 0.05, "same"),
        (1.04, 0.0, "worse"),
    ],
)
def test_verdicts(factor, tolerance, expected):
    assert verdict(BETTER, times(BETTER, factor), tolerance=tolerance) == expected


def test_more_accuracy_is_better_and_more_seconds_are_worse():
    more = times(BETTER, 2)
    assert verdict(BETTER, more, "test_accuracy") == "better"
    assert verdict(more, BETTER, "test_accuracy") == "worse"
    for measure in ("seconds", "relative_error", "epsilon_certified"):
        assert verdict(BETTER, more, measure) == "worse"
        assert verdict(more, BETTER, measure) == "better"


def test_noise_of_the_seeds_is_no_regression():
    rng = np.random.default_rng(0)
    a, b = rng.exponential(size=(2, 40))
    assert verdict(a, b) == "undecided"
    assert verdict(a, 1e3 * b) == "worse"


def test_chance_seldom_calls_equal_laws_worse():
    rng = np.random.default_rng(5)
    for by in ("trial", "setting"):
        pairs = rng.normal(10, 1, (200, 2, 15))
        found = [
            judge_difference("objective", *p, ComparisonRule(by, 0.0))["verdict"]
            for p in pairs
        ]
        assert found.count("worse") + found.count("better") <= 24


@pytest.mark.parametrize(
    "seeds, interval, expected",
    [(5, 0.95, "undecided"), (6, 0.95, "worse"), (2, 0.5, "worse")],
)
def test_few_seeds_decide_nothing(seeds, interval, expected):
    a = list(range(1, seeds + 1))
    for by in ("trial", "setting"):
        found = compare_sides(
            finals(a), finals(times(a, 100)), rule=ComparisonRule(by, 0.05, interval)
        )
        assert only(found)["verdict"] == expected
        assert math.isnan(only(found)["low"]) == (expected == "undecided")


def test_few_pairs_within_the_tolerance_are_the_same():
    assert verdict([1.0, 2.0], [1.01, 1.99]) == "same"
    assert verdict([1.0, 2.0], [1.01, 1.8]) == "undecided"


@pytest.mark.parametrize(
    "a, b, change",
    [
        (0.0, 1.0, math.inf),
        (1.0, 0.0, -1.0),
        (0.0, 0.0, 0.0),
        (-2.0, -1.0, 0.5),
        (math.inf, math.inf, 0.0),
        (math.inf, 1.0, -1.0),
        (1.0, math.inf, math.inf),
    ],
)
def test_changes_of_zero_and_infinity(a, b, change):
    found = only(compare_sides(finals([a] * 6), finals([b] * 6)))
    assert found["change"] == found["low"] == found["high"] == change


def test_no_relative_error_looks_below_the_exactness_of_the_optimum():
    a, b = [1e-12, -1e-13, 0.0] * 2, [1e-10] * 6
    assert verdict(a, b, "relative_error") == "same"


@pytest.mark.parametrize("measure", ["objective", "test_accuracy"])
def test_a_lost_run_has_the_worst_value(measure):
    fine = finals([0.5] * 6, measure=measure)
    lost = finals([math.nan] * 6, status="diverged", measure=measure)
    statuses, values = compare_sides(fine, lost, [measure]).to_dict("records")
    assert (statuses["verdict"], values["verdict"]) == ("worse", "worse")
    assert statuses["note"] == "6 ok -> diverged"
    statuses, values = compare_sides(lost, fine, [measure]).to_dict("records")
    assert (statuses["verdict"], values["verdict"]) == ("better", "better")
    assert only(compare_sides(lost, lost, [measure]))["verdict"] == "same"


@pytest.mark.parametrize(
    "before, after, expected",
    [
        (["ok"] * 2, ["ok", "error"], ("worse", "1 ok -> error")),
        (["ok"] * 2, ["skipped"] * 2, ("worse", "2 ok -> skipped")),
        (["diverged"] * 2, ["diverged", "killed"], ("worse", "1 diverged -> killed")),
        (["timeout"] * 2, ["ok"] * 2, ("better", "2 timeout -> ok")),
        (["ok", "error"], ["ok"] * 2, ("better", "1 error -> ok")),
        (
            ["ok", "error"],
            ["diverged", "ok"],
            ("worse", "1 ok -> diverged, 1 error -> ok"),
        ),
    ],
)
def test_a_status_of_another_rank_is_a_change(before, after, expected):
    sides = [finals([1.0] * 2, status=status) for status in (before, after)]
    row = compare_sides(*sides).iloc[0]
    assert row["measure"] == "status"
    assert (row["verdict"], row["note"]) == expected


def test_failures_of_the_same_rank_are_no_change():
    sides = [finals([1.0], status=status) for status in ("error", "timeout")]
    assert set(compare_sides(*sides)["measure"]) == {"objective"}


def test_by_setting_the_worst_status_counts():
    a = finals([1.0] * 3)
    b = finals([1.0] * 2, start=7, status=["ok", "error"])
    row = compare_sides(a, b, rule=ComparisonRule("setting")).iloc[0]
    assert (row["verdict"], row["note"]) == ("worse", "1 ok -> error")
    again = compare_sides(
        b, b.assign(seed=b["seed"] + 5), rule=ComparisonRule("setting")
    )
    assert set(again["measure"]) == {"objective"}


def test_runs_of_one_side_are_counted_and_are_no_regression():
    found = compare_sides(finals([1.0] * 5), finals([1.0] * 4, start=3))
    rows = found.set_index(["measure", "verdict"])[["runs_a", "runs_b"]].T.to_dict()
    assert {name: tuple(row.values()) for name, row in rows.items()} == {
        ("trials", "only in A"): (3, 0),
        ("trials", "only in B"): (0, 2),
        ("objective", "same"): (2, 2),
    }


def test_by_setting_all_seeds_of_both_sides_count():
    rule = ComparisonRule("setting")
    found = only(
        compare_sides(finals([1.0] * 5), finals([2.0] * 4, start=3), rule=rule)
    )
    assert (found["runs_a"], found["runs_b"], found["change"]) == (5, 4, 1.0)


def test_settings_of_one_side_are_named():
    extra = finals([1.0] * 2, keys={"algorithm.random_cd.clip": 4.0})
    for rule in (ComparisonRule(), ComparisonRule("setting")):
        found = compare_sides(
            finals([1.0]), pd.concat([finals([1.0]), extra]), rule=rule
        )
        (alone,) = found[found["verdict"] == "only in B"].to_dict("records")
        assert (alone["setting"], alone["runs_b"]) == ("clip=4", 2)
        assert list(found["verdict"]).count("same") == 1


def test_rows_are_told_apart_by_what_differs_only():
    sides = pd.concat(
        [
            finals([1.0], keys={"algorithm.random_cd.clip": clip, "dataset.n": n})
            for clip in (1.0, 2.0)
            for n in (10, 20)
        ]
        + [finals([1.0], keys={"dataset": "log2"})]
    )
    found = compare_sides(sides, sides)
    assert sorted(found["setting"]) == [
        "clip=1",
        *(f"clip={clip}, n={n}" for clip in (1, 2) for n in (10, 20)),
    ]
    assert found[["dataset", "algorithm", "epsilon"]].iloc[0].tolist() == [
        "log1",
        "random_cd",
        "1",
    ]


def test_data_seeds_are_paired_too():
    a = pd.concat([finals([1.0], dataset_seed=k) for k in (0, 1)])
    b = pd.concat([finals([4.0 * k], dataset_seed=k) for k in (1, 0)])
    found = only(compare_sides(a, b))
    assert (found["runs_a"], found["change"]) == (2, 1.0)
    none = finals([1.0], dataset_seed=math.nan)
    assert only(compare_sides(none, none))["runs_a"] == 1


def test_values_that_are_not_known_are_left_out():
    a, b = finals([1.0, math.nan, 3.0]), finals([1.0, 2.0, math.nan])
    assert only(compare_sides(a, b))["runs_a"] == 1
    by_setting = only(compare_sides(a, b, rule=ComparisonRule("setting")))
    assert (by_setting["runs_a"], by_setting["runs_b"]) == (2, 2)


def test_several_measures_are_rows():
    a, b = (finals(BETTER).assign(seconds=factor) for factor in (1.0, 9.0))
    found = compare_sides(a, b, ["objective", "seconds"])
    assert dict(zip(found["measure"], found["verdict"], strict=True)) == {
        "objective": "same",
        "seconds": "worse",
    }


def test_keys_and_labels_can_be_ignored():
    a = finals(BETTER, keys={"algorithm.random_cd.passes": 9.0}, line="new")
    with pytest.raises(UsageError, match=r"no common trial \(6 trials in A, 6 in B\)"):
        compare_sides(a, finals(BETTER))
    for name in ("algorithm.random_cd.passes", "passes", "algorithm.random_cd"):
        assert (
            only(compare_sides(a, finals(BETTER), ignore=["line", name]))["runs_a"] == 6
        )
    with pytest.raises(UsageError, match="ignore=pases .did you mean passes"):
        compare_sides(a, a, ignore=["pases"])


def of_strength(n, strength):
    keys = {"dataset.n": n, "penalty.strength": strength}
    return finals(BETTER, keys=keys, n=n, message="")


@pytest.mark.parametrize("name", ["dataset.n", "n", "log1.n"])
def test_a_strength_of_1_by_n_follows_from_n(name):
    """By all names that a key has in plots; a strength that is a number stays one."""
    sides, _ = sides_by_key(
        pd.concat([of_strength(n, 1 / n) for n in (50, 60)], ignore_index=True), name
    )
    (a, one), (b, other) = sides
    assert (a, b) == ("50", "60")
    assert only(compare_sides(one, other, ignore=[name]))["runs_a"] == 6
    a, b = of_strength(50, 1 / 50), of_strength(60, 1 / 60)
    assert only(compare_sides(a, b, ignore=[name]))["runs_a"] == 6
    sides, _ = sides_by_key(
        pd.concat([of_strength(n, 1 / 50) for n in (50, 60)], ignore_index=True), name
    )
    (_, one), (_, other) = sides
    assert only(compare_sides(one, other, ignore=[name]))["runs_a"] == 6
    with pytest.raises(UsageError, match=r"strength is 1/n in A and 0.1 in B"):
        compare_sides(a, of_strength(60, 0.1), ignore=[name])


def of_dataset(name, n, strength, **options):
    keys = {"dataset": name, "penalty.strength": strength, **options}
    return finals(BETTER, keys=keys, n=n, message="")


@pytest.mark.parametrize(
    "first, second",
    [
        # A usual strength is a number or 1/n; of others those that are 1/n are alike.
        (("log1", 1000, 0.001), ("breast_cancer", 2000, 0.0005)),
        (("log1", 800, 0.001), ("breast_cancer", 455, 1 / 455)),
        (("log1", 50, 1 / 50), ("breast_cancer", 60, 1 / 60)),
        (("log1", 50, 0.1), ("breast_cancer", 60, 0.1)),
        (("log1", 800, 0.001), ("breast_cancer", 60, 0.001)),
    ],
)
def test_between_datasets_the_usual_strength_of_each_is_no_difference(first, second):
    both = [of_dataset(*one) for one in (first, second)]
    sides, _ = sides_by_key(pd.concat(both, ignore_index=True), "dataset")
    for pair in (both, [side for _, side in sides]):
        assert only(compare_sides(*pair, ignore=["dataset"]))["runs_a"] == 6
        again = compare_sides(*pair, ignore=["dataset", "epsilon"])
        assert only(again)["runs_a"] == 6


def test_the_usual_strength_is_that_of_the_form_of_the_data():
    standardised = {"dataset.standardise": True}
    log1 = of_dataset("log1", 800, 0.001, **standardised)
    usual = of_dataset("california", 100, 0.1, **standardised)
    assert only(compare_sides(log1, usual, ignore=["dataset"]))["runs_a"] == 6
    with pytest.raises(UsageError, match=r"strength is usual in A and 1 in B"):
        other = of_dataset("california", 100, 1.0, **standardised)
        compare_sides(log1, other, ignore=["dataset"])


def test_what_is_ignored_must_not_tell_runs_apart():
    twice = pd.concat(
        [finals([1.0], keys={"algorithm.random_cd.clip": c}) for c in (1.0, 2.0)]
    )
    with pytest.raises(UsageError, match="several runs of a setting with seed=0"):
        compare_sides(twice, twice, ignore=["algorithm.random_cd.clip"])


@pytest.mark.parametrize(
    "given, sentence",
    [
        ({"on": ["objectiv"]}, "--y=objectiv .did you mean objective"),
        ({"on": ["seed"]}, "--y=seed: must be one of objective, "),
        (
            {"rule": ComparisonRule("seed")},
            "--by=seed.*: must be one of trial, setting",
        ),
        (
            {"rule": ComparisonRule(tolerance=-0.1)},
            "--tolerance=-0.1: must be 0 or more",
        ),
        (
            {"rule": ComparisonRule(tolerance=math.nan)},
            "--tolerance=nan: must be 0 or more",
        ),
        (
            {"rule": ComparisonRule(interval=1.0)},
            "--interval=1.0: must lie between 0 and 1",
        ),
    ],
)
def test_wrong_values_are_one_sentence(given, sentence):
    with pytest.raises(UsageError, match=sentence):
        compare_sides(finals([1.0]), finals([1.0]), **given)


def test_a_measure_that_nobody_has_is_refused():
    unknown = finals([math.nan])
    with pytest.raises(UsageError, match="--y=objective: no common trial has a value"):
        compare_sides(unknown, unknown)


def test_without_a_common_setting_nothing_is_compared():
    other = finals([1.0], keys={"dataset": "log2"})
    for by in ("trial", "setting"):
        with pytest.raises(UsageError, match=f"no common {by}"):
            compare_sides(finals([1.0]), other, rule=ComparisonRule(by))


def test_what_to_do_without_a_common_trial_is_what_helps():
    both = [{"budget.epsilon": 1.0, "algorithm.random_cd.clip": 1.0}]
    both += [{"budget.epsilon": 2.0, "algorithm.random_cd.clip": 2.0}]
    crossed = [one | {"budget.epsilon": 3.0 - one["budget.epsilon"]} for one in both]
    a, b = (pd.concat([finals([1.0], keys=k) for k in s]) for s in (both, crossed))
    for by in ("trial", "setting"):
        with pytest.raises(UsageError, match=r"in B\); several keys .*; --ignore KEY"):
            compare_sides(a, b, rule=ComparisonRule(by))
    assert len(compare_sides(a, b, ignore=["budget.epsilon"])) == 2
    with pytest.raises(UsageError, match=r"in B\); --by setting needs .* seeds$"):
        compare_sides(a, a.assign(seed=7))
    assert len(compare_sides(a, a.assign(seed=7), rule=ComparisonRule("setting"))) == 2


def test_the_comparison_is_the_same_every_time():
    rng = np.random.default_rng(2)
    sides = finals(rng.normal(size=30)), finals(rng.normal(size=30))
    for rule in (ComparisonRule(), ComparisonRule("setting")):
        first, second = (compare_sides(*sides, rule=rule) for _ in range(2))
        pd.testing.assert_frame_equal(first, second)
