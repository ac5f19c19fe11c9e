"""Figures of Mangold et al., "... by greedy coordinate descent" (AISTATS 2023).

DP-SGD against epsilon is the certified line with batch 100, not the authors' noise: its
noise proves the epsilon on the axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dp_erm_bench.figures.panels import Panel
from dp_erm_bench.figures.paper import draw_paper

if TYPE_CHECKING:
    import pandas as pd

LINES = (
    "DP-GCD tight",
    "DP-GCD poster",
    "DP-CD cyclic",
    "DP-CD uniform",
    "DP-SGD authors",
    "DP-SGD tight batch 1",
    "DP-SGD tight batch 100",
)
OVER_EPSILON = ("DP-GCD tight", "DP-CD cyclic", "DP-SGD tight batch 100")
NOTE = "One iteration of DP-GCD counts as one pass; rule GS-r."

PANELS = (
    Panel(
        "log1",
        "log1",
        LINES,
        OVER_EPSILON,
        {
            "DP-GCD poster": "DP-GCD",
            "DP-CD cyclic": "DP-CD",
            "DP-SGD authors": "DP-SGD",
        },
        NOTE,
        log_passes=True,
    ),
    Panel("log2", "log2", LINES, OVER_EPSILON, {}, NOTE, log_passes=True),
    Panel("madelon", "madelon", LINES, OVER_EPSILON, {}, NOTE, log_passes=True),
)
RULES = tuple(
    replace(
        panel,
        title=f"{panel.title}, greedy rules",
        lines=("DP-GCD tight", "DP-GCD tight GS-s", "DP-GCD tight GS-q"),
        over_epsilon=(),
        authors={},
        note="One iteration of DP-GCD counts as one pass; tight noise has rule GS-r.",
    )
    for panel in PANELS
)


def draw(table: pd.DataFrame, folder: Path, config: Mapping[str, Any]) -> list[Path]:
    """Draw the paper's figures and the comparison of greedy rules.

    Parameters
    ----------
    table : DataFrame
        The tidy table of the experiment mangold2023.
    folder : Path
        Where the figures go.
    config : mapping
        The experiment's resolved yaml.

    Returns
    -------
    list of Path
        The files written.
    """
    return draw_paper("mangold2023", PANELS, table, folder, config, RULES)
