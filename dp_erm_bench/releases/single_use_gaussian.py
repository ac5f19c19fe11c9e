"""Normal noise on steps that read each record at most once, in a secret order.

A run publishes ``times`` vectors. m of them are gradients of one record each, the first
m records of a uniform random order of all n; the others hold no record at all, and at
which uses they come is public, drawn without the data. Every vector gets normal noise
of deviation s; its sensitivity is that of one record, Delta: L under ``zero_out``, 2 L
under ``replace_one``, for gradients of norm at most L. With mu = Delta / s:

1. Let the neighbours D, D' differ in the record i; they are fixed before the order is
   drawn. Given the order o and all earlier answers, the queries on D and D' are equal
   at every use but the one that reads i, where they differ by at most Delta. So given o
   the run is one Gaussian mechanism between others without the record, and
   H(P_o, Q_o) <= H_mu for the hockey-stick divergence H of every epsilon >= 0, H_mu
   being the profile of N(mu, 1) against N(0, 1): mu-GDP composed with 0-GDP.
   If i is not among the first m of o, P_o = Q_o and H = 0.
2. The order is secret and independent of the data, so P and Q are the means of P_o and
   Q_o over it. H is jointly convex, and i is among the first m with probability m / n:

       delta(eps) <= (m / n) H_mu(eps),  eps >= 0.

3. The same argument bounds every f-divergence, so (A, N(mu, 1)) against (A, N(0, 1)),
   A a coin of probability m / n that tells whether anything was published, dominates
   the pair: its losses are those of the Gaussian with probability m / n, else 0. Of
   order a the Renyi divergence is log(1 - m/n + m/n e^(a (a - 1) mu^2 / 2)) / (a - 1).
   Gaussian releases beside it, of mu' in total, add up within A: with
   M^2 = mu^2 + mu'^2, delta(eps) <= (m / n) H_M(eps) + (1 - m / n) H_mu'(eps).

A vector may hold several records, as a sum of their terms, none of which is in another
vector: m counts records then. In a binary tree over the records, in their own order,
a record takes part in one node of each level: a level is one such pass.

The factor m / n is for an order that is uniform given the records: the mechanism draws
it after they are fixed, and keeps it secret. Not being told is not enough: of an order
that was drawn before, by which records came or were chosen by somebody who knew a part
of it, of the file's, or of one that other runs share, only step 1 is left, and the run
is one Gaussian mechanism. Which uses read no record may be published in any case: the
law of the order does not depend on it.

References
----------
Arora, Marinov, Ullah, "Private stochastic convex optimization: efficient algorithms for
non-smooth objectives", 2020, whose algorithm this is for; the proof is another one.
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
    """A pass that reads some records once each, in a secret uniform order.

    ``times`` counts passes, not their steps.

    Attributes
    ----------
    fresh : int
        m, the number of records that are read.
    records : int
        n > m.
    """

    name: ClassVar[str] = "single_use"
    profiled: ClassVar[bool] = True
    fresh: int = 1
    records: int = 2

    def __post_init__(self) -> None:
        """Refuse numbers outside their ranges."""
        super().__post_init__()
        if not 0 < self.fresh < self.records:
            raise ValueError(f"fresh={self.fresh}: must be in (0, {self.records})")

    def sampling_rate(self) -> float:
        """Return m / n."""
        return self.fresh / self.records

    def rdp(self, z: float, orders: Floats) -> Floats:
        """Return the curve of step 3."""
        share = np.full_like(orders, self.sampling_rate())
        power = (orders - 1) * gaussian_rdp(orders, self.multiplier(z))
        mean = log_mean_exp((share, 1 - share), (power, np.zeros_like(orders)))
        return np.asarray(mean / (orders - 1))

    def steepness(self, z: float) -> float:
        """Return mu."""
        return 1 / self.multiplier(z)

    def dominating(self, z: float, adjacency: Adjacency, tail: float) -> Dominating:
        """Return the pair of step 3, which is its own mirror image."""
        mu, share = 1 / self.multiplier(z), self.sampling_rate()
        pair = gaussian_pair(mu)

        def losses(step: float, tail: float, _: bool) -> Losses:
            read = pair.law(step, tail)
            masses = np.append(share * read.masses, 1 - share)
            return Losses(np.append(read.losses, 0.0), masses, share * read.infinite)

        scale = mu * math.sqrt(share)
        return Dominating(self.times, scale, pair.span(tail), losses)

    def delta(self, epsilon: float, z: float, mu: float) -> float:
        """Return the delta of steps 2 and 3."""
        share = self.sampling_rate()
        both = math.hypot(1 / self.multiplier(z), mu)
        return share * gdp_delta(epsilon, both) + (1 - share) * gdp_delta(epsilon, mu)


class SingleUseMechanism(AdditiveMechanism):
    """Draws the order of the records, hands each out once, and adds noise.

    The order belongs to the mechanism: it is drawn from a stream of its own, secret
    like the noise. A given order is that of the records.

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
        """Return the records of a trial in the order in which they are read, (n,)."""
        if not self.release.drawn:
            return np.arange(self.release.records)
        drawn = uniforms(self.order_seeds[trial], 0, self.release.records)
        return np.argsort(drawn, kind="stable")

    def next_records(self, trial: int, count: int) -> Indices:
        """Return the records that a trial's next ``count`` gradients read, (count,).

        All records in place of each where an audit set ``everyone``: it knows of the
        others that they contribute nothing.

        Raises
        ------
        BudgetExhausted
            If these are more than are declared.
        """
        done = self._read[trial]
        if done + count > self.release.fresh:
            raise BudgetExhausted(
                f"release {self.release.name} was declared to read "
                f"{self.release.fresh} records and is asked for record {done + count}"
            )
        if trial not in self._orders:
            self._orders[trial] = self.permutation(trial)
        part = self._orders[trial][done : done + count]
        self.handed[trial].append(part)
        self._read[trial] += count
        return np.arange(self.release.records) if self.everyone else part.copy()

    def finish(self, early: bool = False) -> None:
        """Raise NotSampled unless each trial has read what is declared."""
        for read in () if early else self._read:
            if self.used and read != self.release.fresh:
                raise NotSampled(
                    f"release {self.release.name} is certified for reading "
                    f"{self.release.fresh} records of its order, and {read} were taken"
                )


