"""The leaderboard: performance profiles, who wins where, error and accuracy, a page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dp_erm_bench.paths import write_atomic
from dp_erm_bench.report import axes
from dp_erm_bench.report.figure import Drawing, Figure
from dp_erm_bench.report.layout import Cell, Sheet, save
from dp_erm_bench.report.leaderboard.heat import draw_map
from dp_erm_bench.report.leaderboard.page import page, published
from dp_erm_bench.report.leaderboard.standings import ZERO, profile, standings
from dp_erm_bench.report.leaderboard.style import (
    BOARDS,
    STYLES,
    about,
    boards,
    title,
)
from dp_erm_bench.report.log import edges
from dp_erm_bench.report.style import BLACK, house_style
from dp_erm_bench.results.runs import read_manifest

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

FACTORS = np.geomspace(1.0, 100.0, 201)
TICKS = (1, 2, 5, 10, 20, 50, 100)
PROFILE, SMALL = (3.6, 2.6), (2.0, 1.6)


@dataclass(frozen=True)
class Leaderboard(Figure):
    """Who stands where; a panel of the experiment is a dataset with a board's name."""

    def draw(self, drawing: Drawing) -> list[Path]:
        """Draw the leaderboard, and write its page and its table beside the figures."""
        return draw(drawing.table, drawing.folder, drawing.profile)


def draw(table: pd.DataFrame, folder: Path, name: str) -> list[Path]:
    """Draw the leaderboard, and write its page and its table beside the figures.

    Parameters
    ----------
    table : DataFrame
        The tidy table of the experiment; a panel is a dataset with one of `BOARDS`.
    folder : Path
        Where the figures go; leaderboard.md and leaderboard.csv go to its parent.
    name : str
        The profile that was run.

    Returns
    -------
    list of Path
        The files written.
    """
    ranking = standings(table)
    folder.mkdir(parents=True, exist_ok=True)
    beside = folder.parent
    on_edges = edges(beside)
    texts = {
        beside / "leaderboard.md": page(
            ranking, table, name, on_edges, read_manifest(beside)
        ),
        beside / "leaderboard.csv": published(ranking).to_csv(index=False),
        folder / "log.txt": "\n".join(["Values at an edge of a grid", *on_edges])
        + "\n",
    }
    for path, text in texts.items():
        _write(path, text)
    parts = boards(ranking)
    if not parts:
        return [*texts]
    with house_style():
        return [
            *texts,
            *_profiles(parts, folder / "leaderboard_profiles", name),
            *draw_map(parts, folder / "leaderboard_heat", name),
            *_over_epsilon(ranking, folder / "leaderboard_error", name, "median"),
            *_over_epsilon(ranking, folder / "leaderboard_accuracy", name, "accuracy"),
        ]


def _write(path: Path, text: str) -> None:
    write_atomic(path, lambda file: file.write(text.encode()))


def _profiles(parts: Mapping[str, pd.DataFrame], path: Path, name: str) -> list[Path]:
    """Draw the share of problems within each factor of the best."""
    cells: list[Cell] = [
        partial(_profile, rows=rows, board=BOARDS[board])
        for board, rows in parts.items()
    ]
    text = (
        f"{about(next(iter(parts.values())), name)}\n"
        "Performance profiles: a problem is a dataset at one epsilon; its best is the "
        "smallest median of all algorithms and of w = 0. What an algorithm refuses "
        "counts as never reached."
    )
    sheet = Sheet(cells, len(cells), text, PROFILE, "share of problems")
    return save(sheet, path)


def _profile(ax: Axes, rows: pd.DataFrame, board: str) -> None:
    shares = profile(rows, FACTORS)
    for line in (line for line in STYLES if line in shares):
        style = STYLES[line].curve() | {"markevery": 40}
        if line == ZERO:
            style |= {"linestyle": "dashed"}
        ax.plot(FACTORS, shares[line], drawstyle="steps-post", **style)
    ax.set_xscale("log")
    ax.set_xlim(1.0, FACTORS[-1])
    ax.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    ax.minorticks_off()
    ax.set_ylim(0.0, 1.02)
    ax.set_xlabel("factor over the best error")
    ax.set_title(f"{board}: {rows.groupby(['panel', 'epsilon']).ngroups} problems")


def _over_epsilon(
    ranking: pd.DataFrame, path: Path, name: str, column: str
) -> list[Path]:
    """Draw a column of the standings against epsilon, one cell per problem."""
    ran = ranking[ranking["status"] == "ok"]
    problems = ran.groupby("panel", sort=False)
    cells: list[Cell] = [
        partial(_problem, panel=str(panel), rows=rows, column=column)
        for panel, rows in problems
    ]
    dashed = (
        "Dashed: w = 0. Errors above 10 times that are left out."
        if column == "median"
        else "Dashed: share of the larger class in the test set."
    )
    text = f"{about(ranking, name)}\n{dashed}"
    words = {"median": "relative error", "accuracy": "test accuracy"}
    return save(Sheet(cells, min(4, len(cells)), text, SMALL, words[column]), path)


def _problem(ax: Axes, panel: str, rows: pd.DataFrame, column: str) -> None:
    epsilons = sorted(set(rows["epsilon"]))
    base = float(rows["zero" if column == "median" else "majority"].iloc[0])
    shown = rows[rows["median"] <= 10.0 * rows["zero"]] if column == "median" else rows
    for line in (line for line in STYLES if line in set(shown["line"])):
        points = shown[shown["line"] == line].sort_values("epsilon")
        style = STYLES[line].curve() | {"linewidth": 1.1, "markersize": 3.5}
        ax.plot(points["epsilon"], points[column], **style)
    ax.axhline(base, color=BLACK, linewidth=1.0, linestyle="dashed")
    ax.set_title(title(panel))
    ax.set_xlabel(r"$\varepsilon$")
    axes.scale_epsilon(ax, epsilons)
    if column == "median":
        drawn = [base, *shown[column].clip(lower=1e-6)]
        axes.scale_errors(ax, (min(drawn), max(drawn)))
