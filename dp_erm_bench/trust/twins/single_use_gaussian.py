"""Normal noise on steps that read each record at most once, a second time."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import logsumexp
from scipy.stats import norm

from dp_erm_bench.kernels.philox import uniforms
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.trust.twins.base import (
    LARGEST_TILT,
    Answered,
    Array,
    Twin,
    log_moments_of_losses,
)
from dp_erm_bench.trust.twins.gaussian import GaussianTwin, normal


@dataclass(frozen=True)
class SingleUseGaussianTwin(Twin):
    """One pass over a secret part of the records.

    The likelihood ratio of the pass is that of a place: the record is at each of the n
    places of the order with probability 1 / n, and the answers at the places that are
    read are told together with the place. So the loss is that of one normal density
    with the probability of being read, else 0: integrated here by quadrature over the
    answer, where the release has the closed form of the profile.

    Attributes
    ----------
    share : float
        The records that were read out of all; the order was the secret stream's.
    """

    joint: ClassVar[bool] = True
    share: float = 1.0

    @classmethod
    def of(cls, release: Any, mechanism: Any, ratio: float, times: int) -> Twin:
        """Return the twin of a mechanism; that of a Gaussian where no part is charged.

        The order that was used is compared with the one of the trial's secret stream:
        where it is another, all records count as read.
        """
        if not release.drawn or release.fresh >= release.records:
            return GaussianTwin(ratio, 1)
        shares = []
        for seed, parts in zip(mechanism.order_seeds, mechanism.handed, strict=True):
            read = np.concatenate([np.empty(0, np.int64), *parts])
            secret = np.argsort(uniforms(seed, 0, release.records), kind="stable")
            own = np.array_equal(read, secret[: read.size])
            shares.append(read.size / release.records if own else 1.0)
        return cls(ratio, 1, max(shares))

    @property
    def typical_loss(self) -> float:
        """Return the typical privacy loss of the pass."""
        return math.sqrt(self.share) / self.ratio

    def losses(self) -> tuple[Array, Array]:
        """Return nodes (losses, masses): log-ratios x mu - mu^2 / 2 at x ~ N(mu, 1)."""
        mu = 1 / self.ratio
        nodes, weights = np.polynomial.legendre.leggauss(20)
        ends = np.linspace(-38.0, 38.0, 800)
        half = np.diff(ends)[:, None] / 2
        x = (ends[:-1, None] + half * (1 + nodes)).ravel()
        masses = self.share * norm.pdf(x) * (half * weights).ravel()
        losses = norm.logpdf(x) - norm.logpdf(x + mu)
        places = np.searchsorted(losses, 0.0)
        return np.insert(losses, places, 0.0), np.insert(masses, places, 1 - self.share)

    def renyi(self, orders: Array) -> Array:
        """Return the divergence by quadrature, infinite where it is too large."""
        power = orders - 1
        tame = power / self.ratio < LARGEST_TILT
        curve = np.full(orders.shape, np.inf)
        curve[tame] = log_moments_of_losses(self.losses(), power[tame]) / power[tame]
        return curve

    def distribution(self, step: float, adjacency: Adjacency, least: bool) -> Any:
        """Return the library's distribution of a Gaussian, the rest of it at loss 0."""
        from dp_accounting.pld import pld_pmf
        from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

        whole = normal(self.ratio, 1.0, step, least)._pmf_remove.to_dense_pmf()
        probabilities = self.share * whole._probs
        probabilities[-whole._lower_loss] += 1 - self.share
        return PrivacyLossDistribution(
            pld_pmf.DensePLDPmf(
                step,
                whole._lower_loss,
                probabilities,
                self.share * whole._infinity_mass,
                not least,
            )
        )

    @staticmethod
    def log_ratio_of_run(release: Any, uses: Sequence[Answered]) -> Array:
        """Return the log-ratio of all answers of a run, (B,).

        The query is the exchanged record's gradient at every use that reads a record,
        and all others' are zero. Relative to noise alone the density is 1 - m / n + sum
        over the uses of e^((a - v / 2).v) / n in units of the noise; a given order has
        the gradient at its one use.
        """

        def mixture_of(side: int) -> Array:
            gains, held = [], []
            for use in uses:
                a, v = use.values(), use.normalise_queries()[side]
                gains.append(((a - v / 2) * v).sum(axis=1))
                held.append((v != 0.0).any(axis=1))
            if not release.drawn:
                return np.asarray(np.sum(gains, axis=0))
            read = np.asarray(held, np.float64)
            rest = 1.0 - read.sum(axis=0) / release.records
            weights = np.concatenate([rest[None], read / release.records])
            exponents = np.concatenate([np.zeros_like(rest)[None], gains])
            return np.asarray(logsumexp(exponents, axis=0, b=weights))

        return mixture_of(0) - mixture_of(1)
