"""The leaderboard: performance profiles, who wins where, error and accuracy, a page."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dp_erm_bench.report import contest, scales, style
from dp_erm_bench.report.figure import Drawing, Figure
from dp_erm_bench.report.layout import Sheet, save
from dp_erm_bench.report.leaderboard import standings
from dp_erm_bench.report.leaderboard.page import page, published
from dp_erm_bench.report.leaderboard.standings import BOARDS, NOT_PRIVATE, ZERO
from dp_erm_bench.report.paper import open_choices
from dp_erm_bench.report.style import Style
from dp_erm_bench.report.texts import write_text
from dp_erm_bench.results.files import csv_of
from dp_erm_bench.results.runs import read_manifest

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

LOOKS: dict[str, tuple[Any, ...]] = {
    "greedy_cd": (style.GREEN, "P", 5.5),
    "random_cd": (style.BLUE, "o"),
    "sgd": (style.VERMILLION, "^"),
    "svrg": (style.GREY, "*", 6.0),
    "gd": (style.ORANGE, "v"),
    "frank_wolfe": ("#332288", "h"),
    "mirror_descent": (style.SKY, "s", 4.5, 1.6, "mirror"),
    "output_perturbation": (style.PURPLE, "D", 4.0, 1.6, "output"),
    "objective_perturbation": ("#882255", "d", 4.5, 1.6, "objective"),
    "approximate_minima_perturbation": ("#DDAA88", "p", 4.5, 1.6, "AMP"),
    "permutation_sgd": (style.BROWN, "X", 4.5, 1.6, "permutation"),
    ZERO: (style.BLACK, "", 0.0),
}
STYLES = {line: Style(line, *look) for line, look in LOOKS.items()}
"""The style of each algorithm; `family` is a name that fits into a margin."""

PROFILE, SMALL, WIDTH, ROW = (3.6, 2.6), (2.0, 1.6), 8.6, 0.21
CAPTIONS = {
    "profiles": "Performance profiles: a problem is a dataset at one epsilon; its best "
    "is the smallest median of all algorithms and of w = 0. What an algorithm refuses "
    "counts as never reached.",
    "heat": "Colour: the error over the best one of the problem, w = 0 included, from "
    f"1 (dark) to {contest.WORST:g} and more (light). Filled circle: wins; ring: "
    "within noise of the winner; both only where w = 0 is beaten. White: refused. AMP, "
    "output, objective: perturbation; permutation: permutation_sgd.",
    "error": "Dashed: w = 0. Errors above 10 times that are left out.",
    "risk": "Mean loss of held-out records, without penalty. Dashed: the base rate; "
    "dotted: the optimum; neither is private. Risks above twice log 2 are left out.",
    "accuracy": "Dashed: share of the larger class in the test set; dotted: the "
    "optimum, not private.",
    "auc": "Area under the ROC curve of held-out records. Dashed: without data; "
    "dotted: the optimum, not private.",
}
PROBLEMS = {
    "error": ("median", "relative error"),
    "risk": ("test_risk", "test risk"),
    "accuracy": ("accuracy", "test accuracy"),
    "auc": ("auc", "test AUC"),
}
"""Figures with axes for each problem: the column of the standings, and its words."""


@dataclass(frozen=True)
class Leaderboard(Figure):
    """The leaderboard; a panel of the experiment is a dataset with a board's name."""

    def draw(self, drawing: Drawing) -> list[Path]:
        """Draw the leaderboard; return the files written, no figures if nothing ran.

        leaderboard.md and leaderboard.csv go beside the folder of the figures.
        """
        table, folder, name = drawing.table, drawing.folder, drawing.profile
        ranking, beside = standings.standings(table), folder.parent
        models = standings.references(table)
        beyond, manifest = open_choices(beside), read_manifest(beside)
        log = "\n".join(["Choices beyond which a better setting may lie", *beyond, ""])
        texts = {
            beside / "leaderboard.md": page(
                ranking, models, table, name, beyond, manifest
            ),
            beside / "leaderboard.csv": csv_of(published(ranking, models)),
            folder / "log.txt": log,
        }
        written = [write_text(path, text) for path, text in texts.items()]
        with style.house_style():
            for stem, sheet in _sheets(ranking, models, name).items():
                written += save(sheet, folder / f"leaderboard_{stem}")
        return written


