"""Figures of Mangold et al., "... by greedy coordinate descent" (AISTATS 2023).

DP-SGD against epsilon is the certified line with batch 100, not the authors' noise: its
noise proves the epsilon on the axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dp_erm_bench.report.crosses import Cross, Shape, save_crosses
from dp_erm_bench.report.noise import (
    EPSILON,
    FEATURES,
    N_ITER,
    RELEASED,
    N,
    deviations,
)
from dp_erm_bench.report.panels import Panel
from dp_erm_bench.report.paper import draw_paper
from dp_erm_bench.report.rates import Asked, draw_rates
from dp_erm_bench.report.scaling import Scaling
from dp_erm_bench.report.style import house_style

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
WIDE = (
    "DP-GCD tight",
    "DP-GCD poster",
    "DP-CD cyclic",
    "DP-SGD authors",
    "DP-SGD tight batch 100",
)
SPARSE = (*WIDE[:3], "DP-CD uniform", *WIDE[3:])
NOTE = "One iteration of DP-GCD counts as one pass; rule GS-r."
NOTE_L1 = f"{NOTE} The poster's noise needs rule GS-s under an L1 penalty."
NOTE_SPARSE = (
    f"{NOTE_L1} The 10 features that matter come first: in cyclic order DP-CD needs no "
    "search."
)

THEORY = ("DP-GCD tight", "DP-CD cyclic", "DP-SGD tight batch 100")
RATES = {
    "p": r"features ($n = 1000$, $\varepsilon = 10$)",
    "n": r"records ($p = 100$, $\varepsilon = 3$)",
    "epsilon": r"privacy ($n = 1000$, $p = 100$)",
}
IN_FEATURES = (
    Shape("DP-GCD's bound, convex", lambda p: np.log(p)),
    Shape("DP-CD's and lower bound, convex", lambda p: p),
    Shape("bounds, strongly convex", lambda p: p**2),
)
IN_BUDGET = (
    Shape("DP-GCD's bound, convex", lambda x: x ** (-2 / 3)),
    Shape("DP-CD's and lower bound, convex", lambda x: 1 / x),
    Shape("bounds, strongly convex", lambda x: x**-2.0),
)

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
    Panel(
        "california",
        "california, standardised",
        (
            "DP-GCD tight",
            "DP-GCD poster",
            "DP-CD cyclic",
            "DP-CD uniform",
            "DP-SGD tight batch 100",
        ),
        note=NOTE_L1,
        log_passes=True,
    ),
    Panel("square", "sparse lasso", SPARSE, note=NOTE_SPARSE, log_passes=True),
    Panel(
        "square_10",
        r"sparse lasso, $\varepsilon = 10$",
        SPARSE,
        note=NOTE_SPARSE,
        log_passes=True,
        epsilon=10.0,
    ),
    Panel("dorothea", "dorothea", WIDE, note=NOTE_L1, log_passes=True),
    Panel("mtp", "mtp", WIDE, note=NOTE, log_passes=True),
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
    for panel in PANELS[:3]
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
    written = draw_paper("mangold2023", PANELS, table, folder, config, RULES)
    with house_style():
        profile = str(config.get("profile", "?"))
        written += _rates(table, folder / "mangold2023_theory", profile)
        return [*written, *_noise(folder / "mangold2023_noise")]


def _rates(table: pd.DataFrame, path: Path, profile: str) -> list[Path]:
    """Draw excess risk against p, n and epsilon beside the shapes of the bounds."""
    asked = [
        Asked(
            f"theory_{axis}",
            axis,
            title,
            THEORY,
            IN_FEATURES if axis == "p" else IN_BUDGET,
        )
        for axis, title in RATES.items()
    ]
    about = (
        "Logistic loss on quasi-sparse data (5 weights near 1, the others 0), l1 "
        "penalty 0.03, clipping at C_j = 0.5 for all p."
    )
    shapes = (
        "Grey: shapes of bounds through DP-GCD's first point. Against p, with L_j, M_j "
        "and w* the same for all p: log p for DP-GCD in all cases (convex, strongly "
        "convex, quasi-sparse); p and p^2 for DP-CD and the general lower bounds. "
        "Against n and epsilon: power -2/3, -1; power -2 for strongly convex problems "
        "(DP-GCD, also quasi-sparse; DP-CD; lower bound)."
    )
    return draw_rates(table, asked, path, about, profile, notes=[shapes])


def _noise(path: Path) -> list[Path]:
    """Draw the noise of each kind of release against the number of features."""
    x = np.array(FEATURES, float)
    rates = {
        line: Scaling(x, tuple(np.atleast_2d(deviations(line, FEATURES)).T))
        for line in RELEASED
    }
    text = (
        f"Standard deviation of the noise on one number released, from the calibrated "
        f"releases. n = {N}, {N_ITER} passes over the data, epsilon = {EPSILON:g}, "
        "delta = 1/n^2, adjacency replace_one. Logistic loss, features within [-1, 1]: "
        "all L_j are 1, whatever p. The selection's scores in units of the gradient. "
        "The two rising lines coincide."
    )
    cross = Cross("noise of a release", "number of features p", rates)
    quantity = "noise, standard deviation"
    return save_crosses([cross], path, text, quantity, (4.4, 3.0))
