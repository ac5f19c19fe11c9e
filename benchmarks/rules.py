"""Run the rules for parameters on the leaderboard's problems, and fit the rules.

A rule sets an algorithm's parameters from public numbers, without tuning. `python -m
benchmarks.rules run` runs each algorithm that has a rule on every panel of its kinds,
and writes results/published/untuned.csv. This table is used by `algorithm=auto` and
`advise`. `judge` evaluates both by leaving out one family of data at a time. `try
ALGORITHM KIND NAME=VALUE,VALUE ...` runs each combination of guesses of a rule's
constants, and adds the errors to results/published/rules.csv. `fit` says which guess is
the best on all families of data, and how good such a guess is on a family that was left
out.
"""

import argparse
import functools
import itertools
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.cells import leaderboard
from dp_erm_bench import load_problem
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.datasets.spec import family_of
from dp_erm_bench.errors import NotSolved, Unsupported, UsageError
from dp_erm_bench.experiment.lines import FitLine
from dp_erm_bench.experiment.parameters import algorithm_of, with_defaults
from dp_erm_bench.fitted import one_thread
from dp_erm_bench.problems.erm.problem import ERMProblem
from dp_erm_bench.rules.advice import (
    expects_nothing,
    public_of_cell,
    rank_rules,
    share_gained,
)
from dp_erm_bench.rules.public import public_numbers
from dp_erm_bench.rules.settings import RULES
from dp_erm_bench.run import Run

PUBLISHED = Path(__file__).resolve().parents[1] / "results/published"
TABLE, UNTUNED = PUBLISHED / "rules.csv", PUBLISHED / "untuned.csv"
KINDS = {"l2": "ridge", "l1": "ball", "squared": "numbers", "huber": "ridge"}
"""Kind of problem for each ending of a panel's name."""

EPSILONS = (0.1, 0.3, 1.0)
"""Epsilons at which guesses are run; published results have those of the board."""
ALL = (*EPSILONS, 3.0, 10.0)
SEEDS = 6
REPORT = range(100, 110)
"""The first report seeds of the leaderboard.

A sweep would give these runs the same identities.
"""

CELL = ["kind", "panel", "epsilon"]
MOST = 1e3
"""Error of a run that diverged, as a multiple of the error of w = 0."""


def panels_of(kind: str) -> dict[str, dict[str, Any]]:
    """Return a block for each panel of a kind."""
    blocks = {block["panel"]: block for block in leaderboard()}
    return {name: one for name, one in blocks.items() if name.endswith(f"_{kind}")}


def family_of_panel(block: Mapping[str, Any]) -> str:
    """Return the family of a panel's data; a LIBSVM set has a family of its own."""
    data = block["dataset"]
    return family_of(f"{data['name']}:{data['set']}" if "set" in data else data["name"])


@functools.cache
def problem_of_panel(panel: str) -> ERMProblem:
    """Return the problem of a panel."""
    block = panels_of(panel.rpartition("_")[2])[panel]
    given = {k: block[k] for k in ("loss", "penalty", "constraint") if k in block}
    data = dict(block["dataset"])
    problem = load_problem(data.pop("name"), **given, **data)
    assert isinstance(problem, ERMProblem) and problem.optimum.value is not None
    return problem


def ends_of_runs(
    problem: ERMProblem,
    algorithm: str,
    settings: Mapping[str, Any],
    budget: Budget,
    names: list[str],
) -> np.ndarray[Any, Any] | None:
    """Return the last iterates of runs; None if a run is refused or not finite."""
    solver = algorithm_of(algorithm).solver(settings)
    ends = []
    for batch in [names] if solver.batchable else [[name] for name in names]:
        try:
            with one_thread():
                run = Run(problem, [solver] * len(batch), budget, "certified", batch)
                rows = run.record(2).rows
        except (NotSolved, Unsupported):
            return None
        if not rows.finite.all():
            return None
        ends.append(rows.w)
    return np.concatenate(ends)


def excess(problem: ERMProblem, w: Any) -> float:
    """Return F(w) / min F - 1."""
    assert problem.optimum.value is not None
    return float(problem.value(w)) / problem.optimum.value - 1.0


