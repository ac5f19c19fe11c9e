"""A run of random steps that ends before it exceeds a fixed Renyi curve."""

import bisect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.errors import BudgetExhausted
from dp_erm_bench.kernels.philox import uniforms
from dp_erm_bench.releases.base import Array, Mechanism, Mechanisms, Release
from dp_erm_bench.releases.fixed_size_gaussian import FixedSizeGaussian
from dp_erm_bench.releases.gaussian import Gaussian
from dp_erm_bench.releases.laplace import Laplace
from dp_erm_bench.releases.law import Law
from dp_erm_bench.releases.losses import Floats
from dp_erm_bench.releases.nested import NestedMechanism, NestedRelease, check_kind
from dp_erm_bench.releases.poisson_gaussian import PoissonGaussian

Indices = NDArray[np.int64]
Steps = Callable[[Mechanisms, Indices], Array]

STEPS = (Gaussian, Laplace, PoissonGaussian, FixedSizeGaussian)
"""Kinds of release that a step may contain.

The curves of these kinds bound the divergence in both directions, under both
adjacencies.
"""

REACH, HIGHEST = 5.0, 512
"""The curve ends at order REACH z, but not above HIGHEST.

Above this order, sampling hardly helps. The best order for a budget is about z
sqrt(log(1/delta) / 3), which is 2.2 z at delta = 1e-6.
"""
MARGIN = 1e-9
"""Relative margin for the rounding of the sums that are compared with the curve."""


def highest_order(m: float) -> float:
    """Return the largest Renyi order at which the curve for a multiplier m is finite.

    This order is infinite for m > HIGHEST, where no step passes.
    """
    if m > HIGHEST:
        return math.inf
    return math.ceil(min(HIGHEST, max(2.0, REACH * m)))


@dataclass(frozen=True)
class RenyiFilterLaw(Law):
    """The law of the steps that pass a filter, see the proof in `RenyiFilter`."""

    name: ClassVar[str] = "renyi_filter"

    def rdp(self, z: float, orders: Floats) -> Floats:
        """Return the Renyi curve: the chords of (a - 1) a / (2 z^2), divided by a - 1.

        The chords join whole orders a. The curve is infinite above ``highest_order``.
        """
        m, below = self.multiplier(z), np.floor(orders)
        chords = below * (below - 1) + (orders - below) * 2 * below
        curve = chords / (orders - 1) / 2 / m / m
        return np.where(orders <= highest_order(m), curve, np.inf)


class RenyiFilterMechanism(NestedMechanism):
    """Draws the kind of each step, and makes the mechanisms of the steps that pass.

    Attributes
    ----------
    made : Mechanisms
        The mechanisms of the steps, which auditors read; empty before the use.
    """

    release: "RenyiFilter"

    def __init__(self, release: Release, z: float, identities: Sequence[str]) -> None:
        super().__init__(release, z, identities)
        self.made = Mechanisms(1)

    def publish(self, run: Steps, most: int) -> Array:
        """Return the output of the steps that pass.

        Parameters
        ----------
        run : callable
            Makes the steps, given their mechanisms and their kinds, of shape (t,).
        most : int
            Largest number of steps, at most the declared number.

        Raises
        ------
        BudgetExhausted
            If ``most`` is larger than declared.
        """
        self.spend(1)
        if most > self.release.most:
            raise BudgetExhausted(
                f"release {self.release.name} was declared for at most "
                f"{self.release.most} steps, but {most} were requested"
            )
        kinds = self.passing_kinds(float(self.scale.min()))
        releases = self.release.parts(kinds, self.z)
        self.made = self.mechanisms_of(releases, self.release.name)
        self.listen(self.made)
        output = run(self.made, kinds)
        self.compare_uses(self.made, output)
        return output

    def passing_kinds(self, m: float) -> Indices:
        """Return the kinds of the steps that pass, shape (t,).

        Without noise all steps pass.
        """
        drawn = uniforms(self.seeds[0], 0, self.release.most)
        # The last sum may be below 1 by rounding.
        bounds = np.cumsum(self.release.chances)[:-1]
        kinds = np.searchsorted(bounds, drawn, "right")
        if m == 0 or m > HIGHEST:
            return kinds[: 0 if m else kinds.size]
        orders = np.arange(2.0, highest_order(m) + 1)
        curves = self.release.curves(orders)
        most = RenyiFilterLaw(1).rdp(m, orders) * (1 - MARGIN)

        def is_exceeded(length: int) -> bool:
            times = np.bincount(kinds[:length], minlength=len(curves))
            return bool((times @ curves > most).any())

        return kinds[: bisect.bisect(range(1, kinds.size + 1), False, key=is_exceeded)]

    def finish(self, early: bool = False) -> None:
        """Raise an error if uses of the steps' mechanisms are not the certified ones.

        ``early`` means that the run may have ended before its last use.
        """
        self.made.finish(early)


