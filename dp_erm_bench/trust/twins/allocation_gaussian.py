"""Second implementation (twin) of noise on sums to which records add once per round."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from scipy.stats import norm

from dp_erm_bench.kernels.philox import uniforms
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.trust.twins.base import Answered, Array, Twin
from dp_erm_bench.trust.twins.gaussian import GaussianTwin

# Numbers of panels and of lattice cells, the smallest delta, and a large ratio.
PANELS, CELLS = 150, 1 << 18
SMALLEST = 1e-13
FAR = 3.0


def nodes_of_allocation(
    gamma: float, up: float, down: float, top: float
) -> tuple[Array, Array]:
    """Return values of a random variable W at nodes of a quadrature, and their masses.

    W = e^(up g - up^2/2) - gamma e^(-down g - down^2/2) for a standard normal g. The
    nodes are those of Gauss-Legendre rules on panels that are short in g and, for large
    W, short in W.

    Parameters
    ----------
    gamma : float
        e^epsilon.
    up, down : float
        Lengths of a record's term on D and on D', in units of the noise.
    top : float
        Largest g.
    """
    ends = [np.linspace(-down - 9, top, PANELS)]
    if up:
        levels = np.linspace(0, math.exp(up * top - up * up / 2), PANELS)[1:]
        ends.append((np.log(levels) + up * up / 2) / up)
    if down:
        levels = np.linspace(0, math.exp(down * (down / 2 + 9)), PANELS)[1:]
        ends.append(-(np.log(levels) + down * down / 2) / down)
    breaks = np.unique(np.concatenate(ends).clip(-down - 9, top))
    points, weights = np.polynomial.legendre.leggauss(8)
    half = np.diff(breaks)[:, None] / 2
    g = (breaks[:-1, None] + half * (points + 1)).ravel()
    ratio = np.exp(up * g - up * up / 2) - gamma * np.exp(-down * g - down * down / 2)
    return ratio, norm.pdf(g) * (half * weights).ravel()


def mean_of_sums(epsilon: float, steps: int, up: float, down: float) -> float:
    """Return nearly E (W_1 + ... + W_t)_+ / t, for W as in ``nodes_of_allocation``.

    The law of W is tilted to where the positive part is, put on a lattice around 0, and
    convolved with itself t times by FFT. Ratios of more than FAR e^epsilon t are
    treated separately: a sum that contains such a ratio is positive.

    Parameters
    ----------
    epsilon : float
        At least 0.
    steps : int
        Steps of a round, t.
    up, down : float
        Lengths of a record's term on D and on D', in units of the noise.
    """
    gamma = math.exp(epsilon)
    top, alone = 9.0 + up, 0.0
    if up and up * top - up * up / 2 > math.log(FAR * gamma * steps):
        top = (math.log(FAR * gamma * steps) + up * up / 2) / up
        others = gamma + (steps - 1) * (gamma - 1)
        alone = max(0.0, norm.sf(top - up) - others * norm.sf(top))
    ratio, masses = nodes_of_allocation(gamma, up, down, top)
    highest = float(ratio[-1])
    if highest <= 0:
        return alone
    spread = math.sqrt(steps * float(masses @ (ratio - masses @ ratio) ** 2))
    half = min(steps * highest, 1.2 * highest + 12 * spread)
    step, ratio = 2 * half / CELLS, np.maximum(ratio, -0.9 * half)

    def exponent(c: float) -> float:
        logs = np.log(masses @ np.exp(c * (ratio - highest))) + c * highest
        return float(steps * logs - 2 * math.log(c))

    # For a larger tilt, sums above the lattice would wrap around with too much mass.
    scales = np.log([1e-3 / steps / highest, 10 / half])
    found = minimize_scalar(
        lambda x: exponent(math.exp(x)), bounds=scales, method="bounded"
    )
    c = math.exp(found.x)
    mean = math.exp((exponent(c) + 2 * math.log(c)) / steps)
    place = np.floor(ratio / step).astype(np.int64)
    part = ratio / step - place
    tilted = masses * np.exp(c * ratio) / mean
    lattice = np.bincount(place % CELLS, tilted * (1 - part), CELLS)
    lattice += np.bincount((place + 1) % CELLS, tilted * part, CELLS)
    sums = np.fft.irfft(np.fft.rfft(lattice) ** steps)[: CELLS // 2]
    s = step * np.arange(CELLS // 2)
    total = float(sums @ (s * np.exp(-c * s)))
    return min(1.0, mean**steps * total / steps + alone)


@functools.lru_cache(maxsize=64)
def profile(steps: int, up: float, down: float, scale: float) -> tuple[Array, Array]:
    """Return epsilons from 0 on, and log delta at each, down to ``SMALLEST``.

    Parameters
    ----------
    steps : int
        Steps of a round, t.
    up, down : float
        Lengths of a record's term on D and on D', in units of the noise.
    scale : float
        Typical privacy loss, in which the spacing of epsilons is measured.
    """
    at, logs, gap = [0.0], [math.log(mean_of_sums(0.0, steps, up, down))], 0.2 * scale
    while logs[-1] > math.log(SMALLEST) and len(at) < 400:
        delta = mean_of_sums(at[-1] + gap, steps, up, down)
        if not 0 < delta < math.exp(logs[-1]):
            break
        at.append(at[-1] + gap)
        logs.append(math.log(delta))
        gap *= min(1.3, max(0.7, 0.8 / (logs[-2] - logs[-1])))
    return np.array(at), np.array(logs)


def expected_checksum(seed: Any, n: int, times: int, steps: float) -> int:
    """Return the checksum of the steps that a secret stream gives to records.

    The checksum is the sum of (record + 1) (use + 1) over all rounds, modulo 2^63.

    Parameters
    ----------
    seed : array of uint32
        Seed of the trial's secret stream.
    n : int
        Number of records.
    times : int
        Number of uses; the last round may be cut short.
    steps : float
        Steps of a round, t.
    """
    total, t = 0, round(steps)
    for index in range(math.ceil(times / t) if n else 0):
        use = t * index + np.floor(t * uniforms(seed, n * index, n)).astype(np.int64)
        total += int(((1 + use) * np.arange(1, n + 1))[use < times].sum())
    return total % (1 << 63)


@dataclass(frozen=True)
class AllocationGaussianTwin(Twin):
    """Twin of random allocation: a second implementation of its law.

    Each record is in one step of a round. The privacy profile here is approximate,
    while that of the release is an upper bound.

    Attributes
    ----------
    rate : float
        The probability 1 / t that a record is in a step.
    """

    joint: ClassVar[bool] = True
    # The release's profile is a chord between its computed points.
    slack: ClassVar[float] = 5e-3
    rate: float = 1.0

    @classmethod
    def of(cls, release: Any, mechanism: Any, ratio: float, times: int) -> Twin:
        """Return the twin (second implementation) of a mechanism as a run used it.

        At rate 1, it is the twin of the Gaussian mechanism. The records of each step
        are compared with the records that the trial's secret stream gives to the step
        at the release's ``rate``. If they differ, no amplification is counted.

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
        rounds = math.ceil(times * release.rate - 1e-9)
        drawn = zip(mechanism.sample_seeds, mechanism.handed, strict=True)
        if mechanism.rate == 1.0:
            return GaussianTwin(ratio, times)
        for seed, handed in drawn:
            if handed != expected_checksum(
                seed, mechanism.records, times, 1 / release.rate
            ):
                return GaussianTwin(ratio, rounds)
        return cls(ratio, rounds, release.rate)

    @property
    def typical_loss(self) -> float:
        """Return the typical privacy loss of a round."""
        half = 1 / (2 * self.ratio)
        quiet = math.sqrt(self.rate * math.expm1(min(half * half, 600)))
        return max(min(quiet, half), 0.02 * half)

    def renyi(self, orders: Array) -> Array:
        """Return the Renyi divergence of a round if its steps were known."""
        return orders / (2 * self.ratio**2)

    def distribution(self, step: float, adjacency: Adjacency, least: bool) -> Any:
        """Return dp_accounting's loss distributions of the profile, for both orders.

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

        if least:
            raise ValueError("no exact instance is kept for random allocation")
        steps, mu = round(1 / self.rate), 1 / self.ratio
        orders = [(mu, 0.0), (0.0, mu)]
        if adjacency is Adjacency.REPLACE_ONE:
            orders = [(mu / 2, mu / 2)] * 2
        loss = math.sqrt(self.rate * math.expm1(min(mu * mu, 600)))
        curves = [profile(steps, *order, min(loss, mu)) for order in orders]
        wide = max(1, round(self.typical_loss / 20 / step))

        def side(index: int) -> tuple[Array, Array]:
            at, logs = curves[index]
            places = np.arange(0, math.floor(at[-1] / step) + 1, wide)
            return places, np.exp(PchipInterpolator(at, logs)(places * step))

        def law(first: int) -> Any:
            (ups, over), (downs, under) = side(first), side(1 - first)
            left = np.exp(-downs[:0:-1] * step)
            below = 1 - left + left * under[:0:-1]
            places = np.concatenate([-downs[:0:-1], ups])
            # Both curves are approximate where they meet.
            deltas = np.minimum.accumulate(np.concatenate([below, over]))
            return pld_pmf.create_pmf_pessimistic_connect_dots(step, places, deltas)

        return PrivacyLossDistribution(law(0), law(1))

    @staticmethod
    def log_ratio_of_run(release: Any, uses: Sequence[Answered]) -> Array:
        """Return the log-ratio of all answers of a run, shape (B,).

        The query is the sum with every record in every step. All records but one are
        zero, so step i of a round has the sum v_i if it is the record's step, else 0.
        Relative to noise alone, the density of a round is
        1/t sum_i e^((a_i - v_i / 2).v_i), in units of the noise, with the answers a_i.
        In a round that ends early, each step that is not made adds 1/t.
        """
        t = round(1 / release.rate)

        def mixture_of(side: int) -> Array:
            total: Array = np.zeros(len(uses[0].first))
            for start in range(0, len(uses), t):
                gains = np.zeros((t, total.size))
                for i, use in enumerate(uses[start : start + t]):
                    a, v = use.values(), use.normalise_queries()[side]
                    gains[i] = ((a - v / 2) * v).sum(axis=1)
                total = total + logsumexp(gains, axis=0) - math.log(t)
            return total

        return mixture_of(0) - mixture_of(1)
