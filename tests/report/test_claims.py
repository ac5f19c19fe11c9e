"""Test verdicts of claims on synthetic tables with known answers."""

import math

import numpy as np
import pandas as pd
import pytest

from dp_erm_bench.errors import UsageError
from dp_erm_bench.report.claims.judge import COLUMNS, evaluate_claims
from dp_erm_bench.report.claims.lookup import without_repetitions
from dp_erm_bench.report.panels import decoded_curves

RATIO = {
    "id": "ratio",
    "figure": "log1",
    "statement": "{over} ends far above {under}",
    "measure": "ratio",
    "over": "DP-SGD authors",
    "under": "DP-CD cyclic",
    "at_least": 3,
}


def config(*claims):
    return {
        "profile": "default",
        "paper": "mangold2023",
        "claims": list(claims),
    }


def judge(table, claim):
    """Return the only row of one claim."""
    found = evaluate_claims(table, config(claim))
    assert list(found.columns) == list(COLUMNS)
    assert len(found) == 1
    return found.iloc[0]


def test_a_reason_is_told_once():
    assert without_repetitions(["get it", "", "get it", "lost", ""]) == [
        *("get it", "", "as above", "lost", "")
    ]


def test_row_says_everything(tabulate):
    table = tabulate({"end": 0.1}, {"line": "DP-SGD authors", "end": 0.5})
    row = judge(table, RATIO)
    assert row["paper"] == "mangold2023"
    assert row["figure"] == "log1"
    assert row["profile"] == "default"
    assert row["statement"] == "DP-SGD authors ends far above DP-CD cyclic"
    assert row["measured"] == "mean final error, DP-SGD authors / DP-CD cyclic; 4 runs"
    assert row["interval"].startswith("[4.3") and row["interval"].endswith("]")
    assert row["threshold"] == ">= 3"
    assert row["value"] == pytest.approx(5)
    assert row["verdict"] == "holds"


@pytest.mark.parametrize(
    "row, told",
    [
        ({"open": "clip top; trials"}, "DP-SGD authors: clip top, trials"),
        (
            {"open": "step limit", "line": "DP-SGD authors over epsilon"},
            "epsilon: step limit",
        ),
        ({"open": ""}, ""),
        ({"open": "clip top", "panel": "log2"}, ""),
        ({"open": "clip top", "panel": "log1_large"}, ""),
        ({"open": "clip top", "line": "DP-CD uniform"}, ""),
        ({"open": "clip top", "epsilon": "3.0"}, ""),
    ],
)
def test_a_claim_says_which_of_its_settings_are_open(tabulate, row, told):
    usual = {
        "panel": "log1",
        "line": "DP-SGD authors",
        "epsilon": "1.0",
        "chosen": "{}",
    }
    config = {"claims": [RATIO], "choices": [{**usual, **row}]}
    (found,) = evaluate_claims(tabulate({}), config)["open"]
    assert found.endswith(told) and bool(found) == bool(told)


def test_no_choice_has_a_part_in_the_error_of_w_0(tabulate):
    claim = {"figure": "log1", "line": "DP-CD cyclic", "measure": "error_at_zero"}
    claim |= {"id": "zero", "equals": 1, "within": 1, "statement": "At w = 0"}
    choice = {"panel": "log1", "line": "DP-CD cyclic", "epsilon": "1.0"}
    choices = [{**choice, "chosen": "{}", "open": "trials"}]
    for one, told in ((claim, ""), (RATIO, "DP-CD cyclic: trials")):
        (found,) = evaluate_claims(tabulate({}), {"claims": [one], "choices": choices})[
            "open"
        ]
        assert found == told


def test_damaged_choices_leave_it_unknown(tabulate):
    (found,) = evaluate_claims(tabulate({}), {"claims": [RATIO], "choices": None})[
        "open"
    ]
    assert found == "unknown"


@pytest.mark.parametrize(
    ("sgd", "verdict"), [(0.31, "holds"), (0.29, "fails"), (0.05, "fails")]
)
def test_ratio_follows_its_threshold(tabulate, sgd, verdict):
    sgd = {"line": "DP-SGD authors", "end": sgd, "spread": 0.0}
    table = tabulate({"end": 0.1, "spread": 0.0}, sgd)
    assert judge(table, RATIO)["verdict"] == verdict


