"""Normal noise on sums, to which each record adds its term in one of t steps.

In a round of t steps, every record draws its own step, uniformly on 1 .. t,
independently and in secret. Each step, even an empty one, publishes the sum of the
terms of its records plus normal noise of standard deviation s ("random allocation",
"balls and bins"). The term of a record may depend on all earlier answers. Its norm is
at most b: b is the sensitivity Delta under ``zero_out``, and half of it under
``replace_one`` (``Adjacency.of_sum``). Below, all lengths are in units of s, so that
terms have norm at most m = b / s.

**Theorem.** Let the neighbours differ in one record. For every gamma >= 0, the
hockey-stick divergence H_gamma of the round's answers is at most that of (A, R) or
(R, A), according to the order of the neighbours, under ``zero_out``, and that of (A, B)
under ``replace_one``. Here e_i are the unit vectors of R^t, and

    R = N(0, I_t),  A = 1/t sum_i N(m e_i, I_t),  B = 1/t sum_i N(-m e_i, I_t).

The bound is reached by a record whose term is a given vector of length m, exchanged
for the opposite one under ``replace_one``.

*Proof.* 1. The record's step I and the steps J of all others are independent of each
other and of the data: a record draws its step whatever it holds. Let both datasets have
the same J. (P, Q) is a mean over J of pairs (P_J, Q_J), and H is jointly convex, so
that a bound for each J is one for (P, Q). Fix J.

2. Given J and the answers y_1 .. y_(i-1), step i publishes f_i + 1{I = i} v_i + noise
on D and f_i + 1{I = i} v'_i + noise on D'. The vectors f_i, v_i, v'_i are functions of
J and those answers, the same for all I: f_i is the sum over the other records, which
are equal in both datasets. ``zero_out`` has v'_i = 0 (or v_i = 0, in the other order).
Let R be the law of y with v_i = v'_i = 0 in every step, and let z_i = y_i - f_i, which
under R is normal N(0, I) given all earlier answers. Given I = i, only step i differs:

    dP/dR = 1/t sum_i X_i,  X_i = e^(<z_i, v_i> - |v_i|^2 / 2),
    dQ/dR = 1/t sum_i Y_i,  Y_i = e^(<z_i, v'_i> - |v'_i|^2 / 2),

    H_gamma(P, Q) = E_R (dP/dR - gamma dQ/dR)_+ = 1/t E_R (sum_i W_i)_+,
    W_i = X_i - gamma Y_i.

3. *One step.* Lemma: let g be convex on R and grow at most linearly, and let (x, y) be
centred and jointly normal with variances p <= m^2 and p' <= m^2 and covariance r.
Then F(p, p', r) = E g(c + e^(x - p/2) - gamma e^(y - p'/2)) is at most its value at
p = p' = m^2, r = -m^2, which is that of x = m h, y = -m h, h standard normal. If
p' = 0, it is at most its value at p = m^2, p' = r = 0; if p = 0, at p' = m^2 and
p = r = 0.
(a) F does not fall if p rises to m^2 while r and p' are held: with an independent
normal x' of variance m^2 - p, e^(x + x' - m^2/2) = e^(x - p/2) e^(x' - (m^2 - p)/2) has
the conditional mean e^(x - p/2) given (x, y); apply Jensen's inequality to g given
(x, y). Adding x' does not change r. The same holds for p'. This also covers the cases
p' = 0 and p = 0.
(b) F does not fall if r falls while p and p' are held. First let g have two bounded
derivatives. With f(x, y) = g(c + X - gamma Y), X = e^(x - p/2), Y = e^(y - p'/2),
Price's theorem says dF/dr = E d^2 f / dx dy = -gamma E X Y g''(c + X - gamma Y) <= 0,
for |r| < sqrt(p p'); F is continuous at the ends. A convex g of linear growth has
slopes between -k and k. It is the limit of its convolutions with N(0, a^2), a -> 0.
These are convex, with the same bounds on the slopes and second derivatives up to
2 k / a, because the slope of g rises by at most 2 k in all. F converges by dominated
convergence, as X and Y are integrable.
After (a), r may be any covariance in [-m^2, m^2]; (b) takes it to -m^2.

4. *All steps.* Let (X*, Y*) = (e^(m h - m^2/2), e^(-m h - m^2/2)) under
``replace_one``, and (e^(m h - m^2/2), 1) or (1, e^(-m h - m^2/2)) under ``zero_out``.
Let V_t(s) = s_+ and V_(i-1)(s) = E V_i(s + X* - gamma Y*). Each V_i is convex and of
linear growth, as it is a mean of shifts of such a function. Claim:
E_R[(sum_j W_j)_+ | y_1 .. y_i] <= V_i(W_1 + ... + W_i). It holds at i = t. If it holds
at i, then

    E_R[(sum_j W_j)_+ | y_1 .. y_(i-1)] <= E_R[V_i(S + W_i) | y_1 .. y_(i-1)]
                                        <= V_(i-1)(S),  S = W_1 + ... + W_(i-1).

Given these answers, v_i and v'_i are fixed vectors and (<z_i, v_i>, <z_i, v'_i>) is
normal with variances |v_i|^2, |v'_i|^2. So step 3 applies to g = V_i, whatever these
vectors are.
At i = 0: H_gamma(P, Q) <= V_0(0) / t = 1/t E (sum_i X*_i - gamma Y*_i)_+ over
independent pairs, which is H_gamma of the pair of the theorem: there z_i is h_i. QED

For (1, Y*), the sign of h is free; as chosen here, all W increase with h. As h -> -h
exchanges A and B, (B, A) has the profile of (A, B).

Steps 3 and 4 say more: they bound E g of the sum for each convex g, with any constant
added to the sum. With t = 1 and the constant (1 - gamma) (1 - q) / q, this is the pair
of Poisson sampling with a replaced record, see ``replacement_pair``.

**Rounds.** Each round draws its steps independently of all others, in secret. Given the
answers of all earlier rounds, it is as above. Adaptive compositions are dominated by
the product of dominating pairs (Zhu, Dong, Wang 2022, Theorem 10). A round that is cut
short publishes a part of a round, and is charged as a whole one. The profile is
computed in ``dp_erm_bench/releases/allocation_curve.py``.

**Assumptions.** The step of each record is uniform given all records. The mechanism
draws the step after the records are fixed and keeps it secret. If the step depends only
on the record's place but is known to others, only the guarantee of one Gaussian
mechanism per round remains. If the step depends on the data, no guarantee remains. The
same is true if empty steps have no noise, because such steps show which records are in
other steps. The number n of records is public.

References
----------
Feldman and Shenfeld, "Privacy amplification by random allocation", 2025
(arXiv:2502.08202), and 2026 (arXiv:2602.17284); Chua et al., "Balls-and-bins sampling
for DP-SGD", 2024. The pair of ``zero_out`` is from these papers. The proof above and
the pair of ``replace_one`` use none of their theorems.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dp_erm_bench.errors import UsageError
from dp_erm_bench.kernels import draws
from dp_erm_bench.kernels.philox import uniforms
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.allocation_curve import STEEP, curve, curve_losses
from dp_erm_bench.releases.base import Mechanism, Release
from dp_erm_bench.releases.gaussian import GaussianLaw, gaussian_rdp
from dp_erm_bench.releases.law import Law
from dp_erm_bench.releases.losses import Dominating, Floats, Losses
from dp_erm_bench.releases.sampling import (
    Batch,
    SampledRelease,
    SamplingMechanism,
)

WHOLE = 1e-9


@functools.lru_cache(maxsize=64)
def cached_profile(
    steps: int, up: float, down: float, scale: float, tail: float
) -> tuple[Floats, Floats]:
    """Return the cached result of ``curve``, which both orders of neighbours need.

    Parameters
    ----------
    steps, up, down, scale, tail
        As in ``curve``.
    """
    return curve(steps, up, down, scale, tail)


@dataclass(frozen=True)
class AllocationGaussianLaw(Law):
    """The law of rounds of random allocation, in which ``times`` counts rounds.

    Attributes
    ----------
    steps : int
        The number t of steps of a round, at least 2. A round of one step has the law of
        the Gaussian mechanism.
    """

    name: ClassVar[str] = "allocation_gaussian"
    sampled: ClassVar[bool] = True
    steps: int = 2

    def __post_init__(self) -> None:
        """Raise ValueError if a parameter is outside its range."""
        super().__post_init__()
        if self.steps < 2:
            raise ValueError(f"steps={self.steps}: must be at least 2")

    def sampling_rate(self) -> float:
        """Return 1 / t, the probability that a step reads a given record."""
        return 1 / self.steps

    def rdp(self, z: float, orders: Floats) -> Floats:
        """Return the Renyi curve of one Gaussian mechanism per round.

        Given the steps of all records, a round is a Gaussian mechanism, and Renyi
        divergence is jointly quasi-convex.
        """
        return gaussian_rdp(orders, self.multiplier(z))

    def steepness(self, z: float) -> float:
        """Return mu of a round; infinite above `STEEP`, where sampling is useless."""
        mu = 1 / self.multiplier(z)
        return mu if mu <= STEEP else math.inf

    def dominating(self, z: float, adjacency: Adjacency, tail: float) -> Dominating:
        """Return the dominating pairs of the module's theorem, from their profiles.

        Parameters
        ----------
        z : float
            Common noise multiplier.
        adjacency : Adjacency
            Relation between neighbouring datasets, which selects the pairs.
        tail : float
            Delta down to which the profiles are computed.
        """
        mu, steps = 1 / self.multiplier(z), self.steps
        replaced = adjacency is Adjacency.REPLACE_ONE
        square = min(mu * mu, 600.0)
        if replaced:
            orders = ((mu / 2, mu / 2), (mu / 2, mu / 2))
            scale = 2 * math.sqrt(math.sinh(square / 4) / steps)
        else:
            orders = ((mu, 0.0), (0.0, mu))
            scale = math.sqrt(math.expm1(square) / steps)
        scale = min(scale, mu * math.hypot(1, mu / 2))
        curves = [cached_profile(steps, *order, scale, tail) for order in orders]

        def losses(step: float, tail: float, reverse: bool) -> Losses:
            first, second = curves[::-1] if reverse else curves
            return curve_losses(first, second)

        span = float(sum(epsilons[-1] for epsilons, _ in curves))
        return Dominating(self.times, scale, span, losses, mirrored=replaced)

    def guess(self, square: float) -> float:
        """Return the z at which the mean squared privacy loss is about ``square``.

        The mean squared privacy loss is taken as (e^(1/z^2) - 1) / t.
        """
        return super().guess(math.log1p(square * self.steps))


class AllocationMechanism(SamplingMechanism):
    """Draws one of t steps for each record, at the start of each round.

    Attributes
    ----------
    records : int
        The number n of records, once a sample has been drawn.
    handed : list of int
        For each trial, the sum of (record + 1) (use + 1) over all records of its
        samples, modulo 2^63. An auditor compares the sum with the steps that the secret
        stream gives. The sum is as secret as these steps.
    """

    kind = "random allocation"

    def __init__(self, release: Release, z: float, identities: Sequence[str]) -> None:
        super().__init__(release, z, identities)
        self.steps, self.records = round(1 / self.rate), 0
        self.handed = [0] * len(identities)
        self._done = [0] * len(identities)
        self._rounds: dict[int, Batch] = {}

    def _draw_samples(self, trial: int, n: int, steps: int) -> Batch:
        if self.rate == 1.0:
            return np.tile(np.arange(n), steps), n * np.arange(steps + 1)
        self.records, parts, sizes = n, [], []
        done, end = self._done[trial], self._done[trial] + steps
        while done < end:
            first = done % self.steps
            if first == 0:
                self._rounds[trial] = self.allocation(trial, n, done // self.steps)
            records, offsets = self._rounds[trial]
            last = min(self.steps, first + end - done)
            parts.append(records[offsets[first] : offsets[last]])
            sizes.append(np.diff(offsets[first : last + 1]))
            done += last - first
        sample, counts = np.concatenate(parts), np.concatenate(sizes)
        uses = np.repeat(np.arange(self._done[trial], end), counts)
        self.handed[trial] += int(((sample + 1) * (uses + 1)).sum())
        self.handed[trial] %= 1 << 63
        self._done[trial] = end
        return sample, np.concatenate([[0], np.cumsum(counts)])

    def allocation(self, trial: int, n: int, index: int) -> Batch:
        """Return the records of a round in the order of their steps, and offsets.

        Record j uses the uniform number n index + j of the trial's secret stream,
        independently of the data. The step of the record is the index of the part that
        contains this number, if [0, 1) is divided into t equal parts.

        Parameters
        ----------
        trial : int
            Number of the trial in the batch.
        n : int
            Number of records.
        index : int
            Number of the round, from 0.

        Returns
        -------
        records : int array of shape (n,)
        offsets : int array of shape (t + 1,)
            Step i sums over ``records[offsets[i]:offsets[i + 1]]``.
        """
        u = uniforms(self.sample_seeds[trial], n * index, n)
        chosen = (u * self.steps).astype(np.int64)
        sizes = np.bincount(chosen, minlength=self.steps)
        order = np.argsort(chosen, kind="stable")
        return order, np.concatenate([[0], np.cumsum(sizes)])


@dataclass(frozen=True, eq=False)
class AllocationGaussian(SampledRelease):
    """Noisy sums, where each record adds to one secret step of a round of t steps.

    Under ``replace_one``, each record's own term must be at most half of the
    sensitivity, as for a Poisson sample.

    Parameters
    ----------
    rate : float
        The probability that a record is in a step: 1 / t for a whole number t.
    """

    vectors: ClassVar[bool] = True
    mechanism: ClassVar[type[Mechanism]] = AllocationMechanism
    draw = staticmethod(draws.gaussian)

    def __post_init__(self) -> None:
        """Raise UsageError unless the rate is 1 / t for a whole number t."""
        super().__post_init__()
        if not self.rate > 0 or abs(round(1 / self.rate) * self.rate - 1) > WHOLE:
            raise UsageError(f"rate={self.rate}: must be 1 / t for a whole number t")

    def law(self) -> Law:
        """Return the law of all rounds that begin; for t = 1, the Gaussian law."""
        steps = round(1 / self.rate)
        if steps == 1:
            return GaussianLaw(self.times, self.weight)
        return AllocationGaussianLaw(-(-self.times // steps), self.weight, steps)
