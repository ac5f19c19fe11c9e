import json
import math

import numpy as np
import pandas as pd
import pytest

from dp_erm_bench.errors import UsageError
from dp_erm_bench.results.settings import (
    LINE_COLUMNS,
    best_settings,
    final_rows,
    held_out,
    parameters,
    under_bounds,
    worst_if_lost,
)
from dp_erm_bench.results.table import COLUMNS
from tests.loops import each


def run(step, seed, objective, **changes):
    """Two checkpoints of one run."""
    usual = {
        "trial": f"{step} {seed} {sorted(changes.items())}",
        "experiment": "study",
        "panel": "panel",
        "line": "line",
        "phase": "tune",
        "tuned": False,
        "dataset": "log1",
        "dataset_seed": 0,
        "standardise": False,
        "loss": "logistic",
        "penalty": "l2",
        "strength": 0.5,
        "constraint": "none",
        "algorithm": "random_cd",
        "params": json.dumps({"passes": 2.0, "step": step}),
        "epsilon": 1.0,
        "calibration": "certified",
        "uncharged": "smoothness",
        "seed": seed,
        "status": "ok",
    }
    rows = [{**usual, **changes, "iteration": k} for k in (0, 4)]
    rows[0]["objective"] = 1.0
    rows[1]["objective"] = objective
    return rows


def table(*runs):
    return pd.DataFrame(sum(runs, []), columns=list(COLUMNS))


def chosen(frame, column="step"):
    return list(parameters(best_settings(frame))[column])


def test_the_last_checkpoint_of_each_run_is_final():
    frame = final_rows(table(run(1, 0, 0.5), run(2, 0, 0.4), run(1, 1, 0.6)))
    assert list(frame["objective"]) == [0.5, 0.4, 0.6]
    assert set(frame["iteration"]) == {4}


def test_a_run_in_two_lines_or_phases_is_final_in_each():
    shared = {"trial": "same"}
    frame = table(
        run(1, 0, 0.5, **shared),
        run(1, 0, 0.5, **shared, line="other"),
        run(1, 0, 0.5, **shared, phase="report"),
    )
    assert len(final_rows(frame)) == 3


def test_parameters_are_columns_on_the_tables_index():
    frame = table(run(1, 0, 0.5), run(2, 0, 0.4)).set_index(np.arange(10, 14))
    found = parameters(frame)
    assert list(found.columns) == ["passes", "step"]
    assert list(found.index) == [10, 11, 12, 13]
    assert list(found["step"]) == [1, 1, 2, 2]


def test_the_best_has_the_smallest_mean_not_the_best_seed():
    frame = table(run(1, 0, 0.1), run(1, 1, 0.9), run(2, 0, 0.4), run(2, 1, 0.4))
    (best,) = best_settings(frame).to_dict("records")
    assert json.loads(best["params"])["step"] == 2
    assert best["mean_objective"] == pytest.approx(0.4)
    assert best["runner_up"] == pytest.approx(0.5)
    assert (best["seeds"], best["settings"]) == (2, 2)


def test_report_runs_do_not_choose():
    frame = table(
        run(1, 0, 0.5), run(2, 0, 0.6), run(2, 9, 0.1, phase="report", tuned=True)
    )
    assert chosen(frame) == [1]


@pytest.mark.parametrize("status", ["diverged", "error", "timeout", "killed"])
def test_a_lost_run_makes_its_setting_the_worst(status):
    lost = run(1, 1, math.nan, status=status)
    frame = table(run(1, 0, 0.1), lost, run(2, 0, 0.6), run(2, 1, 0.6))
    best = best_settings(frame)
    assert chosen(frame) == [2]
    assert best["runner_up"].tolist() == [math.inf]


def test_a_line_that_was_lost_everywhere_says_so():
    frame = table(run(1, 0, math.nan, status="diverged"))
    assert best_settings(frame)["mean_objective"].tolist() == [math.inf]


def test_of_refined_lines_only_the_refined_settings_compete():
    lucky = [run(3, 0, 0.1)]
    refined = [run(step, seed, step / 10) for step in (5, 6) for seed in (0, 1)]
    frame = table(*lucky, *refined)
    best = best_settings(frame)
    assert chosen(frame) == [5]
    assert best[["seeds", "settings"]].to_numpy().tolist() == [[2, 3]]


