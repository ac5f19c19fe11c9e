"""Operation counts of an iteration; `experiment.lines` turns them into time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from dp_erm_bench.solvers.terms import ERM

PRODUCTS = 2
"""Products with the features in a full gradient: the margins, then the sum."""


class StepWork(NamedTuple):
    """Average numbers of operations of one iteration of one trial.

    No field counts the trials that run in lock-step: how much they share follows from
    the kind of operation.

    Attributes
    ----------
    calls : float
        Steps in Python, each for all trials of a batch at once; 0 if they are compiled.
    products : float
        Stored entries of the features that products for all trials at once read.
    walked : float
        Stored entries of the features that a compiled loop reads for a single trial.
    records : float
        Records that a compiled loop looks up one by one.
    rows : float
        Derivatives of the loss.
    draws : float
        Random numbers.
    features : float
        Entries of the iterate that elementwise operations (prox, scores) process.
    """

    calls: float = 0.0
    products: float = 0.0
    walked: float = 0.0
    records: float = 0.0
    rows: float = 0.0
    draws: float = 0.0
    features: float = 0.0

    def times(self, factor: float) -> StepWork:
        """Return the operations, multiplied by a factor."""
        return StepWork(*(factor * count for count in self))

    def plus(self, other: StepWork) -> StepWork:
        """Return the operations of both together."""
        return StepWork(*(a + b for a, b in zip(self, other, strict=True)))


def usual_step(solver: Any, problem: Any) -> StepWork:
    """Return the operations of a step in Python, derived from the solver's passes.

    Parameters
    ----------
    solver : Solver
        Its ``iterations`` and ``passes_at`` are called.
    problem : Problem
        The problem on which it runs.
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
    # Norms, factors and their product are passes over the records, too.
    return StepWork(products=PRODUCTS * problem.entries, rows=3 * problem.n)


EIGEN, COLUMNS = 0.4, 0.2
"""Passes over p features in an eigenvalue problem, divided by p^2; products with the
features per column of X'X."""


def matrix_work(problem: ERM) -> StepWork:
    """Return the operations of a noisy sum of outer products and its eigenvalues."""
    n, p = problem.n, problem.p
    size = p * (p + 1) / 2
    step = StepWork(calls=1.0, draws=size, features=EIGEN * p**3 + 10.0 * size)
    if problem.dataset.sparse:
        return step._replace(walked=problem.entries**2 / (2.0 * n))
    return step._replace(products=COLUMNS * p * problem.entries)