def test_ratio_is_one_of_means_not_medians(tabulate):
    table = tabulate({"end": 0.1, "n_seeds": 3}, {"line": "DP-SGD authors", "end": 0.2})
    outlier = (table["line"] == "DP-SGD authors") & (table["seed"] == 0)
    last = outlier & (table["iteration"] == table["iteration"].max())
    table.loc[last, "relative_error"] = 10.0
    assert judge(table, RATIO)["value"] > 20


def test_only_report_runs_count(tabulate):
    table = tabulate(
        {"end": 0.1},
        {"line": "DP-SGD authors", "end": 0.2},
        {"line": "DP-SGD authors", "end": 50.0, "phase": "tune"},
        {"line": "DP-SGD authors", "end": 70.0, "epsilon": 10.0},
        {"line": "DP-SGD authors", "end": 90.0, "panel": "log2"},
    )
    assert judge(table, RATIO)["value"] == pytest.approx(2)


def test_inverse_ratio_at_most(tabulate):
    claim = {**RATIO, "measure": "inverse_ratio", "at_most": 0.6}
    del claim["at_least"]
    table = tabulate({"end": 0.1}, {"line": "DP-SGD authors", "end": 0.2})
    row = judge(table, claim)
    assert (row["value"], row["verdict"]) == (pytest.approx(0.5), "holds")
    assert row["threshold"] == "<= 0.6"


def test_missing_line_is_not_run(tabulate):
    row = judge(tabulate({"end": 0.1}), RATIO)
    assert row["verdict"] == (
        "not run (DP-SGD authors has no report runs at epsilon = 1)"
    )
    assert math.isnan(row["value"])


def test_missing_panel_is_not_run(tabulate):
    row = judge(tabulate({"panel": "log2"}), RATIO)
    assert row["verdict"] == "not run (panel log1 has no report runs)"


def test_empty_table_is_not_run(tabulate):
    table = tabulate({}).iloc[:0]
    assert judge(table, RATIO)["verdict"].startswith("not run (")


def test_data_unavailable_is_the_reason(tabulate):
    message = "dataset madelon is not here; set DP_ERM_BENCH_DATA\nmore"
    table = tabulate(
        {"panel": "log1", "phase": "tune", "status": "error", "message": message}
    )
    assert judge(table, RATIO)["verdict"] == (
        "not run (error: dataset madelon is not here; set DP_ERM_BENCH_DATA)"
    )


def test_reason_of_a_line_that_never_started(tabulate):
    reason = "dataset log1 cannot be had: set DP_ERM_BENCH_DATA"
    entry = {"panel": "log1", "line": "DP-CD cyclic", "reason": reason}
    missing = {**config(RATIO), "not_run": [entry]}
    found = evaluate_claims(tabulate({"panel": "log2"}), missing)
    assert list(found["verdict"]) == [f"not run (skipped: {reason})"]


def test_lines_that_never_started_leave_the_others_alone(tabulate):
    entry = {"panel": "log2", "line": "DP-CD cyclic", "reason": "no data"}
    table = tabulate({"end": 0.1}, {"line": "DP-SGD authors", "end": 0.5})
    found = evaluate_claims(table, {**config(RATIO), "not_run": [entry]})
    assert list(found["verdict"]) == ["holds"]
    assert found["value"].iloc[0] == pytest.approx(5)


def test_failed_report_run_is_not_run(tabulate):
    table = tabulate(
        {"end": 0.1},
        {"line": "DP-SGD authors", "status": "killed", "message": "out of memory"},
    )
    assert judge(table, RATIO)["verdict"] == "not run (killed: out of memory)"


@pytest.mark.parametrize("line", ["DP-SGD authors", "DP-CD cyclic"])
def test_diverged_runs_never_hold(tabulate, line):
    table = tabulate({"end": 0.1}, {"line": "DP-SGD authors", "end": 0.9})
    gone = (table["line"] == line) & (table["seed"] == 1) & (table["iteration"] > 300)
    table.loc[gone, ["relative_error", "objective"]] = math.nan
    table.loc[(table["line"] == line) & (table["seed"] == 1), "status"] = "diverged"
    for key in ("at_least", "at_most"):
        claim = {k: v for k, v in RATIO.items() if k != "at_least"} | {key: 1.0}
        told = judge(table, claim)["verdict"]
        assert told.startswith("undecided (no interval: runs were lost")


