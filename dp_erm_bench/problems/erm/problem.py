"""The objective: a dataset, a loss, a penalty and a constraint."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from dp_erm_bench.constraints.base import Constraint
from dp_erm_bench.datasets.base import Array, Bounds, Dataset
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.losses.base import Loss
from dp_erm_bench.paths import digest, fields_of
from dp_erm_bench.penalties.base import Penalty, SeparablePenalty, inseparable
from dp_erm_bench.problems.erm.optimum import Optimum, certified_optimum
from dp_erm_bench.problems.erm.released import ReleasedSmoothness
from dp_erm_bench.problems.erm.smoothness import Smoothness


@dataclass(frozen=True, eq=False)
class Problem:
    """F(w) = (1/n) sum_i phi(x_i.w, y_i) + psi(w) over a convex set.

    Knows nothing of privacy or of solvers.

    Parameters
    ----------
    dataset, loss, penalty, constraint
        The parts.
    smoothness_kind : {'auto', 'public', 'data'}
        Where the smoothness constants come from (:class:`Smoothness`).
    released : ReleasedSmoothness, optional
        Published constants, which replace them.
    """

    dataset: Dataset
    loss: Loss
    penalty: Penalty
    constraint: Constraint
    smoothness_kind: str = "auto"
    released: ReleasedSmoothness | None = None

    def __post_init__(self) -> None:
        """Refuse labels outside the loss's domain, and sets of another space."""
        self.loss.check_labels(self.dataset.y)
        self.penalty.check_features(self.dataset.p)
        self.constraint.check_features(self.dataset.p)

    @property
    def n(self) -> int:
        """Return the number of records."""
        return self.dataset.n

    @property
    def p(self) -> int:
        """Return the number of features."""
        return self.dataset.p

    @cached_property
    def key(self) -> str:
        """Return the digest of the content and the objective."""
        objective = [self.loss, self.penalty, self.constraint]
        return digest([self.dataset.content_hash, *map(repr, objective)])

    @property
    def spec(self) -> dict[str, Any]:
        """Return what a trial's spec says of the problem.

        `dataset` as ``Dataset.spec``; `loss`, `penalty`, `constraint` by name, with
        all their parameters.
        """
        parts = ("loss", "penalty", "constraint")
        return {
            "dataset": self.dataset.spec,
            **{part: _described(getattr(self, part)) for part in parts},
        }

    @property
    def separable(self) -> SeparablePenalty:
        """Return the penalty, for whoever takes its four numbers.

        Raises
        ------
        Unsupported
            If it is not separable.
        """
        if not isinstance(self.penalty, SeparablePenalty):
            raise Unsupported(inseparable(self.penalty))
        return self.penalty

    @cached_property
    def lipschitz(self) -> float:
        """Return a bound on |phi'(x.w, y)| over the domain of w; infinite if none."""
        parts = (self.loss, self.penalty, self.constraint)
        return lipschitz_constant(*parts, self.dataset.bounds)

    @cached_property
    def smoothness(self) -> Smoothness | ReleasedSmoothness:
        """Return the smoothness constants of the data term."""
        if self.released is not None:
            return self.released
        return Smoothness(self.smoothness_kind, self.dataset, self.loss)

    def with_smoothness(self, kind: str) -> "Problem":
        """Return the same problem with smoothness constants of another origin."""
        return replace(self, smoothness_kind=kind, released=None)

    def with_released(self, constants: ReleasedSmoothness) -> "Problem":
        """Return the same problem with published smoothness constants."""
        return replace(self, smoothness_kind=constants.kind, released=constants)

    def value(self, w: Array) -> Any:
        """Return F(w): a number for shape (p,), shape (B,) for (B, p)."""
        w = np.asarray(w, dtype=np.float64)
        return self.value_of_margins(w, w @ self.dataset.X.T)

    def value_of_margins(self, w: Array, margins: Array) -> Any:
        """Return F(w) given the margins X w, shape (n,) or (B, n)."""
        losses = self.loss.value(self.dataset.y, margins)
        return losses.mean(axis=-1) + self.penalty.value(w)

    def gradient(self, w: Array) -> Array:
        """Return the gradient of the mean loss (without penalty) at w, (p,)."""
        residual = self.loss.derivative(self.dataset.y, self.dataset.X @ w)
        return np.asarray(self.dataset.X.T @ residual) / self.n

    @cached_property
    def optimum(self) -> Optimum:
        """Return the reference optimum with its certificate, cached on disk."""
        return certified_optimum(self)

    @cached_property
    def gradient_rms(self) -> float:
        """Return rms_i norm2(grad loss_i(0)), the unit of clipping thresholds.

        It is computed from the data: using it is tuning, and uncharged.
        """
        y = self.dataset.y
        squares = np.square(self.loss.derivative(y, np.zeros_like(y)))
        return float(np.sqrt(np.mean(squares * np.square(self.dataset.row_norms))))


def lipschitz_constant(
    loss: Loss, penalty: Penalty, constraint: Constraint, bounds: Bounds | None
) -> float:
    """Return a bound on |phi'(x.w, y)| over the domain of w.

    The loss's own constant where it is finite. Otherwise, for records within the
    declared bounds: with |x.w| <= Z over the domain and |y| <= Y that of the
    squared loss is Z + Y. Infinite where the domain is unbounded, or where no
    bounds, or none of the label, are declared. Nothing here is computed from the
    data.

    Parameters
    ----------
    loss : Loss
    penalty : Penalty
        The points where it is finite are a part of the domain.
    constraint : Constraint
    bounds : Bounds or None
    """
    if math.isfinite(loss.lipschitz) or bounds is None or bounds.label is None:
        return loss.lipschitz
    margin = min(
        constraint.largest_margin(bounds.columns, bounds.norm),
        penalty.largest_margin(bounds.columns, bounds.norm),
    )
    return loss.lipschitz_within(margin, bounds.label)


def _described(part: Any) -> dict[str, Any]:
    return {"name": part.name, **fields_of(part)}
