"""Second implementation (twin) of noise on steps that read each record once."""

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
    """Twin (second implementation) of one pass over a secret part of the records.

    The record is at each of the n places of the order with probability 1 / n. The
    likelihood ratio of the pass is computed as if this place were revealed together
    with the answers. So the loss is that of one normal density with the probability
    that the record is read, else 0. The loss is integrated here by quadrature over the
    answer, while the release uses the closed form of the profile.

    Attributes
    ----------
    share : float
        The share of records that were read; 1 if the order was not the secret stream's.
    """

    joint: ClassVar[bool] = True
    share: float = 1.0

    @classmethod
    def of(cls, release: Any, mechanism: Any, ratio: float, times: int) -> Twin:
        """Return the twin (second implementation) of a mechanism as a run used it.

        The twin is Gaussian if the order of the records is not secret, or if all
        records are read. The order that was used is compared with the order of the
        trial's secret stream. If the orders differ, all records count as read.

        Parameters
        ----------
        release : Release
            The release with its declared sensitivity.
        mechanism : Mechanism
            The mechanism after the run.
        ratio : float
            The smallest noise scale / sensitivity.
        times : int
            Number of uses.
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
        """Return losses x mu - mu^2 / 2 for x ~ N(mu, 1), or 0, and their masses."""
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
        """Return the Renyi divergence by quadrature; infinite if it is too large."""
        power = orders - 1
        tame = power / self.ratio < LARGEST_TILT
        curve = np.full(orders.shape, np.inf)
        curve[tame] = log_moments_of_losses(self.losses(), power[tame]) / power[tame]
        return curve

    def distribution(self, step: float, adjacency: Adjacency, least: bool) -> Any:
        """Return dp_accounting's distribution for a pass.

        The loss is that of a Gaussian with the probability that the record is read, and
        0 otherwise.

        Parameters
        ----------
        step : float
            Spacing of the lattice of losses.
        adjacency : Adjacency
            The neighbouring relation.
        least : bool
            Whether to round down, for a lower bound; otherwise up.
        """
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
        """Return the log-ratio of all answers of a run, shape (B,).

        The query is the exchanged record's gradient at every use that reads a record;
        the gradients of all other records are zero. Relative to noise alone the density
        is 1 - m / n + sum over the uses of e^((a - v / 2).v) / n in units of the noise.
        If the order is not drawn, the gradient is at the record's one use.
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
