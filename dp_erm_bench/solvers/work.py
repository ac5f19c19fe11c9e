"""What an iteration of a solver does, counted; `experiment.lines` tells its time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from dp_erm_bench.solvers.terms import ERM

PRODUCTS = 2
"""Products with the features of a full gradient: the margins, then the sum."""


class StepWork(NamedTuple):
    """Operations of one iteration of one trial, on average.

    No field says how many trials run in lock-step: what they share is a property of
    the operation.

    Attributes
    ----------
    calls : float
        Steps in Python, one for all trials of a batch; 0 where they are compiled.
    products : float
        Stored entries of the features that products of all trials at once read.
    walked : float
        Stored entries that a compiled loop reads for one trial alone.
    records : float
        Records that a compiled loop looks up one by one.
    rows : float
        Derivatives of the loss.
    draws : float
        Random numbers.
    features : float
        Entries of the iterate that elementwise operations (prox, scores) pass over.
    """

    calls: float = 0.0
    products: float = 0.0
    walked: float = 0.0
    records: float = 0.0
    rows: float = 0.0
    draws: float = 0.0
    features: float = 0.0

    def times(self, factor: float) -> StepWork:
        """Return the operations of so many iterations."""
        return StepWork(*(factor * count for count in self))

    def plus(self, other: StepWork) -> StepWork:
        """Return the operations of both."""
        return StepWork(*(a + b for a, b in zip(self, other, strict=True)))


def usual_step(solver: Any, problem: Any) -> StepWork:
    """Return the operations of a step in Python that makes the passes it says.

    Parameters
    ----------
    solver : Solver
        Its ``iterations`` and ``passes_at`` are asked.
    problem : Problem
    """
    iterations = solver.iterations(problem)
    passes = solver.passes_at(problem, iterations) / max(iterations, 1)
    return StepWork(
        calls=1.0,
        products=PRODUCTS * passes * problem.entries,
        rows=passes * problem.n,
        draws=problem.p,
        features=problem.p,
    )


def full_gradient(problem: ERM, clips: bool) -> StepWork:
    """Return the operations of a sum of all records' gradients, clipped in l2."""
    if problem.by_moments(clips):
        return StepWork(products=problem.p**2)
    # Norms, factors and their product pass over the records, too.
    return StepWork(products=PRODUCTS * problem.entries, rows=3 * problem.n)


EIGEN, COLUMNS = 0.4, 0.2
"""Operations on p features of an eigenvalue problem, over p^2; products with the
features per column of X'X."""


def matrix_work(problem: ERM) -> StepWork:
    """Return the operations of a sum of outer products, its noise and eigenvalues."""
    n, p = problem.n, problem.p
    size = p * (p + 1) / 2
    step = StepWork(calls=1.0, draws=size, features=EIGEN * p**3 + 10.0 * size)
    if problem.dataset.sparse:
        return step._replace(walked=problem.entries**2 / (2.0 * n))
    return step._replace(products=COLUMNS * p * problem.entries)
