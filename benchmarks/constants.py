"""Measure the share of solving time that smoothness constants and the optimum take."""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.measure import Row, print_table
from dp_erm_bench import load_problem
from dp_erm_bench.api import one_thread
from dp_erm_bench.experiment.lines import FitLine, Trial
from dp_erm_bench.problems.erm import objective
from dp_erm_bench.problems.erm import problem as problems
from dp_erm_bench.problems.erm.problem import ERMProblem
from dp_erm_bench.runner import execute

COUNTED = (
    (objective, "_largest_eigenvalue"),
    (objective, "mean_squares_of"),
    (problems, "certified_optimum"),
)
ALGORITHMS = ("gd", "greedy_cd")
BUDGET = {"epsilon": 1.0, "delta": "1/n^2", "adjacency": "replace_one"}
SIZE = {"n": 2600, "p": 500}
BATCHES = (2, 32)


def run(given: argparse.Namespace) -> None:
    """Print these shares and the CPU time of a trial, for each batch size."""
    trials, rows = 64 if given.quick else 192, []
    for algorithm, batch in itertools.product(ALGORITHMS, BATCHES):
        where = f"{algorithm}, {SIZE['n']} x {SIZE['p']}, batches of {batch}"
        for kept, what in ((False, "nothing kept"), (True, "kept")):
            share, cost = solved(algorithm, trials, batch, kept)
            # In a short run, the first batch is a large share of the time.
            target = 5.0 if kept and not given.quick else None
            told = f"share of constants and optimum, {where}, {what}"
            rows.append(Row(told, 100.0 * share, target, unit="%"))
            rows.append(Row(f"a trial, {where}, {what}", cost))
    print_table(rows, [])


def solved(algorithm: str, trials: int, size: int, kept: bool) -> tuple[float, float]:
    """Return the share of time for constants and optimum, and the time of a trial.

    The trials run in batches in this process. At the start, nothing is kept about the
    data. The time of a trial is in CPU seconds.

    Parameters
    ----------
    algorithm : str
    trials, size : int
        Number of all trials, and of the trials in a batch.
    kept : bool
        Whether a batch may use values that an earlier batch computed.
    """
    batches = list(batches_of(algorithm, trials, size))
    first = batches[0][0]
    problem = execute.problem_of_trial(first.spec, first.setting.posed)
    assert isinstance(problem, ERMProblem)
    spent, costs = [0.0], []
    with one_thread(), counted(spent):
        # As in most runs, the code is compiled and the optimum is on disk.
        execute.run_batch(batches[0])
        spent[0] = 0.0
        forget(problem)
        for batch in batches:
            start = time.thread_time()
            records = execute.run_batch(batch)
            costs.append(time.thread_time() - start)
            assert all(one["status"] == "ok" for one in records), records[0]["message"]
            if not kept:
                forget(problem)
    return spent[0] / sum(costs), statistics.median(costs[1:]) / size


def batches_of(algorithm: str, trials: int, size: int) -> Iterator[list[Trial]]:
    """Yield trials of an algorithm on dense data, in batches."""
    params = {"smoothness": "data", "clip": 0.3}
    line = FitLine(algorithm, load_problem("log1", **SIZE), params, BUDGET, "certified")
    for first in range(0, trials, size):
        seeds = range(first, first + size)
        yield [line.setting().trial(seed, n_checkpoints=51) for seed in seeds]


def forget(problem: ERMProblem) -> None:
    """Delete the constants and the optimum that are kept for the next batches."""
    problem.dataset.derived.clear()
    vars(problem).pop("optimum", None)


@contextmanager
def counted(spent: list[float]) -> Iterator[None]:
    """Add the CPU seconds spent on constants and the optimum to ``spent[0]``."""
    plain = [(module, name, getattr(module, name)) for module, name in COUNTED]
    for module, name, compute in plain:
        setattr(module, name, timing(compute, spent))
    try:
        yield
    finally:
        for module, name, compute in plain:
            setattr(module, name, compute)


def timing(compute: Callable[..., Any], spent: list[float]) -> Callable[..., Any]:
    """Return a function that also adds its CPU time to ``spent[0]``.

    The time of other such functions that it calls is counted only once.
    """

    def timed(*given: Any) -> Any:
        start, before = time.thread_time(), spent[0]
        found = compute(*given)
        spent[0] = before + time.thread_time() - start
        return found

    return timed
