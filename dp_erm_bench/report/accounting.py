"""Noise by accountant, printed constants, and where the greedy one is too small."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dp_erm_bench.audit.greedy import violation_table
from dp_erm_bench.report import style
from dp_erm_bench.report.figure import Drawing, Facts, Study
from dp_erm_bench.report.layout import Cell, Sheet, save
from dp_erm_bench.report.scales import scale_numbers
from dp_erm_bench.report.style import Style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

# By form and accountant; "best" is the line at 1.
LINES = {
    ("printed", "paper"): Style("as printed", style.BLACK, "X", 5.5),
    ("printed", "authors"): Style("authors' DP-SGD", style.VERMILLION, "^"),
    ("printed", "pld"): Style("printed form, PLD", style.PURPLE, "D", 4.0),
    ("default", "zcdp"): Style("zCDP, closed form", style.ORANGE, "v"),
    ("default", "rdp"): Style("RDP", style.BLUE, "o"),
    ("default", "pld"): Style("PLD", style.SKY, "s", 4.0),
    ("default", "exact"): Style("exact (Gaussian)", style.GREY, "x", 5.0),
    ("default", "best"): Style("what we use", style.GREEN, "", 0.0, 2.0),
}
# Shades, so that nothing looks like an accountant.
OF_EPSILON = (("#9ECAE1", "<"), ("#4292C6", "h"), ("#08519C", ">"))
OF_INSTANCE = (("#8C510A", "*", 6.0), ("#D8A25A", "p", 4.5), ("#543005", "8", 4.5))
TITLES = {"greedy_cd": "DP-GCD", "random_cd": "DP-CD", "sgd": "DP-SGD"}
PRINTED = ("greedy_cd", "random_cd")
SIZE = (2.7, 2.2)
SMALLEST = 1e-2
XLABELS = {
    "n_iter": r"iterations $T$",
    "kappa": r"spread $\kappa$ of $L_j / \sqrt{M_j}$",
}


@dataclass(frozen=True)
class Accounting(Study):
    """Noise by accountant, and what printed constants are worth."""

    file = "accounting.csv"

    def rows(self, recorded: Iterable[Facts]) -> Iterator[dict[str, Any]]:
        """Yield the rows of all parts of the study."""
        for _, facts in recorded:
            yield from facts["rows"]

    def draw(self, drawing: Drawing) -> list[Path]:
        """Draw the study on one sheet.

        Of several adjacencies or deltas of `audit.accounting.noise_rows` the most
        frequent is drawn. Rows of `audit.greedy.violation_table` are computed where
        there are none.
        """
        import pandas as pd

        noise, broken = (_with(drawing.table, of) for of in ("accountant", "factor"))
        for column in ("adjacency", "delta"):
            if len(noise):
                noise = noise[noise[column] == noise[column].mode().iloc[0]]
        if broken.empty:
            broken = pd.DataFrame(violation_table())
        ran = {name: noise[noise["algorithm"] == name] for name in TITLES}
        ran = {name: rows for name, rows in ran.items() if len(rows)}
        drawn = [(_relative, name) for name in ran]
        drawn += [(_proved, name) for name in PRINTED if name in ran]
        cells: list[Cell] = [partial(f, name=name, rows=ran[name]) for f, name in drawn]
        cells.append(partial(_violations, rows=broken))
        sheet = Sheet(cells, min(3, len(cells)), caption(noise), SIZE, "ratio")
        with style.house_style():
            return save(sheet, drawing.folder / "accounting")


def _with(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return the rows that have a value of a column."""
    return table[table[column].notna()] if column in table else table[:0]


