"""The sparsest vector that fits a noisy random sketch of the mean."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.kernels.lengths import norm2
from dp_erm_bench.problems.base import BaseOracle
from dp_erm_bench.problems.mean import MeanEstimation
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.base import Mechanisms
from dp_erm_bench.releases.sketched_gaussian import SketchedGaussian
from dp_erm_bench.solvers.base import Array, Releases, shape
from dp_erm_bench.solvers.mean_noise import MeanSolver
from dp_erm_bench.solvers.work import StepWork

FEWEST = 10
"""Smallest number of rows of a sketch, unless ``rows`` is given."""


@dataclass(frozen=True)
class MeanSketch(MeanSolver):
    """Gaussian l1-recovery: compressed sensing of the mean.

    The mechanism publishes a random m x p matrix A and b = A mean + noise. The answer
    is the vector z of smallest l1 norm with A z = b, found by linear programming. If
    norm2(z) is above 2 L, where L is the bound on the norm of a record, the answer is
    0.

    References
    ----------
    Ghazi, Guzman, Kamath, Kumar, Manurangsi, "Differentially private optimization with
    sparse gradients", NeurIPS 2024, Algorithm 2.
    """

    batchable: ClassVar[bool] = False
    worst_cases: ClassVar[tuple[Mapping[str, Any], ...]] = ({"rows": 1},)
    exempt: ClassVar[Mapping[str, str]] = {
        "found.x is None": "we know no linear programme on which HiGHS fails; the "
        "answer is computed from published values only"
    }

    rows: int | None = shape(
        None,
        least=1,
        help="m, the number of rows of the sketch; null: computed from factor",
    )
    factor: float = shape(
        0.05,
        above=0.0,
        help="m divided by n sqrt(s log(p / s)) for records with s nonzero entries; in "
        "the paper, c epsilon / sqrt(log(1 / delta))",
    )

    def sketch_length(self, problem: MeanEstimation) -> int:
        """Return the number of rows m of the sketch.

        The number is ``rows`` if given. Otherwise it is computed from ``factor`` and is
        at least 10.
        """
        if self.rows is not None:
            return self.rows
        sparsity = problem.nonzeros * math.log(max(problem.p / problem.nonzeros, 2.0))
        return max(FEWEST, round(self.factor * problem.n * math.sqrt(sparsity)))

    def unsupported_reason(self, problem: MeanEstimation) -> str | None:
        """Return the reason why a sketch is too long for the vector, or None.

        As in the paper, p >= m log(m)^2 is needed. If ``rows`` is given, p > m
        suffices.
        """
        rows = self.sketch_length(problem)
        rule, least = "p > m for m rows", rows + 1
        if self.rows is None:
            least = math.ceil(rows * math.log(rows) ** 2)
            rule = "p >= m log(m)^2 for m rows"
        if problem.p < least:
            return (
                f"rows={rows}: a sketch needs {rule}, so at least {least} coordinates, "
                f"but there are {problem.p}; use mean_noise"
            )
        return None

    def step_work(self, problem: MeanEstimation) -> StepWork:
        """Return the work of drawing random numbers and solving a linear programme."""
        size = self.sketch_length(problem) * problem.p
        return StepWork(calls=1.0, draws=size, features=2000.0 * size)

    def releases(
        self, problem: MeanEstimation, adjacency: Adjacency, schedule: Any
    ) -> Releases:
        """Yield the release of the sketched mean.

        Parameters
        ----------
        problem : MeanEstimation
            The records and their bounds.
        adjacency : Adjacency
            The relation between neighbouring datasets.
        schedule : object
            The result of `plan`; not used.
        """
        change = adjacency.of_mean(problem.radius, problem.n)
        yield SketchedGaussian("sketch", change, 1, rows=self.sketch_length(problem))

    def answer(
        self, oracle: BaseOracle, mechanisms: Mechanisms, schedule: Any
    ) -> Array:
        """Return the answer: the vector recovered from the sketch, shape (1, p).

        Parameters
        ----------
        oracle : BaseOracle
            The iterates of B trials, and their problem.
        mechanisms : Mechanisms
            The declared releases with their noise, by name.
        schedule : object
            The result of `plan`; not used.
        """
        problem = oracle.problem
        (published,) = mechanisms["sketch"](problem.mean[None, :])
        found = basis_pursuit(published[:, :-1], published[:, -1])
        near = norm2(found) <= 2.0 * problem.radius
        return (found if near else np.zeros(problem.p))[None, :]


def basis_pursuit(A: Array, b: Array) -> Array:
    """Return a vector z of smallest norm1 with A z = b, or zeros if none is found.

    Parameters
    ----------
    A : array of shape (m, p)
        The sketch matrix.
    b : array of shape (m,)
        The sketch.

    References
    ----------
    Chen, Donoho, Saunders, "Atomic decomposition by basis pursuit", SIAM Review 2001;
    solved by HiGHS (Huangfu, Hall, 2018).
    """
    # Imported here because the import is slow.
    from scipy.optimize import linprog

    size = float(np.abs(b).max()) or 1.0  # the solver's tolerances are absolute
    both = np.hstack([A, -A])
    found = linprog(np.ones(both.shape[1]), A_eq=both, b_eq=b / size, method="highs")
    if found.x is None:
        return np.zeros(A.shape[1])
    plus, minus = np.split(np.asarray(found.x), 2)
    return np.asarray(size * (plus - minus))
