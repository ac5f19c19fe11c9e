"""Empirical risk minimisation, as the harness asks for it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dp_erm_bench.constraints.norm_ball import NormBall
from dp_erm_bench.datasets.base import Array, Uncharged
from dp_erm_bench.datasets.spec import FRESH, identifying
from dp_erm_bench.kernels.lengths import norm2
from dp_erm_bench.paths import digest, entering, fields_of, later_defaults
from dp_erm_bench.penalties.structured import StructuredPenalty
from dp_erm_bench.problems.base import Optimum, Problem
from dp_erm_bench.problems.erm.held_out import (
    held_out,
    lacking,
    ranking,
    references,
)
from dp_erm_bench.problems.erm.model import LinearModel, categories, feature_names
from dp_erm_bench.problems.erm.objective import ERM
from dp_erm_bench.problems.erm.optimum.certified import certified_optimum
from dp_erm_bench.problems.erm.population import Population, population_of
from dp_erm_bench.registry import OBJECTIVE, POPULATION

if TYPE_CHECKING:
    from dp_erm_bench.problems.erm.oracle import Oracle

SILENT = (
    *("_target_", "usual", "usual_standardised", "usual_regression", "path"),
    FRESH,
)
"""Keys of a dataset's yaml that its content or the objective already tell.

By how many fresh records a model is judged moves no draw of its run.
"""


@dataclass(frozen=True, eq=False)
class ERMProblem(ERM, Problem):
    """An objective with its certified optimum, its oracles and its facts."""

    @property
    def spec(self) -> dict[str, Any]:
        """Return the part of a trial's spec that describes the problem.

        `dataset` as ``Dataset.spec``; `loss`, `penalty`, `constraint` by name, with
        all their parameters; of a loss from outside the package also its source.
        """
        return {
            "dataset": self.dataset.spec,
            **{part: _described(getattr(self, part)) for part in OBJECTIVE},
            "loss": {**_described(self.loss), **self.loss.source},
        }

    @cached_property
    def identity(self) -> str:
        """Return the digest of the dataset's content, its spec and the objective."""
        own = identifying(self.dataset.spec)
        keys = {k: v for k, v in own.items() if k not in SILENT}
        parts = {
            part: entering(described, later_defaults(getattr(self, part)))
            for part, described in self.spec.items()
            if part != "dataset"
        }
        # Its content tells a file, not its place.
        parts["loss"].pop("file", None)
        return digest([self.dataset.content_hash, keys, parts])

    @property
    def title(self) -> str:
        """Return the names of the loss, the penalty and the constraint."""
        names = (getattr(self, part).name for part in OBJECTIVE)
        return " + ".join(name for name in names if name != "none")

    @cached_property
    def optimum(self) -> Optimum:
        """Return the reference optimum with its certificate, cached on disk.

        Smoothness constants do not move it: a problem with others asks its origin, so
        that it is found once for all batches and fits.
        """
        if self.population is not None and self.population.exact:
            return Optimum(reason="runs are judged by their population risk alone")
        origin = self.origin
        if origin is not None and self.fixed and origin.key == self.key:
            return origin.optimum
        return certified_optimum(self)

    def uncharged(self, constants: bool) -> tuple[Uncharged, ...]:
        """Return the uncharged uses of the records by the dataset and the constants."""
        used = self.smoothness.uncharged if constants else ()
        return (*self.dataset.uncharged, *used)

    def contains(self, w: Array) -> Any:
        """Return whether points are in the constraint, (..., p) to (...)."""
        return self.constraint.contains(w)

    def oracle(self, batch: int, *, clipped: bool = True) -> Oracle:
        """Return the oracle that serves the problem best, see `Problem.oracle`."""
        # Not at the top: who plans trials need not wait for numba.
        from dp_erm_bench.problems.erm import oracles

        if self.dataset.sparse:
            return oracles.SparseOracle(self, batch)
        if self.by_moments(clipped):
            return oracles.GramOracle(self, batch)
        return oracles.DenseOracle(self, batch)

    def facts(self) -> dict[str, Any]:
        """Return the names of the parts, and the strength of the penalty."""
        return {
            "loss": self.loss.name,
            "penalty": self.penalty.name,
            "strength": getattr(self.penalty, "strength", 0.0),
            "constraint": self.constraint.name,
            "smoothness": self.smoothness.kind,
        }

    def measures(self, w: Array) -> dict[str, Array]:
        """Return what the test set and the population say, if there are any.

        See `held_out`, `Population.measures` and `structure`. Where the loss is not
        convex also `gradient_norm`, norm2(w - v) for the point v that a step of length
        1 along the gradient, the prox and the projection lead to: of the gradient
        itself without penalty and constraint, 0 where w is stationary.
        """
        said = held_out(self, w)
        if self.population is not None:
            said |= self.population.measures(w)
        said |= self.structure(w)
        if not self.loss.convex:
            ahead = w - np.stack([self.gradient(row) for row in w])
            moved = self.constraint.project(self.penalty.prox(ahead, 1.0))
            said["gradient_norm"] = norm2(w - moved, axis=-1)
        return said

    def structure(self, w: Array) -> dict[str, Array]:
        """Return what is to be said of the zeros of points, (B, p) to (B,) each.

        `support_f1` where the true weights are known, 2 |S and T| / (|S| + |T|) for the
        coordinates S, T that are not 0 in w and in them, 1 where there are none; and
        what the norm of the penalty or the ball says (`SubmodularNorm.structure`).
        """
        said: dict[str, Array] = {}
        if self.dataset.w_true is not None:
            found, true = w != 0.0, self.dataset.w_true != 0.0
            both = np.count_nonzero(found & true, axis=1)
            sizes = np.count_nonzero(found, axis=1) + np.count_nonzero(true)
            said["support_f1"] = np.where(sizes, 2.0 * both / np.maximum(sizes, 1), 1.0)
        if isinstance(self.penalty, StructuredPenalty):
            said |= self.penalty.norm.structure(w)
        if isinstance(self.constraint, NormBall):
            said |= self.constraint.omega.structure(w)
        return said

    @cached_property
    def population(self) -> Population | None:
        """Return what fresh records say, None without ``dataset.n_fresh``."""
        return population_of(self)

    def last_measures(self, w: Array) -> dict[str, Array]:
        """Return the AUC on the test set, if there is one, see `ranking`."""
        return ranking(self, w)

    def model(self, w: Array) -> LinearModel:
        """Return what a point predicts for records, shape (p,)."""
        data, classification = self.dataset, self.loss.classification
        named = feature_names(data), data.intercept, categories(data)
        return LinearModel(w, classification, *named)

    @cached_property
    def references(self) -> dict[str, dict[str, float]]:
        """Return what the test set says of the optimum and the base rate.

        A problem with other smoothness constants asks its origin, as for the optimum.
        """
        origin = self.origin
        if origin is not None and self.fixed and origin.key == self.key:
            return origin.references
        return references(self, self.optimum.w)

    def lacking(self, quantity: str) -> str:
        """Return why trials cannot be judged by a quantity, see `Problem.lacking`."""
        if quantity in POPULATION:
            return "" if self.population else "the dataset has no n_fresh"
        return lacking(self, quantity)


def _described(part: Any) -> dict[str, Any]:
    return {"name": part.name, **fields_of(part)}
