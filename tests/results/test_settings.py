import json
import math

import numpy as np
import pandas as pd

from dp_erm_bench.results.settings import (
    final_rows,
    parameter_columns,
    under_bounds,
    worst_if_lost,
)
from dp_erm_bench.results.table import COLUMNS


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
    found = parameter_columns(frame)
    assert list(found.columns) == ["passes", "step"]
    assert list(found.index) == [10, 11, 12, 13]
    assert list(found["step"]) == [1, 1, 2, 2]


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
    assert told(plain, wide).startswith(
        "Trials of log1 differ in bounds: under different"
    )
    scaled = '{"bounds": {"columns": 1}, "scale": "bounds"}'
    assert told(plain, scaled).startswith("Trials of log1 differ in scale: ")
    assert told("{}", '{"standardise": true}').startswith("Trials of log1 differ in st")
