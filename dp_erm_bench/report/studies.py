"""Figures of studies, which compute or audit something without a sweep of fits.

`Accounting` and `Audit` draw the records of tasks; `Nonzeros` draws datasets.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array

from dp_erm_bench import registry
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.audit.profile import FALSE_ALARM, Row, audit_row, verdict
from dp_erm_bench.audit.statistic import named_attack
from dp_erm_bench.datasets.load import load_dataset
from dp_erm_bench.datasets.spec import dataset_spec
from dp_erm_bench.errors import DataUnavailable, UsageError
from dp_erm_bench.papers.instances import violation_table
from dp_erm_bench.plugins.names import is_file
from dp_erm_bench.report import style
from dp_erm_bench.report.captions import join_paragraphs
from dp_erm_bench.report.curves import Array
from dp_erm_bench.report.figure import Drawing, Facts, Figure, Study, check_stem
from dp_erm_bench.report.layout import Cell, Sheet, save_sheet
from dp_erm_bench.report.style import (
    BLACK,
    BLUE,
    ORANGE,
    VERMILLION,
    Style,
    house_style,
    scale_x,
    scale_y,
    style_of,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

SHARES = np.linspace(0.0, 1.0, 201)


@dataclass(frozen=True)
class Nonzeros(Figure):
    """Figure of the number of non-zeros of the records of datasets.

    Attributes
    ----------
    name, title : str
        Name of the file, and title above the plot.
    datasets : tuple of str
        Names of datasets, or of sets of LIBSVM.
    about : str
        The beginning of the caption.
    """

    name: str
    title: str
    datasets: tuple[str, ...]
    about: str = ""

    def __post_init__(self) -> None:
        """Raise UsageError if the name is not valid for a file."""
        check_stem(self.name)

    def draw(self, drawing: Drawing) -> list[Path]:
        """Draw the distribution of non-zeros over the records of each dataset.

        A curve is the share of records with at most a given number of non-zeros. The
        caption names datasets that are not available.
        """
        lines, missing = dict[str, Array](), list[str]()
        for name in self.datasets:
            try:
                counts, p = nonzeros_of_dataset(name)
            except DataUnavailable as why:
                missing.append(f"{name}: {why}")
            else:
                lines[f"{name} (p = {p})"] = counts
        if not lines:
            return []
        told = [
            f"{label} median {np.median(counts):.0f}, maximum {counts.max():.0f}"
            for label, counts in lines.items()
        ]
        text = [self.about, f"Non-zeros of a record: {'; '.join(told)}."]
        text += [f"Not drawn: {'; '.join(missing)}."] if missing else []
        cell = partial(draw_shares, title=self.title, lines=lines)
        quantity, mark = "share of records", drawing.mark
        sheet = Sheet([cell], join_paragraphs(*text), quantity, mark=mark)
        with house_style():
            return save_sheet(sheet, drawing.path(self.name))


def nonzeros_of_dataset(name: str) -> tuple[Array, int]:
    """Return each record's number of non-zeros, and the number of features p.

    Raises
    ------
    DataUnavailable
        If the data are not available.
    """
    own = name in registry.names("dataset")
    spec = dataset_spec(name) if own else dataset_spec("libsvm", set=name)
    X = load_dataset({**spec, "test_fraction": 0.0}).X
    return np.diff(csr_array(X).indptr).astype(np.float64), int(X.shape[1])


def draw_shares(ax: Axes, title: str, lines: dict[str, Array]) -> None:
    """Draw the distribution of non-zeros over the records of each dataset.

    A curve is the share of records with at most a given number of non-zeros.

    Parameters
    ----------
    ax : Axes
        The axes to draw on.
    title : str
        Title of the axes.
    lines : dict of str to array of shape (n,)
        Number of non-zeros of each record, by the label of the dataset.
    """
    for label, counts in lines.items():
        at = np.quantile(np.maximum(counts, 1.0), SHARES)
        ax.plot(at, SHARES, label=label, color=style_of(label).colour)
    ax.set_title(title)
    ax.set_xlabel("non-zeros of a record")
    ax.set_xscale("log")
    ax.set_ylim(0.0, 1.0)


# Keys are pairs of form and accountant. The line of "best" is constant at 1.
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
# Shades and marks that differ from those of the accountants' lines.
OF_EPSILON = (("#9ECAE1", "<"), ("#4292C6", "h"), ("#08519C", ">"))
OF_INSTANCE = (("#8C510A", "*", 6.0), ("#D8A25A", "p", 4.5), ("#543005", "8", 4.5))
TITLES = {"greedy_cd": "DP-GCD", "random_cd": "DP-CD", "sgd": "DP-SGD"}
PRINTED = ("greedy_cd", "random_cd")
SMALLEST = 1e-2
XLABELS = {
    "n_iter": r"iterations $T$",
    "kappa": r"spread $\kappa$ of $L_j / \sqrt{M_j}$",
}


@dataclass(frozen=True)
class Accounting(Study):
    """Figure of the noise by accountant, and of the guarantees of papers' constants."""

    file = "accounting.csv"

    def rows(self, recorded: Iterable[Facts]) -> Iterator[dict[str, Any]]:
        """Yield the rows of all parts of the study."""
        for _, facts in recorded:
            yield from facts["rows"]

    def draw(self, drawing: Drawing) -> list[Path]:
        """Draw the study on one sheet.

        If the rows of `audit.accounting.noise_rows` have several adjacencies or deltas,
        only the most frequent one is drawn. If the study recorded no rows of
        `violation_table`, they are computed here.
        """
        import pandas as pd

        noise, broken = (
            _rows_with(drawing.table, of) for of in ("accountant", "factor")
        )
        for column in ("adjacency", "delta"):
            if len(noise):
                noise = noise[noise[column] == noise[column].mode().iloc[0]]
        if broken.empty:
            broken = pd.DataFrame(violation_table())
        ran = {name: noise[noise["algorithm"] == name] for name in TITLES}
        ran = {name: rows for name, rows in ran.items() if len(rows)}
        drawn = [(_draw_relative_noise, name) for name in ran]
        drawn += [(_draw_proved_epsilon, name) for name in PRINTED if name in ran]
        cells: list[Cell] = [partial(f, name=name, rows=ran[name]) for f, name in drawn]
        cells.append(partial(_draw_violations, rows=broken))
        sheet = Sheet(cells, accounting_caption(noise), "ratio", mark=drawing.mark)
        with style.house_style():
            return save_sheet(sheet, drawing.folder / "accounting")


