"""Population risk: what fresh records, or their law, say of a model.

The risk is the expected loss, without the penalty. Nothing here is a private output: it
reads records that no mechanism reads, or their law.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.datasets.base import Array, Features
from dp_erm_bench.datasets.prepare import dataset_from_arrays
from dp_erm_bench.datasets.spec import FRESH, LAW
from dp_erm_bench.datasets.synthetic import LAWS, MedianLaw
from dp_erm_bench.errors import UsageError
from dp_erm_bench.penalties.none import NoPenalty
from dp_erm_bench.registry import POPULATION

STREAM = 0x5EED
"""Beside the dataset's seed, that of its fresh records."""


class Population(ABC):
    """The risk of models of a problem over its population, or a fresh sample of it.

    Attributes
    ----------
    exact : bool
        Whether it is an expectation, not the mean over a sample.
    """

    exact: ClassVar[bool]

    @abstractmethod
    def risk(self, w: Array) -> Array:
        """Return the risks of points, (B, p) to (B,)."""

    @property
    @abstractmethod
    def optimum(self) -> float:
        """Return the least risk over the constraint; nan where none is certified."""

    def excess(self, w: Array) -> Array:
        """Return the risks above the least one, (B, p) to (B,)."""
        return self.risk(w) - self.optimum

    def measures(self, w: Array) -> dict[str, Array]:
        """Return the columns `POPULATION` for points, (B, p) to (B,) each."""
        least = np.full(len(w), self.optimum)
        values = (self.risk(w), least, self.excess(w))
        return dict(zip(POPULATION, values, strict=True))


@dataclasses.dataclass(frozen=True, eq=False)
class MedianPopulation(Population):
    """The expected absolute loss under the law of median_regression.

    It depends on w by norm2(w - w*) alone and grows with it: over a convex set it is
    least at the projection of w*.
    """

    problem: Any
    law: MedianLaw
    exact: ClassVar[bool] = True

    def risk(self, w: Array) -> Array:
        """Return E|y - x.w|, (B, p) to (B,)."""
        return self.law.noise + self.law.excess_absolute(w)

    @cached_property
    def _lost(self) -> float:
        """Return the excess of the nearest point of the constraint over w*."""
        nearest = self.problem.constraint.project(self.law.w[None])
        return float(self.law.excess_absolute(nearest)[0])

    @property
    def optimum(self) -> float:
        """Return the risk of the projection of w* on the constraint."""
        return self.law.noise + self._lost

    def excess(self, w: Array) -> Array:
        """Return the excess without subtracting risks that are nearly equal."""
        return self.law.excess_absolute(w) - self._lost


@dataclasses.dataclass(frozen=True, eq=False)
class FreshSample(Population):
    """The mean loss over records that no mechanism reads.

    The least one is that of the sample, as far as it is certified: it is at most the
    population's on average, so that an excess is rather too large.
    """

    problem: Any
    X: Features
    y: Array
    exact: ClassVar[bool] = False

    def risk(self, w: Array) -> Array:
        """Return the mean losses, (B, p) to (B,)."""
        losses: Any = self.problem.loss.value(self.y, w @ self.X.T)
        return np.asarray(losses.mean(axis=1))

    @cached_property
    def optimum(self) -> float:
        """Return the least mean loss over the constraint, nan if none is certified."""
        data = dataset_from_arrays(self.X, self.y)
        judged = dataclasses.replace(self.problem, dataset=data, penalty=NoPenalty())
        least = judged.optimum.value
        return math.nan if least is None else least


def population_of(problem: Any) -> Population | None:
    """Return what fresh records say of a problem, None without ``dataset.n_fresh``.

    They are drawn from the law of the dataset where that is known, else they are the
    first of the held-out part.

    Raises
    ------
    UsageError
        If the held-out part is smaller, or the law gives no expectation of the loss.
    """
    data = problem.dataset
    fresh = data.spec.get(FRESH)
    if fresh is None:
        return None
    generator = str(data.spec.get("_target_", "")).rpartition(".")[2]
    if generator in LAWS and data.w_true is not None:
        law = LAWS[generator](data.w_true, float(data.spec["noise"]))
        if fresh != LAW:
            rng = np.random.default_rng([STREAM, int(data.spec["seed"])])
            return FreshSample(problem, *law.draw(rng, fresh))
        if problem.loss.name == "absolute":
            return MedianPopulation(problem, law)
    elif data.X_test is not None and data.y_test is not None and fresh != LAW:
        held = data.y_test.size
        if fresh > held:
            raise UsageError(
                f"dataset.{FRESH}={fresh}: must be at most {held}, held out"
            )
        X: Any = (
            data.X_test if isinstance(data.X_test, np.ndarray) else data.X_test.tocsr()
        )
        return FreshSample(problem, X[:fresh], data.y_test[:fresh])
    raise UsageError(
        f"dataset.{FRESH}={fresh}: the expectation of loss={problem.loss.name} under "
        f"{data.name} is not known; give a number of fresh records"
    )
