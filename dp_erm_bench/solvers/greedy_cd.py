"""Private greedy coordinate descent."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.errors import Unsupported
from dp_erm_bench.problems.erm.objective import ERM
from dp_erm_bench.problems.erm.oracle import Oracle
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.base import Mechanisms, Release
from dp_erm_bench.releases.inside_noisy_max import InsideNoisyMax
from dp_erm_bench.releases.laplace import Laplace
from dp_erm_bench.releases.laplace_noisy_max import LaplaceNoisyMax
from dp_erm_bench.releases.noisy_max import NoisyMax
from dp_erm_bench.solvers.base import (
    Array,
    Limit,
    Solver,
    inverse,
    shape,
    steps_between,
    take,
    value,
)
from dp_erm_bench.solvers.bounds import coordinate_bounds
from dp_erm_bench.solvers.greedy_rules import RULES, ExcessRule, Rule

SELECTORS = {"gumbel": NoisyMax, "laplace": LaplaceNoisyMax}


@dataclass(frozen=True)
class GreedyCD(Solver):
    """Private greedy coordinate descent.

    Each iteration selects the coordinate that a greedy rule scores highest, with
    noise, and makes a proximal step on it with a freshly noised derivative.

    References
    ----------
    Mangold, Bellet, Salmon, Tommasi, "High-dimensional private empirical risk
    minimization by greedy coordinate descent", AISTATS 2023, Algorithm 1 and its
    proximal variant.
    """

    calibrations: ClassVar[tuple[str, ...]] = ("certified", "paper")

    n_iter: int = shape(10, least=0, help="T, the number of iterations")
    rule: str = shape("GS-r", choices=tuple(RULES), help="greedy rule")
    noise: str = shape(
        "auto",
        choices=("auto", "gumbel", "laplace", "poster"),
        help="noise of the selection: gumbel and laplace on the scores, poster is "
        "Laplace on the gradient; auto: poster if calibration=paper, else gumbel",
    )
    step: float = value(1.0, above=0.0, help="step size, times 1 / M_j")
    clip: float | None = value(
        None, above=0.0, help="C of C_j = C sqrt(M_j / sum M); null: declared bounds"
    )

    @property
    def printed(self) -> str:
        """Return the name of the poster's constant."""
        return "mangold2023"

    @classmethod
    def limits(cls, problem: ERM, curvature: float) -> Iterator[Limit]:
        """State that every rule reaches the minimum."""
        for rule in RULES:
            yield Limit(cls(rule=rule, n_iter=800), gap=1e-9)

    def unsupported(self, problem: ERM) -> str | None:
        """Refuse poster noise where its privacy is not proved."""
        if self.noise == "poster" and problem.smoothness.kind == "private":
            return (
                "noise=poster with smoothness=private: its privacy depends on the "
                "ratios of the released constants, so no noise can be fixed before; "
                "use noise=gumbel and calibration=certified"
            )
        if self.noise == "poster" and problem.separable.boxed:
            return (
                f"noise=poster with penalty={problem.penalty.name} has no proved "
                "privacy: at a border its scores see one side of the gradient only; "
                "use noise=gumbel and calibration=certified"
            )
        flat = self.rule != "GS-s" and problem.separable.l1 > 0.0
        if self.noise == "poster" and flat:
            return (
                f"noise=poster with rule={self.rule} and an L1 penalty has no proved "
                "privacy: its scores are not affine in the gradient; use rule=GS-s"
            )
        return None

    def printed_form(self) -> Solver:
        """Return the poster's selection, for which the constant is printed."""
        if self.noise == "gumbel":
            raise Unsupported(
                "calibration=paper with noise=gumbel: the constant is printed for "
                "Laplace noise; use noise=poster or laplace"
            )
        return replace(self, noise="poster") if self.noise == "auto" else self

    def iterations(self, problem: ERM) -> int:
        """Return T."""
        return self.n_iter

    def passes_at(self, problem: ERM, iteration: int) -> float:
        """Return the iterations: each computes a full gradient."""
        return float(iteration)

    def greedy_rule(self) -> Rule:
        """Return the rule that scores the coordinates.

        With noise on the gradient ties have positive probability, and no proof.
        """
        inside = self.noise == "poster" and self.rule == "GS-s"
        return ExcessRule() if inside else RULES[self.rule]

    def releases(
        self, problem: ERM, adjacency: Adjacency, schedule: Any
    ) -> Iterator[Release]:
        """Yield a selection and a measurement per iteration."""
        bound = coordinate_bounds(problem, self.clip)
        change = adjacency.of_mean(bound, problem.n)
        M = problem.smoothness.columns
        scores = change * self.greedy_rule().lipschitz(M, problem.separable)
        if self.noise == "poster":
            yield InsideNoisyMax("select", change, self.n_iter, spread=_spread(scores))
        else:
            selector = SELECTORS.get(self.noise, NoisyMax)
            yield selector("select", scores, self.n_iter)
        yield Laplace("measure", change, self.n_iter)

    def iterates(
        self,
        oracle: Oracle,
        mechanisms: Mechanisms,
        checkpoints: Sequence[int],
        schedule: Any,
    ) -> Iterator[Array]:
        """Yield the iterates at the checkpoints."""
        run = GreedyRun(oracle, mechanisms, self)
        yield oracle.w
        for k in steps_between(checkpoints):
            for _ in range(k):
                greedy_step(run)
            yield oracle.w


class GreedyRun:
    """What stays the same in all iterations: constants, bounds and step sizes."""

    def __init__(
        self, oracle: Oracle, mechanisms: Mechanisms, solver: GreedyCD
    ) -> None:
        problem, full = oracle.problem, oracle.w.shape
        self.oracle, self.penalty = oracle, problem.separable
        self.select, self.measure = mechanisms["select"], mechanisms["measure"]
        self.rule, self.M = solver.greedy_rule(), problem.smoothness.columns
        bound = coordinate_bounds(problem, solver.clip)
        self.clip = np.ascontiguousarray(np.broadcast_to(bound, full))
        self.steps = np.broadcast_to(solver.step * inverse(self.M), full)

    def scores(self, gradient: Array) -> Array:
        """Return the scores of the coordinates at the iterates, (B, p)."""
        return self.rule.scores(gradient, self.oracle.w, self.M, self.penalty)


def greedy_step(run: GreedyRun) -> None:
    """Make one iteration of Algorithm 1 in each trial of the batch."""
    gradient = run.oracle.gradient(run.clip)
    j = run.select(gradient, run.scores)
    noisy = run.measure(take(gradient, j), coordinate=j)
    run.oracle.prox_step(j, noisy, take(run.steps, j))


def _spread(scores: Array) -> float:
    """Return the ratio of the largest to the smallest positive score sensitivity.

    Rounded upwards, so that thresholds of the same ratios have the same noise.
    """
    positive = np.where(scores > 0.0, scores, np.nan)
    if np.isnan(positive).all() or not np.isfinite(scores).all():
        return 1.0
    ratios = np.nanmax(positive, axis=1) / np.nanmin(positive, axis=1)
    spread = float(ratios.max())
    return 1.0 if spread < 1.0 + 1e-12 else math.ceil(spread * 1e9) / 1e9
