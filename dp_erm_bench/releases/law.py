"""The law of a release: all that an accountant asks, free of data."""

import math
from abc import ABC
from dataclasses import astuple, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.losses import Dominating, Floats, Losses


@dataclass(frozen=True)
class Law(ABC):
    """A mechanism used ``times`` times, up to the common noise multiplier z.

    A kind of release answers the questions below that it has a proof for. None is the
    answer where nothing is proved; the accountant that asked then knows nothing of the
    composition, and a law that answers no question is refused.

    Attributes
    ----------
    times : int
        Number of adaptive uses.
    weight : float
        Noise scale / sensitivity = z * weight. The sensitivity is the one of the
        budget's adjacency: 2C for a Poisson sampled sum under ``replace_one``.
    name : str
        In messages. Compositions are put in the order of the names.
    normal : bool
        Whether the noise is normal and added to what is published.
    sampled : bool
        Whether privacy-loss distributions are the one accountant that comes near.
    profiled : bool
        Whether ``delta`` has an answer.

    Raises
    ------
    ValueError
        For numbers outside these ranges.
    """

    name: ClassVar[str] = "unknown"
    normal: ClassVar[bool] = False
    sampled: ClassVar[bool] = False
    profiled: ClassVar[bool] = False

    times: int
    weight: float = 1.0

    def __post_init__(self) -> None:
        """Refuse invalid numbers of uses and weights."""
        if self.times < 0:
            raise ValueError(f"times={self.times}: must not be negative")
        if not 0 < self.weight < float("inf"):
            raise ValueError(f"weight={self.weight}: must be positive")

    def multiplier(self, z: float) -> float:
        """Return noise scale / sensitivity at the common multiplier z."""
        return z * self.weight

    def mu_square(self, z: float) -> float | None:
        """Return mu^2 of all uses where they are exactly mu-GDP.

        That is, as hard to tell apart as N(0, 1) and N(mu, 1) (Dong, Roth, Su 2022).
        """
        return None

    def level(self, z: float) -> float | None:
        """Return the pure epsilon of one use."""
        return None

    def least(self) -> float:
        """Return the epsilon that one use costs with any noise."""
        return 0.0

    def rdp(self, z: float, orders: Floats) -> Floats | None:
        """Return the Renyi divergence of one use at orders > 1, of their shape."""
        return None

    def rho(self, z: float) -> float | None:
        """Return the rho of one use in concentrated privacy (zCDP)."""
        return None

    def steepness(self, z: float) -> float | None:
        """Return the number of e-folds that its losses span, half to either side.

        None without a ``dominating`` pair.
        """
        return None

    def dominating(self, z: float, adjacency: Adjacency, tail: float) -> Dominating:
        """Return the dominating pair of one use, of which all but ``tail`` is kept."""
        raise NotImplementedError(f"{self.name} has no dominating pair")

    def delta(self, epsilon: float, z: float, mu: float) -> float:
        """Return a delta of one use, beside Gaussian releases of ``mu`` in total."""
        raise NotImplementedError(f"{self.name} has no profile")

    def guess(self, square: float) -> float:
        """Return a z at which the mean square loss of one use is about ``square``."""
        return 1 / math.sqrt(square) / self.weight

    def sampling_rate(self) -> float:
        """Return the probability with which a use reads a record."""
        return 1.0

    def library_event(self, z: float) -> Any:
        """Return one use as dp_accounting's Renyi accountant takes it, under zero-out.

        Only asked of laws that are ``normal``.
        """
        raise NotImplementedError(f"{self.name} is no event of dp_accounting")


@dataclass(frozen=True)
class PureLaw(Law):
    """A law of which the pure level of one use is all that is proved.

    Its dominating pair is randomised response (Kairouz, Oh, Viswanath, "The
    Composition Theorem for DP", ICML 2015). By default the level is 1 / (scale /
    sensitivity): noise of density exp(-|x| / b), or exp(-norm2(x) / b), has
    likelihood ratio e^(Delta/b). A kind of another level overrides ``level``.
    """

    name: ClassVar[str] = "pure"

    def level(self, z: float) -> float:
        """Return the pure epsilon of one use."""
        return 1.0 / self.multiplier(z)

    def rdp(self, z: float, orders: Floats) -> Floats:
        """Return the curve of any mechanism of that level.

        Randomised response with p = 1/(1 + e^-level): losses +-level with
        probabilities p and 1 - p.
        """
        level = self.level(z)
        p = np.full_like(orders, 1 / (1 + math.exp(-level)))
        step = (orders - 1) * level
        return log_mean_exp((p, 1 - p), (step, -step)) / (orders - 1)

    def rho(self, z: float) -> float:
        """Return level^2 / 2 (Bun and Steinke, TCC 2016, Proposition 3.3)."""
        return 0.5 * self.level(z) ** 2

    def steepness(self, z: float) -> float:
        """Return half of the level: losses lie between -level and level."""
        return self.level(z) / 2

    def dominating(self, z: float, adjacency: Adjacency, tail: float) -> Dominating:
        """Return randomised response."""
        level = self.level(z)
        return Dominating(
            self.times, level, 2 * level, lambda step, *_: self.losses(level, step)
        )

    def losses(self, level: float, step: float) -> Losses:
        """Return the losses of the dominating pair at a level: of randomised response.

        Profile (1 - e^(eps - level)) / (1 + e^-level).
        """
        p = 1 / (1 + math.exp(-level))
        masses = np.array([p, math.exp(-level) * p])
        return Losses(np.array([level, -level]), masses, 0.0)


def log_mean_exp(
    weights: tuple[Floats, Floats], exponents: tuple[Floats, Floats]
) -> Floats:
    """Return log(w1 e^x1 + w2 e^x2) for weights that add up to one.

    Small exponents keep their relative accuracy (log1p of expm1), large ones do not
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
    """Return the laws in a canonical order, without those that never happen.

    Equal mechanisms are added up, so that equal compositions have equal certificates.
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
