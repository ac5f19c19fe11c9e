"""The leaderboard's map of who wins where."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dp_erm_bench.report.layout import Cell, Sheet, save
from dp_erm_bench.report.leaderboard.standings import ZERO
from dp_erm_bench.report.leaderboard.style import BOARDS, STYLES, about, dataset

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

WORST = 30.0
"""Factors beyond it have one colour."""

WIDTH, ROW = 8.6, 0.21


def draw_map(parts: Mapping[str, pd.DataFrame], path: Path, profile: str) -> list[Path]:
    """Draw every algorithm's factor over the best on every problem.

    Parameters
    ----------
    parts : mapping of str to DataFrame
        The standings by board.
    path : Path
        Folder and stem.
    profile : str
        The profile that was run.
    """
    cells: list[Cell] = [
        partial(_factors, rows=rows, title=BOARDS[board])
        for board, rows in parts.items()
    ]
    text = (
        f"{about(next(iter(parts.values())), profile)}\n"
        f"Colour: the error over the best one of the problem, w = 0 included, from 1 "
        f"(dark) to {WORST:g} and more (light). Within a dataset epsilon grows to the "
        "right. Filled circle: wins; ring: within noise of the winner; both only where "
        "w = 0 is beaten. White: refused. AMP, output, objective: "
        "perturbation; permutation: permutation_sgd."
    )
    lines = max(rows["line"].nunique() for rows in parts.values()) + 1
    sheet = Sheet(cells, 1, text, (WIDTH, ROW * lines), "")
    return save(sheet, path)


def _factors(ax: Axes, rows: pd.DataFrame, title: str) -> None:
    problems = list(dict.fromkeys(zip(rows["panel"], rows["epsilon"], strict=True)))
    lines = [line for line in STYLES if line in set(rows["line"]) or line == ZERO]
    grid = np.full((len(lines), len(problems)), math.nan)
    marks: dict[str, list[tuple[int, int]]] = {"wins": [], "ties": []}
    for row in rows[rows["status"] == "ok"].to_dict("records"):
        at = lines.index(row["line"]), problems.index((row["panel"], row["epsilon"]))
        grid[at] = row["factor"]
        grid[-1, at[1]] = row["factor"] * row["zero"] / row["median"]
        if row["place"] in marks:
            marks[row["place"]].append(at)
    ax.imshow(
        np.log10(np.clip(grid, 1.0, WORST)),
        cmap="viridis",
        vmin=0.0,
        vmax=math.log10(WORST),
        aspect="auto",
    )
    for word, face in (("wins", "white"), ("ties", "none")):
        y, x = zip(*marks[word], strict=True) if marks[word] else ((), ())
        ax.scatter(x, y, s=14, facecolors=face, edgecolors="white", linewidths=0.9)
    ax.grid(visible=False)
    names = [STYLES[line].family or line for line in lines]
    ax.set_yticks(range(len(lines)), names, fontsize=7.5)
    _name_datasets(ax, [panel for panel, _ in problems])
    ax.set_title(title)


def _name_datasets(ax: Axes, panels: Sequence[str]) -> None:
    """Write each dataset's name under its columns, with lines between them."""
    names = list(dict.fromkeys(panels))
    middles = [
        float(np.mean([i for i, panel in enumerate(panels) if panel == name]))
        for name in names
    ]
    ax.set_xticks(middles, [dataset(name) for name in names], fontsize=7)
    ax.tick_params(length=0)
    for name in names[1:]:
        ax.axvline(panels.index(name) - 0.5, color="white", linewidth=2.5)
