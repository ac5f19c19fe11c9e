"""Tables of medians and intervals: every line on every problem, the best in bold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dp_erm_bench.report.texts import escaped
from dp_erm_bench.report.view import LINE, PANEL, Shown, statistics
from dp_erm_bench.results.columns import is_better_higher
from dp_erm_bench.results.files import csv_of

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("csv", "latex", "markdown", "parquet")
NUMBERS = ("median", "ci_low", "ci_high")


def summary(drawn: Shown) -> pd.DataFrame:
    """Return the ends of the runs, one row per panel, value of x and line.

    Parameters
    ----------
    drawn : Shown
        Of a view against a column such as epsilon.

    Returns
    -------
    DataFrame
        `panel`, the column x, `line`, `quantity`; `median` with its 95 % bootstrap
        interval `ci_low`, `ci_high` over `runs`; `best`, whether no line's median is
        better there. Runs that diverged count as infinite.
    """
    import pandas as pd

    found = []
    x, y = drawn.view.x, drawn.view.y
    for (panel, _), rows in drawn.cells.items():
        for line, own in rows.groupby(LINE, sort=False):
            for row in statistics(own, "interval", False).to_dict("records"):
                named = {PANEL: panel, x: row["x"], LINE: line, "quantity": y}
                values = (row["line"], row["low"], row["high"])
                named |= dict(zip(NUMBERS, values, strict=True))
                found.append({**named, "runs": row["n"]})
    table = pd.DataFrame(found)
    medians = table.groupby([PANEL, x], sort=False)["median"]
    best = medians.transform("max" if is_better_higher(y) else "min")
    return table.assign(best=table["median"].eq(best))


def written(table: pd.DataFrame, kind: str) -> str:
    """Return a summary as text: `csv` as it is, else a grid with the best in bold.

    The problems (panel and x) are the rows of a grid and the lines its columns, or the
    other way round where there are more lines.
    """
    import pandas as pd

    if kind == "csv":
        return csv_of(table)
    x = str(table.columns[1])
    marks = [_cell(row, kind) for row in table.to_dict("records")]
    problems = [
        f"{panel}, {x} = {at:g}" if isinstance(at, float) else f"{panel}, {x} = {at}"
        for panel, at in zip(table[PANEL], table[x], strict=True)
    ]
    index = pd.MultiIndex.from_arrays([problems, table[LINE]])
    # Not sort=False: pandas before 3 puts values under the names of others then.
    grid = pd.Series(marks, index).unstack(fill_value="")
    grid = grid.reindex(index=index.unique(0), columns=index.unique(1))
    if grid.shape[1] > grid.shape[0]:
        grid = grid.T
    lines = [["", *map(str, grid.columns)]]
    lines += [
        [str(name), *row] for name, row in zip(grid.index, grid.to_numpy(), strict=True)
    ]
    return _latex(lines) if kind == "latex" else _markdown(lines)


def _cell(row: Mapping[Any, Any], kind: str) -> str:
    median, low, high = (f"{row[name]:.3g}" for name in NUMBERS)
    bold = (r"\textbf{", "}") if kind == "latex" else ("**", "**")
    shown = f"{bold[0]}{median}{bold[1]}" if row["best"] else median
    return f"{shown} [{low}, {high}]"


def _latex(lines: list[list[str]]) -> str:
    """Return a tabular of the package booktabs; only the cells are LaTeX already."""
    first, *rest = [[escaped(line[0]), *line[1:]] for line in lines]
    head = " & ".join([first[0], *map(escaped, first[1:])])
    body = [" & ".join(line) for line in rest]
    kinds = "l" + "r" * (len(first) - 1)
    rows = [rf"\begin{{tabular}}{{{kinds}}}", r"\toprule", rf"{head} \\", r"\midrule"]
    rows += [rf"{line} \\" for line in body]
    return "\n".join([*rows, r"\bottomrule", r"\end{tabular}", ""])


def _markdown(lines: list[list[str]]) -> str:
    safe = [[cell.replace("|", r"\|") for cell in line] for line in lines]
    rule = ["---", *["---:"] * (len(lines[0]) - 1)]
    return "".join(f"| {' | '.join(line)} |\n" for line in (safe[0], rule, *safe[1:]))