def test_no_optimum_is_not_run(tabulate):
    table = tabulate({"end": 0.1}, {"line": "DP-SGD authors"})
    table["relative_error"] = math.nan
    assert "no certified optimum" in judge(table, RATIO)["verdict"]


def test_error_below_the_certificate_does_not_explode(tabulate):
    table = tabulate({"end": 1e-14}, {"line": "DP-SGD authors", "end": 0.1})
    assert judge(table, RATIO)["value"] == pytest.approx(1e8)


@pytest.mark.parametrize(
    ("start", "verdict"), [(0.63474, "holds"), (0.63466, "holds"), (0.6348, "fails")]
)
def test_error_at_zero_holds_to_the_digits_printed(tabulate, start, verdict):
    claim = {
        "id": "zero",
        "figure": "log1",
        "statement": "at 0",
        "measure": "error_at_zero",
        "line": "DP-CD cyclic",
        "equals": 0.6347,
        "within": 5e-5,
    }
    row = judge(tabulate({"start": start}), claim)
    assert row["verdict"] == verdict
    assert row["threshold"] == "0.6347 +- 5e-05"


@pytest.mark.parametrize(
    ("low", "high", "gap", "overlap"),
    [
        (0.09, 0.11, "holds", "fails"),
        (0.40, 0.50, "undecided", "undecided"),
        (0.42, 0.58, "fails", "holds"),
        (0.05, 0.90, "fails", "holds"),
        (1.80, 2.20, "fails", "fails"),
    ],
)
def test_bands(tabulate, low, high, gap, overlap):
    """SGD's is [.47, .53], 20 to 80 %; bands may be apart on the wrong side, too."""
    table = tabulate(
        {
            "line": "DP-GCD tight",
            "end": (low + high) / 2,
            "spread": (high - low) / (high + low),
            "n_seeds": 20,
        },
        {"line": "DP-SGD authors", "end": 0.5, "n_seeds": 20},
    )
    claim = {
        "id": "band",
        "figure": "log1",
        "statement": "bands",
        "under": "DP-GCD tight",
        "over": "DP-SGD authors",
        "line": "DP-GCD tight",
        "other": "DP-SGD authors",
    }
    disjoint = judge(table, {**claim, "measure": "band_gap", "at_least": 1})
    assert disjoint["verdict"] == gap
    overlapping = {**claim, "measure": "band_separation", "at_most": 1}
    assert judge(table, overlapping)["verdict"] == overlap


def test_band_separation_is_symmetric(tabulate):
    table = tabulate({"line": "DP-GCD tight", "end": 0.1}, {"end": 0.5})
    claim = {
        "id": "tie",
        "figure": "log1",
        "statement": "tie",
        "measure": "band_separation",
        "at_most": 1,
    }
    values = [
        judge(table, {**claim, "line": a, "other": b})["value"]
        for a, b in [
            ("DP-GCD tight", "DP-CD cyclic"),
            ("DP-CD cyclic", "DP-GCD tight"),
        ]
    ]
    assert values == [pytest.approx(0.47 / 0.106)] * 2


def test_few_runs_do_not_tell_the_ends_of_a_band(tabulate):
    claim = {**RATIO, "measure": "band_gap", "at_least": 1}
    row = judge(tabulate({"end": 0.1}, {"line": "DP-SGD authors", "end": 0.5}), claim)
    assert row["verdict"].startswith("undecided (no interval")


def progress(iterations):
    return {
        "id": "progress",
        "figure": "log1",
        "statement": "progress",
        "measure": "share_of_progress",
        "line": "DP-CD cyclic",
        "iterations": iterations,
        "at_least": 0.7,
    }


def test_share_of_progress(tabulate):
    table = tabulate({"start": 1.0, "end": 0.01, "spread": 0.0, "passes": 10.0})
    early = judge(table, progress(1))
    assert early["value"] == pytest.approx((1 - 0.01**0.1) / 0.99)
    assert early["verdict"] == "fails"
    assert judge(table, progress(5))["verdict"] == "holds"
    assert judge(table, progress(99))["value"] == pytest.approx(1)


