"""Private Newton steps."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import linalg

from dp_erm_bench.kernels.lengths import USUAL, norm2
from dp_erm_bench.problems.erm.second_order import (
    curvatures,
    lift_eigenvalues,
    matrix_refusal,
    outer_products,
    secant_refusal,
    secants,
    solve_system,
    unpack_symmetric,
)
from dp_erm_bench.releases.gaussian import divide_mu
from dp_erm_bench.solvers.base import Array, Limit, Releases, shape, value
from dp_erm_bench.solvers.bounds import (
    ZEROS,
    bounds_refusal,
    norm_bound,
    outer_change,
    record_bound,
)
from dp_erm_bench.solvers.runs import FullBatch, Step, clip_field
from dp_erm_bench.solvers.terms import ERM, Adjacency, Gaussian, Mechanisms, Oracle
from dp_erm_bench.solvers.work import StepWork, full_gradient, matrix_work

TRACE = 0.1
"""Part of the share for curvature that noise=direction spends on the trace."""

LEAST = 1e-8
"""The smallest floor of noise=direction, in units of M. With this floor the exact
matrix is never singular, so no refusal can reveal that it is. The numerical error of
the solution is also far smaller than the change that one record makes."""


@dataclass(frozen=True)
class Newton(FullBatch):
    """Noisy Newton steps w - step (H + l0 I + l2 I)^-1 g, with a floor l0 for H.

    H = (1/n) sum_i q_i x_i x_i', where q_i is the loss's second derivative. With
    ``curvature=bound``, q_i is the curvature of a parabola that lies above the loss.
    Steps of length 1 without noise then never raise the objective. g is the noisy mean
    of clipped gradients plus the penalty's gradient. ``lift=add`` raises negative
    eigenvalues of H to 0 and then adds l0 to all eigenvalues. ``lift=clip`` raises
    eigenvalues below l0 to l0.

    ``noise=hessian`` also publishes H. Its floor l0 is in units of the noise on H:
    ``floor`` s sqrt(p) / n for noise of standard deviation s on n H.
    ``noise=direction`` does not publish H but only the direction (see
    `direction_unit`). Its floor l0 is ``floor`` times the cube root of tr(H) (c
    M / n)^2, if the noise scale is c times the direction's sensitivity. This l0 roughly
    balances two errors in the objective. The noise adds tr(H) (c M / (n l0^2))^2
    |g|^2 / 2 to the objective, and the floor leaves |g|^2 / (8 l0) along eigenvalues of
    the size of l0. tr(H) is published with noise. Its terms q_i |x_i|^2 are in [0, M]
    with M = A R^2, where A is the smoothness constant of the loss. H is exact here, so
    the floor is at least `LEAST` M.

    Without noise there is no floor, and a singular matrix is refused.

    With ``noise=hessian`` the last row of a run contains its `predicted_excess`.

    References
    ----------
    Avella-Medina, Bradshaw, Loh, "Differentially private inference via noisy
    optimization", Annals of Statistics 2023 (noise=hessian); Ganesh, Haghifam,
    Steinke, Thakurta, "Faster differentially private convex optimization via
    second-order methods", NeurIPS 2023, Algorithm 3 (noise=direction; lift=add and
    clip; curvature=hessian and bound).
    """

    constrained: ClassVar[bool] = False
    smooth_losses: ClassVar[bool] = False
    convex_losses: ClassVar[bool] = True
    uses_smoothness: ClassVar[bool] = False
    exempt: ClassVar[Mapping[str, str]] = {
        "columns_of_zeros_are_harmless": ZEROS,
        "sensitivities_are_tight": "traces depend only on the norms of records, which "
        "are equal at the corners; our own tests contain the worst records",
    }

    n_iter: int = shape(5, least=0, help="T, the number of steps")
    noise: str = shape(
        "hessian",
        choices=("hessian", "direction"),
        help="what a step publishes besides the gradient; hessian: the Hessian H; "
        "direction: the Newton direction and the trace of H",
    )
    curvature: str = shape(
        "hessian",
        choices=("hessian", "bound"),
        help="weights of the records in H; hessian: second derivatives of the loss; "
        "bound: curvatures of parabolas that lie above the loss",
    )
    lift: str = shape(
        "add",
        choices=("add", "clip"),
        help="add: add the floor to all eigenvalues of H; clip: raise eigenvalues "
        "below the floor to the floor",
    )
    share: float = shape(
        0.2,
        above=0.0,
        most=0.99,
        help="share of the privacy budget mu^2 that is not spent on gradients",
    )
    floor: float = value(
        1.0,
        above=0.0,
        help="floor of the eigenvalues of H, divided by sqrt(p) times the standard "
        "deviation of the noise on H; with noise=direction, divided by a value that "
        "roughly balances the errors of floor and noise",
    )
    step: float = value(
        1.0, above=0.0, most=2.0, help="step size; 1 is a full Newton step"
    )
    clip: float | None = clip_field()

    @property
    def leaks_by(self) -> str:
        """Return the change of a record that leaks most: "orthogonal" or "nothing".

        Either the record is replaced by an orthogonal one, or it is removed. Traces
        reveal only a removal.
        """
        return "orthogonal" if self.noise == "hessian" else "nothing"

    @classmethod
    def limits(cls, problem: ERM, curvature: float) -> Iterator[Limit]:
        """Yield bounds without noise: quadratic or linear convergence."""
        yield Limit(cls(n_iter=150, curvature="bound"), gap=1e-9)
        if problem.loss.name in ("squared", "logistic"):
            yield Limit(cls(n_iter=15), gap=1e-9)
            yield Limit(cls(n_iter=15, noise="direction"), gap=1e-9)

    def unsupported_reason(self, problem: ERM) -> str | None:
        """Return the reason why a problem is refused, or None.

        Loss, penalty, bounds and the number of features are checked.
        """
        name, loss = type(self).__name__, problem.loss
        if not loss.is_curved:
            return (
                f"loss={loss.name}: {name} needs a loss with a second derivative that "
                "is bounded and not 0 everywhere; use a smoothed loss such as huber"
            )
        if not problem.penalty.quadratic:
            return f"penalty={problem.penalty.name}: {name} needs penalty none or l2"
        reason = bounds_refusal(problem, self, weight=loss.smoothness)
        reason = reason or matrix_refusal(problem)
        if reason is None and self.curvature == "bound":
            return secant_refusal(problem)
        return reason

    def step_work(self, problem: ERM) -> StepWork:
        """Return the work of a Hessian, a linear system and a gradient."""
        done = matrix_work(problem).plus(full_gradient(problem, True))
        return done._replace(calls=2.0)

    def releases(self, problem: ERM, adjacency: Adjacency, schedule: Any) -> Releases:
        """Yield the releases of all steps.

        With ``noise=hessian`` these are Hessians and gradients. With
        ``noise=direction`` they are gradients, traces and directions.

        Parameters
        ----------
        problem : ERM
            The objective and its records.
        adjacency : Adjacency
            The relation between neighbouring datasets.
        schedule : object
            The result of `plan`; not used.
        """
        A, T = problem.loss.smoothness, self.n_iter
        change = adjacency.of_sum(norm_bound(problem, self.clip))
        gradient = Gaussian("gradient", change, T), 1.0 - self.share
        if self.noise == "hessian":
            hessian = Gaussian("hessian", outer_change(problem, adjacency, A), T)
            yield from divide_mu([(hessian, self.share), gradient])
            return
        M = A * record_bound(problem) ** 2
        trace = Gaussian("trace", adjacency.of_sum(M, signed=False), T)
        # In units of `direction_unit`, which explains the factor sqrt(2).
        unit = adjacency.of_sum(1.0, positive=True) if self.lift == "clip" else 1.0
        direction = Gaussian("direction", unit, T), (1.0 - TRACE) * self.share
        yield from divide_mu([gradient, (trace, TRACE * self.share), direction])

    def stepper(self, oracle: Oracle, mechanisms: Mechanisms) -> Step:
        """Return the function that makes a noisy Newton step."""
        problem, column = oracle.problem, (oracle.batch, 1)
        l2 = problem.penalty.strong_convexity
        clip = np.broadcast_to(norm_bound(problem, self.clip), column)
        if self.noise == "hessian":
            oracle.told["predicted_excess"] = np.full(oracle.batch, np.nan)

        def step(t: int) -> None:
            total = mechanisms["gradient"](oracle.clipped_sum(clip))
            g = total / problem.n + l2 * oracle.w
            if self.noise == "hessian":
                last = t == self.n_iter - 1
                along = self.by_hessian(oracle, mechanisms, g, last)
            else:
                along = self.by_direction(oracle, mechanisms, g)
            oracle.move_to(oracle.w - self.step * along)

        return step

    def weights(self, oracle: Oracle) -> Array:
        """Return each record's weight q_i in [0, A] at the iterates, shape (B, n)."""
        return secants(oracle) if self.curvature == "bound" else curvatures(oracle)

    def by_hessian(
        self, oracle: Oracle, mechanisms: Mechanisms, g: Array, last: bool
    ) -> Array:
        """Return (H + l0 I + l2 I)^-1 g for the noisy H, shape (B, p).

        Parameters
        ----------
        oracle : Oracle
            Holds the iterates of B trials and answers queries about the records.
        mechanisms : Mechanisms
            The declared releases with their noise, by name.
        g : array of shape (B, p)
            The noisy mean gradient.
        last : bool
            Whether this is the last step, which also predicts the excess of the
            objective.
        """
        n, p, hessian = oracle.problem.n, oracle.problem.p, mechanisms["hessian"]
        noisy = hessian(outer_products(oracle, self.weights(oracle)))
        floors = self.floor * hessian.scale * (math.sqrt(p) / n)
        if last:
            told = self.predicted_excess(oracle.problem, mechanisms, noisy, floors)
            oracle.told["predicted_excess"] = told
        return self.systems(
            oracle, (unpack_symmetric(row / n, p) for row in noisy), g, floors
        )

    def predicted_excess(
        self, problem: ERM, mechanisms: Mechanisms, noisy: Array, floors: Array
    ) -> Array:
        """Return the average increase of F by the last gradient's noise, shape (B,).

        Let M be the matrix that a step inverts, H + l0 I + l2 I with ``lift=add``, and
        let e ~ N(0, s^2 I) be the noise on the mean gradient. A step of length 1 along
        M^-1 (g + e), from a point w near the minimiser w*, ends close to w* - M^-1 e. A
        part of w - w* remains due to the floor and the noise on H. To second order, F
        at this point is F* + e' M^-1 (H + l2 I) M^-1 e / 2. On average this is tr(M^-2
        (H + l2 I)) s^2 / 2 above F*. The noisy H replaces the exact H. Eigenvalues
        below l0, which the noise hides, count as l0. All inputs were published or are
        public, so this is post-processing and costs nothing. docs/table.md reports the
        error of this prediction.

        The result is nan in four cases, in which it would not be a prediction:

        - without noise;
        - if gradients may be clipped (a threshold below the declared bound, or no
          declared bound), because their mean is then not the gradient of F;
        - for steps other than 1, which leave a part of the noise of earlier steps;
        - for ``curvature=bound``, because H is then not a second derivative.

        Parameters
        ----------
        problem : ERM
            The objective and its records.
        mechanisms : Mechanisms
            The declared releases with their noise, by name.
        noisy : array of shape (B, p (p + 1) / 2)
            The published n H, packed.
        floors : array of shape (B, 1)
            The floor l0.
        """
        n, p, l2 = problem.n, problem.p, problem.penalty.strong_convexity
        s, known = mechanisms["gradient"].scale / n, norm_bound(problem, None)
        told = (norm_bound(problem, self.clip) >= known) & np.isfinite(known)
        told = told & (self.step == 1.0) & (s > 0.0) & (mechanisms["hessian"].scale > 0)
        told = np.broadcast_to(told & (self.curvature == "hessian"), (len(noisy), 1))
        out = np.full(len(noisy), np.nan)
        for b in np.flatnonzero(told[:, 0] & np.isfinite(noisy).all(axis=1)):
            matrix = unpack_symmetric(noisy[b] / n, p)
            values = linalg.eigvalsh(matrix, check_finite=False)
            floor = float(floors[b, 0])
            M = lift_eigenvalues(values, floor, self.lift) + l2
            # The squares of M and s may overflow or vanish; their quotients do not.
            parts = (lift_eigenvalues(values, floor) + l2) / M * (s[b] / M)
            out[b] = 0.5 * float(s[b, 0] * parts.sum())
        return out

    def by_direction(self, oracle: Oracle, mechanisms: Mechanisms, g: Array) -> Array:
        """Return the noisy (H + l0 I + l2 I)^-1 g, shape (B, p).

        Parameters
        ----------
        oracle : Oracle
            Holds the iterates of B trials and answers queries about the records.
        mechanisms : Mechanisms
            The declared releases with their noise, by name.
        g : array of shape (B, p)
            The noisy mean gradient.
        """
        problem, n, p = oracle.problem, oracle.problem.n, oracle.problem.p
        # If the records are declared to be 0, nothing changes, so any unit is valid.
        M = problem.loss.smoothness * record_bound(problem) ** 2 or 1.0
        trace, direction = mechanisms["trace"], mechanisms["direction"]
        q = self.weights(oracle)
        noisy = trace(q @ np.square(problem.dataset.row_norms))[:, None]
        # In units of M, because the cube of M may overflow or vanish.
        positive = np.maximum(noisy, trace.scale) / (n * M)
        floors = self.floor * np.cbrt(positive * np.square(direction.scale / n))
        floors = M * np.where(direction.scale > 0.0, np.maximum(floors, LEAST), 0.0)
        # The norm must be at most 1, which a plain quotient of tiny floats may exceed.
        length = norm2(g, axis=-1, keepdims=True)
        along = g / np.maximum(length, USUAL[0])
        exact = outer_products(oracle, q) / n
        matrices = (unpack_symmetric(row, p) for row in exact)
        unit = self.direction_unit(problem, floors, M)
        unit = np.where((direction.scale > 0.0) & (unit > 0.0), unit, 1.0)
        answer = direction(self.systems(oracle, matrices, along, floors) / unit)
        return np.asarray(answer * unit * length * (record_bound(problem) > 0.0))

    def direction_unit(self, problem: ERM, floors: Array, M: float) -> Array:
        """Return how far a record changes (H + l0 I + l2 I)^-1 u, for a public unit u.

        Let l = l0 + l2 with l0 published, and A = n (H + l I) = B + s. B is the part of
        the other records, with B >= b I and b = n l. The part of the one record is
        s = q xx', with 0 <= q |x|^2 <= M.

        *lift=add.* By Sherman and Morrison, B^-1 - A^-1 = q B^-1 xx' B^-1 / (1 + t)
        with t = q x'B^-1 x <= M / b. This matrix is positive semidefinite and of rank
        one. So its norm is its trace q |B^-1 x|^2 / (1 + t)
        <= (1/b) t / (1 + t) <= M / (b (b + M)), as |B^-1 x|^2 <= x'B^-1 x / b. Under
        ``zero_out``, the inverse moves by at most this norm. Under ``replace_one``, the
        inverse moves by the difference P - P' of two such matrices. The bound on the
        norm is the same, because -|P'| I <= P - P' <= |P| I. Times n, the bound is
        M / (n l^2 + M l) in both cases. It is reached if all other records are 0 along
        x, |x| = R and u = x / R.

        *lift=clip.* The matrix is f(H) with f(h) = 1 / (max(h, l0) + l2), and
        |f(h) - f(h')| <= |h - h'| / l^2. Let v, v' be eigenvectors of both matrices,
        which form bases. Then norm_F(f(H) - f(H'))^2 = sum |f(h) - f(h')|^2 <v, v'>^2.
        This is at most sum |h - h'|^2 <v, v'>^2 / l^4 = norm_F(H - H')^2 / l^4, and
        norm_F(H - H') is at most M / n under ``zero_out`` and sqrt(2) M / n under
        ``replace_one`` (`outer_change`). So the unit is M / (n l^2), and the
        sensitivity is 1 or sqrt(2) units.

        Parameters
        ----------
        problem : ERM
            The problem with n records and the modulus l2 of its penalty.
        floors : array of shape (B, 1)
            The floor l0.
        M : float
            Bound on q |x|^2 for every record.
        """
        n, least = problem.n, floors + problem.penalty.strong_convexity
        added = M if self.lift == "add" else 0.0
        # The quotients are finite where a square of l may overflow or vanish.
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(M / least / (n * least + added))

    def systems(
        self, oracle: Oracle, matrices: Iterator[Array], g: Array, floors: Array
    ) -> Array:
        """Return the solutions of the lifted systems of all trials, shape (B, p).

        The solutions are 0 if the records are declared to be 0, because there is then
        nothing to learn.

        Parameters
        ----------
        oracle : Oracle
            Holds the iterates of B trials and answers queries about the records.
        matrices : iterator of arrays of shape (p, p)
            The matrix of each trial, before the floor and the ridge.
        g : array of shape (B, p)
            The right-hand sides.
        floors : array of shape (B, 1)
            The floor l0.
        """
        out, l2 = np.zeros_like(g), oracle.problem.penalty.strong_convexity
        floors = np.broadcast_to(floors, (len(g), 1))
        if record_bound(oracle.problem) > 0.0:
            for b, matrix in enumerate(matrices):
                floor = float(floors[b, 0])
                out[b] = solve_system(matrix, g[b], floor, l2, self.lift)
        return out
