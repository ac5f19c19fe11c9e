"""Widths of structured norms, true epsilons of printed noise, gaps of a dual.

Nothing is run: closed forms are evaluated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np

from dp_erm_bench import registry
from dp_erm_bench.audit import structured
from dp_erm_bench.report.crosses import Cross, save_crosses
from dp_erm_bench.report.curves import Array
from dp_erm_bench.report.figure import Drawing, Figure, check_stem
from dp_erm_bench.report.scaling import Scaling
from dp_erm_bench.report.style import house_style

RIDGE = 0.01
LABELS = {"width": "Gaussian width", "gap": "dual gap"}
AXES = {"width": "$p$", "output": "$n$", "selection": "weight $C$", "gap": "$T$"}


@dataclass(frozen=True)
class Structured(Figure):
    """What statements on structured norms come to along one number.

    Attributes
    ----------
    name, title : str
        Of the file; above the cell.
    quantity : {'width', 'output', 'selection', 'gap'}
        Gaussian widths of |P|(F) over p; true epsilons at 1e-5 of output noise over n,
        and of one noisy choice over the weight C of a record, where 1 is claimed; gaps
        of Frank-Wolfe on a dual over its steps.
    values : tuple of int
        Of p, n, C or T, increasing.
    norms : tuple of str
        Of `audit.structured.NAMES`, for widths; the first one, for gaps.
    about : str
        The caption.
    """

    QUANTITIES: ClassVar[tuple[str, ...]] = tuple(AXES)

    name: str
    title: str
    quantity: str
    values: tuple[int, ...]
    norms: tuple[str, ...] = structured.NAMES
    about: str = ""

    def __post_init__(self) -> None:
        """Refuse invalid names and quantities."""
        check_stem(self.name)
        registry.check_choice("quantity", self.quantity, list(self.QUANTITIES))
        for name in self.norms:
            registry.check_choice("norms", name, list(structured.NAMES))

    def draw(self, drawing: Drawing) -> list[Path]:
        """Draw one cell on a sheet of its own."""
        label = LABELS.get(self.quantity, r"true $\varepsilon$ (claimed: 1)")
        cross = Cross(self.title, AXES[self.quantity], self.lines())
        path = drawing.path(self.name)
        with house_style():
            return save_crosses([cross], path, self.about, label, (4.4, 3.0))

    def lines(self) -> dict[str, Scaling]:
        """Return the numbers by label."""
        found: dict[str, Callable[[int], float]] = {}
        if self.quantity == "width":
            found = {name: partial(structured.width, name) for name in self.norms}
        elif self.quantity == "output":
            printed = structured.printed_output_epsilon
            ours = structured.ridge_output_epsilon
            found["printed"] = printed
            found["four times the printed"] = partial(printed, factor=4.0)
            found["ours, with a ridge"] = partial(ours, ridge=RIDGE)
        elif self.quantity == "selection":
            exact = structured.selection_epsilon
            found = {k: partial(exact, noise=k) for k in structured.NOISES}
        else:
            most = max(self.values)
            for rule in structured.STEPS:
                gaps = structured.dual_gaps(self.norms[0], rule, most)
                found[f"step {rule}"] = partial(_least, gaps)
        return {label: self.line(value) for label, value in found.items()}

    def line(self, value: Callable[[int], float]) -> Scaling:
        """Return a line through the values of a function."""
        ends = tuple(np.array([value(one)]) for one in self.values)
        return Scaling(np.array(self.values, np.float64), ends)


def _least(gaps: Array, steps: int) -> float:
    """Return the least gap of so many steps, at least one of rounding."""
    return max(float(gaps[:steps].min()), 1e-16)
