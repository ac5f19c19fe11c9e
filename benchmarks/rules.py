"""Constants of rules, fitted on the leaderboard's problems.

`python -m benchmarks.rules try ALGORITHM KIND NAME=VALUE,VALUE ...` runs an algorithm
untuned, with each combination of guesses of its rule's constants, and adds what it ends
at to results/published/rules.csv. `python -m benchmarks.rules fit` says which guess is
the best on all families of data, and what is lost on a family that had no say in it.
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
from dp_erm_bench.experiment.parameters import algorithm_of
from dp_erm_bench.fitted import one_thread
from dp_erm_bench.problems.erm.problem import ERMProblem
from dp_erm_bench.rules.public import public_numbers
from dp_erm_bench.rules.settings import RULES
from dp_erm_bench.run import Run

TABLE = Path(__file__).resolve().parents[1] / "results/published/rules.csv"
KINDS = ("l2", "l1", "squared", "huber")
"""How names of panels end."""

EPSILONS = (0.1, 0.3, 1.0)
SEEDS = 6
CELL = ["kind", "panel", "epsilon"]
MOST = 1e3
"""A run that diverged counts as so many times w = 0."""


def panels_of(kind: str) -> dict[str, dict[str, Any]]:
    """Return a block of each panel of a kind."""
    blocks = {block["panel"]: block for block in leaderboard()}
    return {name: one for name, one in blocks.items() if name.endswith(f"_{kind}")}


def family_of_panel(block: Mapping[str, Any]) -> str:
    """Return the family of a panel's data, a set of LIBSVM having its own."""
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


def error_of(
    problem: ERMProblem, algorithm: str, settings: Mapping[str, Any], budget: Budget
) -> float:
    """Return the geometric mean of F(w) / min F - 1 over seeds.

    Infinite if a run is refused, not solved, or not finite.
    """
    solver = algorithm_of(algorithm).solver(settings)
    seeds = [f"rules {seed}" for seed in range(SEEDS)]
    try:
        with one_thread():
            run = Run(problem, [solver] * SEEDS, budget, "certified", seeds)
            ends = run.record(2).rows
    except (NotSolved, Unsupported):
        return math.inf
    if not ends.finite.all():
        return math.inf
    values = np.array([problem.value(w) for w in ends.w]) / problem.optimum.value - 1.0
    return float(np.exp(np.log(np.maximum(values, 1e-9)).mean()))


def rows_of_guess(
    algorithm: str, kind: str, guess: Mapping[str, float]
) -> Iterator[dict[str, Any]]:
    """Yield what a guess ends at on each cell of a kind, in units of w = 0."""
    rule = RULES[algorithm]
    constants = {**rule.constants, **guess}
    for panel, block in panels_of(kind).items():
        problem = problem_of_panel(panel)
        zero = problem.value(np.zeros(problem.p)) / problem.optimum.value - 1.0
        for epsilon in EPSILONS:
            budget = Budget(epsilon=epsilon, delta="1/n^2")
            public = public_numbers(problem, budget, None)
            assert public is not None
            settings = rule.settings(public, {}, **guess)
            error = error_of(problem, algorithm, settings, budget)
            yield {
                **{"algorithm": algorithm, "kind": kind, "panel": panel},
                **{"family": family_of_panel(block), "epsilon": epsilon},
                "constants": json.dumps(constants, sort_keys=True),
                "of_zero": float(f"{min(error / zero, MOST):.4g}"),
            }


def best_guess(rows: pd.DataFrame) -> str:
    """Return the constants of the least geometric mean, each family counting once."""
    return str(_means(rows).idxmin())


def _means(rows: pd.DataFrame) -> "pd.Series[float]":
    logs = rows.assign(log=np.log(rows["of_zero"]))
    families = logs.groupby(["constants", "family"])["log"].mean()
    return families.groupby("constants").mean().map(math.exp)


def fit_rows(rows: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the best guess of each algorithm and kind, and what it ends at.

    ``left_out`` is the geometric mean over families of the guess that is the best on
    all others; ``above`` the share of cells in which that is above w = 0.
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
    """Yield the combinations of NAME=VALUE,VALUE.

    Raises
    ------
    UsageError
        If a word is another.
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
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rules")
    commands = parser.add_subparsers(dest="command", required=True)
    trying = commands.add_parser("try")
    trying.add_argument("algorithm", choices=RULES)
    trying.add_argument("kind", choices=KINDS)
    trying.add_argument("guesses", nargs="*", metavar="NAME=VALUE,VALUE")
    commands.add_parser("fit")
    given = parser.parse_args()
    rows = pd.read_csv(TABLE) if TABLE.exists() else pd.DataFrame()
    for guess in guesses_of(given.guesses) if given.command == "try" else ():
        new = pd.DataFrame(rows_of_guess(given.algorithm, given.kind, guess))
        rows = pd.concat([rows, new]).drop_duplicates(
            [*CELL, "algorithm", "constants"], keep="last"
        )
        rows.to_csv(TABLE, index=False)
    print(pd.DataFrame(fit_rows(rows)).to_string(float_format="{:.3g}".format))


if __name__ == "__main__":
    main()