def _rows_with(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return the rows with a value in a column; none if the column is missing."""
    return table[table[column].notna()] if column in table else table[:0]


def middle_epsilon(values: Sequence[float]) -> float:
    """Return the epsilon to draw: 1 if it is among the values, else the middle one."""
    ordered = sorted(set(values))
    return 1.0 if 1.0 in ordered else ordered[len(ordered) // 2]


def _draw_relative_noise(ax: Axes, name: str, rows: pd.DataFrame) -> None:
    """Draw each accountant's noise, divided by our noise, against the iterations T."""
    epsilon = middle_epsilon(rows["epsilon"].tolist())
    rows = rows[(rows["epsilon"] == epsilon) & rows["z"].notna()]
    lines = [
        (look, rows[(rows["form"] == form) & (rows["accountant"] == accountant)])
        for (form, accountant), look in LINES.items()
    ]
    title = rf"{TITLES[name]}: noise / ours, $\varepsilon = {epsilon:g}$"
    _draw_lines(ax, title, rows, lines, "n_iter", "relative", claimed=False)


def _draw_proved_epsilon(ax: Axes, name: str, rows: pd.DataFrame) -> None:
    """Draw the epsilon proved for the paper's noise, divided by the nominal epsilon."""
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
    _draw_lines(ax, title, rows, lines, "n_iter", "proved")


def _draw_violations(ax: Axes, rows: pd.DataFrame) -> None:
    """Draw delta(epsilon), divided by the claimed delta, against the spread kappa."""
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
    _draw_lines(ax, title, rows, lines, "kappa", "factor")


def _draw_lines(
    ax: Axes,
    title: str,
    rows: pd.DataFrame,
    lines: Iterable[tuple[Style, pd.DataFrame]],
    x: str,
    y: str,
    claimed: bool = True,
) -> None:
    """Draw lines on log scales; if `claimed`, add a dashed line at 1."""
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
    scale_x(ax, "log", sorted(set(rows[x])))
    scale_y(ax, "log", (min(drawn), max(drawn)))


def accounting_caption(noise: pd.DataFrame) -> str:
    """Return the caption of `Accounting`: the budget, and what its panels show."""
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


# Label, colour, marker and shift within a row.
ADJACENCIES = {
    "replace_one": ("replace one", BLUE, "o", 0.17),
    "zero_out": ("zero out", ORANGE, "s", -0.17),
}
ROW = 0.22


@dataclass(frozen=True)
class Audit(Study):
    """Figure of audits, with lines from the lower bounds on epsilon to the claim."""

    file = "audits.csv"

    def rows(self, recorded: Iterable[Facts]) -> Iterator[Row]:
        """Yield one row per audit, with its guarantee and the bounds that it proves.

        Only chunks with saved records of both neighbours count. An unfinished audit is
        judged on the runs that have been saved so far.
        """
        by_audit: dict[str, dict[int, dict[int, list[float]]]] = {}
        for spec, facts in recorded:
            how = {"algorithm": spec["algorithm"], "budget": spec["budget"]}
            sides = by_audit.setdefault(json.dumps(how, sort_keys=True), {0: {}, 1: {}})
            sides[spec["dataset"]["side"]][spec["seed"]] = facts["statistics"]
        alpha = FALSE_ALARM / max(1, len(by_audit))
        for words, sides in by_audit.items():
            if both := sorted(set(sides[0]) & set(sides[1])):
                first, second = (
                    np.concatenate([sides[side][chunk] for chunk in both])
                    for side in (0, 1)
                )
                yield _judge_audit(json.loads(words), first, second, alpha)

    def draw(self, drawing: Drawing) -> list[Path]:
        """Draw one panel per budget, if there are audits; return the files written."""
        table = drawing.table
        if table.empty:
            return []
        names = list(dict.fromkeys(table["algorithm"]))
        cells: list[Cell] = [
            partial(_draw_bounds, rows=table[table["budget"] == epsilon], names=names)
            for epsilon in sorted(set(table["budget"]))
        ]
        tall, mark = ROW * len(names) + 0.6, drawing.mark
        sheet = Sheet(cells, _audit_caption(table), "", "page", tall=tall, mark=mark)
        with house_style():
            return save_sheet(sheet, drawing.folder / "audit")


def _judge_audit(
    how: Mapping[str, Any], first: Array, second: Array, alpha: float
) -> Row:
    name, params = how["algorithm"]["name"], how["algorithm"]["params"]
    if is_file(name):  # plans are not trusted, so files that they name are not run
        raise UsageError(f"algorithm={name}: a plan must name no file")
    adjacency = how["budget"]["adjacency"]
    attack = named_attack(name, params, Budget(**how["budget"]))
    judged = verdict(first, second, attack.guarantee, alpha)
    # The claimed `epsilon` may be below the budget, which pays for whole steps only.
    asked = {"budget": float(how["budget"]["epsilon"])}
    return audit_row(name, params, adjacency, judged) | asked


def _draw_bounds(ax: Axes, rows: pd.DataFrame, names: list[str]) -> None:
    for adjacency, (label, colour, marker, shift) in ADJACENCIES.items():
        audits = rows[rows["adjacency"] == adjacency]
        y = audits["algorithm"].map(names.index).to_numpy() - shift
        shaped, bound = audits["gaussian"], audits["lower_bound"]
        claim = audits["epsilon"]
        left = shaped.fillna(bound)
        dots: dict[str, Any] = {"color": colour, "ms": 4.0, "ls": "none"}
        ax.hlines(y, left, claim, colors=colour, lw=0.6)
        ax.plot(shaped, y, marker, label=f"{label}: if Gaussian", **dots)
        ax.plot(bound, y, marker, mfc="white", label=f"{label}: at delta", **dots)
        ax.plot(claim, y, "|", color=BLACK, ms=7, ls="none", label="claimed")
        broken = (audits["verdict"] == "VIOLATION").to_numpy()
        if broken.any():
            cross = {**dots, "color": VERMILLION, "ms": 9, "mew": 2.0}
            ax.plot(left[broken], y[broken], "x", label="VIOLATION", **cross)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.set_xlim(left=-0.03 * float(rows["epsilon"].max()))
    first = ax.get_subplotspec().is_first_col()  # type: ignore[union-attr]
    ax.set_yticks(range(len(names)), names if first else [""] * len(names))
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel(r"$\varepsilon$")


def _audit_caption(rows: pd.DataFrame) -> str:
    runs = sorted(set(rows["runs"]))
    count = f"{runs[0]}" if len(runs) == 1 else f"{runs[0]} to {runs[-1]}"
    deltas = ", ".join(f"{d:.2g}" for d in sorted(set(rows["delta"])))
    alarm = (1.0 - rows["confidence"]).sum()
    broken = int((rows["verdict"] == "VIOLATION").sum())
    idle = int((rows["epsilon"] == 0.0).sum())
    pays = f" {idle} of them claim 0." * (idle > 0)
    wrong = 1.0 - float(rows["confidence"].min())
    return "\n".join(
        (
            f"{len(rows)} audits on worst-case neighbours, {count} runs a side, "
            f"delta = {deltas}; white-box likelihood ratio of all released "
            f"values.{pays} A row has all variants of an algorithm; audits.csv names "
            "each.",
            f"Verdicts are of the profile test: {broken} of {len(rows)} refuted "
            f"(probability of a false one in the whole table: at most {alarm:.2g}).",
            "Lower bounds on epsilon, each wrong with probability at most "
            f"{wrong:.1g}. Hollow: at delta, weak for every mechanism at small delta. "
            "Filled: from the same rates if the profile has a Gaussian's shape, which "
            "sums of many releases nearly have.",
        )
    )
