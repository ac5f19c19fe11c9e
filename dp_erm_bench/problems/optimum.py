"""The reference optimum of a problem, with a certificate, cached on disk."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dp_erm_bench.constraints.whole_space import WholeSpace
from dp_erm_bench.datasets.base import Array
from dp_erm_bench.paths import load_json, save_json
from dp_erm_bench.problems.optimum_gap import duality_gap
from dp_erm_bench.problems.optimum_smooth import minimise_free, minimise_ridge
from dp_erm_bench.problems.optimum_sparse import minimise_sparse

if TYPE_CHECKING:
    from dp_erm_bench.problems.problem import Problem

TOLERANCE = 1e-9
NEGLIGIBLE = 1e-9
# Part of what is cached: raise it when a problem that had no optimum gets one.
FORMAT = 1


@dataclass(frozen=True, eq=False)
class Optimum:
    """The minimum of a problem, or the reason why none is certified.

    Parameters
    ----------
    value : float or None
        F(w); None where no certificate exists.
    w : array of shape (p,) or None
        A minimiser.
    gap : float or None
        Certified bound on (F(w) - min F) / F(w), at most 1e-9.
    reason : str
        Empty when certified.
    """

    value: float | None
    w: Array | None
    gap: float | None
    reason: str = ""


def certified_optimum(problem: Problem) -> Optimum:
    """Return the certified minimum of a problem, from the cache if it is there.

    The certificate does not rest on any solver's tolerance: with a penalty it is
    the relative duality gap at the point returned; without one it is half the
    squared Newton decrement, on a well-conditioned Hessian only.
    """
    found = _read(load_json("optimum", problem.key), problem)
    if found is None:
        found = compute_optimum(problem)
        save_json("optimum", problem.key, _written(found))
    return found


def compute_optimum(problem: Problem) -> Optimum:
    """Return the certified minimum, computed anew."""
    unsupported = _unsupported(problem)
    if unsupported:
        return _none(unsupported)
    at_zero = float(problem.value(np.zeros(problem.p)))
    w, gap, reason = _minimise(problem)
    value = float(problem.value(w))
    if value <= NEGLIGIBLE * at_zero or value == 0.0:
        return _none("the minimum is close to 0, a relative error has no meaning")
    if reason:
        return _none(reason)
    if not gap <= TOLERANCE * value:
        return _none(f"no certificate: the relative gap reached is {gap / value:.1e}")
    w.flags.writeable = False
    return Optimum(value, w, gap / value)


def _unsupported(problem: Problem) -> str:
    penalty = problem.penalty
    if not isinstance(problem.constraint, WholeSpace):
        return f"no reference solver for constraint {problem.constraint.name}"
    if math.isfinite(penalty.lower) or math.isfinite(penalty.upper):
        return f"no reference solver for the box of penalty {penalty.name}"
    return ""


def _minimise(problem: Problem) -> tuple[Array, float, str]:
    """Return w, a bound on F(w) - min F, and why this bound cannot be trusted."""
    X, y, loss = problem.dataset.X, problem.dataset.y, problem.loss
    l1, l2 = problem.penalty.l1, problem.penalty.l2
    if l1 == 0.0 and l2 == 0.0:
        return minimise_free(X, y, loss)
    if l1 == 0.0:
        w = minimise_ridge(X, y, loss, l2)
    else:
        w = minimise_sparse(X, y, loss, l1, l2)
    return w, duality_gap(X, y, loss, l1, l2, w), ""


def _none(reason: str) -> Optimum:
    return Optimum(None, None, None, reason)


def _written(optimum: Optimum) -> dict[str, Any]:
    w = None if optimum.w is None else optimum.w.tolist()
    return {
        "format": FORMAT,
        "value": optimum.value,
        "w": w,
        "gap": optimum.gap,
        "reason": optimum.reason,
    }


def _read(record: Any, problem: Problem) -> Optimum | None:
    """Return the cached optimum, unless it is damaged or of another format."""
    try:
        if record["format"] != FORMAT:
            return None
        if record["w"] is None:
            return _none(str(record["reason"])) if record["reason"] else None
        w = np.array(record["w"], dtype=np.float64)
        value, gap = float(record["value"]), float(record["gap"])
    except (TypeError, KeyError, ValueError):
        return None
    if w.shape != (problem.p,) or not math.isclose(
        problem.value(w), value, rel_tol=1e-10
    ):
        return None
    w.flags.writeable = False
    return Optimum(value, w, gap)