def _sheets(
    ranking: pd.DataFrame, models: pd.DataFrame, profile: str
) -> dict[str, Sheet]:
    """Return the sheets of a profile's standings by name, none where nothing ran."""
    parts = standings.boards(ranking)
    if not parts:
        return {}
    panels = ranking[ranking["status"] == "ok"].groupby("panel", sort=False)
    columns, first = min(4, len(panels)), next(iter(parts.values()))
    size = WIDTH, ROW * (max(rows["line"].nunique() for rows in parts.values()) + 1)
    # Tables of earlier versions lack some.
    seen = [of for of in PROBLEMS.items() if ranking[of[1][0]].notna().any()]
    kinds: tuple[tuple[Any, ...], ...] = (
        ("profiles", _profile, first, len(parts), PROFILE, "share of problems"),
        ("heat", _factors, first, 1, size, ""),
        *(
            (stem, partial(_problem, column, models), ranking, columns, SMALL, words)
            for stem, (column, words) in seen
        ),
    )
    sheets = {}
    for stem, draw, about, *shape in kinds:
        groups = [*(parts.items() if about is first else panels)]
        if stem != "heat":
            groups = [part for group in groups for part in _facets(*group)]
        cells = [partial(draw, name=name, rows=rows) for name, rows in groups]
        text = f"{_about(about, profile)}\n{CAPTIONS[stem]}"
        across, size, quantity = shape
        wide: dict[str, Any] = {"width": "page"}
        wide |= {"exact": True, **contest.MARGINS} if stem == "heat" else {}
        sheets[stem] = Sheet(cells, across, text, size, quantity, **wide)
    return sheets


def _facets(name: str, rows: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return a panel once, or several times with some of the lines marked as drawn.

    Its ``facet`` is what its title ends with, empty if it is there once.
    """
    ran = set(rows.loc[rows["status"] == "ok", "line"])
    parts = contest.spread([line for line in STYLES if line in ran])
    told = [
        f" ({k} of {len(parts)})" if len(parts) > 1 else ""
        for k, _ in enumerate(parts, 1)
    ]
    return [
        (name, rows.assign(drawn=rows["line"].isin(part), facet=facet))
        for part, facet in zip(parts, told, strict=True)
    ]


def _about(ranking: pd.DataFrame, profile: str) -> str:
    """Return the first paragraph of every caption of the leaderboard."""
    runs = int(ranking["runs"].max())
    return (
        f"Medians of {runs} report runs at settings tuned on other seeds, uncharged "
        f"(profile {profile}), of the last iterate. Errors are F(w)/F* - 1."
    )


def _profile(ax: Axes, name: str, rows: pd.DataFrame) -> None:
    """Draw the share of problems within each factor of the best."""
    shares = standings.profile(rows, contest.FACTORS)
    own = {ZERO, *rows.loc[rows["drawn"], "line"]}
    lines = [line for line in STYLES if line in shares and line in own]
    contest.draw_profiles(ax, {line: shares[line] for line in lines}, STYLES, ZERO)
    ax.set_xlabel("factor over the best error")
    count = rows.groupby(["panel", "epsilon"]).ngroups
    ax.set_title(f"{BOARDS[name]}: {count} problems{rows['facet'].iloc[0]}")


def _factors(ax: Axes, name: str, rows: pd.DataFrame) -> None:
    """Draw every algorithm's factor over the best on every problem of a board."""
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
    names = [STYLES[line].family or line for line in lines]
    data = [(panel.rpartition("_")[0], epsilon) for panel, epsilon in problems]
    contest.draw_winners(ax, names, data, grid, marks)
    ax.set_title(f"{BOARDS[name]}\n")


def _problem(
    column: str, models: pd.DataFrame, ax: Axes, name: str, rows: pd.DataFrame
) -> None:
    """Draw a column of the standings of one problem against epsilon."""
    epsilons = sorted(set(rows["epsilon"]))
    own = models[models["panel"] == name].set_index("line")
    base = {
        "median": float(rows["zero"].iloc[0]),
        "test_risk": float(own[column][NOT_PRIVATE["base_rate"]]),
        "accuracy": float(rows["majority"].iloc[0]),
        "auc": 0.5,
    }[column]
    most = {"median": 10.0 * base, "test_risk": 2.0 * math.log(2.0)}
    shown = rows[rows["drawn"] & ~(rows[column] > most.get(column, math.inf))]
    for line in (line for line in STYLES if line in set(shown["line"])):
        points = shown[shown["line"] == line].sort_values("epsilon")
        look = STYLES[line].curve() | {"linewidth": 1.1, "markersize": 3.5}
        ax.plot(points["epsilon"], points[column], **look)
    ax.axhline(base, color=style.BLACK, linewidth=1.0, linestyle="dashed")
    if column != "median":
        end = float(own[column][NOT_PRIVATE["optimum"]])
        ax.axhline(end, color=style.BLACK, linewidth=1.0, linestyle="dotted")
    ax.set_title(title(name) + rows["facet"].iloc[0])
    ax.set_xlabel(r"$\varepsilon$")
    scales.scale_epsilon(ax, epsilons)
    if column == "median":
        errors = [base, *shown[column].clip(lower=1e-6)]
        scales.scale_errors(ax, (min(errors), max(errors)))


def title(panel: str) -> str:
    """Return dataset and kind of a panel."""
    dataset, _, board = panel.rpartition("_")
    return f"{dataset}, {BOARDS[board]}"
