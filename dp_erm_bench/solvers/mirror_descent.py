"""Private mirror descent."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from dp_erm_bench.solvers.base import Array, Limit, value
from dp_erm_bench.solvers.bounds import inverse
from dp_erm_bench.solvers.runs import FullGradient, Step
from dp_erm_bench.solvers.sampled import CHUNK
from dp_erm_bench.solvers.terms import ERM, Mechanisms, Oracle


@dataclass(frozen=True)
class MirrorDescent(FullGradient):
    """Differentially private mirror descent.

    Each step publishes the sum of all records' clipped gradients with Gaussian noise
    and moves in the dual space of a potential. On the simplex, the potential is the
    entropy. On the L1 ball, it is the entropy of the weights of the 2 p vertices
    (EG+-). On the whole space, it is norm_q(w)^2 / 2 with q = 1 + 1 / log p. The
    gradient of an l2 penalty is added without noise, because it needs no data.

    References
    ----------
    Talwar, Thakurta, Zhang, "Private empirical risk minimization beyond the worst case:
    the effect of the constraint set geometry", 2014, Algorithm 1, with the noise
    calibrated here (the constant stated in the paper could not be confirmed); Kivinen
    and Warmuth, "Exponentiated gradient versus gradient descent for linear predictors",
    Information and Computation 1997 (EG+-); Gentile, "The robustness of the p-norm
    algorithms", Machine Learning 2003.
    """

    step: float = value(
        1.0,
        above=0.0,
        help="step size in units of 1 over the smoothness constant in the L1 norm",
    )

    @classmethod
    def limits(cls, problem: ERM, curvature: float) -> Iterator[Limit]:
        """Yield bounds without noise, for the mean iterate and for the last one."""
        yield Limit(cls(n_iter=1_500, output="average"), gap=5e-2, slope=-0.9)
        yield Limit(cls(n_iter=1_500), gap=5e-3)

    def unsupported_reason(self, problem: ERM) -> str | None:
        """Return the reason why a constraint or a penalty is refused, or None."""
        if problem.constraint.name not in MAPS:
            return (
                f"constraint={problem.constraint.name}: mirror_descent has no mirror "
                f"map for this set; use one of {', '.join(MAPS)}"
            )
        if not problem.penalty.quadratic:
            return (
                f"penalty={problem.penalty.name}: mirror_descent needs penalty none or "
                "l2"
            )
        return None

    def stepper(self, oracle: Oracle, mechanisms: Mechanisms) -> Step:
        """Return the function that makes a step in the dual space."""
        problem = oracle.problem
        mirror = MAPS[problem.constraint.name](problem, oracle.w)
        size = self.step * inverse(smoothness_in_l1(problem))

        def step(t: int) -> None:
            noisy = self.noisy_mean(oracle, mechanisms)
            ridge = problem.penalty.strong_convexity * oracle.w
            oracle.move_to(mirror.step(noisy + ridge, size))

        return step


def smoothness_in_l1(problem: ERM) -> Array:
    """Return a bound on the smoothness of F in the L1 norm, shape (1 or B, 1).

    The bound is max_j M_j + l2. It bounds the largest entry of the Hessian, because
    |H_jk| <= sqrt(H_jj H_kk) <= max_j M_j for the loss, and the penalty adds l2.
    """
    M = np.atleast_2d(problem.smoothness.columns)
    return np.asarray(M.max(axis=1, keepdims=True) + problem.penalty.strong_convexity)


class Mirror(ABC):
    """The dual variables of a potential, and the mirror step on these variables.

    Parameters
    ----------
    problem : ERM
        The problem, whose constraint determines the radius.
    w : array of shape (B, p)
        The start.
    """

    def __init__(self, problem: ERM, w: Array) -> None:
        self.radius, self.dual = problem.constraint.radius, self.start(w)

    def step(self, g: Array, size: Array) -> Array:
        """Return argmin_u <size g, u> + B(u, w), where B is the Bregman divergence."""
        self.dual -= size * self.pull_gradient(g)
        # As many rows at once as fit in caches.
        rows = max(1, CHUNK // self.dual.shape[1])
        parts = range(0, len(self.dual), rows)
        return np.concatenate([self.primal(self.dual[i : i + rows]) for i in parts])

    def start(self, w: Array) -> Array:
        """Return the initial dual variables, which are zeros, shape (B, p).

        These variables correspond to the centre of the simplex, or to w = 0.
        """
        return np.zeros_like(w)

    @abstractmethod
    def pull_gradient(self, g: Array) -> Array:
        """Return the gradient, scaled for the step in the dual space."""

    @abstractmethod
    def primal(self, dual: Array) -> Array:
        """Return the iterates that correspond to dual variables, both (B, p)."""


class Entropy(Mirror):
    """The entropy Phi = radius sum_j w_j log w_j on the simplex.

    The iterate is radius softmax(dual). Phi is 1-strongly convex in the L1 norm on the
    set (Pinsker), as the other potentials are after scaling.
    """

    def pull_gradient(self, g: Array) -> Array:
        """Return the gradient divided by the radius, which scales the potential."""
        return g / self.radius

    def primal(self, dual: Array) -> Array:
        """Return the iterates radius softmax(dual), without overflow."""
        weights: Array = softmax(dual, axis=1)
        return self.radius * weights


class SignedEntropy(Entropy):
    """EG+-: w is u - v for weights (u, v) of the 2 p vertices of the L1 ball.

    The dual variables of v are those of u with opposite signs, so only those of u are
    kept.
    """

    def primal(self, dual: Array) -> Array:
        """Return the iterates radius sinh(dual) / sum cosh(dual), without overflow."""
        size = np.abs(dual)
        weights = np.exp(size - size.max(axis=1, keepdims=True))
        # -|u - v| and u + v, over exp(max), without cancellation.
        minus = np.expm1(-2.0 * size)
        total = (weights * (2.0 + minus)).sum(axis=1, keepdims=True)
        moved = np.copysign(weights * minus / total, dual)
        return np.asarray(self.radius * moved)


class PNorm(Mirror):
    """The potential Phi = norm_q(w)^2 / 2 on the whole space, with q = 1 + 1 / log p.

    The link is dual_j = sign(w_j) |w_j|^(q - 1) / norm_q(w)^(q - 2), and its inverse
    has the same form with the conjugate exponent. Phi is (q - 1)-strongly convex in
    norm_q (Shalev-Shwartz 2007, Lemma 17), and norm_1 <= p^(1 - 1/q) norm_q
    <= e norm_q. So steps are (q - 1) / e^2 times those for a modulus of 1.
    """

    def __init__(self, problem: ERM, w: Array) -> None:
        self.q = 1.0 + 1.0 / max(1.0, math.log(problem.p))
        super().__init__(problem, w)

    def pull_gradient(self, g: Array) -> Array:
        """Return the gradient, scaled by the modulus of the potential."""
        return (self.q - 1.0) / math.e**2 * g

    def primal(self, dual: Array) -> Array:
        """Return the iterates, the inverse link of the dual variables."""
        conjugate = self.q / (self.q - 1.0)
        size = np.abs(dual)
        largest = size.max(axis=1, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            unit = np.where(largest > 0.0, size / largest, 0.0)
            power = unit ** (conjugate - 1.0)
            total = (power * unit).sum(axis=1, keepdims=True)
            moved = power * (total ** (2.0 / conjugate - 1.0) * largest)
        return np.where(largest > 0.0, np.sign(dual) * moved, 0.0)


MAPS: dict[str, type[Mirror]] = {
    "none": PNorm,
    "simplex": Entropy,
    "l1_ball": SignedEntropy,
}
