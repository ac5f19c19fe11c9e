"""Figures of Mangold et al., "Differentially private coordinate descent" (ICML 2022).

DP-SGD against epsilon is the certified line with batch 100, not the authors' noise: its
noise proves the epsilon on the axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dp_erm_bench.report.caption import problem
from dp_erm_bench.report.crosses import Cross, Shape, found, save_crosses, setting
from dp_erm_bench.report.panels import Panel
from dp_erm_bench.report.paper import draw_paper
from dp_erm_bench.report.quotients import against_quotient, quotients
from dp_erm_bench.report.scaling import facts
from dp_erm_bench.report.style import house_style

if TYPE_CHECKING:
    import pandas as pd

TIGHT = ("DP-SGD tight batch 1", "DP-SGD tight batch 100", "DP-SVRG")
UNBALANCED = ("DP-CD cyclic", "DP-SGD tight batch 100", "DP-SVRG")
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
            "DP-CD private M",
            "DP-CD public M",
            "DP-SGD authors 50 passes",
            *TIGHT,
        ),
        ("DP-CD cyclic", "DP-SGD tight batch 100"),
        {
            "DP-CD cyclic": "DP-CD",
            "DP-CD private M": "DP-CD-priv-cst",
            "DP-SGD authors 50 passes": "DP-SGD",
        },
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
        (
            "DP-CD cyclic reversed",
            "DP-CD uniform",
            "DP-CD private M",
            "DP-SGD authors 50 passes",
            *TIGHT,
        ),
        ("DP-CD cyclic reversed", "DP-SGD tight batch 100"),
        {
            "DP-CD cyclic reversed": "DP-CD",
            "DP-CD private M": "DP-CD-priv-cst",
            "DP-SGD authors 50 passes": "DP-SGD",
        },
        RIGOROUS.format(name="california", authors=1.934, rigorous="2.036"),
    ),
    Panel(
        "california_standardised",
        "california, standardised",
        ("DP-CD cyclic reversed", "DP-CD uniform", "DP-SGD authors", *TIGHT),
        ("DP-CD cyclic reversed", "DP-SGD tight batch 100"),
    ),
    Panel(
        "sparse_lasso",
        r"sparse lasso, $\varepsilon = 10$",
        (
            "DP-CD cyclic",
            "DP-CD uniform",
            "DP-SGD authors",
            "DP-SGD tight batch 1",
            "DP-SGD tight batch 100",
            "DP-SGD tight full batch",
            "DP-SVRG",
        ),
        note="The 10 features that matter come first: in cyclic order DP-CD needs no "
        "search.",
        log_passes=True,
        epsilon=10.0,
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
    written = draw_paper("mangold2022", PANELS, table, folder, config)
    with house_style():
        path = folder / "mangold2022_unbalanced"
        return [*written, *_unbalanced(table, path, config)]


def _unbalanced(
    table: pd.DataFrame, path: Path, config: Mapping[str, Any]
) -> list[Path]:
    """Draw the final errors against the quotient of the bounds."""
    rates, _ = found(
        UNBALANCED, lambda line: against_quotient(table, config, "unbalanced", line)
    )
    if not rates:
        return []
    first = min(quotients(config, "unbalanced"))
    about = facts(table, first)
    text = "\n".join(
        (
            f"{problem(about)} M_max / M_min from 10000 (left) to 1 (right).",
            f"epsilon = 1, {setting(about, rates, str(config.get('profile', '?')))}",
        )
    )
    axis = r"$\Vert L\Vert_{M^{-1}} R_M\;/\;(\Lambda R_I)$"
    shapes = [
        Shape("bounds, convex: DP-SGD / DP-CD", lambda x: 1 / x),
        Shape("strongly convex: the square", lambda x: 1 / x**2),
    ]
    cross = Cross("unbalanced smoothness", axis, rates, shapes, UNBALANCED[1])
    quantity = r"relative error $F(w)/F^* - 1$"
    return save_crosses([cross], path, text, quantity, (4.4, 3.0))
