"""Bias of bias-reduced SGD's estimator, and steps of its printed runs, without runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from dp_erm_bench import registry
from dp_erm_bench.audit import bias_reduced
from dp_erm_bench.report.crosses import Cross, save_crosses
from dp_erm_bench.report.figure import Drawing, Figure, check_stem
from dp_erm_bench.report.scaling import Scaling
from dp_erm_bench.report.style import house_style


@dataclass(frozen=True)
class BiasReduced(Figure):
    """What single batches and the estimator are biased by, or steps against n.

    Attributes
    ----------
    name, title : str
        Of the file; above the cell.
    quantity : {'bias', 'steps'}
        Lengths of biases against the size of a batch; or steps of `seeds` runs to the
        printed end at epsilon = 1.
    values : tuple of int
        Sizes of batches, or of n, increasing.
    delta : float
    seeds : int
    least, most : tuple of float
        The paper's bounds on the expected steps at the values of n.
    about : str
        The caption.
    """

    QUANTITIES: ClassVar[tuple[str, ...]] = ("bias", "steps")

    name: str
    title: str
    quantity: str
    values: tuple[int, ...]
    delta: float = 1e-8
    seeds: int = 100
    least: tuple[float, ...] = ()
    most: tuple[float, ...] = ()
    about: str = ""

    def __post_init__(self) -> None:
        """Refuse invalid names and quantities."""
        check_stem(self.name)
        registry.check_choice("quantity", self.quantity, list(self.QUANTITIES))

    def draw(self, drawing: Drawing) -> list[Path]:
        """Draw one cell on a sheet of its own."""
        bias = self.quantity == "bias"
        cross = Cross(
            self.title, "records of a batch" if bias else "$n$", self.lines(bias)
        )
        label = "length of the bias" if bias else "steps"
        path = drawing.path(self.name)
        with house_style():
            return save_crosses([cross], path, self.about, label, (4.4, 3.0))

    def lines(self, bias: bool) -> dict[str, Scaling]:
        """Return the lines by label."""
        if not bias:
            drawn = [
                bias_reduced.stopping_times(n, 1.0, self.delta, self.seeds)
                for n in self.values
            ]
            bounds = {"lower bound of the mean": self.least}
            bounds |= {"upper bound of the mean": self.most}
            found = {"steps of a run": Scaling(self._x, tuple(drawn))}
            return found | {k: self._line(v) for k, v in bounds.items() if v}
        single = [bias_reduced.batch_bias(k) for k in self.values]
        length, limit = bias_reduced.estimator_bias()
        return {
            "a batch": self._line(single),
            "the estimator": self._line([length] * len(single)),
            "its upper 95 % limit": self._line([limit] * len(single)),
        }

    @property
    def _x(self) -> np.ndarray:
        return np.array(self.values, np.float64)

    def _line(self, values: list[float] | tuple[float, ...]) -> Scaling:
        return Scaling(self._x, tuple(np.array([value]) for value in values))
