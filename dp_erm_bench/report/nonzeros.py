"""Non-zeros of records, hence of their gradients under a linear model, without runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array

from dp_erm_bench import registry
from dp_erm_bench.datasets.load import load_dataset
from dp_erm_bench.datasets.spec import dataset_spec
from dp_erm_bench.errors import DataUnavailable
from dp_erm_bench.report.caption import paragraphs
from dp_erm_bench.report.curves import Array
from dp_erm_bench.report.figure import Drawing, Figure, check_stem
from dp_erm_bench.report.layout import Sheet, save
from dp_erm_bench.report.style import house_style, of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHARES = np.linspace(0.0, 1.0, 201)


@dataclass(frozen=True)
class Nonzeros(Figure):
    """How many non-zeros the records of datasets have.

    Attributes
    ----------
    name, title : str
        Of the file; above the cell.
    datasets : tuple of str
        Names of datasets, or of sets of LIBSVM.
    about : str
        The caption.
    """

    name: str
    title: str
    datasets: tuple[str, ...]
    about: str = ""

    def __post_init__(self) -> None:
        """Refuse invalid names."""
        check_stem(self.name)

    def draw(self, drawing: Drawing) -> list[Path]:
        """Draw the shares of records with at most so many non-zeros.

        Data that cannot be had are named in the caption.
        """
        lines, missing = dict[str, Array](), list[str]()
        for name in self.datasets:
            try:
                counts, p = nonzeros(name)
            except DataUnavailable as why:
                missing.append(f"{name}: {why}")
            else:
                lines[f"{name} (p = {p})"] = counts
        if not lines:
            return []
        told = [
            f"{label}: median {np.median(counts):.0f}, most {counts.max():.0f}"
            for label, counts in lines.items()
        ]
        text = [self.about, f"{'; '.join(told)}."]
        text += [f"Not drawn: {'; '.join(missing)}."] if missing else []
        cell = partial(draw_shares, title=self.title, lines=lines)
        sheet = Sheet([cell], 1, paragraphs(*text), (4.4, 3.0), "share of records")
        with house_style():
            return save(sheet, drawing.path(self.name))


def nonzeros(name: str) -> tuple[Array, int]:
    """Return the non-zeros of each record of a dataset, and p.

    Raises
    ------
    DataUnavailable
        If the data cannot be had here.
    """
    own = name in registry.names("dataset")
    spec = dataset_spec(name) if own else dataset_spec("libsvm", set=name)
    X = load_dataset({**spec, "test_fraction": 0.0}).X
    return np.diff(csr_array(X).indptr).astype(np.float64), int(X.shape[1])


def draw_shares(ax: Axes, title: str, lines: dict[str, Array]) -> None:
    """Draw the share of records with at most so many non-zeros, a line a dataset."""
    for label, counts in lines.items():
        at = np.quantile(np.maximum(counts, 1.0), SHARES)
        ax.plot(at, SHARES, label=label, color=of(label).colour)
    ax.set_title(title)
    ax.set_xlabel("non-zeros of a record")
    ax.set_xscale("log")
    ax.set_ylim(0.0, 1.0)
