"""The law of a release: what an accountant needs to know of it, without any data."""

import math
from abc import ABC
from dataclasses import astuple, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.losses import Dominating, Floats, Losses


@dataclass(frozen=True)
class Law(ABC):
    """The law of a mechanism used ``times`` times, given the common noise multiplier z.

    Each kind of release overrides those of the methods below for which it has a proof.
    A method returns None if nothing is proved. An accountant that needs this method
    then proves nothing for the composition. A law that no accountant can use raises an
    error.

    Attributes
    ----------
    times : int
        Number of adaptive uses.
    weight : float
        The noise scale divided by the sensitivity is z * weight. The sensitivity is
        that of the budget's adjacency: 2C for a Poisson sampled sum under
        ``replace_one``.
    name : str
        Name in messages, and sort key in a composition.
    normal : bool
        Whether the noise is normal and added to what is published.
    sampled : bool
        Whether only the accountant of privacy-loss distributions gives a nearly tight
        epsilon.
    profiled : bool
        Whether ``delta`` is implemented.

    Raises
    ------
    ValueError
        If ``times`` is negative, or ``weight`` is not positive and finite.
    """

    name: ClassVar[str] = "unknown"
    normal: ClassVar[bool] = False
    sampled: ClassVar[bool] = False
    profiled: ClassVar[bool] = False

    times: int
    weight: float = 1.0

    def __post_init__(self) -> None:
        """Raise ValueError for an invalid number of uses or an invalid weight."""
        if self.times < 0:
            raise ValueError(f"times={self.times}: must not be negative")
        if not 0 < self.weight < float("inf"):
            raise ValueError(f"weight={self.weight}: must be positive")

    def multiplier(self, z: float) -> float:
        """Return noise scale / sensitivity at the common multiplier z."""
        return z * self.weight

    def mu_square(self, z: float) -> float | None:
        """Return mu^2 of all uses if they are exactly mu-GDP, else None.

        Neighbours are then as hard to distinguish as N(0, 1) and N(mu, 1) (Dong, Roth,
        Su 2022).
        """
        return None

    def level(self, z: float) -> float | None:
        """Return the pure epsilon of one use; None if none is proved."""
        return None

    def least(self) -> float:
        """Return the epsilon that one use costs even with very large noise."""
        return 0.0

    def rdp(self, z: float, orders: Floats) -> Floats | None:
        """Return the Renyi divergence of one use at each of the orders > 1."""
        return None

    def rho(self, z: float) -> float | None:
        """Return the rho of one use in concentrated privacy (zCDP)."""
        return None

    def steepness(self, z: float) -> float | None:
        """Return the spread of the losses of one use, which is mu for a Gaussian.

        The accountant of privacy-loss distributions proves nothing if this number is
        too large. None means that there is no ``dominating`` pair.
        """
        return None

    def dominating(self, z: float, adjacency: Adjacency, tail: float) -> Dominating:
        """Return the dominating pair of one use, with at most mass ``tail`` cut off.

        Parameters
        ----------
        z : float
            Common noise multiplier.
        adjacency : Adjacency
            Relation between neighbouring datasets.
        tail : float
            Probability mass that may be cut off.
        """
        raise NotImplementedError(f"{self.name} has no dominating pair")

    def delta(self, epsilon: float, z: float, mu: float) -> float:
        """Return a delta proved for one use together with all Gaussian releases.

        Parameters
        ----------
        epsilon : float
            The epsilon of the guarantee.
        z : float
            Common noise multiplier.
        mu : float
            The mu of all Gaussian releases in total, 0 for none.
        """
        raise NotImplementedError(f"{self.name} has no profile")

    def guess(self, square: float) -> float:
        """Return a z at which one use has a mean squared privacy loss of ``square``.

        The value is approximate.
        """
        return 1 / math.sqrt(square) / self.weight

    def sampling_rate(self) -> float:
        """Return the probability that one use reads a given record."""
        return 1.0

    def library_event(self, z: float) -> Any:
        """Return one use as an event of dp_accounting's Renyi accountant (zero-out).

        This method is only needed for laws that are ``normal``.
        """
        raise NotImplementedError(f"{self.name} is no event of dp_accounting")


