"""Bounds on gradients and sensitivities, and checks of problems and classes."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dp_erm_bench.constraints.base import UNCOMPILED, project_on_kernel
from dp_erm_bench.constraints.sets import L1Ball
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.kernels.lengths import USUAL, are_usual
from dp_erm_bench.releases.base import Release
from dp_erm_bench.solvers.base import Array, Indices, Solver
from dp_erm_bench.solvers.terms import ERM, Adjacency

CLIPPING = "a clipping threshold (parameter clip), or "
NO_BOUND = (
    "declared bounds (dataset.bounds; set dataset.clip_to_bounds=true if records "
    "exceed them) and a loss with a bounded derivative (for the squared loss, use a "
    "box or a constraint, and declare dataset.bounds.label)"
)

ZEROS = "a column of zeros makes X'X singular, so runs without noise are refused"
"""Reason why solvers of linear systems are exempt from the check on zero columns."""


def refuse_unbounded(solver: Solver, releases: Sequence[Release], problem: Any) -> None:
    """Raise Unsupported if a release has no finite sensitivity.

    Parameters
    ----------
    solver : Solver
        The solver, named in the message.
    releases : sequence of Release
        The releases that the solver declares.
    problem : Problem
        The problem, for advice in the message.
    """
    for release in releases:
        if not np.isfinite(release.sensitivity).all():
            if solver.unbounded_reason:
                raise Unsupported(solver.unbounded_reason)
            name, clips = type(solver).__name__, hasattr(solver, "clip")
            loss = getattr(problem, "loss", None)
            if loss and problem.dataset.bounds is not None and not clips:
                raise Unsupported(
                    f"loss={loss.name}: {name} needs a loss with a bounded derivative; "
                    "use loss=huber, or bound the margins with a constraint such as "
                    "l2_ball (for the squared loss, declare dataset.bounds.label, too)"
                )
            raise Unsupported(f"{name} needs {CLIPPING * clips}{NO_BOUND}")


def coordinate_bounds(problem: ERM, clip: Array | float | None) -> Array:
    """Return the bound on a record's derivative in each coordinate, shape (1 or B, p).

    With a clipping threshold C, the bound is C_j = C sqrt(M_j / sum_k M_k), where M_j
    is the smoothness constant of coordinate j. The vector of all C_j then has norm2 C
    (Mangold et al., ICML 2022, section 5). Without a threshold, the bound is the
    Lipschitz constant L_j = G R_j from declared bounds, or infinite if none are
    declared. It is 0 if M_j is 0, because such a coordinate is never updated.
    """
    M = np.atleast_2d(problem.smoothness.columns)
    if clip is None:
        declared = np.broadcast_to(_has_declared_bounds(problem), M.shape)
        return np.multiply(
            problem.lipschitz, declared, out=np.zeros(M.shape), where=M > 0.0
        )
    total = M.sum(axis=-1, keepdims=True)
    return np.asarray(clip * np.sqrt(M / np.where(total > 0.0, total, 1.0)))


def _has_declared_bounds(problem: ERM) -> Array:
    bounds = problem.dataset.bounds
    columns = np.full(problem.p, np.inf) if bounds is None else bounds.columns
    return np.atleast_2d(columns)


def norm_bound(problem: ERM, clip: Array | float | None) -> Array:
    """Return the bound on the norm of each record's gradient, shape (1 or B, 1).

    The bound is the clipping threshold. If there is none, it is the Lipschitz constant
    of the loss times the declared bound on the norm of a record.
    """
    if clip is not None:
        return np.atleast_2d(clip)
    bounds = problem.dataset.bounds
    norm = np.inf if bounds is None else bounds.norm
    return np.atleast_2d(problem.lipschitz * norm)


def mean_radius(problem: ERM, clip: Array | float | None) -> Array:
    """Return a radius such that the l1 ball contains all mean gradients.

    The result has the shape (1 or B, 1).

    The radius is sqrt(s) C, where s is the declared number of non-zeros, or p if none
    is declared. A gradient is a multiple of its record. So it has at most s non-zero
    entries, and after clipping a norm of at most C (``norm_bound``). The sum over a
    Poisson sample, divided by the expected size, may lie outside the ball.
    """
    bounds = problem.dataset.bounds
    entries = getattr(bounds, "nonzeros", None) or problem.p
    return math.sqrt(entries) * norm_bound(problem, clip)


def projected_means(noisy: Array, radius: Array | float) -> Array:
    """Return noisy means, shape (B, p), projected on l1 balls of given radii.

    The balls are public, so the projection costs no privacy. If the ball contains the
    exact mean, the projected mean is at least as close to it as the noisy mean is.
    However, the projection is biased towards 0. Infinite radii change nothing.

    References
    ----------
    Ghazi, Guzman, Kamath, Kumar, Manurangsi, "Differentially private optimization with
    sparse gradients", NeurIPS 2024, Algorithm 1.
    """
    radii = np.broadcast_to(radius, (len(noisy), 1))[:, 0].tolist()
    rows = zip(radii, noisy, strict=True)
    return np.stack([project_on_kernel((L1Ball.code, r), row) for r, row in rows])


def record_bound(problem: ERM) -> float:
    """Return the declared bound R on norm2(x_i), or infinity if there is none."""
    bounds = problem.dataset.bounds
    return math.inf if bounds is None else bounds.norm


def label_bound(problem: ERM) -> float:
    """Return the declared bound Y on |y_i|, or infinity if there is none.

    The bound is 1 for classification, because labels are then -1 and +1.
    """
    if problem.loss.classification:
        return 1.0
    bounds = problem.dataset.bounds
    declared = None if bounds is None else bounds.label
    return math.inf if declared is None else declared


def column_bounds(problem: ERM) -> Array:
    """Return the declared bounds R_j on |x_ij|, or infinity, shape (p,)."""
    return np.array(np.broadcast_to(_has_declared_bounds(problem)[0], problem.p))


def bounds_refusal(
    problem: ERM, solver: Solver, *, label: bool = False, weight: float = 1.0
) -> str | None:
    """Return the reason why a sum of outer products has no finite sensitivity, or None.

    A clipping threshold on gradients does not bound such a sum.

    Parameters
    ----------
    problem : ERM
        The problem with its declared bounds.
    solver : Solver
        The solver, named in the message.
    label : bool
        Whether X'y must also have a finite sensitivity.
    weight : float
        Upper limit A of the weights of the sum's terms, which are in [0, A].
    """
    name, data = type(solver).__name__, f"dataset {problem.dataset.name}"
    if not math.isfinite(record_bound(problem)):
        clips = hasattr(solver, "clip")
        why = "a clipping threshold does not bound" if clips else "nothing else bounds"
        return (
            f"{name} needs declared bounds (dataset.bounds; set "
            f"dataset.clip_to_bounds=true if records exceed them), because {why} X'X; "
            f"{data} declares none"
        )
    if label and not math.isfinite(label_bound(problem)):
        return (
            f"{name} needs a bound of the label (dataset.bounds.label), because "
            f"nothing else bounds X'y; {data} declares none"
        )
    bounds = {
        "norm": record_bound(problem),
        "norm times sqrt(smoothness of the loss)": _root_of_bound(problem, weight),
        "label": label_bound(problem) if label else 0.0,
    }
    least, most = USUAL
    for key, bound in bounds.items():
        if bound and not are_usual(bound):
            return (
                f"{name} squares the declared bounds of {data}: {key}={bound:g} must "
                f"be 0, or between {least:g} and {most:g}; use other units, for "
                "example with dataset.scale=bounds"
            )
    return None


def _root_of_bound(problem: ERM, weight: float) -> float:
    """Return sqrt(A) R, the square root of the bound A R^2 on norm_F(q xx')."""
    return math.sqrt(weight) * record_bound(problem)


def outer_change(
    problem: ERM,
    adjacency: Adjacency,
    weight: float = 1.0,
    *,
    signed: bool = False,
    sampled: bool = False,
) -> float:
    """Return the sensitivity of sum_i q_i x_i x_i' in Frobenius norm, 0 <= q_i <= A.

    A record's term q xx' is positive semidefinite, and its Frobenius norm q norm2(x)^2
    is at most A R^2. So the sum changes by at most A R^2 under ``zero_out`` and by at
    most sqrt(2) A R^2 under ``replace_one`` (see `Adjacency.of_sum` for proofs).
    Orthogonal records of norm R and weight A reach the second bound. For p = 1 no
    records are orthogonal: terms are numbers in [0, A R^2], which differ by at most
    A R^2. With weights in [-A, A] (``signed``), the same x may have opposite weights in
    both datasets, so the sensitivity is 2 A R^2 under ``replace_one``. Over a secret
    Poisson sample (``sampled``), a record's term must be at most half of the
    sensitivity. So the sensitivity is 2 A R^2 here as well.

    The vector into which `pack_symmetric` packs the sum S has the same sensitivity,
    because its length is the norm of the matrix: norm_F(S)^2 = sum_j
    S_jj^2 + 2 sum_{j<k} S_jk^2.

    Parameters
    ----------
    problem : ERM
        The problem with its declared bound R. The result is infinite if R is not
        declared, or if R^2 or A R^2 may overflow in the sum or lose digits. A bound
        that underflows to 0 would give no noise, although the sum may change.
    adjacency : Adjacency
        The relation between neighbouring datasets.
    weight : float
        Upper limit A > 0 of the weights.
    signed : bool
        Whether weights are in [-A, A].
    sampled : bool
        Whether the sum is over a secret Poisson sample.
    """
    R = record_bound(problem)
    usual = R == 0.0 or (are_usual(R) and are_usual(_root_of_bound(problem, weight)))
    bound = weight * R**2 if usual else math.inf
    if signed or sampled:
        return adjacency.of_sum(bound)
    if problem.p == 1:
        return adjacency.of_sum(bound, signed=False)
    return adjacency.of_sum(bound, positive=True)


def moments_change(problem: ERM, adjacency: Adjacency, a: float, b: float) -> float:
    """Return the sensitivity of one vector that contains packed X'X and X'y.

    The vector is (u X'X, v X'y) with weights u, v such that a = u R^2 and b = v R Y
    bound the terms of a record. Under ``zero_out`` its sensitivity is sqrt(a^2 + b^2).
    Under ``replace_one`` let (x, y) become (z, r), and let t = x.z. The square of the
    change is

        u^2 (|x|^4 + |z|^4 - 2 t^2) + v^2 (y^2 |x|^2 + r^2 |z|^2 - 2 y r t).

    The second part is a convex function of (y, r), because t^2 <= |x|^2 |z|^2. So it is
    largest at labels of size Y with y r t <= 0. Then the square grows with |x| and with
    |z| for a given t, so |x| = |z| = R, and t = c R^2 with c in [0, 1] up to a sign:

        2 a^2 (1 - c^2) + 2 b^2 (1 + c).

    This is largest at c = b^2 / (2 a^2) if this c is <= 1. The sensitivity is the
    square root of

        2 a^2 + 2 b^2 + b^4 / (2 a^2)  for b^2 <= 2 a^2,   4 b^2  otherwise.

    For p >= 2, two records at the angle arccos(c) with opposite labels reach this
    sensitivity. Two separate releases with the same noise would cost 2 a^2 + 4 b^2. At
    a = b = 1 this is 6 instead of 4.5. For p = 1, the square above is an upper bound,
    and so is a^2 + 4 b^2. A record's own term may be more than half of the sensitivity,
    so a release over a Poisson sample does not accept this sensitivity.

    Parameters
    ----------
    problem : ERM
        The problem with its number of features p.
    adjacency : Adjacency
        The relation between neighbouring datasets.
    a, b : float
        Bounds on a record's weighted terms.
    """
    if adjacency is Adjacency.ZERO_OUT:
        return math.hypot(a, b)
    if b * b <= 2.0 * a * a:
        square = 2.0 * a * a + 2.0 * b * b + (b * b / a) ** 2 / 2.0 if a else 0.0
    else:
        square = 4.0 * b * b
    if problem.p == 1:
        square = min(square, a * a + 4.0 * b * b)
    # `of_sum` multiplies by sqrt(2). The result bounds the change of the sum only.
    return adjacency.of_sum(math.sqrt(square / 2.0), positive=True)


def entry_bounds(problem: ERM, clip: Array | float | None) -> Array:
    """Return the bound on each entry of a record's gradient, shape (1 or B, p).

    With a clipping threshold C, the bound is C for every entry, which suits constraints
    in the L1 norm. Without a threshold, it is L_j = G R_j from declared bounds.
    """
    if clip is None:
        return np.asarray(problem.lipschitz * _has_declared_bounds(problem))
    return np.asarray(np.broadcast_to(clip, (np.size(clip), problem.p)))


def take_entries(values: Array, coordinates: Indices) -> Array:
    """Return the entry of each row b at its coordinate j_b, shape (B,)."""
    return np.take_along_axis(values, coordinates[:, None], axis=1)[:, 0]


def inverse(M: Array) -> Array:
    """Return 1 / M, or 0 where M is 0, because such a coordinate is never updated."""
    return np.divide(1.0, M, out=np.zeros_like(M), where=M > 0.0)


def step_unit(problem: ERM, bound: Array) -> Array:
    """Return the unit in which step sizes are given.

    The unit is 1 / beta for a loss with curvature, and otherwise 1 over a bound on a
    gradient's norm. If there is no such bound (only at epsilon = inf), the root mean
    square of the gradients' norms at w = 0 replaces it. This number is computed from
    the data.
    """
    if problem.loss.is_curved:
        return inverse(np.atleast_2d(problem.smoothness.norm))
    finite = np.isfinite(bound).all()
    return inverse(bound if finite else np.full_like(bound, problem.gradient_rms))


def convexity_refusal(problem: ERM, solver: str) -> str | None:
    """Return the reason why a penalty that may not be convex is refused, or None."""
    if problem.penalty.convex:
        return None
    return (
        f"penalty={problem.penalty.name}: we cannot check whether its function is "
        f"submodular, but the privacy proof of {solver} needs a convex penalty; use gd "
        "or dual_frank_wolfe, or give a table of values"
    )


def projection_refusal(
    problem: ERM, solver: str, *, compiled: bool = False
) -> str | None:
    """Return the reason why prox and projection cannot form one step, or None.

    For an l2 penalty, the prox followed by the projection is the prox of both. Over a
    convex set, norm2(u - v)^2 / 2 + step l2 norm2(u)^2 / 2 is, up to a constant, a
    multiple of norm2(u - v / (1 + step l2))^2.

    Parameters
    ----------
    problem : ERM
        The problem with its constraint and penalty.
    solver : str
        Name of the solver, for the message.
    compiled : bool
        Whether the solver needs a compiled projection.
    """
    constraint, penalty = problem.constraint, problem.penalty
    if compiled and constraint.code == UNCOMPILED:
        return (
            f"constraint={constraint.name}: {solver} has no compiled projection onto "
            "this set; use frank_wolfe or gd"
        )
    if not constraint.bounded or penalty.quadratic:
        return None
    return (
        f"constraint={constraint.name} with penalty={penalty.name}: {solver} cannot "
        "combine a projection and this penalty in one step; use penalty none or l2"
    )


KINDS = ("shape", "value")
MUTABLE = (list, dict, set, bytearray, np.ndarray)


def complaint_of_solver(solver: Any) -> str | None:
    """Return the first error in the definition of a solver class, or None."""
    return next(_complaints_of(solver), None)


RENAMED = {
    "unsupported": "unsupported_reason",
    "unbounded": "unbounded_reason",
    "printed": "printed_constant",
}
"""Current names of methods, by old names that no longer have an effect."""


def _complaints_of(solver: Any) -> Iterator[str]:
    if not (isinstance(solver, type) and issubclass(solver, Solver)):
        yield f"{solver} is not a subclass of Solver"
        return
    name = solver.__name__
    if "__dataclass_params__" not in vars(solver):
        yield f"{name} must be a dataclass; write @dataclass(frozen=True) above it"
    missing = sorted(getattr(solver, "__abstractmethods__", ()))
    if missing:
        yield f"{name} lacks {', '.join(missing)}"
    if "References" not in (inspect.getdoc(solver) or ""):
        yield f"{name} needs a docstring with a section References"
    fields = {field.name for field in dataclasses.fields(solver)}
    for field in dataclasses.fields(solver):
        if field.metadata.get("kind") not in KINDS or not field.metadata.get("help"):
            yield (
                f"parameter {field.name} of {name} must be made by shape(...) or "
                "value(...), with a help text"
            )
    for old in sorted(RENAMED.keys() & vars(solver).keys() - fields):
        yield f"{name}.{old} is now called {RENAMED[old]}"
    for key, member in vars(solver).items():
        ours = key in vars(Solver) or key.startswith("__")
        if isinstance(member, MUTABLE) and not ours:
            yield (
                f"{name}.{key} is a {type(member).__name__}, which runs could change; "
                "a solver may hold only parameters"
            )
    for check, reason in solver.exempt.items():
        if not isinstance(reason, str) or len(reason.split()) < 3:
            yield f"{name}.exempt[{check!r}] must give a reason in words"
