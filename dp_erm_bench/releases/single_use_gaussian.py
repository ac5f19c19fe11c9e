"""Normal noise on steps that read each record at most once, in a secret order.

A run publishes ``times`` vectors. m of them are gradients of one record each, for the
first m records of a uniform random order of all n. The others contain no record at all.
The numbers of the uses that publish gradients are public, and drawn without the data.
Every vector gets normal noise of standard deviation s. Its sensitivity is that of one
record, Delta: L under ``zero_out``, 2 L under ``replace_one``, for gradients of norm at
most L. With mu = Delta / s:

1. Let the neighbours D, D' differ in the record i; they are fixed before the order is
   drawn. Given the order o and all earlier answers, the queries on D and D' are equal
   at every use but the one that reads i, where they differ by at most Delta. So given
   o, the run is one Gaussian mechanism between others without the record, and
   H(P_o, Q_o) <= H_mu for the hockey-stick divergence H of every epsilon >= 0, H_mu
   being the profile of N(mu, 1) against N(0, 1): mu-GDP composed with 0-GDP.
   If i is not among the first m of o, P_o = Q_o and H = 0.
2. The order is secret and independent of the data, so P and Q are the means of P_o and
   Q_o over it. H is jointly convex, and i is among the first m with probability m / n:

       delta(eps) <= (m / n) H_mu(eps),  eps >= 0.

3. The same argument bounds every f-divergence. So the pair is dominated by
   (A, N(mu, 1)) against (A, N(0, 1)), where A is a coin of probability m / n that shows
   whether anything was published. Its losses are those of the Gaussian with probability
   m / n, and 0 otherwise. The Renyi divergence of order a is
   log(1 - m/n + m/n e^(a (a - 1) mu^2 / 2)) / (a - 1). Other Gaussian releases, of mu'
   in total, add up within A: with M^2 = mu^2 + mu'^2,
   delta(eps) <= (m / n) H_M(eps) + (1 - m / n) H_mu'(eps).

A vector may contain several records, as a sum of their terms, if none of them is in
another vector: m then counts records. In a binary tree over the records, in their own
order, a record is part of one node of each level: each level is one such pass.

The factor m / n needs an order that is uniform given the records: the mechanism draws
it after they are fixed, and keeps it secret. An order that is merely not published is
not enough. In three cases only step 1 is left, and the run is one Gaussian mechanism:
the order was drawn beforehand, and the records arrived in this order or were chosen by
somebody who knew a part of it; the order is that of the file; or other runs share the
order. The numbers of the uses that read no record may be published in any case, because
the law of the order does not depend on them.

References
----------
Arora, Marinov, Ullah, "Private stochastic convex optimization: efficient algorithms for
non-smooth objectives", 2020, whose algorithm uses this; the proof is a different one.
Balle, Barthe, Gaboardi, "Privacy amplification by subsampling", NeurIPS 2018 (joint
convexity).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.errors import BudgetExhausted, NotSampled, UsageError
from dp_erm_bench.kernels import draws
from dp_erm_bench.kernels.philox import uniforms
from dp_erm_bench.releases.additive import AdditiveMechanism
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.base import Mechanism, Release
from dp_erm_bench.releases.gaussian import GaussianLaw, gaussian_rdp, gdp_delta
from dp_erm_bench.releases.law import Law, log_mean_exp
from dp_erm_bench.releases.losses import Dominating, Floats, Losses, gaussian_pair
from dp_erm_bench.releases.streams import stream_seeds

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class SingleUseLaw(Law):
    """The law of a pass that reads some records once each, in a secret uniform order.

    ``times`` counts passes, not their steps.

    Attributes
    ----------
    fresh : int
        The number m of records that are read.
    records : int
        The number n > m of all records.
    """

    name: ClassVar[str] = "single_use"
    profiled: ClassVar[bool] = True
    fresh: int = 1
    records: int = 2

    def __post_init__(self) -> None:
        """Raise ValueError if a parameter is outside its range."""
        super().__post_init__()
        if not 0 < self.fresh < self.records:
            raise ValueError(f"fresh={self.fresh}: must be in (0, {self.records})")

    def sampling_rate(self) -> float:
        """Return m / n, the probability that a pass reads a given record."""
        return self.fresh / self.records

    def rdp(self, z: float, orders: Floats) -> Floats:
        """Return the Renyi curve of step 3 of the proof in the module's docstring."""
        share = np.full_like(orders, self.sampling_rate())
        power = (orders - 1) * gaussian_rdp(orders, self.multiplier(z))
        mean = log_mean_exp((share, 1 - share), (power, np.zeros_like(orders)))
        return np.asarray(mean / (orders - 1))

    def steepness(self, z: float) -> float:
        """Return mu of a pass, sensitivity / noise scale."""
        return 1 / self.multiplier(z)

    def dominating(self, z: float, adjacency: Adjacency, tail: float) -> Dominating:
        """Return the dominating pair of the module's step 3.

        The pair is its own mirror image.

        Parameters
        ----------
        z : float
            Common noise multiplier.
        adjacency : Adjacency
            Not used: the pair is the same for both.
        tail : float
            Probability mass that may be cut off.
        """
        mu, share = 1 / self.multiplier(z), self.sampling_rate()
        pair = gaussian_pair(mu)

        def losses(step: float, tail: float, _: bool) -> Losses:
            read = pair.law(step, tail)
            masses = np.append(share * read.masses, 1 - share)
            return Losses(np.append(read.losses, 0.0), masses, share * read.infinite)

        scale = mu * math.sqrt(share)
        return Dominating(self.times, scale, pair.span(tail), losses)

    def delta(self, epsilon: float, z: float, mu: float) -> float:
        """Return the delta of steps 2 and 3 of the proof in the module's docstring.

        Parameters
        ----------
        epsilon, z, mu : float
            As in ``Law.delta``.
        """
        share = self.sampling_rate()
        both = math.hypot(1 / self.multiplier(z), mu)
        return share * gdp_delta(epsilon, both) + (1 - share) * gdp_delta(epsilon, mu)