@dataclass(frozen=True)
class PureLaw(Law):
    """A law for which only the pure epsilon of one use, called its level, is proved.

    The dominating pair of such a law is randomised response (Kairouz, Oh, Viswanath,
    "The Composition Theorem for DP", ICML 2015). By default the level is 1 / (scale /
    sensitivity): noise of density exp(-|x| / b), or exp(-norm2(x) / b), has likelihood
    ratio e^(Delta/b). Kinds with another level override ``level``.
    """

    name: ClassVar[str] = "pure"

    def level(self, z: float) -> float:
        """Return the pure epsilon of one use."""
        return 1.0 / self.multiplier(z)

    def rdp(self, z: float, orders: Floats) -> Floats:
        """Return a Renyi curve that bounds the curves of all mechanisms of this level.

        This is the curve of randomised response with p = 1/(1 + e^-level): the losses
        +level and -level have the probabilities p and 1 - p.
        """
        level = self.level(z)
        p = np.full_like(orders, 1 / (1 + math.exp(-level)))
        step = (orders - 1) * level
        return log_mean_exp((p, 1 - p), (step, -step)) / (orders - 1)

    def rho(self, z: float) -> float:
        """Return rho of zCDP, level^2 / 2 (Bun, Steinke, TCC 2016, Proposition 3.3)."""
        return 0.5 * self.level(z) ** 2

    def steepness(self, z: float) -> float:
        """Return half of the level, as losses lie between -level and level."""
        return self.level(z) / 2

    def dominating(self, z: float, adjacency: Adjacency, tail: float) -> Dominating:
        """Return randomised response, the dominating pair.

        Parameters
        ----------
        z : float
            Common noise multiplier.
        adjacency : Adjacency
            Not used: the level is that of the adjacency.
        tail : float
            Not used: nothing is cut off.
        """
        level = self.level(z)
        return Dominating(
            self.times, level, 2 * level, lambda step, *_: self.losses(level, step)
        )

    def losses(self, level: float, step: float) -> Losses:
        """Return the privacy losses of randomised response, the dominating pair.

        The profile of this pair is (1 - e^(eps - level)) / (1 + e^-level). Laws with
        other losses round them to a lattice of spacing ``step``.
        """
        p = 1 / (1 + math.exp(-level))
        masses = np.array([p, math.exp(-level) * p])
        return Losses(np.array([level, -level]), masses, 0.0)


def log_mean_exp(
    weights: tuple[Floats, Floats], exponents: tuple[Floats, Floats]
) -> Floats:
    """Return log(w1 e^x1 + w2 e^x2) for weights that add up to one.

    Small exponents keep their relative accuracy (log1p of expm1), and large ones do not
    overflow (logaddexp).
    """
    (w, v), (x, y) = weights, exponents
    small = np.abs(x) < 1
    gains = [np.expm1(np.where(small, exponent, 0)) for exponent in exponents]
    near = np.log1p(w * gains[0] + v * gains[1])
    with np.errstate(divide="ignore"):
        far = np.logaddexp(np.log(w) + x, np.log(v) + y)
    return np.where(small, near, far)


def compose_laws(laws: tuple[Law, ...]) -> tuple[Law, ...]:
    """Return the laws in a canonical order, without those that have no uses.

    The uses of equal mechanisms are added up, so that equal compositions have equal
    certificates.
    """
    counts: dict[Law, int] = {}
    for law in laws:
        one = replace(law, times=1)
        counts[one] = counts.get(one, 0) + law.times
    happening = sorted((one for one in counts if counts[one]), key=sort_key)
    return tuple(replace(one, times=counts[one]) for one in happening)


def sort_key(law: Law) -> tuple[Any, ...]:
    """Return the sort key of a law: its name, then its numbers."""
    return law.name, type(law).__module__, type(law).__qualname__, astuple(law)