def test_no_progress_has_no_part(tabulate):
    row = judge(tabulate({"start": 0.6, "end": 0.7, "spread": 0.0}), progress(3))
    assert row["verdict"].startswith("undecided (no value")


@pytest.mark.parametrize(("end", "verdict"), [(0.5, "holds"), (0.4, "fails")])
def test_loss_of_error_of_a_shorter_run_is_its_end(tabulate, end, verdict):
    claim = {
        "id": "stuck",
        "figure": "log1",
        "statement": "stuck",
        "measure": "loss_of_error",
        "line": "DP-CD cyclic",
        "passes": 20,
        "at_most": 0.2,
    }
    row = judge(tabulate({"start": 0.6, "end": end, "spread": 0.0}), claim)
    assert row["value"] == pytest.approx(1 - end / 0.6)
    assert row["verdict"] == verdict


def test_loss_of_error_is_taken_at_the_passes_asked_for(tabulate):
    claim = {
        "id": "stuck",
        "figure": "log1",
        "statement": "stuck",
        "measure": "loss_of_error",
        "line": "DP-CD cyclic",
        "passes": 5,
        "at_most": 0.2,
    }
    table = tabulate({"start": 1.0, "end": 0.01, "spread": 0.0, "passes": 50.0})
    assert judge(table, claim)["value"] == pytest.approx(1 - 0.01**0.1)


FASTER = {
    "id": "faster",
    "figure": "log1",
    "statement": "faster than {other}",
    "measure": "ratio_at_share",
    "line": "DP-CD cyclic",
    "other": "DP-SGD authors",
    "share": 0.25,
    "at_most": 1.5,
}


@pytest.mark.parametrize(("passes", "verdict"), [(10.0, "holds"), (50.0, "fails")])
def test_ratio_at_a_share_of_the_passes(tabulate, passes, verdict):
    table = tabulate(
        {"start": 1.0, "end": 0.1, "spread": 0.0, "passes": passes},
        {"line": "DP-SGD authors", "start": 1.0, "end": 0.2, "passes": 50.0},
    )
    table.loc[table["line"] == "DP-SGD authors", "relative_error"] = 0.2
    row = judge(table, FASTER)
    # After 12.5 passes it has ended, or is a quarter through, halfway between two rows.
    early = 0.1 if passes == 10.0 else (0.1**0.2 + 0.1**0.3) / 2
    assert row["value"] == pytest.approx(early / 0.2)
    assert row["verdict"] == verdict


FAST = {
    "id": "fast",
    "figure": "log1",
    "statement": "fast",
    "measure": "quotient_of_seconds",
    "under": "DP-CD cyclic",
    "over": "DP-SGD authors",
    "factor": 1.1,
    "at_least": 10,
}


def test_quotient_of_the_seconds_until_errors_stay_near_their_end(tabulate):
    table = tabulate({"n_seeds": 20}, {"line": "DP-SGD authors", "n_seeds": 20})
    own = table["line"] == "DP-CD cyclic"
    checkpoints = sorted(set(table["iteration"]))
    # One is there at its third checkpoint, and the other is there twice.
    errors = {True: (9, 2, 1, 1.05), False: (9, 1, 3, 1.05)}
    for line, values in errors.items():
        for place, value in enumerate((*values, *[1.0] * 7)):
            at = own.eq(line) & table["iteration"].eq(checkpoints[place])
            assert at.sum() == 20
            scatter = 1 + 0.01 * table.loc[at, "seed"]
            table.loc[at, "relative_error"] = value
            table.loc[at, "seconds"] = place * scatter * (1.0 if line else 30.0)
    row = judge(table, FAST)
    assert row["value"] == pytest.approx(3 * 30 / 2)
    assert row["verdict"] == "holds"
    assert row["measured"].startswith(
        "seconds of DP-SGD authors / DP-CD cyclic until their mean error stays within "
        "1.1 of the higher of their two ends; 20 runs"
    )
    # It came there after its second checkpoint, the other after its first.
    low, high = (float(end) for end in row["interval"].strip("[]").split(","))
    assert 0.9 * 30 < low < 30 and 90 < high < 1.1 * 90
    steps = table.assign(iteration=table["iteration"].map(checkpoints.index))
    low, high = (
        float(end) for end in judge(steps, FAST)["interval"].strip("[]").split(",")
    )
    assert 40 < low < 45 < high < 50
    # One that ends higher sets the target of both: the other is there sooner.
    higher = table.assign(
        relative_error=table["relative_error"] * np.where(own, 3.0, 1.0)
    )
    row = judge(higher, FAST)
    assert row["value"] == pytest.approx(1 * 30 / 2) and row["verdict"] == "undecided"
    # Who stays at w = 0 is there at the first checkpoint, and says nothing.
    table.loc[own, "relative_error"] = 9.0
    row = judge(table, {**FAST, "good": "{under}"})
    assert row["verdict"].startswith("vacuous")


