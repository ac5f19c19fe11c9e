"""Private Frank-Wolfe."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.problems.erm.objective import ERM
from dp_erm_bench.problems.erm.oracle import Oracle
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.base import Mechanism, Mechanisms, Release
from dp_erm_bench.releases.laplace_noisy_max import LaplaceNoisyMax
from dp_erm_bench.releases.noisy_max import NoisyMax
from dp_erm_bench.solvers.base import Array, Limit, shape, value
from dp_erm_bench.solvers.bounds import entry_bounds
from dp_erm_bench.solvers.full_batch import FullBatch, Step
from dp_erm_bench.solvers.sets import vertex_refusal

SELECTORS = {"gumbel": NoisyMax, "laplace": LaplaceNoisyMax}


@dataclass(frozen=True)
class FrankWolfe(FullBatch):
    """Differentially private Frank-Wolfe (DP-FW).

    Each step publishes only which vertex v of the constraint has the smallest
    <v, gradient> after noise, and moves a part of the way towards it: after T steps w
    is a mean of the start and of at most T vertices, which for l1_ball and simplex have
    one entry other than zero each. One record changes <v, gradient> by at most
    sum_j |v_j| L_j / n, or twice that, in either direction. An l2 penalty needs no
    data: it is added to the gradient.

    References
    ----------
    Talwar, Thakurta, Zhang, "Nearly optimal private LASSO", NIPS 2015, Algorithm 2
    (the part 2 / (t + 2) is of the analysis; T steps are T selections).
    """

    uses_smoothness: ClassVar[bool] = False
    calibrations: ClassVar[tuple[str, ...]] = ("certified", "paper")
    exempt: ClassVar[Mapping[str, str]] = {
        "columns_of_zeros_are_harmless": "all vertices are candidates, and noise may "
        "choose that of a column of zeros"
    }

    noise: str = shape(
        "gumbel", choices=tuple(SELECTORS), help="noise of the selection"
    )
    parts: str = shape(
        "decreasing",
        choices=("decreasing", "constant"),
        help="part of the way to a vertex: 2 / (t + 2), or step",
    )
    step: float = value(
        0.1, above=0.0, most=1.0, help="part of the way where parts=constant"
    )
    clip: float | None = value(
        None,
        above=0.0,
        help="bound on each entry of a record's gradient; null: declared bounds",
    )

    @property
    def printed(self) -> str:
        """Return the name of the paper's constant."""
        return "talwar2015"

    def printed_form(self) -> "FrankWolfe":
        """Return the variant with the paper's Laplace noise."""
        return replace(self, noise="laplace")

    @classmethod
    def limits(cls, problem: ERM, curvature: float) -> Iterator[Limit]:
        """State 1 / t for decreasing parts, and 1e-5 after 10^4 steps."""
        yield Limit(cls(n_iter=10_000), gap=1e-5, slope=-0.9)

    def unsupported(self, problem: ERM) -> str | None:
        """Refuse sets without vertices, and penalties that are not smooth."""
        return vertex_refusal(problem, "frank_wolfe")

    def releases(
        self, problem: ERM, adjacency: Adjacency, schedule: Any
    ) -> Iterator[Release]:
        """Yield one selection per step."""
        sizes = problem.constraint.vertex_sizes(entry_bounds(problem, self.clip))
        change = adjacency.of_mean(sizes, problem.n)
        yield SELECTORS[self.noise]("vertex", change, self.n_iter)

    def part(self, t: int, batch: int) -> Array:
        """Return how far step t = 0, 1, ... goes, (B,)."""
        size = 2.0 / (t + 2.0) if self.parts == "decreasing" else self.step
        return np.broadcast_to(np.ravel(size), (batch,)).astype(np.float64)

    def stepper(self, oracle: Oracle, mechanisms: Mechanisms) -> Step:
        """Return the step towards the vertex that is selected."""
        bound = entry_bounds(oracle.problem, self.clip)
        clip = np.array(np.broadcast_to(bound, oracle.w.shape))

        def step(t: int) -> None:
            part = self.part(t, oracle.batch)
            frank_wolfe_step(oracle, mechanisms["vertex"], clip, part)

        return step


def frank_wolfe_step(
    oracle: Oracle, vertex: Mechanism, clip: Array, part: Array
) -> None:
    """Make one step of Algorithm 2 in each trial."""
    problem, w = oracle.problem, oracle.w
    ridge = problem.penalty.strong_convexity * w
    chosen = vertex(
        oracle.gradient(clip),
        lambda g: -problem.constraint.vertex_products(g + ridge),
    )
    if problem.constraint.explicit:
        far = part[:, None]
        moved = (1.0 - far) * w + far * problem.constraint.vertex_points(chosen)
        oracle.move_to(moved)
        return
    entry, size = problem.constraint.vertex_entries(chosen, problem.p)
    oracle.move_towards(entry, size, part)
