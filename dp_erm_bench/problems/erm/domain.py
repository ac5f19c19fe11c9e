"""What the domain of w and the declared bounds say about the derivatives."""

import math

from dp_erm_bench.constraints.base import Constraint
from dp_erm_bench.datasets.base import Bounds
from dp_erm_bench.losses.base import Loss
from dp_erm_bench.penalties.base import Penalty


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
        Its box is a part of the domain.
    constraint : Constraint
    bounds : Bounds or None
    """
    if math.isfinite(loss.lipschitz) or bounds is None or bounds.label is None:
        return loss.lipschitz
    margin = min(
        constraint.largest_margin(bounds.columns, bounds.norm),
        _largest_in_box(penalty, bounds),
    )
    return loss.lipschitz_within(margin, bounds.label)


def _largest_in_box(penalty: Penalty, bounds: Bounds) -> float:
    """Return a bound on |x.w| over the box: Hoelder, or Cauchy and Schwarz."""
    side = max(abs(penalty.lower), abs(penalty.upper))
    active = int((bounds.columns > 0.0).sum())
    factor = min(float(bounds.columns.sum()), math.sqrt(active) * bounds.norm)
    return side * factor if factor > 0.0 else 0.0
