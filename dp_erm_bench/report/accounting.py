"""Noise by accountant, printed constants, and where the greedy one is too small."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dp_erm_bench.audit.greedy import violation_table
from dp_erm_bench.report import axes
from dp_erm_bench.report.claims.studies import accounting
from dp_erm_bench.report.figure import Drawing, Figure
from dp_erm_bench.report.layout import Cell, Sheet, save
from dp_erm_bench.report.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    Style,
    house_style,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

# By form and accountant; "best" is the line at 1.
LINES = {
    ("printed", "paper"): Style("as printed", BLACK, "X", 5.5),
    ("printed", "authors"): Style("authors' DP-SGD", VERMILLION, "^"),
    ("printed", "pld"): Style("printed form, PLD", PURPLE, "D", 4.0),
    ("default", "zcdp"): Style("zCDP, closed form", ORANGE, "v"),
    ("default", "rdp"): Style("RDP", BLUE, "o"),
    ("default", "pld"): Style("PLD", SKY, "s", 4.0),
    ("default", "exact"): Style("exact (Gaussian)", GREY, "x", 5.0),
    ("default", "best"): Style("what we use", GREEN, "", 0.0, 2.0),
}
# Shades, so that nothing looks like an accountant.
EPSILON_STYLES = (
    Style("", "#9ECAE1", "<"),
    Style("", "#4292C6", "h"),
    Style("", "#08519C", ">"),
)
INSTANCE_STYLES = (
    Style("", "#8C510A", "*", 6.0),
    Style("", "#D8A25A", "p"),
    Style("", "#543005", "8"),
)
TITLES = {"greedy_cd": "DP-GCD", "random_cd": "DP-CD", "sgd": "DP-SGD"}
PRINTED = ("greedy_cd", "random_cd")
SIZE = (2.7, 2.2)
SMALLEST = 1e-2
ITERATIONS = r"iterations $T$"


@dataclass(frozen=True)
class Accounting(Figure):
    """Noise by accountant, and what printed constants are worth."""

    def table(self, folder: Path) -> pd.DataFrame:
        """Return the rows that the study recorded, and write them as a table."""
        rows = accounting(folder)
        rows.to_csv(folder / "accounting.csv", index=False)
        return rows

    def draw(self, drawing: Drawing) -> list[Path]:
        """Draw the study on one sheet."""
        return draw(drawing.table, drawing.folder)


def draw(table: pd.DataFrame, folder: Path) -> list[Path]:
    """Draw the accounting study on one sheet.

    Parameters
    ----------
    table : DataFrame
        Rows of ``audit.accounting.noise_rows``; of several adjacencies or deltas the
        most frequent is drawn. Rows of ``audit.greedy.violation_table`` are computed
        where there are none.
    folder : Path
        Where the files go.

    Returns
    -------
    list of Path
        The files written.
    """
    import pandas as pd

    noise, broken = _main(_known(table, "accountant")), _known(table, "factor")
    if broken.empty:
        broken = pd.DataFrame(violation_table())
    ran = [name for name in TITLES if (noise["algorithm"] == name).any()]
    cells: list[Cell] = [partial(_relative, rows=_of(noise, name)) for name in ran]
    printed = [name for name in PRINTED if name in ran]
    cells += [partial(_proved, rows=_of(noise, name)) for name in printed]
    cells.append(partial(_violations, rows=broken))
    folder.mkdir(parents=True, exist_ok=True)
    sheet = Sheet(cells, min(3, len(cells)), caption(noise), SIZE, "ratio")
    with house_style():
        return save(sheet, folder / "accounting")


def _known(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return the rows that have a value of a column."""
    return table[table[column].notna()] if column in table else table[:0]


