"""The statistical audit: claimed epsilon against what the runs prove."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dp_erm_bench.report.claims.studies import audits
from dp_erm_bench.report.figure import Drawing, Figure
from dp_erm_bench.report.layout import Sheet, save
from dp_erm_bench.report.style import BLACK, BLUE, ORANGE, VERMILLION, house_style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

# Colour, marker and place within a row.
ADJACENCIES = {
    "replace_one": ("replace one", BLUE, "o", 0.17),
    "zero_out": ("zero out", ORANGE, "s", -0.17),
}
ROW, WIDTH = 0.23, 3.0


@dataclass(frozen=True)
class Audit(Figure):
    """Every audit as the interval from its lower bounds to the claim."""

    def table(self, folder: Path) -> pd.DataFrame:
        """Return one row per audit of a folder, and write them as audits.csv."""
        rows = audits(folder)
        rows.to_csv(folder / "audits.csv", index=False)
        return rows

    def draw(self, drawing: Drawing) -> list[Path]:
        """Draw one panel per epsilon."""
        return draw(drawing.table, drawing.folder)


def draw(table: pd.DataFrame, folder: Path) -> list[Path]:
    """Draw every audit as the interval from its lower bounds to the claim.

    One panel per epsilon.

    Parameters
    ----------
    table : DataFrame
        One row per audit: algorithm, params (JSON), adjacency, epsilon, delta,
        lower_bound, gaussian, confidence, runs, verdict.
    folder : Path
        Where the figure goes.

    Returns
    -------
    list of Path
        The files written; none for an empty table.
    """
    if table.empty:
        return []
    # Certified within the last digits of a budget.
    nominal = table["epsilon"].map(lambda e: f"{e:.3g}").astype(float)
    labels = [_label(audit) for _, audit in table.iterrows()]
    rows = table.assign(label=labels, nominal=nominal)
    names = list(dict.fromkeys(rows["label"]))
    budgets = [rows[rows["nominal"] == e] for e in sorted(set(rows["nominal"]))]
    sheet = Sheet(
        cells=[partial(_names, names=names)]
        + [partial(_bounds, rows=audits, names=names) for audits in budgets],
        columns=1 + len(budgets),
        caption=_caption(rows),
        size=(WIDTH, ROW * (len(names) + 1)),
        quantity="",
    )
    with house_style():
        return save(sheet, folder / "audit")


def _label(audit: Any) -> str:
    """Return the algorithm with the parameters that tell its variants apart."""
    params = json.loads(audit["params"])
    words = [
        f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}"
        for k, v in sorted(params.items())
        if k != "n_iter"
    ]
    return ", ".join([audit["algorithm"], *words])


def _names(ax: Axes, names: list[str]) -> None:
    ax.set_axis_off()
    ax.set_ylim(len(names) - 0.4, -0.6)
    for place, name in enumerate(names):
        ax.text(
            1.2,
            place,
            name,
            ha="right",
            va="center",
            transform=ax.get_yaxis_transform(),
            fontsize=8,
        )


def _bounds(ax: Axes, rows: pd.DataFrame, names: list[str]) -> None:
    for adjacency in ADJACENCIES:
        _audits(ax, rows[rows["adjacency"] == adjacency], adjacency, names)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.set_xlim(left=-0.03 * float(rows["epsilon"].max()))
    ax.set_yticks(range(len(names)), [""] * len(names))
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel(r"$\varepsilon$")


def _audits(ax: Axes, audits: pd.DataFrame, adjacency: str, names: list[str]) -> None:
    """Draw the audits under one relation."""
    label, colour, marker, shift = ADJACENCIES[adjacency]
    y = audits["label"].map(names.index).to_numpy() - shift
    dots: dict[str, Any] = {"color": colour, "ms": 4.5, "ls": "none"}
    shaped, bound = audits["gaussian"], audits["lower_bound"]
    left = shaped.fillna(bound)
    ax.hlines(y, left, audits["epsilon"], colors=colour, lw=1.0)
    ax.plot(shaped, y, marker, label=f"{label}: if Gaussian", **dots)
    ax.plot(bound, y, marker, mfc="white", label=f"{label}: at delta", **dots)
    ax.plot(audits["epsilon"], y, "|", color=BLACK, ms=7, ls="none", label="claimed")
    broken = (audits["verdict"] == "VIOLATION").to_numpy()
    if broken.any():
        cross: dict[str, Any] = {"color": VERMILLION, "ms": 9, "mew": 2.0, "ls": "none"}
        ax.plot(left[broken], y[broken], "x", label="VIOLATION", **cross)


def _caption(rows: pd.DataFrame) -> str:
    runs = sorted(set(rows["runs"]))
    count = f"{runs[0]}" if len(runs) == 1 else f"{runs[0]} to {runs[-1]}"
    deltas = ", ".join(f"{d:.2g}" for d in sorted(set(rows["delta"])))
    alarm = (1.0 - rows["confidence"]).sum()
    broken = int((rows["verdict"] == "VIOLATION").sum())
    return "\n".join(
        (
            f"{len(rows)} audits on worst-case neighbours, {count} runs a side, "
            f"delta = {deltas}; white-box likelihood ratio of all released values.",
            f"Verdicts are of the profile test: {broken} of {len(rows)} refuted "
            f"(probability of a false one in the whole table: at most {alarm:.2g}).",
            "Lower bounds on epsilon, each with confidence "
            f"{float(rows['confidence'].min()):.4g}. Hollow: at delta, weak for every "
            "mechanism at small delta. Filled: from the same rates if the profile has "
            "a Gaussian's shape, which sums of many releases nearly have.",
        )
    )
