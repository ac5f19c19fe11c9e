"""Sufficient statistics perturbation: X'X and X'y once, then a linear system."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.problems.erm.second_order import (
    check_regular,
    eigen_decomposition,
    label_products,
    lift_eigenvalues,
    matrix_refusal,
    outer_products,
    unpack_symmetric,
)
from dp_erm_bench.releases.gaussian import divide_mu
from dp_erm_bench.solvers.base import Array, Limit, Releases, shape, value
from dp_erm_bench.solvers.bounds import (
    ZEROS,
    bounds_refusal,
    label_bound,
    moments_change,
    record_bound,
)
from dp_erm_bench.solvers.one_solve import SingleAnswer
from dp_erm_bench.solvers.terms import ERM, Adjacency, Gaussian, Mechanisms, Oracle
from dp_erm_bench.solvers.work import StepWork, matrix_work

THIRD = 1.0 / 3.0
"""Share of mu^2 for the smallest eigenvalue. Wang (2018) uses three equal parts."""
RHO = 0.05
"""Probability with which the adaptive ridge may be too small (Wang 2018)."""


@dataclass(frozen=True)
class SufficientStatistics(SingleAnswer):
    """Least squares from noisy X'X and X'y, which are published as one release.

    The squared loss is solved exactly. For the logistic loss, labels are -1 and +1. The
    parabola log 2 - m / 2 + c m^2 in the margin m replaces log(1 + e^-m), and the same
    two sums suffice. The minimiser of the parabola is not that of the loss.

    The release is the vector (sqrt(k) X'X / R^2, sqrt(1 - k) X'y / (R Y)) for the share
    k (`moments_change`). With noise of standard deviation s on X'X, the solution uses
    the noisy X'X with eigenvalues raised to at least 0, plus a ridge. The ridge is
    r s sqrt(p) for ridge=r, in units of the largest eigenvalue of the noise. Without
    noise there is no ridge. ridge=identity adds R^2 whatever the noise is, the largest
    contribution of a single record. This is the simple competitor in the experiments of
    Wang 2018, whose records have norm 1.

    ridge=adaptive (AdaSSP) also publishes the smallest eigenvalue l of X'X. One record
    moves l by at most R^2: let M be the sum of the other records' xx' and l0 the
    smallest eigenvalue of M. Then l0 <= l <= l0 + R^2 (Weyl) with or without one more
    record of norm at most R, and thus on both neighbouring datasets. The ridge is the
    difference s sqrt(p log(2 p^2 / rho)) - l', but at least 0. Its first term is a
    bound on the largest eigenvalue of the noise, and l' is a lower bound on l. Here l'
    is the noisy l minus sqrt(2 log(1 / rho)) standard deviations of its noise, but at
    least 0.

    References
    ----------
    Vu, Slavkovic, "Differential privacy for clinical trials", ICDMW 2009; Wang,
    "Revisiting differentially private linear regression", UAI 2018, Algorithm 2
    (AdaSSP); Mehta, Krichene, Thakurta, Kurakin, Cutkosky, "Differentially private
    image classification from features", TMLR 2023 (least squares); Huggins, Adams,
    Broderick, "PASS-GLM", NIPS 2017 (the parabola).
    """

    batchable: ClassVar[bool] = True
    constrained: ClassVar[bool] = False
    smooth_losses: ClassVar[bool] = False
    convex_losses: ClassVar[bool] = False
    exempt: ClassVar[Mapping[str, str]] = {
        "columns_of_zeros_are_harmless": ZEROS,
        "sensitivities_are_tight": "the smallest eigenvalue changes by R^2 only if the "
        "other records span one dimension less, unlike in the small problems of the "
        "check",
    }
    leaks_by: ClassVar[str] = "orthogonal"

    share: float = shape(
        0.5,
        above=0.0,
        most=0.99,
        help="k, the weight of X'X in the release; X'y has the weight 1 - k",
    )
    ridge: float | str = shape(
        0.3,
        above=0.0,
        words=("adaptive", "identity"),
        help="ridge added to the noisy X'X, divided by s sqrt(p), where s is the "
        "standard deviation of the noise; adaptive: the ridge of AdaSSP; identity: "
        "R^2, with the declared bound R on a record's norm",
    )
    parabola: float = value(
        0.1,
        above=0.0,
        help="c, the coefficient of m^2 in the parabola that replaces the logistic "
        "loss of margin m",
    )

    @classmethod
    def limits(cls, problem: ERM, curvature: float) -> Iterator[Limit]:
        """Yield the bound without noise: the answer minimises the squared loss."""
        if problem.loss.name == "squared":
            yield Limit(cls(), gap=1e-9)

    def unsupported_reason(self, problem: ERM) -> str | None:
        """Return the reason why a problem is refused, or None.

        Loss, penalty, bounds and the number of features are checked.
        """
        name = type(self).__name__
        if problem.loss.name not in ("squared", "logistic"):
            return f"loss={problem.loss.name}: {name} needs loss squared or logistic"
        if not problem.penalty.quadratic:
            return f"penalty={problem.penalty.name}: {name} needs penalty none or l2"
        reason = bounds_refusal(problem, self, label=True)
        return reason or matrix_refusal(problem)

    def step_work(self, problem: ERM) -> StepWork:
        """Return the work of the sums, the noise and the eigenvalues."""
        return matrix_work(problem)

    def releases(self, problem: ERM, adjacency: Adjacency, schedule: Any) -> Releases:
        """Yield a release of X'X and X'y, and of the smallest eigenvalue if needed.

        Parameters
        ----------
        problem : ERM
            The objective and its records.
        adjacency : Adjacency
            The relation between neighbouring datasets.
        schedule : object
            The result of `plan`; not used.
        """
        a, b = math.sqrt(self.share), math.sqrt(1.0 - self.share)
        R, Y = record_bound(problem), label_bound(problem)
        change = moments_change(problem, adjacency, a * (R > 0.0), b * (R * Y > 0.0))
        moments = Gaussian("moments", change, 1)
        if self.ridge != "adaptive":
            yield moments
        else:
            smallest = Gaussian("smallest", adjacency.of_sum(R * R, signed=False), 1)
            yield from divide_mu([(smallest, THIRD), (moments, 1.0 - THIRD)])

    def answer(self, oracle: Oracle, mechanisms: Mechanisms, schedule: Any) -> Array:
        """Return the solutions of the noisy linear systems, shape (B, p).

        Parameters
        ----------
        oracle : Oracle
            Holds the iterates of B trials and answers queries about the records.
        mechanisms : Mechanisms
            The declared releases with their noise, by name.
        schedule : object
            The result of `plan`; not used.
        """
        problem, p = oracle.problem, oracle.problem.p
        R, Y = record_bound(problem) or 1.0, label_bound(problem) or 1.0
        u = math.sqrt(self.share) / R**2
        v = math.sqrt(1.0 - self.share) / (R * Y)
        gram, first = outer_products(oracle), label_products(oracle)
        both = np.hstack([u * gram, np.broadcast_to(v * first, oracle.w.shape)])
        noisy = mechanisms["moments"](both)
        # Standard deviation of the noise on the diagonal of X'X, for each trial.
        s = np.broadcast_to(mechanisms["moments"].scale / u, (oracle.batch, 1))[:, 0]
        ridges = self.ridges(gram, s, mechanisms, p, R)
        bends, slope = self.parts(oracle)
        strength = problem.n * problem.penalty.strong_convexity
        w = np.zeros_like(oracle.w)
        for b, row in enumerate(noisy):
            g = slope * row[-p:] / v
            if not g.any():  # X'y = 0: w is 0 for any X'X
                continue
            values, vectors = eigen_decomposition(unpack_symmetric(row[:-p] / u, p))
            least = s[b] if self.ridge == "adaptive" else 0.0
            values = bends[b] * (lift_eigenvalues(values, least) + ridges[b]) + strength
            check_regular(values, "X'X")
            w[b] = vectors @ ((vectors.T @ g) / values)
        return w

    def parts(self, oracle: Oracle) -> tuple[Array, float]:
        """Return the factors of X'X, shape (B,), and of X'y in the sum's gradient."""
        bends = np.broadcast_to(2.0 * np.ravel(self.parabola), oracle.batch)
        if oracle.problem.loss.name == "squared":
            return np.ones_like(bends), 1.0
        return bends, 0.5

    def ridges(
        self, gram: Array, s: Array, mechanisms: Mechanisms, p: int, R: float
    ) -> Array:
        """Return the ridges that are added to X'X, shape (B,).

        Parameters
        ----------
        gram : array of shape (B, p (p + 1) / 2)
            X'X, packed. The rows of all trials are equal.
        s : array of shape (B,)
            Standard deviation of the noise on the diagonal of X'X.
        mechanisms : Mechanisms
            The declared releases with their noise, by name.
        p : int
            The number of features.
        R : float
            The declared bound on the norm of a record, or 1 if that is 0.
        """
        if self.ridge == "identity":
            return np.full_like(s, R**2)
        if self.ridge != "adaptive":
            return np.asarray(float(self.ridge) * math.sqrt(p) * s)
        smallest = mechanisms["smallest"]
        exact = eigen_decomposition(unpack_symmetric(gram[0], p))[0][0]
        noisy = smallest(np.full(len(gram), exact))
        doubt = math.sqrt(2.0 * math.log(1.0 / RHO)) * smallest.scale[:, 0]
        largest = s * math.sqrt(p * math.log(2.0 * p**2 / RHO))
        return np.asarray(np.maximum(largest - np.maximum(noisy - doubt, 0.0), 0.0))
