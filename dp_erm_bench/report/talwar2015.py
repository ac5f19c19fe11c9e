"""Figures of Talwar, Thakurta, Zhang, "Nearly optimal private LASSO" (NIPS 2015).

Beside it: the geometry of the L1 ball, and methods that publish one answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dp_erm_bench.report.crosses import Cross, Shape
from dp_erm_bench.report.noise import EPSILON, N
from dp_erm_bench.report.panels import Panel
from dp_erm_bench.report.paper import draw_paper
from dp_erm_bench.report.rates import Asked, draw_rates
from dp_erm_bench.report.scaling import Scaling
from dp_erm_bench.report.selection import LENGTHS, SELECTIONS, scales
from dp_erm_bench.report.style import house_style

if TYPE_CHECKING:
    import pandas as pd

LASSO = ("DP-FW Gumbel", "DP-FW Laplace", "DP-FW Laplace printed")
BALL = ("DP-FW Gumbel", "DP-MD EG+-", "DP-GD projected")
ANSWERS = (
    "Objective Gaussian",
    "Objective gamma",
    "Objective Gaussian no ridge",
    "Output Gaussian",
    "Output gamma",
    "AMP",
    "Permutation SGD",
    "DP-SGD tight batch 100",
    "DP-SGD tight full batch",
)

PANELS = (
    Panel(
        "lasso",
        "lasso on the L1 ball",
        LASSO,
        note="Over the L1 ball of radius 1. Each line has its own tuned number of "
        "steps, with which the noise of a step grows.",
    ),
)
IN_RECORDS = Asked(
    "lasso_n",
    "n",
    r"lasso, records ($p = 200$, $\varepsilon = 1$)",
    LASSO,
    (
        Shape("bound, any lasso", lambda n: n ** (-2 / 3)),
        Shape("1 / n", lambda n: 1 / n),
    ),
)
ON_THE_BALL = (
    Asked(
        "ball_epsilon",
        "epsilon",
        r"privacy ($n = 4000$, $p = 200$)",
        BALL,
        (Shape("Frank-Wolfe's bound", lambda x: x ** (-2 / 3)),),
    ),
    Asked(
        "ball_p",
        "p",
        r"features ($n = 4000$, $\varepsilon = 1$)",
        BALL,
        (
            Shape("log p", lambda p: np.log(p)),
            Shape("root of p", lambda p: np.sqrt(p)),
        ),
    ),
)
ONE_ANSWER = tuple(
    Asked(name, "epsilon", name.replace("_", " "), ANSWERS)
    for name in ("breast_cancer", "a9a", "w8a")
)


def draw(table: pd.DataFrame, folder: Path, config: Mapping[str, Any]) -> list[Path]:
    """Draw the lasso, the L1 ball and the methods with one answer.

    Parameters
    ----------
    table : DataFrame
        The tidy table of the experiment talwar2015.
    folder : Path
        Where the figures go.
    config : mapping
        The experiment's resolved yaml.

    Returns
    -------
    list of Path
        The files written.
    """
    written = draw_paper("talwar2015", PANELS, table, folder, config)
    profile = str(config.get("profile", "?"))
    with house_style():
        written += _lasso(table, folder / "talwar2015_lasso", profile)
        written += _ball(table, folder / "talwar2015_ball", profile)
        return [*written, *_answers(table, folder / "talwar2015_answers", profile)]


def _lasso(table: pd.DataFrame, path: Path, profile: str) -> list[Path]:
    """Draw excess risk against n, and the noise of a selection against T."""
    x = np.array(LENGTHS, float)
    noise = {line: Scaling(x, tuple(scales(line)[:, None])) for line in SELECTIONS}
    return draw_rates(
        table,
        [IN_RECORDS],
        path,
        "Least squares on quasi-sparse data (5 of 200 features matter) over the L1 "
        "ball of radius 1: declared bounds, no clipping.",
        profile,
        notes=[
            "Right: scale of the noise on a score, as calibrated for T selections, in "
            f"units of L_1 norm1(C), n = {N}, epsilon = {EPSILON:g}, delta = 1/n^2, "
            "adjacency replace_one; nothing is run. Deviations are 1.28 (Gumbel) and "
            "1.41 (Laplace) times the scale. As printed it is certified for epsilon = "
            "1 up to 6 selections only."
        ],
        beside=[Cross("noise of a selection", "steps T", noise)],
        size=(3.4, 2.8),
    )


def _ball(table: pd.DataFrame, path: Path, profile: str) -> list[Path]:
    """Draw three ways to use the L1 ball against epsilon and p."""
    return draw_rates(
        table,
        ON_THE_BALL,
        path,
        "Least squares on quasi-sparse data (5 features matter) over the L1 ball of "
        "radius 1; steps, thresholds and numbers of steps are tuned.",
        profile,
        notes=[
            "Entries of a record are bounded, so that its norm grows like the root of "
            "p: Gaussian noise does, too, whatever the geometry of the step. Noise on "
            "the choice of a vertex does not. Mirror descent with a p-norm potential "
            "is for the whole space, where the problem is another one: left out."
        ],
        size=(3.4, 2.8),
    )


def _answers(table: pd.DataFrame, path: Path, profile: str) -> list[Path]:
    """Draw output and objective perturbation and their kin over epsilon."""
    return draw_rates(
        table,
        ONE_ANSWER,
        path,
        "Logistic loss, l2 penalty 1/n, records clipped to norm 1; the ridge that a "
        "method adds is tuned, the risk is that of the problem without it.",
        profile,
        size=(3.1, 3.1),
    )
