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
"""The trace's part of what noise=direction spends on curvature."""

LEAST = 1e-8
"""The least floor of noise=direction over M: the exact matrix is then never singular,
which a refusal would tell, and solved to far less than what a record moves."""


@dataclass(frozen=True)
class Newton(FullBatch):
    """Noisy Newton steps w - step (H + l0 I + l2 I)^-1 g, with a floor l0 under H.

    H = (1/n) sum_i q_i x_i x_i', q_i the loss's second derivative, or the curvature
    of a parabola that lies above the loss (``curvature=bound``: steps of length 1
    without noise never raise the objective). g is the noisy mean of clipped gradients,
    the penalty's in it. ``lift=add`` adds l0 to all eigenvalues of H, those below 0
    being 0; ``lift=clip`` raises those below l0 to it.

    ``noise=hessian`` publishes H, too, its floor in units of its own noise: floor s
    sqrt(p) / n for noise of deviation s. ``noise=direction`` publishes no H, but the
    direction alone: see `direction_unit`. Its floor is the cube root of tr(H)
    (c M / n)^2, times ``floor``, for noise of c times the direction's sensitivity: at
    about that l0 what the noise adds to the objective, tr(H) (c M / (n l0^2))^2
    |g|^2 / 2, is what the floor leaves along eigenvalues of its size, |g|^2 / (8 l0).
    tr(H) is published with noise: its terms q_i |x_i|^2 are in [0, M], M = A R^2. As
    H is the exact one, the floor is at least `LEAST` M.

    Without noise there is no floor, and a singular matrix is refused.

    With ``noise=hessian`` the last row of a run has its `predicted_excess`.

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
        "sensitivities_are_tight": "traces tell only how long records are, and "
        "those at corners are all as long; the tests have the worst ones",
    }

    n_iter: int = shape(5, least=0, help="T, the number of steps")
    noise: str = shape(
        "hessian",
        choices=("hessian", "direction"),
        help="what is published beside gradients: Hessians, or directions and traces",
    )
    curvature: str = shape(
        "hessian",
        choices=("hessian", "bound"),
        help="second derivatives, or parabolas that lie above the loss",
    )
    lift: str = shape(
        "add",
        choices=("add", "clip"),
        help="the floor is added to all eigenvalues, or small ones are raised to it",
    )
    share: float = shape(
        0.2, above=0.0, most=0.99, help="of mu^2 (budget), what is not for gradients"
    )
    floor: float = value(
        1.0, above=0.0, help="floor of the eigenvalues, in units of what noise asks for"
    )
    step: float = value(1.0, above=0.0, most=2.0, help="length of a step")
    clip: float | None = clip_field()

    @property
    def leaks_by(self) -> str:
        """Return which record tells most: traces tell only that there is none."""
        return "orthogonal" if self.noise == "hessian" else "nothing"

    @classmethod
    def limits(cls, problem: ERM, curvature: float) -> Iterator[Limit]:
        """State linear convergence of majorants, a quadratic one of Newton's method."""
        yield Limit(cls(n_iter=150, curvature="bound"), gap=1e-9)
        if problem.loss.name in ("squared", "logistic"):
            yield Limit(cls(n_iter=15), gap=1e-9)
            yield Limit(cls(n_iter=15, noise="direction"), gap=1e-9)

    def unsupported_reason(self, problem: ERM) -> str | None:
        """Refuse losses without a curvature, other penalties, undeclared bounds."""
        name, loss = type(self).__name__, problem.loss
        if not loss.is_curved:
            return (
                f"loss={loss.name}: {name} needs a second derivative that is bounded "
                "and not 0 everywhere; use a smoothed loss, such as huber"
            )
        if not problem.penalty.quadratic:
            return f"penalty={problem.penalty.name}: {name} serves none and l2 only"
        reason = bounds_refusal(problem, self, weight=loss.smoothness)
        reason = reason or matrix_refusal(problem)
        if reason is None and self.curvature == "bound":
            return secant_refusal(problem)
        return reason

    def step_work(self, problem: ERM) -> StepWork:
        """Return that of a Hessian, a system and a gradient."""
        done = matrix_work(problem).plus(full_gradient(problem, True))
        return done._replace(calls=2.0)

    def releases(self, problem: ERM, adjacency: Adjacency, schedule: Any) -> Releases:
        """Yield Hessians and gradients, or gradients, traces and directions."""
        A, T = problem.loss.smoothness, self.n_iter
        change = adjacency.of_sum(norm_bound(problem, self.clip))
        gradient = Gaussian("gradient", change, T), 1.0 - self.share
        if self.noise == "hessian":
            hessian = Gaussian("hessian", outer_change(problem, adjacency, A), T)
            yield from divide_mu([(hessian, self.share), gradient])
            return
        M = A * record_bound(problem) ** 2
        trace = Gaussian("trace", adjacency.of_sum(M, signed=False), T)
        # In units of `direction_unit`; see there why sqrt(2) for two records.
        unit = adjacency.of_sum(1.0, positive=True) if self.lift == "clip" else 1.0
        direction = Gaussian("direction", unit, T), (1.0 - TRACE) * self.share
        yield from divide_mu([gradient, (trace, TRACE * self.share), direction])

    def stepper(self, oracle: Oracle, mechanisms: Mechanisms) -> Step:
        """Return the noisy Newton step."""
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
        """Return the q_i at the iterates, in [0, A], (B, n)."""
        return secants(oracle) if self.curvature == "bound" else curvatures(oracle)

    def by_hessian(
        self, oracle: Oracle, mechanisms: Mechanisms, g: Array, last: bool
    ) -> Array:
        """Return (H + l0 I + l2 I)^-1 g for the noisy H, (B, p).

        In the last step the excess is predicted, too: that takes eigenvalues.
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
        """Return what the noise of the last gradient adds to F on average, (B,).

        Let M be what a step divides by, H + l0 I + l2 I with ``lift=add``. From a w
        near the minimum w* a step of length 1 along M^-1 (g + e), e ~ N(0, s^2 I), ends
        at w* - M^-1 e, but for what the floor and the noise on H leave of w - w*. There
        F is to second order F* + e' M^-1 (H + l2 I) M^-1 e / 2: on average tr(M^-2 (H +
        l2 I)) s^2 / 2 above F*, s the deviation of the noise on the mean gradient. The
        noisy H stands for the exact one; its eigenvalues below l0, which its noise
        hides, count as l0. All that enters was published or is public: it is
        post-processing, and costs nothing. docs/table.md says how far it is off.

        nan where that is no prediction: without noise; where gradients may be clipped,
        as their mean is then not that of F (a threshold below the declared bound, or no
        bound that is declared); for other steps than 1, which leave a part of the noise
        of earlier ones; for ``curvature=bound``, as H is then no second derivative.

        Parameters
        ----------
        noisy : array of shape (B, p (p + 1) / 2)
            n H as published, packed.
        floors : array of shape (B, 1)
            l0.
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
            # The squares of M and s may be no floats where their quotients are.
            parts = (lift_eigenvalues(values, floor) + l2) / M * (s[b] / M)
            out[b] = 0.5 * float(s[b, 0] * parts.sum())
        return out

    def by_direction(self, oracle: Oracle, mechanisms: Mechanisms, g: Array) -> Array:
        """Return the noisy (H + l0 I + l2 I)^-1 g, (B, p)."""
        problem, n, p = oracle.problem, oracle.problem.n, oracle.problem.p
        # Where the records are declared to be 0 nothing is moved, in whatever units.
        M = problem.loss.smoothness * record_bound(problem) ** 2 or 1.0
        trace, direction = mechanisms["trace"], mechanisms["direction"]
        q = self.weights(oracle)
        noisy = trace(q @ np.square(problem.dataset.row_norms))[:, None]
        # In units of M: its cube may be no float.
        positive = np.maximum(noisy, trace.scale) / (n * M)
        floors = self.floor * np.cbrt(positive * np.square(direction.scale / n))
        floors = M * np.where(direction.scale > 0.0, np.maximum(floors, LEAST), 0.0)
        # No longer than 1: quotients of the smallest floats may be.
        length = norm2(g, axis=-1, keepdims=True)
        along = g / np.maximum(length, USUAL[0])
        exact = outer_products(oracle, q) / n
        matrices = (unpack_symmetric(row, p) for row in exact)
        unit = self.direction_unit(problem, floors, M)
        unit = np.where((direction.scale > 0.0) & (unit > 0.0), unit, 1.0)
        answer = direction(self.systems(oracle, matrices, along, floors) / unit)
        return np.asarray(answer * unit * length * (record_bound(problem) > 0.0))

    def direction_unit(self, problem: ERM, floors: Array, M: float) -> Array:
        """Return what a record moves (H + l0 I + l2 I)^-1 u by, |u| = 1 published.

        Let l = l0 + l2, l0 published, and A = n (H + l I) = B + s, where B is of the
        other records, B >= b I, b = n l, and s = q xx' of the one, 0 <= q |x|^2 <= M.

        *lift=add.* By Sherman and Morrison B^-1 - A^-1 = q B^-1 xx' B^-1 / (1 + t), t =
        q x'B^-1 x <= M / b. That is positive semidefinite and of rank one, so its norm
        is its trace q |B^-1 x|^2 / (1 + t) <= (1/b) t / (1 + t) <= M / (b (b + M)), as
        |B^-1 x|^2 <= x'B^-1 x / b. Under ``zero_out`` this is how far the inverse
        moves. Under ``replace_one`` it moves by the difference of two such matrices,
        P - P', and -|P'| I <= P - P' <= |P| I: no more. Times n: M / (n l^2 + M l) in
        both, reached where all others are 0 along x, |x| = R, if u is x / R.

        *lift=clip.* The matrix is f(H), f(h) = 1 / (max(h, l0) + l2), and
        |f(h) - f(h')| <= |h - h'| / l^2. In bases of eigenvectors v, v' of both
        matrices norm_F(f(H) - f(H'))^2 = sum |f(h) - f(h')|^2 <v, v'>^2 is at most
        sum |h - h'|^2 <v, v'>^2 / l^4 = norm_F(H - H')^2 / l^4. Now norm_F(H - H') is
        at most M / n under ``zero_out``, sqrt(2) M / n under ``replace_one``
        (`outer_change`): the unit is M / (n l^2), and the sensitivity 1 or sqrt(2).
        """
        n, least = problem.n, floors + problem.penalty.strong_convexity
        added = M if self.lift == "add" else 0.0
        # The quotients are floats where a square of l is none.
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(M / least / (n * least + added))

    def systems(
        self, oracle: Oracle, matrices: Iterator[Array], g: Array, floors: Array
    ) -> Array:
        """Return the solutions of the lifted systems of all trials, (B, p).

        0 where the records are declared to be 0: there is nothing to learn.
        """
        out, l2 = np.zeros_like(g), oracle.problem.penalty.strong_convexity
        floors = np.broadcast_to(floors, (len(g), 1))
        if record_bound(oracle.problem) > 0.0:
            for b, matrix in enumerate(matrices):
                floor = float(floors[b, 0])
                out[b] = solve_system(matrix, g[b], floor, l2, self.lift)
        return out