def rows_of_guess(
    algorithm: str, kind: str, guess: Mapping[str, float]
) -> Iterator[dict[str, Any]]:
    """Yield the error of a guess on each cell of a kind, relative to that of w = 0."""
    rule = RULES[algorithm]
    constants = {**rule.constants.get(KINDS[kind], {}), **guess}
    names = [f"rules {seed}" for seed in range(SEEDS)]
    for panel, block in panels_of(kind).items():
        problem = problem_of_panel(panel)
        zero = excess(problem, np.zeros(problem.p))
        for epsilon in EPSILONS:
            budget = Budget(epsilon=epsilon, delta="1/n^2")
            public = public_numbers(problem, budget, None)
            assert public is not None
            settings = rule.settings(public, {}, **guess)
            ends = ends_of_runs(problem, algorithm, settings, budget, names)
            error = math.inf
            if ends is not None:
                errors = [max(excess(problem, w), 1e-9) for w in ends]
                error = float(np.exp(np.log(errors).mean()))
            yield {
                **{"algorithm": algorithm, "kind": kind, "panel": panel},
                **{"family": family_of_panel(block), "epsilon": epsilon},
                "constants": json.dumps(constants, sort_keys=True),
                "of_zero": float(f"{min(error / zero, MOST):.4g}"),
            }


def score_of(problem: ERMProblem, w: Any) -> float:
    """Return the median test accuracy, or R2, of points of shape (B, p)."""
    said = problem.measures(np.atleast_2d(w))
    return float(
        np.median(said["test_accuracy" if problem.loss.classification else "r2"])
    )


def rows_untuned(panel: str) -> Iterator[dict[str, Any]]:
    """Yield the final error and score of each rule on a panel, at each epsilon."""
    kind = panel.rpartition("_")[2]
    problem = problem_of_panel(panel)
    zero = np.zeros(problem.p)
    base, best = score_of(problem, zero), score_of(problem, problem.optimum.w)
    base = max(base, 1.0 - base if problem.loss.classification else 0.0)  # the mean
    for epsilon in ALL:
        budget = Budget(epsilon=epsilon, delta="1/n^2")
        public = public_numbers(problem, budget, None)
        assert public is not None
        cell = {"kind": KINDS[kind], "panel": panel}
        cell |= {"family": family_of_panel(panels_of(kind)[panel])}
        cell |= {"n": problem.n, "p": problem.p, "epsilon": epsilon}
        cell |= {
            "records": _short(public.records()),
            "zero": _short(excess(problem, zero)),
        }
        cell |= {"base": _short(base), "best": _short(best)}
        for algorithm, rule in RULES.items():
            if not rule.gives(public):
                continue
            given = with_defaults(algorithm, {})
            line = FitLine(algorithm, problem, given, budget.spec, "certified")
            names = [line.setting().identity(seed) for seed in REPORT]
            ends = ends_of_runs(problem, algorithm, line.params, budget, names)
            found = {"algorithm": algorithm, "rule": rule.version}
            if ends is None:
                yield {**cell, **found, "error": math.inf, "score": base}
                continue
            errors = [excess(problem, w) for w in ends]
            found |= {"error": _short(np.median(errors))}
            yield {**cell, **found, "score": _short(score_of(problem, ends))}


def _short(value: Any) -> float:
    return float(f"{value:.4g}")


def best_guess(rows: pd.DataFrame) -> str:
    """Return the constants with the least geometric mean error.

    Each family of data counts once.
    """
    return str(_means(rows).idxmin())


def _means(rows: pd.DataFrame) -> "pd.Series[float]":
    logs = rows.assign(log=np.log(rows["of_zero"]))
    families = logs.groupby(["constants", "family"])["log"].mean()
    return families.groupby("constants").mean().map(math.exp)


