"""Problems from a user's own arrays."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dp_erm_bench import registry
from dp_erm_bench.constraints.base import Constraint
from dp_erm_bench.datasets.base import Array, Bounds, Features, numbers
from dp_erm_bench.datasets.prepare import dataset_from_arrays
from dp_erm_bench.errors import UsageError
from dp_erm_bench.losses.base import Loss
from dp_erm_bench.penalties.base import Penalty
from dp_erm_bench.problems.erm.build import build_problem
from dp_erm_bench.problems.erm.problem import ERMProblem


def problem_from_arrays(
    X: ArrayLike | Features,
    y: ArrayLike,
    *,
    loss: str | Mapping[str, Any] | Loss,
    penalty: str | Mapping[str, Any] | Penalty = "none",
    strength: float | str | None = None,
    bounds: Mapping[str, Any] | ArrayLike | None = None,
    constraint: str | Mapping[str, Any] | Constraint = "none",
) -> ERMProblem:
    """Return the problem of a user's own data.

    Parameters
    ----------
    X : array or sparse matrix of shape (n, p)
        A sparse one stays sparse.
    y : array of shape (n,)
        Labels; -1 and +1 for classification.
    loss, penalty, constraint : str, mapping, or Loss, Penalty, Constraint
        Names of conf/, mappings with ``name`` and parameters, or objects of your own; a
        loss may be a file.
    strength : float or '1/n', optional
        The strength of the penalty, where that is not an object.
    bounds : mapping, float or array of shape (p,), optional
        Public bounds on a record, not computed from the data: ``columns`` (R_j,
        one number or p numbers), and optionally ``norm`` (R_2) and ``label``. What
        is no mapping bounds the columns.

    Raises
    ------
    UsageError
        For wrong shapes, values that are not finite, labels outside the domain of
        the loss, or a record outside the declared bounds.
    """
    declared = None if bounds is None else _bounds(bounds, np.shape(X)[-1])
    features = X if hasattr(X, "tocsc") else _floats("X", X)
    data = dataset_from_arrays(features, _floats("y", y), bounds=declared)
    if strength is not None:
        if isinstance(penalty, Penalty):
            raise UsageError(f"strength={strength}: give it to the penalty itself")
        named = {"name": penalty} if isinstance(penalty, str) else dict(penalty)
        penalty = {**named, "strength": strength}
    return build_problem(data, loss, penalty, constraint)


def _floats(key: str, values: Any) -> Array:
    return np.asarray(numbers(key, values), np.float64)


def _bounds(given: Mapping[str, Any] | ArrayLike, p: int) -> Bounds:
    given = given if isinstance(given, Mapping) else {"columns": given}
    for key in given:
        registry.check_choice("bounds", key, ["columns", "label", "norm"])
    columns = _bound("columns", given.get("columns"))
    if columns.shape not in ((), (p,)):
        raise UsageError(
            f"bounds.columns of shape {columns.shape}: must be one number or {p}"
        )
    columns = np.broadcast_to(columns, (p,))
    norm = _bound("norm", given.get("norm", np.linalg.norm(columns)))
    label = given.get("label")
    label = label if label is None else float(_bound("label", label))
    return Bounds(columns, float(norm), label)


def _bound(key: str, value: Any) -> Array:
    bound = _floats(f"bounds.{key}", np.nan if value is None else value)
    if not (np.isfinite(bound) & (bound >= 0.0)).all():
        raise UsageError(f"bounds.{key}={value}: must be finite and >= 0")
    return bound
