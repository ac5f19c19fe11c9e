"""Bounds on derivatives and steps, projections, and what every class must declare."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dp_erm_bench.constraints.base import UNCOMPILED
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.releases.base import Release
from dp_erm_bench.solvers.base import Array, Indices, Solver
from dp_erm_bench.solvers.terms import ERM

CLIPPING = "a clipping threshold (parameter clip), or "
NO_BOUND = (
    "declared bounds (dataset.bounds, with dataset.clip_to_bounds=true where records "
    "exceed them) and a loss of bounded derivative (squared loss: a box or a "
    "constraint, and a bound of the label)"
)


def refuse_unbounded(solver: Solver, releases: Sequence[Release]) -> None:
    """Raise Unsupported if a release has no finite sensitivity."""
    for release in releases:
        if not np.isfinite(release.sensitivity).all():
            if solver.unbounded:
                raise Unsupported(solver.unbounded)
            either = CLIPPING if hasattr(solver, "clip") else ""
            raise Unsupported(f"{type(solver).__name__} needs {either}{NO_BOUND}")


def coordinate_bounds(problem: ERM, clip: Array | float | None) -> Array:
    """Return the bound on each record's derivative per coordinate, (1 or B, p).

    With a threshold C: C_j = C sqrt(M_j / sum_k M_k), so that the C_j are C
    together (Mangold et al., ICML 2022, section 5). Without: the Lipschitz
    constant L_j = G R_j from declared bounds, infinite where there are none.
    Zero where M_j is: such a coordinate is never updated.
    """
    M = np.atleast_2d(problem.smoothness.columns)
    if clip is None:
        declared = np.broadcast_to(_declared(problem), M.shape)
        return np.multiply(
            problem.lipschitz, declared, out=np.zeros(M.shape), where=M > 0.0
        )
    total = M.sum(axis=-1, keepdims=True)
    return np.asarray(clip * np.sqrt(M / np.where(total > 0.0, total, 1.0)))


def _declared(problem: ERM) -> Array:
    bounds = problem.dataset.bounds
    columns = np.full(problem.p, np.inf) if bounds is None else bounds.columns
    return np.atleast_2d(columns)


def norm_bound(problem: ERM, clip: Array | float | None) -> Array:
    """Return the bound on the norm of each record's gradient, (1 or B, 1).

    The clipping threshold, or without one G R_2 from declared bounds.
    """
    if clip is not None:
        return np.atleast_2d(clip)
    bounds = problem.dataset.bounds
    norm = np.inf if bounds is None else bounds.norm
    return np.atleast_2d(problem.lipschitz * norm)


def entry_bounds(problem: ERM, clip: Array | float | None) -> Array:
    """Return the bound on each entry of a record's gradient, (1 or B, p).

    With a threshold C: C for all entries, which suits sets of the L1 norm. Without:
    L_j = G R_j from declared bounds.
    """
    if clip is None:
        return np.asarray(problem.lipschitz * _declared(problem))
    return np.asarray(np.broadcast_to(clip, (np.size(clip), problem.p)))


def take(values: Array, coordinates: Indices) -> Array:
    """Return entry j_b of each row, shape (B,)."""
    return np.take_along_axis(values, coordinates[:, None], axis=1)[:, 0]


def inverse(M: Array) -> Array:
    """Return 1 / M, 0 where M is 0: such a coordinate is never updated."""
    return np.divide(1.0, M, out=np.zeros_like(M), where=M > 0.0)


def step_unit(problem: ERM, bound: Array) -> Array:
    """Return 1 / beta; of a loss without curvature, 1 / the bound of a gradient's norm.

    Where there is no such bound either (at epsilon = inf alone) it is the root mean
    square of the norms at zero, from the data.
    """
    if problem.loss.curved:
        return inverse(np.atleast_2d(problem.smoothness.norm))
    finite = np.isfinite(bound).all()
    return inverse(bound if finite else np.full_like(bound, problem.gradient_rms))


def convexity_refusal(problem: ERM, solver: str) -> str | None:
    """Return the reason why no proof holds for the penalty, None if one may."""
    if problem.penalty.convex:
        return None
    return (
        f"penalty={problem.penalty.name}: whether its function is submodular cannot be "
        f"checked, and the privacy of {solver} rests on a convex penalty; use gd or "
        "dual_frank_wolfe, or a table of values"
    )


def projection_refusal(
    problem: ERM, solver: str, *, compiled: bool = False
) -> str | None:
    """Return the reason why prox and projection make no step, None if they do.

    Projecting after the prox of l2 is the prox of both: over a convex set the sum
    norm2(u - v)^2 / 2 + step l2 norm2(u)^2 / 2 is, but for a constant, a multiple of
    norm2(u - v / (1 + step l2))^2.
    """
    constraint, penalty = problem.constraint, problem.penalty
    if compiled and constraint.code == UNCOMPILED:
        return (
            f"constraint={constraint.name}: {solver} has no compiled projection on it; "
            "use frank_wolfe or gd"
        )
    if not constraint.bounded or penalty.quadratic:
        return None
    return (
        f"constraint={constraint.name} with penalty={penalty.name}: {solver} has no "
        "step for both at once; use penalty none or l2"
    )


KINDS = ("shape", "value")
MUTABLE = (list, dict, set, bytearray, np.ndarray)


def complaint(solver: Any) -> str | None:
    """Return the first requirement that a solver's class misses, None if it has all."""
    return next(_complaints(solver), None)


def _complaints(solver: Any) -> Iterator[str]:
    if not (isinstance(solver, type) and issubclass(solver, Solver)):
        yield f"{solver} is no subclass of Solver"
        return
    name = solver.__name__
    if "__dataclass_params__" not in vars(solver):
        yield f"{name} must be a dataclass; write @dataclass(frozen=True) above it"
    missing = sorted(getattr(solver, "__abstractmethods__", ()))
    if missing:
        yield f"{name} lacks {', '.join(missing)}"
    if "References" not in (inspect.getdoc(solver) or ""):
        yield f"{name} needs a docstring with a section References"
    for field in dataclasses.fields(solver):
        if field.metadata.get("kind") not in KINDS or not field.metadata.get("help"):
            yield (
                f"parameter {field.name} of {name} must be made by shape(...) or "
                "value(...), with help"
            )
    for key, member in vars(solver).items():
        ours = key in vars(Solver) or key.startswith("__")
        if isinstance(member, MUTABLE) and not ours:
            yield (
                f"{name}.{key} is a {type(member).__name__}, which runs could change; "
                "a solver holds parameters only"
            )
    for check, reason in solver.exempt.items():
        if not isinstance(reason, str) or len(reason.split()) < 3:
            yield f"{name}.exempt[{check!r}] must give a reason in words"