def test_among_equals_the_earlier_wins():
    assert chosen(table(run(7, 0, 0.5), run(1, 0, 0.5), run(3, 0, 0.5))) == [7]


@each("column", [c for c in LINE_COLUMNS if c not in ("n", "p")])
def test_lines_are_chosen_apart(column):
    other = {"standardise": True, "epsilon": 3.0, "strength": 0.1, "dataset_seed": 5}
    changes = {column: other.get(column, 0.7 if column == "delta" else "x")}
    frame = table(
        run(1, 0, 0.5),
        run(2, 0, 0.6),
        run(1, 0, 0.6, **changes),
        run(2, 0, 0.5, **changes),
    )
    assert chosen(frame) == [1, 2]


@pytest.mark.parametrize("how", ["not proved", "not recounted"])
def test_settings_whose_noise_is_not_proved_or_recounted_stay_in_their_line(how):
    frame = table(
        run(1, 0, 0.5, calibration="paper"),
        run(2, 0, 0.4, calibration=f"paper ({how})"),
    )
    assert chosen(frame) == [2]


def test_skipped_runs_choose_nothing():
    skipped = run(1, 0, math.nan, status="skipped", line="refused", strength=None)
    assert list(best_settings(table(skipped, run(1, 0, 0.5)))["line"]) == ["line"]
    with pytest.raises(UsageError, match="no runs to choose from"):
        best_settings(table(skipped))


def sweep(**changes):
    runs = [
        run(step, seed, step / 10 + seed / 100, phase="sweep", **changes)
        for step in (1, 2)
        for seed in range(4)
    ]
    return table(*runs)


def test_a_sweep_is_judged_by_seeds_that_did_not_choose():
    frame = held_out(sweep(), range(2))
    tune, report = (frame[frame["phase"] == phase] for phase in ("tune", "report"))
    assert set(tune["seed"]) == {0, 1}
    assert set(parameters(tune)["step"]) == {1, 2}
    assert set(report["seed"]) == {2, 3}
    assert set(parameters(report)["step"]) == {1}
    assert len(report) == 4


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "tuning"),
        ("smoothness", "smoothness,tuning"),
        ("tuning", "tuning"),
        ("smoothness,tuning", "smoothness,tuning"),
    ],
)
def test_a_choice_on_other_runs_is_uncharged(before, after):
    frame = held_out(sweep(uncharged=before), [0])
    told = frame.groupby("phase")[["uncharged", "tuned"]].first()
    assert told.loc["tune"].tolist() == [before, False]
    assert told.loc["report"].tolist() == [after, True]


def test_unknown_strengths_and_unproved_noise_do_not_lose_reports():
    frame = held_out(sweep(strength=None, calibration="paper (not proved)"), [0, 1])
    report = frame[frame["phase"] == "report"]
    assert set(report["seed"]) == {2, 3}
    assert set(report["calibration"]) == {"paper (not proved)"}


def test_the_table_given_is_left_alone():
    frame = sweep()
    before = frame.copy()
    held_out(frame, [0])
    best_settings(frame)
    pd.testing.assert_frame_equal(frame, before)


def test_only_lost_values_are_the_worst():
    rows = pd.DataFrame(
        {
            "status": ["ok", "diverged", "diverged", "error", "ok", "skipped"],
            "y": [1.0, 0.5, math.nan, math.nan, math.nan, math.nan],
        }
    )
    found = worst_if_lost(rows, "y").tolist()
    assert found[:4] == [1.0, 0.5, math.inf, math.inf]
    assert all(map(math.isnan, found[4:]))


def test_what_differs_is_named_where_bounds_or_scales_do():
    """A generator's own scale is no bound, nor is another seed."""

    def told(*options):
        rows = [run(1.0, j, 1.0) for j in range(len(options))]
        table = pd.DataFrame([row for own in rows for row in own])
        return under_bounds(table.assign(dataset_options=np.repeat(options, 2)))

    plain, wide = '{"bounds": {"columns": 1}}', '{"bounds": {"columns": 2}}'
    assert told(plain, plain) == told('{"scale": 2.0}', '{"scale": 8.0}') == ""
    assert told(plain, wide).startswith("Trials of log1 differ in bounds: under other")
    scaled = '{"bounds": {"columns": 1}, "scale": "bounds"}'
    assert told(plain, scaled).startswith("Trials of log1 differ in scale: ")
    assert told("{}", '{"standardise": true}').startswith("Trials of log1 differ in st")
