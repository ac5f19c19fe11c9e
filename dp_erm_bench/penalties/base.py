"""The interface of a penalty, and separable penalties."""

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.errors import UsageError, real_number

Array = NDArray[np.float64]
ALLOWED = {"strength": "'1/n' or 'auto'", "l2": "or '1/n'"}
"""Words that are accepted in place of a number when a problem is built."""


def check_strength(name: str, strength: object, key: str = "strength") -> float:
    """Return the strength as a number; raise UsageError if it is negative or infinite.

    Parameters
    ----------
    name : str
        Name of the penalty, for messages.
    strength : object
        The value that was given.
    key : str
        Key of the penalty's yaml, ``strength`` or ``l2``.
    """
    real = real_number(strength)
    if not 0.0 <= real < math.inf:
        raise UsageError(
            f"penalty.{key}={strength} of {name}: must be a number >= 0, {ALLOWED[key]}"
        )
    return real


class Penalty(ABC):
    """A convex penalty psi >= 0 of all coordinates, with a prox.

    A user's own penalty derives from this class. The algorithms that take any penalty
    (``Solver.any_penalty``) accept it, and all others refuse it.

    Attributes
    ----------
    name : str
        Name of the penalty's yaml file.
    everywhere : bool
        Whether ``example`` is a penalty on R^p for every p.
    strong_convexity : float
        The modulus of strong convexity in the euclidean norm.
    quadratic : bool
        Whether psi(w) = (strong_convexity / 2) norm2(w)^2.
    convex : bool
        Whether psi is known to be convex. If privacy depends on convexity, other
        penalties are refused.
    """

    name: ClassVar[str]
    everywhere: ClassVar[bool] = True
    strong_convexity: float = 0.0
    quadratic: bool = False
    convex: bool = True

    @classmethod
    def example(cls, p: int) -> dict[str, Any]:
        """Return parameters of an example on R^p, without the strength, for checks."""
        return {}

    @abstractmethod
    def value(self, w: Array) -> Any:
        """Return the penalty of w: shape (...) for w of shape (..., p)."""

    @abstractmethod
    def prox(self, v: Array, step: Array | float) -> Array:
        """Return argmin_u norm2(u - v)^2 / 2 + step psi(u), shape (..., p).

        ``step`` is a number, or one per row, shape (..., 1). With step 0 this is the
        projection on the points where psi is finite.
        """

    @abstractmethod
    def dual_distance(self, w: Array, u: Array) -> tuple[float, float]:
        """Return a scale s, and the gap psi(w) + psi*(s u) - s u.w at the point s u.

        The gap is 0 if s u is a subgradient of psi at w. s in [0, 1] is the largest
        number with s u in the domain of the conjugate psi*. The gap is >= 0 (Fenchel
        and Young). It should be computed as a sum of terms >= 0, because it certifies
        reference minima to 1e-9.

        Parameters
        ----------
        w, u : array of shape (p,)
        """

    def check_features(self, p: int) -> None:  # noqa: B027
        """Raise UsageError if it is not a penalty on R^p."""

    def largest_margin(self, columns: Array, norm: float) -> float:
        """Return a bound on |x.w| over records x and the w where psi is finite.

        Parameters
        ----------
        columns : array of shape (p,)
            R_j, bounds on |x_j|.
        norm : float
            R_2, a bound on the euclidean norm of x.
        """
        return math.inf


def inseparable_sentence(penalty: Penalty) -> str:
    """Return the message that refuses a penalty which is not separable."""
    return (
        f"penalty={penalty.name} is not separable: only gd, permutation_sgd with "
        "batch_size=full and the perturbations of output, objective and approximate "
        "minima serve it (a submodular norm: dual_frank_wolfe), or an algorithm of "
        "your own with any_penalty = True"
    )


