"""Operation counts of an iteration, which `experiment.lines` converts into time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from dp_erm_bench.solvers.terms import ERM

PRODUCTS = 2
"""Number of products with the features in a full gradient: margins, and their sum."""


class StepWork(NamedTuple):
    """Average numbers of operations of one iteration of one trial.

    All numbers are per trial, also if several trials run in lock-step. The kind of an
    operation determines how much of the operation these trials share.

    Attributes
    ----------
    calls : float
        Number of steps in Python, each for all trials of a batch; 0 for compiled steps.
    products : float
        Number of stored feature entries read by products for all trials at once.
    walked : float
        Number of stored feature entries read by a compiled loop for a single trial.
    records : float
        Number of records that a compiled loop looks up one by one.
    rows : float
        Number of derivatives of the loss.
    draws : float
        Number of random numbers.
    features : float
        Number of iterate entries processed elementwise (prox, scores).
    """

    calls: float = 0.0
    products: float = 0.0
    walked: float = 0.0
    records: float = 0.0
    rows: float = 0.0
    draws: float = 0.0
    features: float = 0.0

    def times(self, factor: float) -> StepWork:
        """Return the operation counts, multiplied by a factor."""
        return StepWork(*(factor * count for count in self))

    def plus(self, other: StepWork) -> StepWork:
        """Return the sums of both operation counts."""
        return StepWork(*(a + b for a, b in zip(self, other, strict=True)))


def usual_step(solver: Any, problem: Any) -> StepWork:
    """Return the operation counts of a step in Python, estimated from the passes.

    Parameters
    ----------
    solver : Solver
        The solver, whose ``iterations`` and ``passes_at`` are called.
    problem : Problem
        The problem on which the solver runs.
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
    """Return the operation counts of a sum of all gradients, clipped in norm2."""
    if problem.by_moments(clips):
        return StepWork(products=problem.p**2)
    # Norms, factors and their product are passes over the records, too.
    return StepWork(products=PRODUCTS * problem.entries, rows=3 * problem.n)


EIGEN, COLUMNS = 0.4, 0.2
"""Number of passes over p features in an eigenvalue problem, divided by p^2, and number
of products with the features per column of X'X."""


def matrix_work(problem: ERM) -> StepWork:
    """Return operation counts of a noisy sum of outer products and its eigenvalues."""
    n, p = problem.n, problem.p
    size = p * (p + 1) / 2
    step = StepWork(calls=1.0, draws=size, features=EIGEN * p**3 + 10.0 * size)
    if problem.dataset.sparse:
        return step._replace(walked=problem.entries**2 / (2.0 * n))
    return step._replace(products=COLUMNS * p * problem.entries)