@pytest.mark.parametrize(("factor", "verdict"), [(1.9, "holds"), (2.1, "fails")])
def test_ratio_to_the_authors_at_the_end(tabulate, factor, verdict):
    end = decoded_curves("electricity_raw")["DP-CD"][0][-1, 1]
    claim = {
        "id": "end",
        "figure": "electricity_raw",
        "statement": "end",
        "measure": "ratio_to_authors",
        "line": "DP-CD cyclic",
        "curve": "DP-CD",
        "at": ["at the end", "at their passes"],
        "at_most": 2,
    }
    line = {"panel": "electricity_raw", "start": 0.2447, "spread": 0.0}
    table = tabulate({**line, "end": factor * end, "passes": 500.0})
    both = evaluate_claims(table, config(claim))
    assert both["value"].iloc[0] == pytest.approx(factor)
    # Ten times as slow it ends alike, and is far behind at their passes.
    assert list(both["verdict"]) == [verdict, "fails"]
    assert both["value"].iloc[1] > 5
    assert both["measured"].iloc[1].startswith("mean error of DP-CD cyclic / that of")


def test_their_passes_are_all_of_their_points_but_w_0(tabulate):
    claim = {
        "id": "worst",
        "figure": "electricity_raw",
        "statement": "worst",
        "measure": "ratio_to_authors",
        "line": "DP-SGD authors 50 passes",
        "curve": "DP-SGD",
        "at": "at their passes",
        "at_most": 2,
    }
    line = {
        "panel": "electricity_raw",
        "line": "DP-SGD authors 50 passes",
        "start": 0.24475,
        "end": 0.154,
        "passes": 50.0,
        "spread": 0.0,
    }
    table = tabulate(line)
    assert judge(table, claim)["verdict"] == "holds"
    middle = table["passes"] == 25.0
    assert middle.any()
    table.loc[middle, "relative_error"] = 0.4
    row = judge(table, claim)
    assert row["value"] == pytest.approx(0.4 / 0.17108, rel=1e-3)
    assert row["verdict"] == "fails"
    # Where ours is far below theirs after the start, the start does not count.
    table["relative_error"] = table["relative_error"].where(table["passes"] == 0, 0.01)
    assert judge(table, claim)["value"] < 0.9


@pytest.mark.parametrize(
    ("certified", "verdict"), [(0.62, "holds"), (1.87, "fails"), (1.0, "holds")]
)
def test_certified_epsilon(tabulate, certified, verdict):
    claim = {
        "id": "printed",
        "figure": "log1",
        "statement": "printed",
        "measure": "certified_epsilon",
        "line": "DP-CD cyclic",
        "at_most": 1,
    }
    row = judge(tabulate({"certified": certified}), claim)
    assert (row["value"], row["verdict"]) == (certified, verdict)


def test_uncertified_noise_is_not_run(tabulate):
    claim = {
        "id": "printed",
        "figure": "log1",
        "statement": "printed",
        "measure": "certified_epsilon",
        "line": "DP-CD cyclic",
        "at_most": 1,
    }
    row = judge(tabulate({"certified": math.nan}), claim)
    assert row["verdict"] == "not run (no accountant certifies this noise)"


def test_lists_stand_for_a_row_each(tabulate):
    claim = {**RATIO, "figure": ["log1", "log2"], "over": ["DP-SGD authors", "none"]}
    table = tabulate({"end": 0.1}, {"line": "DP-SGD authors", "end": 0.5})
    found = evaluate_claims(table, config(claim))
    assert list(found["figure"]) == ["log1", "log1", "log2", "log2"]
    assert [v.split(" (")[0] for v in found["verdict"]] == [
        "holds",
        "not run",
        "not run",
        "not run",
    ]


