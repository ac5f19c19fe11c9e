"""Normal noise on the sum over a Poisson sample."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.kernels import draws
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.gaussian import GaussianLaw, gaussian_rdp
from dp_erm_bench.releases.law import Law
from dp_erm_bench.releases.losses import Dominating, Floats, MonotonePair
from dp_erm_bench.releases.sampling import SampledLaw, SampledRelease


@dataclass(frozen=True)
class PoissonGaussianLaw(SampledLaw):
    """The law of the Gaussian mechanism on a Poisson sample."""

    name: ClassVar[str] = "poisson_gaussian"
    normal: ClassVar[bool] = True
    sampled: ClassVar[bool] = True

    def rdp(self, z: float, orders: Floats) -> Floats:
        """Return the Renyi curve of the mechanism on all records.

        Sampling is ignored. The bound is valid because Renyi divergence is jointly
        quasi-convex. Privacy-loss distributions give a smaller bound.
        """
        return gaussian_rdp(orders, self.multiplier(z))

    def steepness(self, z: float) -> float:
        """Return mu of one use, sensitivity / noise scale."""
        return 1 / self.multiplier(z)

    def dominating(self, z: float, adjacency: Adjacency, tail: float) -> Dominating:
        """Return the dominating pairs of the adjacency.

        Parameters
        ----------
        z : float
            Common noise multiplier, for the sensitivity of the adjacency.
        adjacency : Adjacency
            Relation between neighbouring datasets, which selects the pairs.
        tail : float
            Probability mass that may be cut off.
        """
        mu, rate = 1 / self.multiplier(z), self.rate
        replaced = adjacency is Adjacency.REPLACE_ONE
        if replaced:
            pair = replacement_pair(rate, mu)
            pairs = (pair, pair)
            scale = 2 * rate * math.sqrt(math.sinh(min(mu * mu / 4, 600)))
        else:
            pairs = (removal_pair(rate, mu), addition_pair(rate, mu))
            scale = rate * math.sqrt(math.expm1(min(mu * mu, 600)))
        # The root of chi^2 is a typical loss if it is small. If mu is large, the loss
        # of a sampled record is at most the Gaussian's, of square mu^2 + mu^4 / 4.
        loud = math.sqrt(rate) * mu * math.hypot(1, mu / 2)
        return Dominating(
            self.times,
            min(scale, loud),
            max(pair.span(tail) for pair in pairs),
            lambda step, tail, reverse: pairs[reverse].law(step, tail),
            mirrored=replaced,
        )

    def guess(self, square: float) -> float:
        """Return the z at which the mean squared privacy loss is about ``square``.

        The mean squared privacy loss is taken as q^2 (e^(1/z^2) - 1) (Bu, Dong, Long,
        Su, "Deep Learning with Gaussian DP", HDSR 2020).
        """
        return super().guess(math.log1p(square / self.rate**2))

    def library_event(self, z: float) -> Any:
        """Return the Poisson sampled Gaussian event of dp_accounting."""
        from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent

        return PoissonSampledDpEvent(self.rate, GaussianDpEvent(self.multiplier(z)))


class PoissonGaussian(SampledRelease):
    """A sum over a Poisson sample of the records, plus normal noise."""

    vectors: ClassVar[bool] = True
    draw = staticmethod(draws.gaussian)

    def law(self) -> Law:
        """Return the law of the sampled Gaussian; at rate 1, that of the Gaussian."""
        if self.rate == 1:
            return GaussianLaw(self.times, self.weight)
        return PoissonGaussianLaw(self.times, self.weight, self.rate)


def removal_loss(x: Floats, rate: float, mu: float) -> Floats:
    """Return log(1 - q + q e^(mu x - mu^2/2)) without cancellation or overflow.

    Parameters
    ----------
    x : array
        Outcomes.
    rate : float
        q.
    mu : float
        Sensitivity / noise scale.
    """
    exponent = mu * x - mu * mu / 2
    near = np.log1p(rate * np.expm1(np.minimum(exponent, 700.0)))
    return np.where(exponent < 700, near, exponent + math.log(rate))


def removal_outcome(loss: Floats, rate: float, mu: float) -> Floats:
    """Return the inverse of ``removal_loss``; -inf at and below log(1 - q).

    Parameters
    ----------
    loss : array
        Privacy losses.
    rate : float
        q.
    mu : float
        Sensitivity / noise scale.
    """
    with np.errstate(divide="ignore"):
        near = np.log(np.maximum(np.expm1(np.minimum(loss, 600.0)) / rate + 1, 0))
    log = np.where(loss < 600, near, loss - math.log(rate))
    return np.asarray((log + mu * mu / 2) / mu)


def removal_pair(rate: float, mu: float) -> MonotonePair:
    """Return the pair for a removed record, (1-q) N(0,1) + q N(mu,1) and N(0,1).

    This is a dominating pair of the Poisson sampled Gaussian (Zhu, Dong, Wang, "Optimal
    Accounting of DP via Characteristic Function", AISTATS 2022, Theorem 11).
    """
    loss = partial(removal_loss, rate=rate, mu=mu)
    outcome = partial(removal_outcome, rate=rate, mu=mu)
    return MonotonePair(((1 - rate, 0.0), (rate, mu)), mu, loss, outcome)


def addition_pair(rate: float, mu: float) -> MonotonePair:
    """Return the pair for an added record, N(0,1) and (1-q) N(0,1) + q N(mu,1).

    The outcome is -x in place of x, so that the loss increases with it.
    """
    one = removal_pair(rate, mu)
    return MonotonePair(
        ((1.0, 0.0),), mu, lambda x: -one.loss(-x), lambda loss: -one.outcome(-loss)
    )


def replacement_outcome(loss: Floats, rate: float, half: float) -> Floats:
    """Return the outcomes x at which ``replacement_pair`` has the given losses l.

    With c = q e^(-m^2/2) and y = e^(m x), (1-q + c y)/(1-q + c/y) = e^l is a quadratic
    equation in y, whose root is y = e^(l/2) e^(asinh((1-q) sinh(l/2) / c)).

    Parameters
    ----------
    loss : array
        The privacy losses l.
    rate : float
        q.
    half : float
        m, half of sensitivity / noise scale.
    """
    ratio = math.log1p(-rate) - math.log(rate) + half * half / 2
    size = np.abs(loss) / 2
    with np.errstate(divide="ignore"):
        log_sinh = size + np.log(-np.expm1(-2 * size)) - math.log(2)
    exponent = log_sinh + ratio
    bend = np.where(
        exponent > 30,
        exponent + math.log(2),
        np.arcsinh(np.exp(np.minimum(exponent, 30))),
    )
    return np.sign(loss) * (size + bend) / half


def replacement_pair(rate: float, mu: float) -> MonotonePair:
    """Return the pair of Poisson sampling for a replaced record.

    The pair is (1-q) N(0,1) + q N(m,1) against (1-q) N(0,1) + q N(-m,1), with m = mu/2.
    The record's clipped term, if sampled, is v in one dataset and v' in the other, with
    norms at most half of the sensitivity. dp_accounting (GaussianPrivacyLoss, REPLACE)
    claims that opposite vectors are the worst ones. This is proved in
    ``dp_erm_bench/releases/allocation_gaussian.py``. The two directions are mirror
    images.
    """
    one = removal_pair(rate, mu / 2)
    outcome = partial(replacement_outcome, rate=rate, half=mu / 2)
    return MonotonePair(one.centres, mu, lambda x: one.loss(x) - one.loss(-x), outcome)
