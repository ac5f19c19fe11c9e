"""Compare tuners by their regret as a function of the number of trials.

The tuners are the default grid with more seeds, the search, and Sobol points.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import lattice
from benchmarks.cells import Cell, Chosen, Trials, line_of, seeds_of, tuned
from dp_erm_bench.report.style import BLUE, GREY, ORANGE, Style, house_style

PUBLISHED = Path(__file__).resolve().parents[1] / "results" / "published"
TABLE, FIGURE = PUBLISHED / "regret.csv", PUBLISHED / "regret.png"

BUDGETS = (120, 160, 200, 250)
"""Largest numbers of trials for the search and for Sobol points."""

SEEDS = (1, 2, 3, 4, 6, 15)
"""Numbers of seeds for each point of the grid, up to the largest budget."""

AIM = 0.1
"""Largest median regret that the search should have at the largest budget."""

STYLES = {
    "grid": Style("default grid, more seeds", GREY, "s"),
    "sobol": Style("Sobol points", ORANGE, "^"),
    "search": Style("tune.search", BLUE, "o", 5.0, 2.0),
}


def measured(cells: Sequence[Cell], repetitions: int) -> pd.DataFrame:
    """Return the regret of every choice as a table.

    It has one row per cell, tuner, budget and repetition.
    """
    rows = []
    for cell in cells:
        trials = Trials()
        best = lattice.reference(cell, trials).median
        for repetition in range(repetitions):
            for tuner, budget, chosen in choices(cell, repetition, trials):
                how = {"cell": str(cell), "tuner": tuner, "budget": budget}
                regret = chosen.median / best - 1.0
                rows.append({**how, "trials": chosen.spent, "regret": regret})
    return pd.DataFrame(rows)


def choices(
    cell: Cell, repetition: int, trials: Trials
) -> Iterator[tuple[str, int, Chosen]]:
    """Yield each tuner with its budget and its choice.

    The budget of the grid is its number of seeds.
    """
    line = line_of(cell.block(repetition))
    points = int(np.prod([len(values) for values in line.axes.values()]))
    for number in SEEDS:
        if number * points <= BUDGETS[-1]:
            seeds = seeds_of(repetition, number)
            yield "grid", number, tuned(cell.block(repetition, seeds=seeds), trials)
    for budget in BUDGETS:
        yield "sobol", budget, lattice.sobol(cell, repetition, budget, trials)
    for budget in BUDGETS:
        if budget >= 2 * points:
            search = {"trials": budget}
            block = cell.block(repetition, search=search)
            yield "search", budget, tuned(block, trials)


def summary(points: pd.DataFrame) -> pd.DataFrame:
    """Return the mean number of trials, and the median and quantiles of the regret.

    Both are taken over repetitions.
    """
    grouped = points.groupby(["cell", "tuner", "budget"], sort=False)
    regret = grouped["regret"]
    columns = {
        "trials": grouped["trials"].mean(),
        "repetitions": grouped.size(),
        "regret_10": regret.quantile(0.1),
        "regret_median": regret.median(),
        "regret_90": regret.quantile(0.9),
    }
    return pd.DataFrame(columns).round(4).reset_index()


def draw(table: pd.DataFrame, path: Path) -> None:
    """Draw the regret as a function of trials, with one panel per cell."""
    with house_style():
        from matplotlib import pyplot as plt

        names = [*dict.fromkeys(table["cell"])]
        columns = min(len(names), 2)
        lines = -(-len(names) // columns)
        size: Any = {"figsize": (3.6 * columns, 2.7 * lines), "layout": "constrained"}
        figure, axes = plt.subplots(lines, columns, squeeze=False, **size)
        for name, ax in zip(names, axes.flat, strict=False):
            _panel(ax, table[table["cell"] == name])
            panel, line, epsilon = name.split("/")
            ax.set_title(f"{panel}, {line}, $\\epsilon$ = {epsilon}")
        for ax in axes.flat[len(names) :]:
            ax.set_axis_off()
        for ax in axes[:, 0]:
            ax.set_ylabel("regret")
        for ax in axes[-1]:
            ax.set_xlabel("tuning trials")
        drawn = axes[0, 0].get_legend_handles_labels()
        figure.legend(*drawn, loc="outside upper center", ncols=3, frameon=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=130)
        plt.close(figure)


def _panel(ax: Any, table: pd.DataFrame) -> None:
    from matplotlib.ticker import PercentFormatter

    for tuner, style in STYLES.items():
        rows = table[table["tuner"] == tuner].sort_values("trials")
        x = rows["trials"]
        ax.plot(x, rows["regret_median"], **style.curve())
        ax.fill_between(x, rows["regret_10"], rows["regret_90"], **style.band())
    ax.axhline(AIM, color="black", linewidth=0.8, linestyle=(0, (2, 2)))
    ax.axhline(0.0, color="black", linewidth=0.8)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    top = float(table["regret_90"].max())
    ax.set_ylim(min(-0.05, float(table["regret_10"].min())), min(top, 1.5) * 1.05)