def repeats(*pairs, **more):
    """Lines of two algorithms that end at some errors, a pair for each data set."""
    lines = ("DP-CD cyclic", "DP-SGD authors")
    return [
        {"dataset_seed": seed, "line": line, "end": end, **more}
        for seed, pair in enumerate(pairs, 11)
        for line, end in zip(lines, pair, strict=True)
    ]


def test_repeats_over_data_seeds_are_one_row_with_what_they_scatter(tabulate):
    many = [(0.1 * k, 0.5 * k) for k in (1, 2, 3, 1, 2, 3)]
    row = judge(tabulate(*repeats(*many, spread=0.0)), RATIO)
    # Data sets are drawn in pairs: that they differ does not count, the quotient does.
    assert row["interval"] == "[5, 5]" and row["verdict"] == "holds"
    assert row["measured"].endswith("; 24 runs on 6 data sets")
    wild = [(0.1, 0.5), (0.1, 0.1), (0.1, 0.9), (0.1, 0.2), (0.1, 0.6), (0.1, 0.3)]
    row = judge(tabulate(*repeats(*wild, spread=0.0)), RATIO)
    assert row["value"] == pytest.approx(2.6 / 0.6)
    assert row["verdict"] == "undecided"


# Verdicts: the first that applies.

GOOD = {**RATIO, "whose": "paper", "good": "{under}"}


def test_a_good_line_that_does_not_beat_zero_says_nothing(tabulate):
    """Both ways: neither a hold nor a fail of such a line is one."""
    for end in (0.6, 0.59, 0.8):
        table = tabulate({"end": end}, {"line": "DP-SGD authors", "end": 5.0})
        for bound in ({"at_least": 3}, {"at_least": 90}):
            row = judge(table, {**GOOD, **bound})
            assert row["verdict"].startswith("vacuous (error of DP-CD cyclic / that of")
            assert row["value"] == pytest.approx(5.0 / end)
    table = tabulate({"end": 0.1}, {"line": "DP-SGD authors", "end": 0.5})
    row = judge(table, GOOD)
    assert row["verdict"] == "holds" and row["good"] == "DP-CD cyclic"
    assert row["of_zero"].startswith("0.16")


def test_what_standing_still_meets_is_vacuous(tabulate):
    """A rival above w = 0 loses to it, too; a slope or count has to say how low."""
    above = tabulate({"end": 0.3}, {"line": "DP-SGD authors", "end": 5.0})
    row = judge(above, GOOD)
    assert (
        row["verdict"] == "vacuous (w = 0 in place of DP-CD cyclic would meet it, too)"
    )
    assert float(row["standing"]) == pytest.approx(5.0 / 0.6, rel=0.1)
    assert judge(above, {**GOOD, "below_zero": 0.9})["verdict"] == "holds"
    row = judge(above, {**GOOD, "below_zero": 0.5})
    assert row["verdict"] == "undecided"
    assert row["threshold"] == ">= 3, and at most 0.5 of w = 0's error"
    row = judge(above, {**GOOD, "below_zero": 0.3})
    assert row["verdict"] == "vacuous (0.5 of w = 0's error, asked 0.3 of it)"
    # What decided without it stays what it is.
    assert judge(above, {**GOOD, "at_least": 90})["verdict"] == "fails"
    assert judge(above, RATIO)["verdict"] == "holds"
    still = tabulate({"end": 0.3}, {"line": "DP-SGD authors", "start": 0.6, "end": 0.6})
    flat = still["line"] == "DP-SGD authors"
    still.loc[flat, "relative_error"] = 0.6
    row = judge(still, {**GOOD, "at_least": 1.5})
    assert row["verdict"] == "holds"
    assert row["standing"].endswith("; DP-SGD authors stays at w = 0")


def test_nearly_all_is_one_row_over_the_sets(tabulate):
    panels = [f"set {k}" for k in range(6)]
    ends = [0.1, 0.1, 0.1, 0.1, 0.1, 0.5]
    table = tabulate(
        *({"panel": one, "end": end} for one, end in zip(panels, ends, strict=True)),
        *({"panel": one, "line": "DP-SGD authors", "end": 0.3} for one in panels),
    )
    claim = {**GOOD, "figure": panels, "measure": "share_of_sets"}
    (row,) = [judge(table, {**claim, "at_least": 0.8})]
    assert row["figure"] == ", ".join(panels) and row["value"] == pytest.approx(5 / 6)
    assert row["interval"] == "[0.5, 1]" and row["verdict"] == "undecided"
    assert row["standing"] == "0"
    row = judge(table, {**claim, "figure": panels[:5], "at_least": 0.8})
    assert row["value"] == 1.0 and row["verdict"] == "holds"