def _main(noise: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the most frequent adjacency and delta."""
    for column in ("adjacency", "delta"):
        if len(noise):
            noise = noise[noise[column] == noise[column].mode().iloc[0]]
    return noise


def _of(table: pd.DataFrame, algorithm: str) -> pd.DataFrame:
    return table[table["algorithm"] == algorithm]


def middle(values: Sequence[float]) -> float:
    """Return the epsilon that is drawn alone: 1, else the middle one."""
    ordered = sorted(set(values))
    return 1.0 if 1.0 in ordered else ordered[len(ordered) // 2]


def _relative(ax: Axes, rows: pd.DataFrame) -> None:
    """Draw each accountant's noise over ours against T."""
    epsilon = middle(rows["epsilon"].tolist())
    rows = rows[(rows["epsilon"] == epsilon) & rows["z"].notna()]
    curves = []
    for (form, accountant), style in LINES.items():
        line = rows[(rows["form"] == form) & (rows["accountant"] == accountant)]
        line = line.sort_values("n_iter")
        if len(line):
            curves.append((style, line["n_iter"], line["relative"]))
    name = TITLES[rows["algorithm"].iloc[0]]
    title = rf"{name}: noise / ours, $\varepsilon = {epsilon:g}$"
    _draw(ax, curves, title, ITERATIONS, rows["n_iter"], claimed=False)


def _proved(ax: Axes, rows: pd.DataFrame) -> None:
    """Draw the epsilon proved for the printed constant over the nominal one."""
    rows = rows[(rows["accountant"] == "paper") & rows["epsilon_proved"].notna()]
    curves = []
    for style, epsilon in zip(
        EPSILON_STYLES, sorted(set(rows["epsilon"])), strict=False
    ):
        line = rows[rows["epsilon"] == epsilon].sort_values("n_iter")
        labelled = replace(style, label=rf"$\varepsilon = {epsilon:g}$")
        curves.append((labelled, line["n_iter"], line["epsilon_proved"] / epsilon))
    name = TITLES[rows["algorithm"].iloc[0]]
    title = rf"{name} as printed: proved $\varepsilon$ / claimed"
    _draw(ax, curves, title, ITERATIONS, rows["n_iter"])


def _violations(ax: Axes, rows: pd.DataFrame) -> None:
    """Draw delta(epsilon) over the claimed delta against the spread kappa."""
    curves = []
    groups = rows.groupby(["delta", "rivals", "n_iter"], sort=False)
    for style, (_, line) in zip(INSTANCE_STYLES, groups, strict=False):
        facts = line.iloc[0]
        line = line[line["factor"] >= SMALLEST].sort_values("kappa")
        power = round(math.log10(facts["delta"]))
        label = (
            f"$m = {facts['rivals']:g}$, $T = {facts['n_iter']:g}$, "
            rf"$\delta = 10^{{{power}}}$"
        )
        curves.append((replace(style, label=label), line["kappa"], line["factor"]))
    title = r"DP-GCD as printed: $\delta(\varepsilon)$ / claimed"
    _draw(ax, curves, title, r"spread $\kappa$ of $L_j / \sqrt{M_j}$", rows["kappa"])


def _draw(
    ax: Axes,
    curves: Iterable[tuple[Style, pd.Series[float], pd.Series[float]]],
    title: str,
    label: str,
    ticks: Iterable[float],
    claimed: bool = True,
) -> None:
    """Draw lines on log scales, above the level that is claimed if there is one."""
    drawn = [1.0] if claimed else []
    for style, x, y in curves:
        ax.plot(x, y, **style.curve())
        drawn += y.tolist()
    if claimed:
        ax.axhline(1.0, color=GREY, linewidth=1.0, linestyle="dashed", label="claimed")
    ax.set_title(title)
    ax.set_xlabel(label)
    axes.scale_numbers(ax, sorted(set(ticks)), (min(drawn), max(drawn)))


def caption(noise: pd.DataFrame) -> str:
    """Return what the panels show and under which budget."""
    parts = []
    if len(noise):
        budget = noise.iloc[0]
        parts += [
            f"delta = {budget['delta']:g}, adjacency {budget['adjacency']}. "
            "Upper row: noise scale / sensitivity that each accountant asks for, over "
            "that of calibration = certified. DP-GCD as printed has Laplace noise "
            "inside the selection, ours Gumbel noise on the scores. DP-CD: T counts "
            "coordinate steps. DP-SGD: Poisson samples of expected size 1 of n = 1000, "
            "the authors' noise.",
            "As printed: the smallest epsilon that we can prove, exact for DP-CD, an "
            "upper bound for DP-GCD, with equal L_j / sqrt(M_j).",
        ]
    parts.append(
        "Last panel: one coordinate with L = 1 / kappa among m with L = 1 (all M = 1), "
        "one record replaced: delta(1) of what is released, from below, over the delta "
        "that is claimed at epsilon = 1. Above the dashed line the printed noise is "
        "not private as claimed."
    )
    return "\n".join(parts)
