"""Colours, titles and words that the parts of the leaderboard share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dp_erm_bench.report.leaderboard.standings import ZERO
from dp_erm_bench.report.style import (
    BLACK,
    BLUE,
    BROWN,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    Style,
)

if TYPE_CHECKING:
    import pandas as pd

STYLES = {
    "greedy_cd": Style("greedy_cd", GREEN, "P", 5.5),
    "random_cd": Style("random_cd", BLUE, "o"),
    "sgd": Style("sgd", VERMILLION, "^"),
    "svrg": Style("svrg", GREY, "*", 6.0),
    "gd": Style("gd", ORANGE, "v"),
    "frank_wolfe": Style("frank_wolfe", "#332288", "h"),
    "mirror_descent": Style("mirror_descent", SKY, "s", family="mirror"),
    "output_perturbation": Style(
        "output_perturbation", PURPLE, "D", 4.0, family="output"
    ),
    "objective_perturbation": Style(
        "objective_perturbation", "#882255", "d", family="objective"
    ),
    "approximate_minima_perturbation": Style(
        "approximate_minima_perturbation", "#DDAA88", "p", family="AMP"
    ),
    "permutation_sgd": Style("permutation_sgd", BROWN, "X", family="permutation"),
    ZERO: Style(ZERO, BLACK, "", 0.0),
}
"""How each algorithm looks; `family` is a name that fits into a margin."""

BOARDS = {"l2": "l2 penalty", "l1": "L1 ball"}
"""Endings of the panels: problems whose objectives may be compared in kind."""


def dataset(panel: str) -> str:
    """Return the dataset of a panel."""
    return panel.rpartition("_")[0]


def title(panel: str) -> str:
    """Return dataset and kind of a panel."""
    return f"{dataset(panel)}, {BOARDS[panel.rpartition('_')[2]]}"


def boards(ranking: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the standings by board, without boards on which nothing ran."""
    parts = {b: ranking[ranking["panel"].str.endswith(f"_{b}")] for b in BOARDS}
    return {b: rows for b, rows in parts.items() if (rows["status"] == "ok").any()}


def about(ranking: pd.DataFrame, profile: str) -> str:
    """Return what every caption of the leaderboard begins with."""
    runs = int(ranking["runs"].max())
    return (
        f"Medians of {runs} report runs at settings tuned on other seeds, uncharged "
        f"(profile {profile}). Relative error F(w)/F* - 1 of the last iterate."
    )
