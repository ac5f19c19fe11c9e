"""The statistical audit: claimed epsilon against what the runs prove."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.audit.profile import FALSE_ALARM, Row, row, verdict
from dp_erm_bench.audit.statistic import named_attack
from dp_erm_bench.errors import UsageError
from dp_erm_bench.plugins.names import is_file
from dp_erm_bench.report.curves import Array
from dp_erm_bench.report.figure import Drawing, Facts, Study
from dp_erm_bench.report.layout import Cell, Sheet, save
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
class Audit(Study):
    """Every audit as the interval from its lower bounds to the claim."""

    file = "audits.csv"

    def rows(self, recorded: Iterable[Facts]) -> Iterator[Row]:
        """Yield one row per audit: its guarantee, and the bounds that its runs prove.

        Only chunks of which both neighbours are recorded count, so that an audit that
        is not finished yet is judged on what there is.
        """
        by_audit: dict[str, dict[int, dict[int, list[float]]]] = {}
        for spec, facts in recorded:
            how = {"algorithm": spec["algorithm"], "budget": spec["budget"]}
            sides = by_audit.setdefault(json.dumps(how, sort_keys=True), {0: {}, 1: {}})
            sides[spec["dataset"]["side"]][spec["seed"]] = facts["statistics"]
        alpha = FALSE_ALARM / max(1, len(by_audit))
        for words, sides in by_audit.items():
            if both := sorted(set(sides[0]) & set(sides[1])):
                first, second = (
                    np.concatenate([sides[side][chunk] for chunk in both])
                    for side in (0, 1)
                )
                yield _judged(json.loads(words), first, second, alpha)

    def draw(self, drawing: Drawing) -> list[Path]:
        """Draw one panel per epsilon; return the files written, none without a row."""
        table = drawing.table
        if table.empty:
            return []
        # Certified within the last digits of a budget.
        nominal = table["epsilon"].map(lambda e: f"{e:.3g}").astype(float)
        labels = [_label(audit) for _, audit in table.iterrows()]
        rows = table.assign(label=labels, nominal=nominal)
        names = list(dict.fromkeys(rows["label"]))
        cells: list[Cell] = [partial(_names, names=names)]
        cells += [
            partial(_bounds, rows=rows[rows["nominal"] == epsilon], names=names)
            for epsilon in sorted(set(nominal))
        ]
        size = WIDTH, ROW * (len(names) + 1)
        # As wide as its rows of text need.
        sheet = Sheet(cells, len(cells), _caption(rows), size, quantity="", exact=True)
        with house_style():
            return save(sheet, drawing.folder / "audit")


def _judged(how: Mapping[str, Any], first: Array, second: Array, alpha: float) -> Row:
    name, params = how["algorithm"]["name"], how["algorithm"]["params"]
    if is_file(name):  # a plan may be anyone's: what it names is not imported
        raise UsageError(f"algorithm={name}: a plan must name no file")
    adjacency = how["budget"]["adjacency"]
    attack = named_attack(name, params, Budget(**how["budget"]))
    return row(name, params, adjacency, verdict(first, second, attack.guarantee, alpha))


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
    look: dict[str, Any] = {"ha": "right", "va": "center", "fontsize": 8}
    ax.set_axis_off()
    ax.set_ylim(len(names) - 0.4, -0.6)
    for place, name in enumerate(names):
        ax.text(1.1, place, name, transform=ax.get_yaxis_transform(), **look)


def _bounds(ax: Axes, rows: pd.DataFrame, names: list[str]) -> None:
    for adjacency, (label, colour, marker, shift) in ADJACENCIES.items():
        audits = rows[rows["adjacency"] == adjacency]
        y = audits["label"].map(names.index).to_numpy() - shift
        shaped, bound = audits["gaussian"], audits["lower_bound"]
        claim = audits["epsilon"]
        left = shaped.fillna(bound)
        dots: dict[str, Any] = {"color": colour, "ms": 4.5, "ls": "none"}
        ax.hlines(y, left, claim, colors=colour, lw=1.0)
        ax.plot(shaped, y, marker, label=f"{label}: if Gaussian", **dots)
        ax.plot(bound, y, marker, mfc="white", label=f"{label}: at delta", **dots)
        ax.plot(claim, y, "|", color=BLACK, ms=7, ls="none", label="claimed")
        broken = (audits["verdict"] == "VIOLATION").to_numpy()
        if broken.any():
            cross = {**dots, "color": VERMILLION, "ms": 9, "mew": 2.0}
            ax.plot(left[broken], y[broken], "x", label="VIOLATION", **cross)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.set_xlim(left=-0.03 * float(rows["epsilon"].max()))
    ax.set_yticks(range(len(names)), [""] * len(names))
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel(r"$\varepsilon$")


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
