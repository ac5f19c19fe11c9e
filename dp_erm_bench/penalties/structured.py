"""The base class of penalties from structured norms."""

import functools
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from dp_erm_bench.errors import UsageError
from dp_erm_bench.norms.base import SubmodularNorm
from dp_erm_bench.norms.cardinality import CardinalityNorm
from dp_erm_bench.penalties.base import (
    Array,
    Penalty,
    SeparablePenalty,
    check_strength,
)


class StructuredPenalty(Penalty):
    """psi(w) = strength Omega(w) + (l2 / 2) norm2(w)^2, with a structured norm Omega.

    Attributes
    ----------
    strength, l2 : float
        Strengths of the two parts, >= 0.

    References
    ----------
    Kumar, Deisenroth, "Differentially private empirical risk minimization with
    sparsity-inducing norms", 2019, problem (7), where l2 = 0.
    """

    strength: float
    l2: float

    def __post_init__(self) -> None:
        """Check both strengths, and build the norm if its parameters are given."""
        for key in ("strength", "l2"):
            real = check_strength(self.name, getattr(self, key), key)
            object.__setattr__(self, key, real)
        if self.is_given:
            with of_the_penalty():
                self.keep(self.norm)

    @property
    def is_given(self) -> bool:
        """Return whether the norm's parameters are given; a yaml may omit them."""
        return True

    @abstractmethod
    def make(self) -> SubmodularNorm:
        """Return a new norm, made from the parameters."""

    def keep(self, norm: Any) -> None:  # noqa: B027
        """Set parameters to the form in which the norm stores them."""

    @functools.cached_property
    def norm(self) -> SubmodularNorm:
        """Return the norm Omega."""
        return self.make()

    @property
    def strong_convexity(self) -> float:  # type: ignore[override]
        """Return the modulus of strong convexity, l2."""
        return self.l2

    @property
    def convex(self) -> bool:  # type: ignore[override]
        """Return whether F is known to be submodular, so that psi is convex."""
        return self.norm.checked

    def check_features(self, p: int) -> None:
        """Raise UsageError if the norm is not on R^p."""
        with of_the_penalty():
            self.norm.check_features(p)

    def value(self, w: Array) -> Any:
        """Return the penalty of w: shape (...) for w of shape (..., p)."""
        smooth = 0.5 * self.l2 * np.square(w).sum(axis=-1)
        return smooth + self.strength * self.norm.value(w)

    def prox(self, v: Array, step: Array | float) -> Array:
        """Return argmin_u norm2(u - v)^2 / 2 + step psi(u), shape (..., p).

        Omega is homogeneous, so this is the prox of step * strength * Omega, divided by
        1 + step * l2.
        """
        moved = self.norm.prox(v, np.multiply(step, self.strength))
        return np.asarray(moved / (1.0 + np.multiply(step, self.l2)))

    def dual_distance(self, w: Array, u: Array) -> tuple[float, float]:
        """Return a scale s, and the gap psi(w) + psi*(s u) - s u.w, see `Penalty`.

        Let k = strength, and let |P|(F) be the unit ball of the dual norm. Then psi*(u)
        = dist(u, k |P|(F))^2 / (2 l2). If v is the point of k |P|(F) nearest to u, the
        sum is k Omega(w) - v.w + norm2(l2 w - u + v)^2 / (2 l2). Without l2, psi* is 0
        on k |P|(F), and s is k / Omega*(u), at most 1.
        """
        if self.l2 > 0.0:
            near = self.norm.project(u, self.strength)
            apart = float(np.square(self.l2 * w - (u - near)).sum())
            slack = self.norm.slack(w, near, self.strength)
            return 1.0, slack + apart / (2.0 * self.l2)
        size, _ = self.norm.dual(u)
        s = min(1.0, self.strength / size) if size > 0.0 else 1.0
        return s, self.norm.slack(w, s * u, self.strength)


def norm_part(penalty: Penalty) -> tuple[SubmodularNorm, float] | None:
    """Return Omega and k if a penalty is k Omega + (l2 / 2) norm2^2, else None.

    The L1 part of a separable penalty is the norm of F(A) = |A|.
    """
    if isinstance(penalty, StructuredPenalty):
        return penalty.norm, penalty.strength
    if isinstance(penalty, SeparablePenalty) and not penalty.has_box:
        return CardinalityNorm(), penalty.l1
    return None


@contextmanager
def of_the_penalty() -> Iterator[None]:
    """Prefix the messages of a norm's UsageErrors with ``penalty.``."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"penalty.{error}") from None