def middle(values: Sequence[float]) -> float:
    """Return the epsilon that is drawn alone: 1, else the middle one."""
    ordered = sorted(set(values))
    return 1.0 if 1.0 in ordered else ordered[len(ordered) // 2]


def _relative(ax: Axes, name: str, rows: pd.DataFrame) -> None:
    """Draw each accountant's noise over ours against T."""
    epsilon = middle(rows["epsilon"].tolist())
    rows = rows[(rows["epsilon"] == epsilon) & rows["z"].notna()]
    lines = [
        (look, rows[(rows["form"] == form) & (rows["accountant"] == accountant)])
        for (form, accountant), look in LINES.items()
    ]
    title = rf"{TITLES[name]}: noise / ours, $\varepsilon = {epsilon:g}$"
    _draw(ax, title, rows, lines, "n_iter", "relative", claimed=False)


def _proved(ax: Axes, name: str, rows: pd.DataFrame) -> None:
    """Draw the epsilon proved for the printed constant over the nominal one."""
    rows = rows[(rows["accountant"] == "paper") & rows["epsilon_proved"].notna()]
    rows = rows.assign(proved=rows["epsilon_proved"] / rows["epsilon"])
    lines = [
        (
            Style(rf"$\varepsilon = {epsilon:g}$", *look),
            rows[rows["epsilon"] == epsilon],
        )
        for look, epsilon in zip(OF_EPSILON, sorted(set(rows["epsilon"])), strict=False)
    ]
    title = rf"{TITLES[name]} as printed: proved $\varepsilon$ / claimed"
    _draw(ax, title, rows, lines, "n_iter", "proved")


def _violations(ax: Axes, rows: pd.DataFrame) -> None:
    """Draw delta(epsilon) over the claimed delta against the spread kappa."""
    lines = []
    groups = rows.groupby(["delta", "rivals", "n_iter"], sort=False)
    for look, (_, line) in zip(OF_INSTANCE, groups, strict=False):
        facts = line.iloc[0]
        label = (
            f"$m = {facts['rivals']:g}$, $T = {facts['n_iter']:g}$, "
            rf"$\delta = 10^{{{round(math.log10(facts['delta']))}}}$"
        )
        lines.append((Style(label, *look), line[line["factor"] >= SMALLEST]))
    title = r"DP-GCD as printed: $\delta(\varepsilon)$ / claimed"
    _draw(ax, title, rows, lines, "kappa", "factor")


def _draw(
    ax: Axes,
    title: str,
    rows: pd.DataFrame,
    lines: Iterable[tuple[Style, pd.DataFrame]],
    x: str,
    y: str,
    claimed: bool = True,
) -> None:
    """Draw lines on log scales, above the level that is claimed if there is one."""
    drawn = [1.0] if claimed else []
    for look, line in lines:
        line = line.sort_values(x)
        if claimed or len(line):
            ax.plot(line[x], line[y], **look.curve())
        drawn += line[y].tolist()
    if claimed:
        level: dict[str, Any] = {"linestyle": "dashed", "label": "claimed"}
        ax.axhline(1.0, color=style.GREY, linewidth=1.0, **level)
    ax.set_title(title)
    ax.set_xlabel(XLABELS[x])
    scale_numbers(ax, sorted(set(rows[x])), (min(drawn), max(drawn)))


def caption(noise: pd.DataFrame) -> str:
    """Return the caption: the panels, and the budget of their rows."""
    last = (
        "Last panel: one coordinate with L = 1 / kappa among m with L = 1 (all M = 1), "
        "one record replaced: delta(1) of what is released, from below, over the delta "
        "that is claimed at epsilon = 1. Above the dashed line the printed noise is "
        "not private as claimed."
    )
    if noise.empty:
        return last
    budget = noise.iloc[0]
    return (
        f"delta = {budget['delta']:g}, adjacency {budget['adjacency']}. "
        "Upper row: noise scale / sensitivity that each accountant asks for, over "
        "that of calibration = certified. DP-GCD as printed has Laplace noise "
        "inside the selection, ours Gumbel noise on the scores. DP-CD: T counts "
        "coordinate steps. DP-SGD: Poisson samples of expected size 1 of n = 1000, "
        "the authors' noise.\n"
        "As printed: the smallest epsilon that we can prove, exact for DP-CD, an "
        f"upper bound for DP-GCD, with equal L_j / sqrt(M_j).\n{last}"
    )
