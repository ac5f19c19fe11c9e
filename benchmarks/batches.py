"""Compare the time of a trial in batches of 32 trials and in batches of 2.

Earlier versions of the runner made batches of 2.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from typing import Any

from benchmarks.measure import Row, print_table
from dp_erm_bench import load_problem
from dp_erm_bench.api import one_thread
from dp_erm_bench.experiment.lines import FitLine
from dp_erm_bench.runner import execute
from dp_erm_bench.runner.options import RunOptions
from dp_erm_bench.runner.session import batches_of

BALL = {"penalty": "none", "constraint": {"name": "l1_ball", "radius": 1.0}}
CASES: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("gd", {}, {}),
    ("mirror_descent", BALL, {}),
    ("frank_wolfe", BALL, {}),
    ("greedy_cd", {}, {}),
    ("random_cd", {}, {"passes": 10.0}),
)
"""Name, parts of the problem, and parameters of each algorithm that is timed."""

SIZES = ({"n": 500, "p": 30}, {"n": 2600, "p": 500})
BUDGET = {"epsilon": 1.0, "delta": "1/n^2", "adjacency": "replace_one"}
LENGTH = 100
BEFORE = 2


def run(given: argparse.Namespace) -> None:
    """Print the CPU time of a trial for small batches and for the runner's batches."""
    rows, times = [], 1 if given.quick else 3
    for (algorithm, parts, params), size in itertools.product(CASES, SIZES):
        made, before, now = costs(algorithm, size, parts, params, times)
        told = f"a trial, {algorithm}, {size['n']} x {size['p']}, batches of"
        rows.append(Row(f"{told} {BEFORE} (before)", before))
        rows.append(Row(f"{told} {made} (now: 1 / {before / now:.1f})", now))
    print_table(rows, [])


def costs(
    algorithm: str,
    size: dict[str, int],
    parts: dict[str, Any],
    params: dict[str, Any],
    times: int,
) -> tuple[int, float, float]:
    """Return the batch size that the runner chooses, and the time of a trial.

    The time is given for batches of 2 and for batches of the chosen size. Both are
    medians over several batches. Data and machine code are loaded before.
    """
    problem = load_problem("log1", **size, **parts)
    given = {"clip": 0.3, "n_iter": LENGTH, **params}
    given.pop("n_iter" if "passes" in params else "", None)
    line = FitLine(algorithm, problem, given, BUDGET, "certified")
    options = RunOptions()
    trials = [line.setting().trial(seed, 51) for seed in range(32)]
    batch = batches_of(trials, options.batch_trials, options.batch_work)[0]
    with one_thread():
        for one in (batch[:BEFORE], batch):
            execute.run_batch(one)
        spent = []
        for one in (batch[:BEFORE], batch):
            taken = []
            for _ in range(times if len(one) > BEFORE else 5 * times):
                start = time.thread_time()
                records = execute.run_batch(one)
                taken.append(time.thread_time() - start)
                assert all(r["status"] == "ok" for r in records), records[0]["message"]
            spent.append(statistics.median(taken) / len(one))
    return len(batch), spent[0], spent[1]