@dataclass(frozen=True, eq=False)
class RenyiFilter(NestedRelease):
    """The random steps of a run, as long as they stay below a fixed Renyi curve.

    The noise of a step is given. The kind of a step is drawn at random, without the
    data, and stays secret like the run. Steps are made as long as the sum of the Renyi
    curves of the steps so far is at most r / (2 z^2) at all whole orders r from 2 to
    the last one, R = ``highest_order(z)``. Then the run, including the kinds, has at
    most the curve

        e(a) = c(a) / (a - 1),  c the chords of r (r - 1) / (2 z^2), r = 1, 2, .., R,

    for all 1 < a <= R. This bound holds in both directions and under both adjacencies
    if the curves of the steps do.

    Let P and Q be the laws of kinds k and answers y on D and D'. The kinds have the law
    p(k) on both sides. The number t(k) of the steps that pass is a function of the
    kinds, through curves that do not depend on data. So given k, P_k and Q_k are
    adaptive compositions of t(k) mechanisms that are fixed beforehand, and at whole
    orders

        D_r(P_k, Q_k) <= sum of the steps' curves at r <= r / (2 z^2).

    (r - 1) D_r is convex in r and 0 at r = 1, for each k: between whole orders it is
    below the chord of its values, hence below c. Finally, (a - 1) D_a(P, Q) is the log
    of sum_k p(k) e^((a - 1) D_a(P_k, Q_k)) <= e^c(a). Publishing less than (k, y) is
    post-processing.

    Nothing is claimed for orders above R; a curve that holds up to some order is that
    of truncated concentrated privacy. e(a) = a / (2 z^2) at whole a: the run costs what
    one Gaussian mechanism of multiplier z does. It may be that no step passes. None
    does for z > HIGHEST, so that even tiny budgets, below 0.04 at delta = 1e-6, are
    kept.

    Parameters
    ----------
    multiplier : float
        Noise multiplier of the steps: noise scale divided by weight * sensitivity. It
        does not depend on z.
    chances : tuple of float
        The probability of each kind.
    steps : tuple of tuple of Release
        What a step of each kind publishes; equal names mean the same release.
    most : int
        The number of steps whose kinds are drawn.

    References
    ----------
    Feldman, Zrnic, "Individual privacy accounting via a Renyi filter", NeurIPS 2021,
    where kinds may depend on answers; Bun, Dwork, Rothblum, Steinke, "Composable and
    versatile privacy via truncated CDP", STOC 2018.
    """

    vectors: ClassVar[bool] = True
    mechanism: ClassVar[type[Mechanism]] = RenyiFilterMechanism
    proof: ClassVar[type[Law]] = RenyiFilterLaw
    draw = staticmethod(uniforms)

    multiplier: float = field(kw_only=True)
    chances: tuple[float, ...] = field(kw_only=True)
    steps: tuple[tuple[Release, ...], ...] = field(kw_only=True)
    most: int = field(kw_only=True)

    def __post_init__(self) -> None:
        """Raise UsageError for kinds of release that the proof does not cover."""
        for one in (one for kind in self.steps for one in kind):
            check_kind(one, STEPS, "step")
        super().__post_init__()

    def curves(self, orders: Floats) -> Floats:
        """Return the Renyi curve of a step of each kind, of shape (kinds, orders)."""
        curves = np.zeros((len(self.steps), orders.size))
        for kind, curve in zip(self.steps, curves, strict=True):
            for one in kind:
                law: Any = one.law()
                curve += law.times * law.rdp(self.multiplier, orders)
        return curves

    def inside(self, z: float) -> tuple[Release, ...]:
        """Return the releases of one step of each kind."""
        return self.parts(np.arange(len(self.steps)), z)

    def parts(self, kinds: Indices, z: float) -> tuple[Release, ...]:
        """Return the releases of steps of given kinds, at the common multiplier z."""
        share, made = self.multiplier / z if z else 1.0, dict[str, Release]()
        for kind, used in enumerate(np.bincount(kinds).tolist()):
            for one in self.steps[kind] if used else ():
                before = made[one.name].times if one.name in made else 0
                how = {"times": before + used * one.times, "weight": one.weight * share}
                made[one.name] = replace(one, **how)
        return tuple(made.values())