def fit_rows(rows: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the best guess for each algorithm and kind, and its error.

    ``left_out`` is the geometric mean error on families that had no part in the choice:
    for each family, the guess is chosen on all others. ``above`` is the share of cells
    in which this error exceeds that of w = 0.
    """
    for (algorithm, kind), own in rows.groupby(["algorithm", "kind"]):
        guesses = own["constants"].nunique()
        counts = own.groupby(CELL)["constants"].transform("nunique")
        own = own[counts == guesses]
        best, left = best_guess(own), []
        for family, there in own.groupby("family"):
            chosen = best_guess(own[own["family"] != family])
            left.append(there[there["constants"] == chosen])
        yield {
            **{"algorithm": algorithm, "kind": kind, "guesses": guesses},
            "constants": best,
            "of_zero": _means(own)[best],
            "left_out": _means(pd.concat(left).assign(constants="")).iloc[0],
            "above": (pd.concat(left)["of_zero"] > 1.0).mean(),
        }


def guesses_of(words: list[str]) -> Iterator[dict[str, float]]:
    """Yield all combinations of values in words of the form NAME=VALUE,VALUE.

    Raises
    ------
    UsageError
        If a word has another form.
    """
    axes: dict[str, list[float]] = {}
    for word in words:
        name, _, values = word.partition("=")
        try:
            axes[name] = [float(value) for value in values.split(",")]
        except ValueError:
            raise UsageError(f"{word}: must be NAME=VALUE,VALUE") from None
    for point in itertools.product(*axes.values()):
        yield dict(zip(axes, point, strict=True))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rules")
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("panels", nargs="*", help="some panels; none for all")
    trying = commands.add_parser("try")
    trying.add_argument("algorithm", choices=sorted(RULES))
    trying.add_argument("kind", choices=KINDS)
    trying.add_argument("guesses", nargs="*", metavar="NAME=VALUE,VALUE")
    commands.add_parser("fit")
    commands.add_parser("judge")
    given = parser.parse_args()
    if given.command == "judge":
        cells = cells_judged()
        print(pd.DataFrame(rows_judged(cells)).round(2).to_string(index=False))
        low, high = coverage_interval(cells)
        covered = cells["covered"].mean()
        print(f"covered in all cells: {covered:.2f} [{low:.2f}, {high:.2f}]")
        return
    if given.command == "run":
        run_untuned(given.panels)
        return
    rows = pd.read_csv(TABLE) if TABLE.exists() else pd.DataFrame()
    guesses: list[dict[str, float]] = []
    if given.command == "try":
        constants = RULES[given.algorithm].constants.get(KINDS[given.kind], {})
        guesses = [*guesses_of(given.guesses)]
        if wrong := {*guesses[0]} - {*constants}:
            allowed = ", ".join(constants) or "none, it has no such rule"
            parser.error(f"{min(wrong)}: must be one of {allowed}")
    elif rows.empty:
        parser.error("fit: no guess is recorded, try some first")
    for guess in guesses:
        new = pd.DataFrame(rows_of_guess(given.algorithm, given.kind, guess))
        rows = pd.concat([rows, new]).drop_duplicates(
            [*CELL, "algorithm", "constants"], keep="last"
        )
        rows.to_csv(TABLE, index=False)
    print(pd.DataFrame(fit_rows(rows)).to_string(float_format="{:.3g}".format))


def rows_judged(cells: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield how well `auto` and `advise` do on each kind of problem.

    A row has these columns. ``times`` is the error of the chosen rule, divided by the
    yardstick: the smaller of the errors of the best rule and of the best tuned
    algorithm of the leaderboard. It is a geometric mean over cells. ``hindsight`` is
    the same for the best rule of each cell, and ``single`` for the best algorithm if it
    is tuned in every cell. ``covered`` is the share of cells whose error is within the
    predicted range. ``width`` is the mean length of the range of log errors, divided by
    the range over all cells of the same epsilon. ``gain`` and ``gain_width`` are the
    same for the share of the test accuracy, or R2, that is gained.

    Parameters
    ----------
    cells : DataFrame
        The result of `cells_judged`.
    """
    for name, own in cells.groupby("name"):
        single = best_single(own)
        yield {
            **{"kind": name, "cells": len(own), "w = 0": own["nothing"].sum()},
            "times": math.exp(np.log(own["times"]).mean()),
            "hindsight": math.exp(np.log(own["hindsight"]).mean()),
            **{"nine in ten": own["times"].quantile(0.9), "worst": own["times"].max()},
            **{"single": math.exp(np.log(single).mean()), "its worst": single.max()},
            **{"above": own["above"].sum(), "covered": own["covered"].mean()},
            **{"width": own["width"].mean(), "gain": own["gain"].mean()},
            "gain_width": own["gain_width"].mean(),
        }


def cells_judged() -> pd.DataFrame:
    """Return what `auto` and `advise` say of each cell without its family of data.

    There is one row per problem and epsilon, for epsilon 0.1, 0.3 and 1.
    """
    rows = pd.read_csv(UNTUNED)
    rows = rows[rows["epsilon"].isin(EPSILONS)]
    least = rows.groupby(["panel", "epsilon"])["error"].transform("min")
    rows = rows.assign(least=np.fmin(least, rows["tuned"]))
    kinds = rows["panel"].str.rpartition("_")[2]
    rows["name"] = [one if one == "huber" else KINDS[one] for one in kinds]
    cells = rows.groupby(["panel", "epsilon"])
    judged = pd.DataFrame(_judge_cell(cell) for _, cell in cells)
    spread = judged.groupby(["name", "epsilon"])[["lost", "gained"]].transform(np.ptp)
    for what, value, within, width in (
        ("left", "lost", "covered", "width"),
        ("gain", "gained", "gain", "gain_width"),
    ):
        low, high = judged[f"{what}_low"], judged[f"{what}_high"]
        judged[within] = judged[value].between(low, high)
        judged[width] = (high - low) / spread[value]
    return judged


def best_single(cells: pd.DataFrame) -> "pd.Series[float]":
    """Return error / yardstick of the algorithm that is best if it is always tuned.

    Only cells with tuned results count, and only algorithms that ran on all of them.
    """
    board = pd.read_csv(PUBLISHED / "leaderboard.csv").query("status == 'ok'")
    own = board.merge(cells[["panel", "epsilon", "least"]], on=["panel", "epsilon"])
    times = own.assign(times=own["median"] / own["least"]).pivot_table(
        index=["panel", "epsilon"], columns="line", values="times"
    )
    times = times.dropna(axis=1)
    return times[np.log(times).mean().idxmin()]


def coverage_interval(cells: pd.DataFrame) -> tuple[float, float]:
    """Return a 95 % interval of the share of errors within their predicted ranges.

    It is a bootstrap over families of data.
    """
    counts = cells.groupby("family")["covered"].agg(["sum", "count"]).to_numpy()
    drawn = np.random.default_rng(0).integers(0, len(counts), (4000, len(counts)))
    inside, all_ = counts[drawn].sum(axis=1).T
    low, high = np.quantile(inside / all_, (0.025, 0.975))
    return float(low), float(high)


def _judge_cell(cell: pd.DataFrame) -> dict[str, Any]:
    """Return the choice for a cell without its family of data, and its errors."""
    first = cell.iloc[0]
    signs = first["name"] != "huber"
    public = public_of_cell(first["kind"], first["records"], first["p"], signs)
    best = rank_rules(public, without=[first["family"]])[0]
    own = cell[cell["algorithm"] == best.algorithm].iloc[0]
    nothing = expects_nothing(public, best)
    left, gain = best.left, best.gained
    return {
        **first[["name", "panel", "family", "epsilon", "least"]],
        "nothing": nothing,
        "times": (own["zero"] if nothing else own["error"]) / own["least"],
        "hindsight": cell["error"].min() / own["least"],
        "above": own["error"] > own["zero"] and not nothing,
        "lost": math.log(own["error"] / own["zero"]),
        **{"left_low": math.log(left.low), "left_high": math.log(left.high)},
        "gained": float(share_gained(own["score"], own["base"], own["best"])),
        **{"gain_low": gain.low, "gain_high": gain.high},
    }


def run_untuned(panels: list[str]) -> None:
    """Run the rules on some panels, or on all if none is named, and save the rows.

    Saved rows of other panels are kept.
    """
    every = [panel for kind in KINDS for panel in panels_of(kind)]
    if wrong := {*panels} - {*every}:
        raise SystemExit(f"{min(wrong)}: must be one of {', '.join(every)}")
    kept = pd.read_csv(UNTUNED) if UNTUNED.exists() else pd.DataFrame()
    for panel in panels or every:
        old = kept[kept["panel"] != panel] if len(kept) else kept
        kept = pd.concat([old, pd.DataFrame(rows_untuned(panel))])
        with_tuned(kept).to_csv(UNTUNED, index=False)
        print(panel, flush=True)


def with_tuned(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows with the smallest tuned median error on the published leaderboard."""
    board = pd.read_csv(PUBLISHED / "leaderboard.csv")
    ran = board[board["status"] == "ok"]
    least = ran.groupby(["panel", "epsilon"])["median"].min().rename("tuned")
    return rows.drop(columns="tuned", errors="ignore").join(least, ["panel", "epsilon"])


if __name__ == "__main__":
    main()
