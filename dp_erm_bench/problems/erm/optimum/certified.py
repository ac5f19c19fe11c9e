"""The reference optimum of a problem, with a certificate, cached on disk."""

import math

import numpy as np

from dp_erm_bench.cached import Cached, is_sealing, load_json, save_json
from dp_erm_bench.constraints.sets import WholeSpace
from dp_erm_bench.datasets.base import Array
from dp_erm_bench.penalties.base import SeparablePenalty
from dp_erm_bench.penalties.separable import NoPenalty
from dp_erm_bench.problems.base import Optimum
from dp_erm_bench.problems.erm.objective import ERM, squares_add_up

TOLERANCE = 1e-9
KINKED = 1e-6
"""Relative gap that certifies the minimum of a loss that is not smooth."""
NEGLIGIBLE = 1e-9
# Part of what is cached. Raise it when a problem without an optimum gets one.
FORMAT = 4


def certified_optimum(problem: ERM) -> Optimum:
    """Return the certified minimum of a problem, from the cache if it is there.

    The certificate does not depend on a solver's tolerance. With a penalty it is the
    relative duality gap at the point returned, and on a bounded set the Frank-Wolfe
    gap. Without penalty and set it is half the squared Newton decrement, but only if
    the Hessian is well conditioned. For a loss that is not smooth it is the gap of a
    smooth loss plus the difference of the two losses (``optimum.smooth``).

    Only the point is taken from the cache. Value and gap are computed at this point. If
    the gap is no certificate, the point is not used. An optimum written by a process of
    the same run is not checked again. The minimum of a linear loss on a bounded set is
    known and negative, so no error is relative to it.
    """
    if problem.loss.smoothness == 0.0 and problem.constraint.bounded:
        return _least_line(problem)
    read = load_json("optimum", problem.key)
    optimum = None if read is None else _read_optimum(read, problem)
    if optimum is None or (is_sealing() and read is not None and not read.vouched):
        optimum = optimum or compute_optimum(problem)
        w = None if optimum.w is None else optimum.w.tolist()
        save_json("optimum", problem.key, {"format": FORMAT, **vars(optimum), "w": w})
    return optimum


def compute_optimum(problem: ERM) -> Optimum:
    """Return the certified minimum without reading the cache."""
    unsupported = _unsupported_reason(problem)
    if not (unsupported or squares_add_up(problem.dataset.X)):
        unsupported = "no certificate: the squares of the features overflow"
    if unsupported:
        return Optimum(reason=unsupported)
    # Not at the top: scipy takes long to import, and most optima are cached.
    from dp_erm_bench.problems.erm.optimum import choice

    w = choice.minimise_by_choice(problem)
    gap, reason = choice.certified_gap(problem, w)
    at_zero, value = (float(problem.value(v)) for v in (np.zeros(problem.p), w))
    if value <= NEGLIGIBLE * at_zero or value == 0.0:
        reason = "the minimum is close to 0, so a relative error has no meaning"
    elif not reason and not gap <= _tolerance_of(problem) * value:
        reason = f"no certificate: the relative gap reached is {gap / value:.1e}"
    if reason:
        return Optimum(reason=reason)
    w.flags.writeable = False
    return Optimum(value, w, gap / value)


def _least_line(problem: ERM) -> Optimum:
    """Return the minimum of g.w over the set; g is the gradient of a linear loss."""
    if problem.penalty != NoPenalty():
        return Optimum(reason=_unsupported_reason(problem))
    w = problem.constraint.linear_minimiser(problem.gradient(np.zeros(problem.p)))
    w.flags.writeable = False
    return Optimum(float(problem.value(w)), w, 0.0)


def _tolerance_of(problem: ERM) -> float:
    return TOLERANCE if problem.loss.smooth else KINKED


def _unsupported_reason(problem: ERM) -> str:
    """Return the reason why no reference minimiser fits the problem, or empty."""
    penalty, free = problem.penalty, isinstance(problem.constraint, WholeSpace)
    separable = isinstance(penalty, SeparablePenalty)
    loss = problem.loss
    if not loss.convex or not (loss.smooth or loss.smooth_surrogate(1.0)):
        kind = "smooth" if loss.convex else "convex"
        return f"no certificate: loss {loss.name} is not {kind}"
    if not loss.smooth and free and penalty == NoPenalty():
        return (
            f"no certificate: loss {loss.name} is not smooth, and there is no penalty"
        )
    if loss.smoothness == 0.0:
        return f"loss {loss.name} has a negative minimum, so there is no relative error"
    if isinstance(penalty, SeparablePenalty):
        if penalty.has_box and not math.isfinite(penalty.upper - penalty.lower):
            return "no certificate for an unbounded box"
        if penalty.has_box and (penalty.l1 > 0.0 or not free):
            return (
                f"no reference solver for the box of penalty {penalty.name} with an L1 "
                "term or a constraint"
            )
    curved = penalty.strong_convexity > 0.0 and problem.constraint.explicit
    if free or (separable and penalty.quadratic and not curved):
        return ""
    return (
        f"no reference solver for penalty {penalty.name} over constraint "
        f"{problem.constraint.name}"
    )


def _read_optimum(read: Cached, problem: ERM) -> Optimum | None:
    """Return the cached optimum; None if it has another format or is not certified."""
    record = read.value
    if record.get("format") != FORMAT:
        return None
    if record.get("w") is None:
        reason = record.get("reason")
        return Optimum(reason=reason) if isinstance(reason, str) and reason else None
    try:
        w = np.array(record["w"], dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return None
    if w.shape != (problem.p,) or not np.isfinite(w).all():
        return None
    w.flags.writeable = False
    if read.vouched:
        return Optimum(record["value"], w, record["gap"])
    return _certify_optimum(problem, w)


def _certify_optimum(problem: ERM, w: Array) -> Optimum | None:
    """Return the optimum with the value and the gap at w; None if it is uncertified."""
    if _unsupported_reason(problem):
        return None
    from dp_erm_bench.problems.erm.optimum import choice

    with np.errstate(all="ignore"):
        value, (gap, doubt) = float(problem.value(w)), choice.certified_gap(problem, w)
    if doubt or not (0.0 < value < math.inf and gap <= _tolerance_of(problem) * value):
        return None
    return Optimum(value, w, gap / value)
