"""Private Frank-Wolfe."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.releases.laplace_noisy_max import LaplaceNoisyMax
from dp_erm_bench.releases.noisy_max import NoisyMax
from dp_erm_bench.solvers.base import Array, Limit, Releases, shape, value
from dp_erm_bench.solvers.bounds import entry_bounds
from dp_erm_bench.solvers.runs import FullBatch, Step, clip_field
from dp_erm_bench.solvers.terms import ERM, Adjacency, Mechanisms, Oracle

SELECTORS = {"gumbel": NoisyMax, "laplace": LaplaceNoisyMax}


@dataclass(frozen=True)
class FrankWolfe(FullBatch):
    """Differentially private Frank-Wolfe (DP-FW).

    Each step publishes only one vertex v of the constraint. It is the vertex with the
    smallest <v, gradient> after noise. The step moves w a part of the way towards v.
    After T steps, w is a mean of the start and of at most T vertices. For l1_ball and
    simplex, a vertex has one non-zero entry. Let L_j bound entry j of a record's
    gradient. One record changes <v, gradient> by at most sum_j |v_j| L_j / n (zero_out)
    or twice as much (replace_one), in either direction. The gradient of an l2 penalty
    is added without noise, because it needs no data.

    References
    ----------
    Talwar, Thakurta, Zhang, "Nearly optimal private LASSO", NIPS 2015, Algorithm 2
    (the step size 2 / (t + 2) is from the analysis; T steps are T selections).
    """

    uses_smoothness: ClassVar[bool] = False
    calibrations: ClassVar[tuple[str, ...]] = ("certified", "paper")
    printed_constant: ClassVar[str] = "talwar2015"
    exempt: ClassVar[Mapping[str, str]] = {
        "columns_of_zeros_are_harmless": "all vertices are candidates, so noise may "
        "select the vertex of a column of zeros"
    }

    noise: str = shape(
        "gumbel",
        choices=tuple(SELECTORS),
        help="distribution of the noise in the selection of a vertex",
    )
    parts: str = shape(
        "decreasing",
        choices=("decreasing", "constant"),
        help="step size, the fraction of the way to the vertex; decreasing: 2 / (t + "
        "2) in step t = 0, 1, ..; constant: the value of step",
    )
    step: float = value(
        0.1,
        above=0.0,
        most=1.0,
        help="with parts=constant: fraction of the way to the vertex",
    )
    clip: float | None = clip_field(
        "clipping threshold for each entry of a record's gradient"
    )

    def printed_form(self) -> "FrankWolfe":
        """Return the variant with the paper's Laplace noise."""
        return replace(self, noise="laplace")

    @classmethod
    def limits(cls, problem: ERM, curvature: float) -> Iterator[Limit]:
        """Yield the bound without noise: a gap of 1e-5 after 3000 steps, as 1 / t."""
        yield Limit(cls(n_iter=3_000), gap=1e-5, slope=-0.9)

    def unsupported_reason(self, problem: ERM) -> str | None:
        """Return the reason why a problem is refused (vertices or penalty), or None.

        The constraint needs vertices, and the penalty must be smooth. An l2 penalty is
        accepted, because its gradient needs no data.
        """
        constraint, penalty = problem.constraint, problem.penalty
        if not constraint.vertex_count(problem.p):
            return (
                f"constraint={constraint.name}: frank_wolfe needs a set with vertices; "
                "use constraint l1_ball, simplex or polytope"
            )
        if not penalty.quadratic:
            return f"penalty={penalty.name}: frank_wolfe needs penalty none or l2"
        return None

    def releases(self, problem: ERM, adjacency: Adjacency, schedule: Any) -> Releases:
        """Yield one selection per step.

        Parameters
        ----------
        problem : ERM
            The objective and its records.
        adjacency : Adjacency
            The relation between neighbouring datasets.
        schedule : object
            The result of `plan`; not used.
        """
        sizes = problem.constraint.vertex_sizes(entry_bounds(problem, self.clip))
        change = adjacency.of_mean(sizes, problem.n)
        yield SELECTORS[self.noise]("vertex", change, self.n_iter)

    def part(self, t: int, batch: int) -> Array:
        """Return the step size of each trial in step t = 0, 1, ..., shape (B,)."""
        size = 2.0 / (t + 2.0) if self.parts == "decreasing" else self.step
        return np.broadcast_to(np.ravel(size), (batch,)).astype(np.float64)

    def stepper(self, oracle: Oracle, mechanisms: Mechanisms) -> Step:
        """Return the function that makes a step of Algorithm 2."""
        problem, space = oracle.problem, oracle.problem.constraint
        bound = entry_bounds(problem, self.clip)
        clip = np.array(np.broadcast_to(bound, oracle.w.shape))

        def step(t: int) -> None:
            w, part = oracle.w, self.part(t, oracle.batch)
            ridge = problem.penalty.strong_convexity * w
            chosen = mechanisms["vertex"](
                oracle.gradient(clip), lambda g: -space.vertex_products(g + ridge)
            )
            if space.dense_vertices:
                far = part[:, None]
                towards = space.vertex_points(chosen, problem.p)
                oracle.move_to((1.0 - far) * w + far * towards)
            else:
                oracle.move_towards(*space.vertex_entries(chosen, problem.p), part)

        return step