class SeparablePenalty(Penalty):
    """The penalty sum_j l1 |w_j| + (l2 / 2) w_j^2 on the box [lower, upper]^p.

    Compiled kernels use only the four numbers of the penalty. So a subclass sets these
    numbers and overrides no method.

    Attributes
    ----------
    l1, l2 : float
        Strengths of the two parts.
    lower, upper : float
        The ends of the box, which are the same for all coordinates.
    """

    l1: float = 0.0
    l2: float = 0.0
    lower: float = -math.inf
    upper: float = math.inf

    def __init__(
        self,
        l1: float = 0.0,
        l2: float = 0.0,
        lower: float = -math.inf,
        upper: float = math.inf,
    ) -> None:
        if not (l1 >= 0.0 and l2 >= 0.0 and lower <= upper):
            raise UsageError(
                f"SeparablePenalty({l1=:g}, {l2=:g}, {lower=:g}, {upper=:g}): "
                "l1 and l2 must be >= 0, and lower <= upper"
            )
        self.l1, self.l2, self.lower, self.upper = l1, l2, lower, upper

    def __init_subclass__(cls) -> None:
        """Raise TypeError if a subclass overrides a method; no kernel would run it."""
        numbers = {"l1", "l2", "lower", "upper"}
        methods = {name for name in vars(SeparablePenalty) if name[0] != "_"} - numbers
        own = sorted(methods & set(vars(cls)))
        if own:
            raise TypeError(
                f"{cls.__name__}: kernels take the four numbers of a SeparablePenalty "
                f"and not its {own[0]}; derive from Penalty"
            )

    @property
    def has_box(self) -> bool:
        """Return whether the box bounds the coordinates."""
        return self.lower > -math.inf or self.upper < math.inf

    @property
    def quadratic(self) -> bool:  # type: ignore[override]
        """Return whether there is neither an L1 part nor a box."""
        return self.l1 == 0.0 and not self.has_box

    @property
    def strong_convexity(self) -> float:  # type: ignore[override]
        """Return the modulus of strong convexity in the euclidean norm."""
        return self.l2

    def parameters(self) -> Array:
        """Return (l1, l2, lower, upper), the form in which kernels accept it."""
        return np.array([self.l1, self.l2, self.lower, self.upper])

    def value(self, w: Array) -> Any:
        """Return the penalty of w, shape (..., p), summed over the last axis."""
        smooth = 0.5 * self.l2 * np.square(w).sum(axis=-1)
        inside = ((w >= self.lower) & (w <= self.upper)).all(axis=-1)
        total = smooth + self.l1 * np.abs(w).sum(axis=-1)
        return np.where(inside, total, math.inf)[()]

    def prox(self, v: Array, step: Array | float) -> Array:
        """Return argmin_u (u - v)^2 / 2 + step psi_j(u), elementwise."""
        if self.l1 > 0.0:
            v = np.sign(v) * np.maximum(np.abs(v) - step * self.l1, 0.0)
        v = v / (1.0 + step * self.l2)
        return np.asarray(np.clip(v, self.lower, self.upper) if self.has_box else v)

    def dual_distance(self, w: Array, u: Array) -> tuple[float, float]:
        """Return a scale s, and the gap psi(w) + psi*(s u) - s u.w, see `Penalty`.

        The box is left out, because minima over a box are certified by the Frank-Wolfe
        gap.
        """
        if self.l2 > 0.0:
            return 1.0, float(_elastic_gap(w, u, self.l1, self.l2).sum())
        largest = float(np.abs(u).max())
        s = min(1.0, self.l1 / largest) if largest > 0.0 else 1.0
        slack = np.maximum(self.l1 * np.abs(w) - s * u * w, 0.0).sum()
        return s, float(slack)

    def largest_margin(self, columns: Array, norm: float) -> float:
        """Return a bound on |x.w| over the box, by Hoelder or by Cauchy-Schwarz."""
        side = max(abs(self.lower), abs(self.upper))
        active = int((columns > 0.0).sum())
        factor = min(float(columns.sum()), math.sqrt(active) * norm)
        return side * factor if factor > 0.0 else 0.0


def _elastic_gap(w: Array, u: Array, l1: float, l2: float) -> Array:
    """Return psi_j(w_j) + psi_j*(u_j) - w_j u_j for psi = l1 |.| + (l2/2) (.)^2."""
    size = np.abs(w)
    along = np.where(w == 0.0, np.abs(u), np.sign(w) * u)
    excess = along - l1
    inside = -excess * size + 0.5 * l2 * size**2
    outside = (l2 * size - excess) ** 2 / (2.0 * l2)
    # Against the sign of w the conjugate counts |u|, not its projection on sign(w).
    against = np.maximum(-along - l1, 0.0) ** 2 / (2.0 * l2)
    return np.where(excess > 0.0, outside, inside + against)
