"""Sheets that compare the ends of lines over problems: profiles, who wins where."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dp_erm_bench.errors import UsageError
from dp_erm_bench.report import contest
from dp_erm_bench.report.caption import paragraphs, told
from dp_erm_bench.report.layout import Sheet
from dp_erm_bench.report.lines import SIZE
from dp_erm_bench.report.style import literal, of, reserve
from dp_erm_bench.report.view import FACET, LINE, PANEL, Shown
from dp_erm_bench.results.columns import is_better_higher, words
from dp_erm_bench.results.settings import final_rows
from dp_erm_bench.results.statistics import FLOOR, central, quantile, resampled_medians

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

ROW = 0.2


def _finals(drawn: Shown) -> pd.DataFrame:
    """Return the median final value of every line on every problem.

    A problem is a panel at an epsilon. Of accuracies and areas, what is missing to 1.
    """
    import pandas as pd

    runs = _ends(drawn)
    groups = runs.groupby([LINE, PANEL, "epsilon"], sort=False)["_y"]
    medians = {key: float(quantile(own, 0.5)) for key, own in groups}
    index = pd.MultiIndex.from_tuples(medians, names=[LINE, PANEL, "epsilon"])
    found = pd.Series(list(medians.values()), index)
    # Not sort=False: pandas before 3 puts values under the names of others then.
    table: pd.DataFrame = found.unstack([PANEL, "epsilon"])
    problems = index.droplevel(LINE).unique()
    table = table.reindex(index=index.unique(LINE), columns=problems)
    if min(table.shape) < 2:
        raise UsageError(
            "plot: profiles and winners compare lines over problems, which are panels "
            f"at one epsilon; here are {table.shape[0]} and {table.shape[1]}"
        )
    return table


def _ends(drawn: Shown) -> pd.DataFrame:
    """Return the ends of the runs, smaller values of `_y` being better."""
    runs = final_rows(drawn.rows.assign(epsilon=drawn.rows["epsilon"].astype(float)))
    extra = runs[FACET].where(~runs[FACET].str.fullmatch(r"(epsilon = [^,]*)?"), "")
    runs[PANEL] = (runs[PANEL] + ", " + extra).str.removesuffix(", ")
    if is_better_higher(drawn.view.y):
        runs["_y"] = 1.0 - runs["_y"]
    return runs


def _ratios(values: pd.DataFrame) -> pd.DataFrame:
    """Return factors over the best line of each problem, at least 1."""
    if (values.min() < 0).any():
        raise UsageError("plot: factors over the best need values that are positive")
    floored = values.clip(lower=FLOOR)
    return floored / floored.min()


def profiles_sheet(drawn: Shown, width: str) -> Sheet:
    """Return the sheet of performance profiles, at most eight lines in a cell.

    Parameters
    ----------
    drawn : Shown
        The rows whose ends are compared.
    width : str
        `column`, `page`, or empty for what suits.

    Raises
    ------
    UsageError
        If there are not two lines and two problems, or values are negative.
    """
    ratios = _ratios(_finals(drawn))
    found = contest.shares(
        {str(line): row.to_numpy(float) for line, row in ratios.iterrows()},
        len(ratios.columns),
    )
    reserve(found)
    looks = {line: of(line) for line in found}

    def cell(ax: Axes, lines: Sequence[str]) -> None:
        contest.draw_profiles(ax, {line: found[line] for line in lines}, looks, "")
        ax.set_xlabel("factor over the best")
        ax.set_title(f"{len(ratios.columns)} problems")

    cells = [partial(cell, lines=part) for part in contest.spread([*found])]
    text = paragraphs(
        f"Performance profiles of the final {_measure(drawn)}: the share of problems "
        "(a panel at one epsilon) on which the median is within a factor of the best "
        "line's. A line that did not run on a problem reaches no factor there.",
        told(drawn),
    )
    name = f"profile_{drawn.view.y}"
    return Sheet(cells, len(cells), text, SIZE, "share of problems", width, name=name)


def _measure(drawn: Shown) -> str:
    name = words(drawn.view.y)
    return f"{name}, as what it lacks to 1" if is_better_higher(drawn.view.y) else name


def winners_sheet(drawn: Shown) -> Sheet:
    """Return the sheet with the map of who wins where, as `profiles_sheet`."""
    values = _finals(drawn)
    values = values[sorted(values.columns, key=_in_order(values.columns))]
    ratios, runs = _ratios(values), _ends(drawn)
    lines = [str(line) for line in values.index]
    marks = _marks(values, runs)
    grid = ratios.to_numpy(float)
    size = SIZE[0], ROW * (len(lines) + 1)
    longest = max(map(len, lines))
    names = [line if len(line) <= 40 else f"{line[:39]}…" for line in lines]
    problems = [(literal(str(one[0])), float(one[1])) for one in values.columns]

    def cell(ax: Axes) -> None:
        shown_names = [literal(name) for name in names]
        contest.draw_winners(ax, shown_names, problems, grid, marks)
        ax.set_title("\n")

    text = paragraphs(
        f"Colour: the median final {_measure(drawn)} over that of the best line of the "
        "problem. Filled circle: the best line; ring: a median within the 95 % "
        "bootstrap interval of the best one's. White: did not run.",
        told(drawn),
    )
    margins = {**contest.MARGINS, "left": 0.3 + 0.062 * min(longest, 40)}
    named: dict[str, Any] = {"name": f"winners_{drawn.view.y}", **margins}
    return Sheet([cell], 1, text, size, "", "page", exact=True, **named)


def _in_order(problems: Iterable[Any]) -> Any:
    """Return a key that keeps the order of panels and sorts their epsilons."""
    panels = list(dict.fromkeys(panel for panel, _ in problems))
    return lambda problem: (panels.index(problem[0]), problem[1])


def _marks(values: pd.DataFrame, runs: pd.DataFrame) -> dict[str, Any]:
    """Return row and column of who wins, and of who may be as good."""
    marks: dict[str, list[tuple[int, int]]] = {"wins": [], "ties": []}
    groups = dict(iter(runs.groupby([LINE, PANEL, "epsilon"])["_y"]))
    for place, problem in enumerate(values.columns):
        column = values[problem].to_numpy(float)
        best = int(np.nanargmin(column))
        draws = resampled_medians(
            groups[(values.index[best], *problem)].to_numpy(float)
        )
        most = central(draws, 0.95)[1]
        marks["wins"].append((best, place))
        near = [k for k in range(len(values)) if k != best and column[k] <= most]
        marks["ties"] += [(k, place) for k in near]
    return marks
