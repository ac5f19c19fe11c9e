"""Figures of Mangold et al., "Differentially private coordinate descent" (ICML 2022).

DP-SGD against epsilon is the certified line with batch 100, not the authors' noise: its
noise proves the epsilon on the axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dp_erm_bench.figures.panels import Panel
from dp_erm_bench.figures.paper import draw_paper

if TYPE_CHECKING:
    import pandas as pd

TIGHT = ("DP-SGD tight batch 1", "DP-SGD tight batch 100")
RIGOROUS = (
    "{name}: at 50 passes the authors' DP-SGD has z = {authors}; fixed-size batches "
    "under replace-one, accounted rigorously by RDP, need z = {rigorous}."
)

PANELS = (
    Panel(
        "electricity_raw",
        "electricity, raw",
        (
            "DP-CD cyclic",
            "DP-CD uniform",
            "DP-CD public M",
            "DP-SGD authors 50 passes",
            *TIGHT,
        ),
        ("DP-CD cyclic", "DP-SGD tight batch 100"),
        {"DP-CD cyclic": "DP-CD", "DP-SGD authors 50 passes": "DP-SGD"},
        RIGOROUS.format(name="electricity", authors=1.914, rigorous="1.960"),
    ),
    Panel(
        "electricity_standardised",
        "electricity, standardised",
        ("DP-CD cyclic", "DP-CD uniform", "DP-SGD authors", *TIGHT),
        ("DP-CD cyclic", "DP-SGD tight batch 100"),
    ),
    Panel(
        "california_raw",
        "california, raw",
        ("DP-CD cyclic reversed", "DP-CD uniform", "DP-SGD authors 50 passes", *TIGHT),
        ("DP-CD cyclic reversed", "DP-SGD tight batch 100"),
        {"DP-CD cyclic reversed": "DP-CD", "DP-SGD authors 50 passes": "DP-SGD"},
        RIGOROUS.format(name="california", authors=1.934, rigorous="2.036"),
    ),
    Panel(
        "california_standardised",
        "california, standardised",
        ("DP-CD cyclic reversed", "DP-CD uniform", "DP-SGD authors", *TIGHT),
        ("DP-CD cyclic reversed", "DP-SGD tight batch 100"),
    ),
)


def draw(table: pd.DataFrame, folder: Path, config: Mapping[str, Any]) -> list[Path]:
    """Draw the paper's figures from the tidy table.

    Parameters
    ----------
    table : DataFrame
        The tidy table of the experiment mangold2022.
    folder : Path
        Where the figures go.
    config : mapping
        The experiment's resolved yaml.

    Returns
    -------
    list of Path
        The files written.
    """
    return draw_paper("mangold2022", PANELS, table, folder, config)
