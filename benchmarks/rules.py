"""Where a rule does worse with more budget, or with a truer norm.

`python -m benchmarks.rules [PANEL ...] [--seeds 20] [--folder results/rules]` runs each
algorithm that has a rule, untuned, on the leaderboard's l2 problems, with the declared
norm and with larger ones; by hand, as it takes hours. Of each it prints the medians of
the relative error, and below them where one is more than `WORSE` times that of a
smaller epsilon, or of a larger norm. Another run of the same line goes on.
"""

import argparse
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

import dp_erm_bench
from benchmarks.cells import leaderboard
from dp_erm_bench.results.settings import final_rows, worst_if_lost
from dp_erm_bench.results.statistics import FLOOR, quantile
from dp_erm_bench.solvers.defaults import RULES

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
NORMS = (1.0, 1.5, 2.0, 4.0)
"""Times the declared norm of the leaderboard, which is the truest."""

WORSE = 1.1
BOARD = "_l2"


def problems() -> dict[str, dict[str, Any]]:
    """Return dataset, loss and penalty of each l2 problem of the leaderboard."""
    found: dict[str, dict[str, Any]] = {}
    for block in leaderboard():
        if block["panel"].endswith(BOARD):
            parts = {key: block[key] for key in ("dataset", "loss", "penalty")}
            found.setdefault(block["panel"], parts)
    return found


def errors(problem: dict[str, Any], folder: Path, seeds: int) -> pd.DataFrame:
    """Return the median errors of a problem: a column for each norm and epsilon."""
    columns = {}
    for times in NORMS:
        bounds = dict(problem["dataset"]["bounds"])
        bounds["norm"] *= times
        lines = {
            **problem,
            "dataset": {**problem["dataset"], "bounds": bounds},
            "algorithm": [*RULES],
            "budget": {"epsilon": [*EPSILONS]},
            "seed": [*range(seeds)],
        }
        table = dp_erm_bench.sweep(
            lines, folder / f"norm{times:g}", n_checkpoints=2, progress=False
        )
        ends = final_rows(table)
        ends = ends.assign(error=worst_if_lost(ends, "relative_error"))
        medians = ends.groupby(["epsilon", "algorithm"])["error"].agg(
            lambda runs: float(quantile(runs.to_numpy(float), 0.5))
        )
        columns |= {(times, e): own.droplevel(0) for e, own in medians.groupby(level=0)}
    return pd.DataFrame(columns).reindex([*RULES])


def worse(table: pd.DataFrame) -> Iterator[str]:
    """Yield a sentence for each error that more budget or a truer norm made worse."""
    steps = [
        *(((n, a), (n, b)) for n in NORMS for a, b in itertools.pairwise(EPSILONS)),
        *(((b, e), (a, e)) for e in EPSILONS for a, b in itertools.pairwise(NORMS)),
    ]
    for algorithm, row in table.clip(lower=FLOOR).iterrows():
        for before, after in steps:
            if row[after] > WORSE * row[before]:
                yield (
                    f"{algorithm}: {row[after]:.3g} at norm x {after[0]:g}, epsilon "
                    f"{after[1]:g}; {row[before]:.3g} at norm x {before[0]:g}, epsilon "
                    f"{before[1]:g}"
                )


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rules")
    known = problems()
    parser.add_argument("panels", nargs="*", metavar="PANEL")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--folder", type=Path, default=Path("results/rules"))
    given = parser.parse_args()
    for panel in given.panels or known:
        if panel not in known:
            parser.error(f"{panel}: must be one of {', '.join(known)}")
        table = errors(known[panel], given.folder / panel, given.seeds)
        print(f"\n{panel}: median relative error by norm and epsilon")
        print(table.to_string(float_format="{:.3g}".format))
        print("\n".join(worse(table)) or "nothing is worse", flush=True)


if __name__ == "__main__":
    main()