def test_vacuous_goes_before_undecided_and_not_run_before_both(tabulate):
    near = tabulate({"end": 0.59}, {"line": "DP-SGD authors", "end": 1.77})
    assert judge(near, RATIO)["verdict"] == "undecided"
    assert judge(near, GOOD)["verdict"].startswith("vacuous")
    alone = tabulate({"end": 0.59})
    assert judge(alone, GOOD)["verdict"].startswith("not run")


def test_smoke_goes_before_all(tabulate):
    near = tabulate({"end": 0.59}, {"line": "DP-SGD authors", "end": 1.77})
    smoke = {**config(GOOD), "profile": "smoke, changed: seed=1"}
    assert list(evaluate_claims(near, smoke)["verdict"]) == ["not judged"]
    (told,) = evaluate_claims(tabulate({"end": 0.59}), smoke)["verdict"]
    assert told == "not judged (DP-SGD authors has no report runs at epsilon = 1)"


@pytest.mark.parametrize(
    ("sgd", "verdict"), [(0.36, "holds"), (0.31, "undecided"), (0.25, "fails")]
)
def test_undecided_is_what_the_interval_does_not_tell(tabulate, sgd, verdict):
    table = tabulate({"end": 0.1}, {"line": "DP-SGD authors", "end": sgd})
    assert judge(table, RATIO)["verdict"] == verdict


def test_an_interval_within_is_one_on_both_sides(tabulate):
    line = {"start": 0.6, "end": 0.3, "n_seeds": 20}
    claim = {**RATIO, "measure": "share_left", "line": "DP-CD cyclic", "equals": 0.5}
    del claim["at_least"]
    for within, verdict in ((0.1, "holds"), (0.01, "undecided")):
        assert judge(tabulate(line), {**claim, "within": within})["verdict"] == verdict
    off = {**claim, "equals": 0.7, "within": 0.1}
    assert judge(tabulate(line), off)["verdict"] == "fails"


def test_medians_are_asked_for_by_the_claim(tabulate):
    table = tabulate({"end": 0.1, "n_seeds": 9}, {"line": "DP-SGD authors", "end": 0.5})
    last = table["iteration"] == table["iteration"].max()
    lost = (table["seed"] == 0) & (table["line"] == "DP-CD cyclic") & last
    table.loc[lost, "relative_error"] = 50.0
    table = pd.concat([table, table.assign(trial=table["trial"] + "2")])
    assert judge(table, RATIO)["value"] < 0.1
    row = judge(table, {**GOOD, "statistic": "median"})
    assert row["value"] == pytest.approx(5.0, rel=0.05) and row["verdict"] == "holds"
    assert row["measured"].startswith("median final error")


def test_what_a_claim_says_of_itself_is_in_its_row(tabulate):
    claim = {**GOOD, "expected": "fails: a tie", "good": "none", "reason": "a constant"}
    row = judge(tabulate({}), claim)
    assert row["source"] == "" and row["kind"] == "claim"
    row = judge(tabulate({}), {**claim, "source": "figure, {figure}", "kind": "fact"})
    assert row["source"] == "figure, log1" and row["kind"] == "fact"
    assert row["whose"] == "paper" and row["expected"] == "fails: a tie"
    assert row["good"] == "none (a constant)" and row["of_zero"] == ""


def test_claim_without_threshold_is_refused(tabulate):
    claim = {k: v for k, v in RATIO.items() if k != "at_least"}
    with pytest.raises(UsageError, match="threshold=None: must be at_least"):
        evaluate_claims(tabulate({}), config(claim))


def test_no_claims_give_an_empty_table(tabulate):
    found = evaluate_claims(tabulate({}), {"profile": "default"})
    assert isinstance(found, pd.DataFrame)
    assert found.empty
    assert list(found.columns) == list(COLUMNS)