class SingleUseMechanism(AdditiveMechanism):
    """Draws the order of the records, hands each out once, and adds noise.

    The order belongs to the mechanism. It is drawn from its own random stream, which is
    secret like the noise. If the order is not drawn, it is that of the records.

    Attributes
    ----------
    handed : list of list of arrays
        The records handed out so far, by trial.
    """

    release: "SingleUseGaussian"

    def __init__(self, release: Release, z: float, identities: Sequence[str]) -> None:
        super().__init__(release, z, identities)
        self.order_seeds = stream_seeds(identities, f"{release.name}/order")
        self.handed: list[list[Indices]] = [[] for _ in identities]
        self._read = [0] * len(identities)
        self._orders: dict[int, Indices] = {}
        self.everyone = False

    def permutation(self, trial: int) -> Indices:
        """Return the records of a trial in the order of reading, shape (n,)."""
        if not self.release.drawn:
            return np.arange(self.release.records)
        drawn = uniforms(self.order_seeds[trial], 0, self.release.records)
        return np.argsort(drawn, kind="stable")

    def next_records(self, trial: int, count: int) -> Indices:
        """Return the records that a trial's next ``count`` gradients read.

        The result has the shape (count,).

        If an audit has set ``everyone``, return all records instead. In such an audit,
        the other records contribute nothing.

        Raises
        ------
        BudgetExhausted
            If more records are read than declared.
        """
        done = self._read[trial]
        if done + count > self.release.fresh:
            raise BudgetExhausted(
                f"release {self.release.name} was declared to read "
                f"{self.release.fresh} records, but record {done + count} was requested"
            )
        if trial not in self._orders:
            self._orders[trial] = self.permutation(trial)
        part = self._orders[trial][done : done + count]
        self.handed[trial].append(part)
        self._read[trial] += count
        return np.arange(self.release.records) if self.everyone else part.copy()

    def finish(self, early: bool = False) -> None:
        """Raise NotSampled unless each trial has read as many records as declared."""
        for read in () if early else self._read:
            if self.used and read != self.release.fresh:
                raise NotSampled(
                    f"release {self.release.name} is certified for reading "
                    f"{self.release.fresh} records of its order, but {read} were taken"
                )


@dataclass(frozen=True, eq=False)
class SingleUseGaussian(Release):
    """Noisy gradients of single records, each read once, between uses of pure noise.

    Parameters
    ----------
    sensitivity : float or array
        Largest norm of the change of one record's gradient: L under ``zero_out``, 2 L
        under ``replace_one``.
    times : int
        Number of published vectors, with and without a record.
    records : int
        The number n of records.
    fresh : int
        The number m of records that are read, at most n.
    drawn : bool
        Whether the mechanism draws the order of the records and keeps it secret. With
        False, it is the given order of the records.
    """

    mechanism: ClassVar[type[Mechanism]] = SingleUseMechanism
    vectors: ClassVar[bool] = True
    draw = staticmethod(draws.gaussian)
    records: int = field(kw_only=True)
    fresh: int = field(kw_only=True)
    drawn: bool = True

    def __post_init__(self) -> None:
        """Raise UsageError if more records are to be read than there are."""
        if not 0 <= self.fresh <= self.records:
            raise UsageError(f"fresh={self.fresh}: must be in [0, {self.records}]")

    def law(self) -> Law:
        """Return the law of the pass; without amplification, that of one Gaussian."""
        passes = min(1, self.fresh, self.times)
        if not self.drawn or self.fresh >= self.records:
            return GaussianLaw(passes, self.weight)
        return SingleUseLaw(passes, self.weight, max(1, self.fresh), self.records)
