"""Private greedy coordinate descent."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.errors import Unsupported
from dp_erm_bench.kernels import selection
from dp_erm_bench.penalties.base import SeparablePenalty
from dp_erm_bench.releases.inside_noisy_max import InsideNoisyMax
from dp_erm_bench.releases.laplace import Laplace
from dp_erm_bench.releases.laplace_noisy_max import LaplaceNoisyMax
from dp_erm_bench.releases.noisy_max import NoisyMax
from dp_erm_bench.solvers.base import Array, Limit, Releases, Solver, shape, value
from dp_erm_bench.solvers.bounds import coordinate_bounds, inverse, take_entries
from dp_erm_bench.solvers.runs import FullBatch, Step, clip_field
from dp_erm_bench.solvers.terms import ERM, Adjacency, Mechanisms, Oracle

ROUNDING = 1.0 + 4e-15
"""Sensitivities whose ratio is below this number are equal up to rounding."""
SELECTORS = {"gumbel": NoisyMax, "laplace": LaplaceNoisyMax}


@dataclass(frozen=True)
class SelectionRule(ABC):
    """A greedy rule, which scores the coordinates.

    The score is minus infinity if the smoothness constant M_j of a coordinate is 0.

    References
    ----------
    Nutini, Schmidt, Laradji, Friedlander, Koepke, "Coordinate descent converges faster
    with the Gauss-Southwell rule than random selection", ICML 2015; Karimireddy,
    Koloskova, Stich, Jaggi, "Efficient greedy coordinate descent for composite
    problems", AISTATS 2019.

    Attributes
    ----------
    code : int
        The code of the score's formula in ``kernels.selection``.
    """

    code: ClassVar[int]

    def scores(
        self, gradient: Array, w: Array, M: Array, penalty: SeparablePenalty
    ) -> Array:
        """Return the scores of all coordinates, shape (B, p).

        Parameters
        ----------
        gradient : array of shape (B, p)
            The gradient of the mean loss.
        w : array of shape (B, p)
            The iterates.
        M : array of shape (p,) or (B, p)
            Smoothness constant of each coordinate.
        penalty : SeparablePenalty
            The penalty psi.
        """
        out = np.empty_like(gradient)
        psi = penalty.parameters()
        selection.all_scores(self.code, gradient, w, np.atleast_2d(M), psi, out)
        return out

    def lipschitz(self, M: Array, penalty: SeparablePenalty) -> Array:
        """Return the Lipschitz constant of each score in g_j, in the shape of M.

        g_j is the derivative of the mean loss in coordinate j.
        """
        active = M > 0.0
        return np.where(
            active, self._score_slope(np.where(active, M, 1.0), penalty), 0.0
        )

    @abstractmethod
    def _score_slope(self, M: Array, penalty: SeparablePenalty) -> Array: ...


class SubgradientRule(SelectionRule):
    """GS-s: scores are distances from -g_j to the subdifferential, over sqrt(M_j)."""

    code: ClassVar[int] = selection.SUBGRADIENT

    def _score_slope(self, M: Array, penalty: SeparablePenalty) -> Array:
        return 1.0 / np.sqrt(M)


class ExcessRule(SubgradientRule):
    """GS-s with a signed distance, negative if -g_j is inside the subdifferential.

    If some score of GS-s is positive, both rules select the same coordinate. If all
    scores of GS-s are zero (the dead zone of an L1 penalty), this rule has no ties. A
    tie would reveal that the noisy derivatives of all coordinates lie in the dead zone.
    """

    code: ClassVar[int] = selection.EXCESS


class StepRule(SelectionRule):
    """GS-r: scores are lengths of proximal steps, times sqrt(M_j)."""

    code: ClassVar[int] = selection.STEP

    def _score_slope(self, M: Array, penalty: SeparablePenalty) -> Array:
        # The prox of (l2 / 2) w^2 with step 1 / M contracts by the factor 1 + l2 / M.
        # The soft-threshold before it and the clipping to a box are non-expansive.
        return 1.0 / (np.sqrt(M) * (1.0 + penalty.l2 / M))


class DecreaseRule(SelectionRule):
    """GS-q: scores are sqrt(2 q_j), where q_j is the decrease of the quadratic model.

    The sensitivity of q_j depends on the data, but that of its square root does not.
    Let d be the minimiser of the model. Then q'(g) = -d, and (M + l2) d^2 <= 2 q by
    strong convexity. Both facts hold for any convex psi_j that is finite at w_j,
    including a box.
    """

    code: ClassVar[int] = selection.DECREASE

    def _score_slope(self, M: Array, penalty: SeparablePenalty) -> Array:
        return 1.0 / np.sqrt(M + penalty.l2)


RULES: dict[str, SelectionRule] = {
    "GS-r": StepRule(),
    "GS-s": SubgradientRule(),
    "GS-q": DecreaseRule(),
}


@dataclass(frozen=True)
class GreedyCD(FullBatch):
    """Differentially private greedy coordinate descent.

    Each iteration selects the coordinate with the highest noisy score of a greedy rule.
    It then makes a proximal step on this coordinate, with fresh noise on the
    derivative.

    References
    ----------
    Mangold, Bellet, Salmon, Tommasi, "High-dimensional private empirical risk
    minimization by greedy coordinate descent", AISTATS 2023, Algorithm 1 and its
    proximal variant.
    """

    constrained: ClassVar[bool] = False
    calibrations: ClassVar[tuple[str, ...]] = ("certified", "paper")
    printed_constant: ClassVar[str] = "mangold2023"

    n_iter: int = shape(10, least=0, help="T, the number of iterations")
    rule: str = shape(
        "GS-r",
        choices=tuple(RULES),
        help="greedy rule that scores the coordinates; GS-r: length of the proximal "
        "step; GS-s: smallest subgradient; GS-q: decrease of a quadratic model",
    )
    noise: str = shape(
        "auto",
        choices=("auto", "gumbel", "laplace", "poster"),
        help="noise of the selection; gumbel and laplace are added to the scores; "
        "poster is Laplace noise on the gradient; auto: poster if calibration=paper, "
        "else gumbel",
    )
    step: float = value(
        1.0,
        above=0.0,
        help="step size in units of 1 / M_j, with the smoothness constant M_j of "
        "coordinate j",
    )
    clip: float | None = clip_field(
        "C in the clipping threshold C sqrt(M_j / sum_k M_k) of coordinate j"
    )

    @classmethod
    def limits(cls, problem: ERM, curvature: float) -> Iterator[Limit]:
        """Yield the bound of each greedy rule without noise: it reaches the minimum."""
        for rule in RULES:
            yield Limit(cls(rule=rule, n_iter=400), gap=1e-9)

    def unsupported_reason(self, problem: ERM) -> str | None:
        """Return the reason why no proof covers noise=poster on a problem, or None."""
        if self.noise != "poster":
            return None
        if problem.smoothness.kind == "private":
            return (
                "noise=poster with smoothness=private: the privacy of this noise "
                "depends on ratios of the released constants, so its scale cannot be "
                "fixed in advance; use noise=gumbel and calibration=certified"
            )
        if problem.separable.has_box:
            return (
                f"noise=poster with penalty={problem.penalty.name} has no proof of "
                "privacy, because at a bound of the box the scores use only one side "
                "of the gradient; use noise=gumbel and calibration=certified"
            )
        if self.rule != "GS-s" and problem.separable.l1 > 0.0:
            return (
                f"noise=poster with rule={self.rule} and an L1 penalty has no proof of "
                "privacy, because its scores are not affine in the gradient; use "
                "rule=GS-s"
            )
        return None

    def printed_form(self) -> Solver:
        """Return the variant with Laplace noise, to which the paper's constant applies.

        ``noise=auto`` becomes ``noise=poster``.

        Raises
        ------
        Unsupported
            If the noise is Gumbel noise.
        """
        if self.noise == "gumbel":
            raise Unsupported(
                "calibration=paper with noise=gumbel: the paper prints a constant for "
                "Laplace noise only; use noise=poster or laplace"
            )
        return replace(self, noise="poster") if self.noise == "auto" else self

    def greedy_rule(self) -> SelectionRule:
        """Return the rule that scores the coordinates.

        With noise on the gradient (``noise=poster``), ties of GS-s would have positive
        probability, and no proof covers ties. `ExcessRule` then replaces GS-s.
        """
        inside = self.noise == "poster" and self.rule == "GS-s"
        return ExcessRule() if inside else RULES[self.rule]

    def releases(self, problem: ERM, adjacency: Adjacency, schedule: Any) -> Releases:
        """Yield the releases of each iteration: a selection and a noisy derivative.

        Parameters
        ----------
        problem : ERM
            The objective and its records.
        adjacency : Adjacency
            The relation between neighbouring datasets.
        schedule : object
            The result of `plan`; not used.
        """
        bound = coordinate_bounds(problem, self.clip)
        change = adjacency.of_mean(bound, problem.n)
        M = problem.smoothness.columns
        scores = change * self.greedy_rule().lipschitz(M, problem.separable)
        if self.noise == "poster":
            yield InsideNoisyMax(
                "select", change, self.n_iter, spread=_spread_of_scores(scores)
            )
        else:
            selector = SELECTORS.get(self.noise, NoisyMax)
            yield selector("select", scores, self.n_iter)
        yield Laplace("measure", change, self.n_iter)

    def stepper(self, oracle: Oracle, mechanisms: Mechanisms) -> Step:
        """Return the function that makes an iteration of Algorithm 1."""
        problem, full = oracle.problem, oracle.w.shape
        rule, penalty = self.greedy_rule(), problem.separable
        M = problem.smoothness.columns
        clip = np.array(np.broadcast_to(coordinate_bounds(problem, self.clip), full))
        steps = np.broadcast_to(self.step * inverse(M), full)

        def scores(gradient: Array) -> Array:
            return rule.scores(gradient, oracle.w, M, penalty)

        def step(t: int) -> None:
            gradient = oracle.gradient(clip)
            j = mechanisms["select"](gradient, scores)
            noisy = mechanisms["measure"](take_entries(gradient, j), coordinate=j)
            oracle.prox_step(j, noisy, take_entries(steps, j))

        return step


def _spread_of_scores(scores: Array) -> float:
    """Return the largest sensitivity of a score divided by the smallest positive one.

    The ratio is rounded upwards, so that rounding errors do not change the noise.
    """
    positive = np.where(scores > 0.0, scores, np.nan)
    if np.isnan(positive).all() or not np.isfinite(scores).all():
        return 1.0
    ratios = np.nanmax(positive, axis=1) / np.nanmin(positive, axis=1)
    spread = float(ratios.max())
    return 1.0 if spread < ROUNDING else math.ceil(spread * 1e9) / 1e9