@dataclass(frozen=True, eq=False)
class SingleUseGaussian(Release):
    """Noisy gradients of one record each, no record twice, and noise alone between.

    Parameters
    ----------
    sensitivity : float or array
        Largest norm of the change of one record's gradient: L under ``zero_out``, 2 L
        under ``replace_one``.
    times : int
        Number of published vectors, with and without a record.
    records : int
        n.
    fresh : int
        m, how many of them hold a record: at most n.
    drawn : bool
        Whether the mechanism draws the order of the records and keeps it secret;
        False: it is given, as that of the records is.
    """

    mechanism: ClassVar[type[Mechanism]] = SingleUseMechanism
    vectors: ClassVar[bool] = True
    draw = staticmethod(draws.gaussian)
    records: int = field(kw_only=True)
    fresh: int = field(kw_only=True)
    drawn: bool = True

    def __post_init__(self) -> None:
        """Refuse to read more records than there are."""
        if not 0 <= self.fresh <= self.records:
            raise UsageError(f"fresh={self.fresh}: must be in [0, {self.records}]")

    def law(self) -> Law:
        """Return the law of the pass; where all records are read, one Gaussian."""
        passes = min(1, self.fresh, self.times)
        if not self.drawn or self.fresh >= self.records:
            return GaussianLaw(passes, self.weight)
        return SingleUseLaw(passes, self.weight, max(1, self.fresh), self.records)
