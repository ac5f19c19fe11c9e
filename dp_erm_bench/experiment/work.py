"""The work of a trial: its operations by what each takes, nothing for what is refused.

Batches depend on it, and must be the same on every machine: the rates are constants,
measured once by `python -m benchmarks rates`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from dp_erm_bench.errors import Unsupported, UsageError, number

if TYPE_CHECKING:
    from dp_erm_bench.experiment.parameters import Algorithm
    from dp_erm_bench.solvers.work import StepWork

SECOND = 1e8
"""Work that takes about a second."""

NANOSECOND = 1e-9 * SECOND
PACKAGE = "dp_erm_bench"

Rate = tuple[float, float]
"""Nanoseconds of an operation: once in a batch, and more for each of its trials."""

DENSE: Mapping[str, Rate] = {
    "calls": (20_000.0, 1_600.0),
    "products": (0.15, 0.1),
    "walked": (0.0, 0.35),
    "records": (0.0, 25.0),
    "rows": (0.0, 0.9),
    "draws": (0.0, 2.5),
    "features": (0.0, 4.0),
}
SPARSE: Mapping[str, Rate] = {
    **DENSE,
    "products": (1.0, 0.45),
    "walked": (0.0, 5.0),
    "records": (0.0, 100.0),
}
"""What an operation takes, by the fields of `StepWork`: a matrix that is dense, sparse.

In lock-step a matrix is read once for several trials, a sparse one for four or two.
"""

ITERATION: Rate = (0.0, 60.0)
CHECKPOINT: Rate = (50_000.0, 8_000.0)
FIT: Rate = (3e6, 6e5)
"""An iteration, a row of the trajectory and a fit, whatever they compute."""


class Work(NamedTuple):
    """What the trials of a batch cost; 1e8 is about a second.

    Attributes
    ----------
    own : float
        Of each trial.
    shared : float
        Of all trials of a batch together.
    """

    own: float = 0.0
    shared: float = 0.0

    def batch(self, size: int) -> float:
        """Return that of a batch of so many trials."""
        return self.shared + size * self.own


def work_of(
    algorithm: Algorithm,
    params: Mapping[str, Any],
    problem: Any,
    budget: Mapping[str, Any],
    calibration: str,
    rows: int,
) -> Work:
    """Return the work of a trial; none if the algorithm is known to refuse it.

    Parameters
    ----------
    algorithm : Algorithm
    params : mapping
        As `normalised` types them.
    problem : Problem
    budget : mapping
        `epsilon`, `delta`, `adjacency`.
    calibration : str
        A name of conf/calibration.
    rows : int
        Checkpoints.

    Raises
    ------
    UsageError
        If the iterations cannot be counted.
    """
    solver = algorithm.solver(params)
    if refusal(algorithm, params, problem, budget, calibration):
        return Work()
    try:
        iterations = int(solver.iterations(problem))
        step = solver.step_work(problem).times(iterations)
    except Unsupported:
        return Work()
    except OverflowError:
        raise UsageError(
            f"algorithm.{algorithm.name}: asks for more iterations than can be counted"
        ) from None
    except (AttributeError, TypeError, ValueError) as error:
        what = f"{type(error).__name__}: {error}"
        raise UsageError(f"algorithm.{algorithm.name}: step_work: {what}") from None
    if not all(0.0 <= number(count) < math.inf for count in step):
        rule = "must return a StepWork of finite numbers >= 0"
        raise UsageError(f"algorithm.{algorithm.name}: step_work={step}: {rule}")
    return _seconds(problem, step, iterations, min(rows, iterations + 1))


def _seconds(problem: Any, step: StepWork, iterations: int, rows: int) -> Work:
    """Return the work of a fit whose operations and checkpoints are counted."""
    # The objective of each row, from the margins anew.
    seen = (problem.entries, problem.n, problem.p)
    parts = [FIT, _times(ITERATION, iterations), _times(CHECKPOINT, rows)]
    rates = DENSE if problem.entries == problem.n * problem.p else SPARSE
    for name, count in step._asdict().items():
        parts.append(_times(rates[name], count))
    for name, count in zip(("products", "rows", "features"), seen, strict=True):
        parts.append(_times(rates[name], count * rows))
    shared, own = map(sum, zip(*parts, strict=True))
    return Work(own=own * NANOSECOND, shared=shared * NANOSECOND)


def _times(rate: Rate, count: float) -> Rate:
    return rate[0] * count, rate[1] * count


def refusal(
    algorithm: Algorithm,
    params: Mapping[str, Any],
    problem: Any,
    budget: Mapping[str, Any],
    calibration: str,
) -> str:
    """Return why an algorithm refuses a problem before it is calibrated, or nothing.

    What one's own solver refuses and declares is asked in its trials only.
    """
    if not algorithm.cls.__module__.startswith(f"{PACKAGE}."):
        return ""
    solver = algorithm.solver(params)
    try:
        return _refusal(solver, problem, budget, calibration)
    except Unsupported as error:
        return str(error)
    except Exception:
        # What else is wrong is told by the trial.
        return ""


def _refusal(
    solver: Any, problem: Any, budget: Mapping[str, Any], calibration: str
) -> str:
    from dp_erm_bench.accounting.budget import Budget
    from dp_erm_bench.accounting.calibration import refuse_unreachable
    from dp_erm_bench.run import Run
    from dp_erm_bench.solvers.bounds import refuse_unbounded

    if calibration not in solver.calibrations:
        return f"calibration={calibration}: {type(solver).__name__} has none"
    if calibration == "paper":
        solver = solver.printed_form()
    if solver.smoothness in ("public", "data"):
        problem = problem.with_smoothness(solver.smoothness)
    reason: str | None = solver.refusal(problem)
    if reason is not None:
        return reason
    asked = Budget(**budget)
    needed = not solver.clips and math.isfinite(asked.epsilon)
    # A release of constants reads the data, which is not for whoever plans.
    if needed and solver.smoothness != "private":
        run = Run(problem, [solver], asked, 0.0)
        refuse_unbounded(run.solver, run.releases)
        laws = tuple(release.law() for release in run.releases)
        refuse_unreachable(laws, run.budget)
    return ""
