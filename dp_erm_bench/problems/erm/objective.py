"""The objective: a dataset, a loss, a penalty and a constraint."""

import math
import sys
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from dp_erm_bench.constraints.base import Constraint
from dp_erm_bench.datasets.base import Array, Bounds, Dataset, is_read_only, once
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.kernels.lengths import norm2, unscaled
from dp_erm_bench.losses.base import Loss
from dp_erm_bench.losses.squared import Squared
from dp_erm_bench.paths import digest
from dp_erm_bench.penalties.base import Penalty, SeparablePenalty, inseparable
from dp_erm_bench.plugins.names import origin
from dp_erm_bench.problems.erm.declared import check_intercept, check_loss, check_set
from dp_erm_bench.problems.erm.smoothness import (
    ReleasedSmoothness,
    Smoothness,
    clipped_squares,
    largest_entries,
    square_bounds,
)

BOUNDS = ("lipschitz", "record_smoothness", "smoothness", "square_bounds")
"""The members that sensitivities depend on."""

MOST_FEATURES = 4096
"""Above this many features X'X no longer pays (128 MB)."""


@dataclass(frozen=True, eq=False)
class ERM:
    """F(w) = (1/n) sum_i phi(x_i.w, y_i) + psi(w) over a convex set.

    Parameters
    ----------
    dataset, loss, penalty, constraint
        The parts.
    smoothness_kind : {'auto', 'public', 'data'}
        The source of the smoothness constants (:class:`Smoothness`).
    released : ReleasedSmoothness, optional
        Published constants, which replace them.

    Attributes
    ----------
    origin : ERM or None
        The problem that this is but for its smoothness constants. A copy with other
        parts (``dataclasses.replace``) has none.
    """

    kind: ClassVar[str] = "empirical risk minimisation"

    dataset: Dataset
    loss: Loss
    penalty: Penalty
    constraint: Constraint
    smoothness_kind: str = "auto"
    released: ReleasedSmoothness | None = None
    origin: Self | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse labels and sets that do not fit, and false declarations of parts."""
        # No solver runs on a loss that cannot be compiled.
        if self.loss.source and not self.loss.uncompiled:
            check_loss(self.loss)
        self.loss.check_labels(self.dataset.y)
        parts = (self.penalty, self.constraint)
        for part in parts:
            part.check_features(self.p)
            if origin(type(part)):
                check_set(part, self.p, self.dataset.bounds)
        if self.dataset.intercept:
            check_intercept(self.dataset.intercept, self.p, *parts)

    def __init_subclass__(cls) -> None:
        """Refuse constants that are not those of the parts."""
        own = sorted(set(BOUNDS) & set(vars(cls)))
        if own and not cls.__module__.startswith(f"{__package__}."):
            raise TypeError(
                f"{cls.__name__}: {own[0]} follows from the loss and the domain; for "
                "another kind of problem derive from problems.base.Problem"
            )

    @property
    def n(self) -> int:
        """Return the number of records."""
        return self.dataset.n

    @property
    def p(self) -> int:
        """Return the number of features."""
        return self.dataset.p

    @property
    def entries(self) -> int:
        """Return the number of stored entries of the features."""
        return int(self.dataset.X.size)

    def by_moments(self, clipped: bool) -> bool:
        """Return whether gradients follow from X'X: least squares need no records."""
        small = self.p <= min(self.n, MOST_FEATURES)
        squared = isinstance(self.loss, Squared)
        return squared and small and not clipped and not self.dataset.sparse

    @property
    def fixed(self) -> bool:
        """Return whether neither the records nor the parts can be changed in place."""
        records = self.dataset.X, self.dataset.y
        parts = self.loss, self.penalty, self.constraint
        kinds = (getattr(type(one), "__dataclass_params__", None) for one in parts)
        frozen = (kind is not None and kind.frozen for kind in kinds)
        return all(map(is_read_only, records)) and all(frozen)

    @cached_property
    def key(self) -> str:
        """Return the digest of the content and the objective."""
        contents = [self.loss.source["content"]] if self.loss.source else []
        # Arrays of a user's part as they are: numpy shortens long ones, and digits.
        with np.printoptions(threshold=sys.maxsize, floatmode="unique"):
            parts = [*map(repr, (self.loss, self.penalty, self.constraint))]
        return digest([self.dataset.content_hash, *parts, *contents])

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

    def with_smoothness(self, kind: str) -> Self:
        """Return the same problem with smoothness constants of another origin."""
        return self._with_constants(kind, None)

    def with_released(self, constants: ReleasedSmoothness) -> Self:
        """Return the same problem with published smoothness constants."""
        return self._with_constants(constants.kind, constants)

    def _with_constants(self, kind: str, released: ReleasedSmoothness | None) -> Self:
        copy = replace(self, smoothness_kind=kind, released=released)
        origin = self if self.origin is None else self.origin
        object.__setattr__(copy, "origin", origin)
        return copy

    def value(self, w: Array) -> Any:
        """Return F(w): a number for shape (p,), shape (B,) for (B, p)."""
        w = np.asarray(w, dtype=np.float64)
        losses = self.loss.value(self.dataset.y, w @ self.dataset.X.T)
        return losses.mean(axis=-1) + self.penalty.value(w)

    def gradient(self, w: Array) -> Array:
        """Return the gradient of the mean loss (without penalty) at w, (p,)."""
        residual = self.loss.derivative(self.dataset.y, self.dataset.X @ w)
        return np.asarray(self.dataset.X.T @ residual) / self.n

    def start(self, batch: int) -> Array:
        """Return the point of the constraint that is nearest to zero, (B, p).

        Bounds on derivatives hold only in the constraint.
        """
        return self.constraint.project(np.zeros((batch, self.p)))

    def square_bounds(self, source: str) -> tuple[Array, str]:
        """Return b_j, and where they come from (:func:`released.square_bounds`)."""
        return square_bounds(self.dataset, self.loss, source)

    def clipped_squares(self, bounds: Array) -> Array:
        """Return mean_i min(H x_ij^2, b_j), shape (p,)."""
        return clipped_squares(self.dataset, self.loss, bounds)

    def largest_records(self) -> tuple[Array, float]:
        """Return max_i |x_ij|, shape (p,), and max_i norm2(x_i), from the data."""
        entries = once(self.dataset, largest_entries)
        return entries, float(self.dataset.row_norms.max())

    def hessian(self, w: Array) -> Array:
        """Return the Hessian of the sum (not the mean) of the losses at w, (p, p)."""
        X, y = self.dataset.X, self.dataset.y
        curvature = self.loss.second_derivative(y, X @ w)
        return np.asarray(X.T @ (X * curvature[:, None]))

    @property
    def record_smoothness(self) -> float:
        """Return H R_2^2, a bound on a record's curvature; 0 if none is declared."""
        bounds = self.dataset.bounds
        return self.loss.smoothness * bounds.norm**2 if bounds else 0.0

    @cached_property
    def gradient_rms(self) -> float:
        """Return rms_i norm2(grad loss_i(0)), the unit of clipping thresholds.

        It is computed from the data: using it is tuning, and uncharged.
        """
        y, lengths = self.dataset.y, self.dataset.row_norms
        slopes = self.loss.derivative(y, np.zeros_like(y))
        with np.errstate(over="ignore", under="ignore"):
            rms = np.sqrt(np.mean(np.square(slopes) * np.square(lengths)))
            sizes = np.abs(slopes) * lengths
        if not unscaled(rms):
            finite = np.where(np.isfinite(sizes), sizes, 0.0)
            rms = norm2(finite / math.sqrt(y.size))
        return float(rms)


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
