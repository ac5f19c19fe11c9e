"""Accounting by privacy-loss distributions (PLD), composed on a lattice.

**What is composed.** An adaptive composition is dominated by the product of the steps'
dominating pairs (Zhu, Dong, Wang, AISTATS 2022, Theorem 10; Dong, Roth, Su 2022,
Theorem 3.2), whose loss is the sum of the steps' independent losses. If a pair is not
its own mirror image, the two orders of the neighbours are composed separately, each
with all steps in the same order, and the larger epsilon counts.

**One step.** A node (l, m) with i h <= l < (i+1) h is split between the two lattice
points such that both its mass m under P and its mass m e^-l under Q are kept; the upper
point gets the share (1 - e^(ih - l)) / (1 - e^-h). Hockey-stick divergences are
expectations of the convex functions (1 - e^eps r)_+ of r = e^-l. The split is a
mean-preserving spread of r, so no divergence falls: the result dominates the law. This
is "connect the dots" (Doroshenko et al., PoPETs 2022), computed here from masses
instead of second differences of the profile, which lose all digits once h is small.

**Their sum** is computed by FFT under an exponential tilt. Let K(t) = sum_k T_k log
M_k(t) be the logarithm of E e^(tL), where L is the finite part of the sum. The law
tilted by e^(tL - K(t)) is the composition of the tilted steps, and

    P(L = v) = e^(K(t) - t v) P_t(L = v).

t is chosen so that the tilted sum is centred where epsilon will be. The rounding errors
of the FFT, which are relative to the largest tilted probability, are then small
relative to delta. Without the tilt their absolute size is of order T 1e-16, too large
for a small delta.

**Why the result stays an upper bound.** (i) The array has a finite length; sums that
leave it wrap around. Upwards: P(L > top) <= e^(K(u) - u top) for all u >= 0 is added to
the mass at infinity. Downwards: the mass reappears at higher losses, which only adds.
(ii) Infinite loss: its mass is at most sum_k T_k * infinite_k. (iii) Rounding: a factor
of the transform is off by at most ROUNDING. So the product is off by at most
T ROUNDING |phi|^(T-1), and each inverse value by at most the mean of this bound over
the frequencies. The mean is added to every cell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy import fft

from dp_erm_bench.accounting.bounds import Laws, fold_gaussians
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.losses import (
    STEEPEST,
    Dominating,
    Floats,
    Losses,
    gaussian_pair,
)

ROUNDING = 2e-15
LARGEST = 1 << 21
BAND = 600.0
"""The length of the bands of losses in which e^-L neither over- nor underflows."""
TYPICAL = 0.05
"""The delta for which tilt and cut-offs are chosen if a whole profile is computed."""


class LossSteps(NamedTuple):
    """A discretised law used ``times`` times: losses are (first + index) * step."""

    first: int
    masses: Floats
    infinite: float
    times: int


def discretise_law(law: Losses, step: float, times: int) -> LossSteps:
    """Return a law on the lattice that dominates a given law; see the module.

    Parameters
    ----------
    law : Losses
        The privacy-loss law of one use.
    step : float
        Spacing of the lattice.
    times : int
        Number of uses.
    """
    cells = np.floor(law.losses / step)
    inside = law.losses - cells * step
    upper = law.masses * np.clip(np.expm1(-inside) / math.expm1(-step), 0, 1)
    first = int(cells.min())
    index = (cells - first).astype(np.int64)
    size = int(index.max()) + 2
    masses = np.asarray(np.bincount(index, law.masses - upper, size), np.float64)
    masses[1:] += np.bincount(index, upper, size - 1)
    return LossSteps(first, masses, law.infinite, times)


def round_to_band(losses: Floats) -> Floats:
    """Return each loss rounded towards 0 to a multiple of ``BAND``."""
    return np.asarray(BAND * np.trunc(losses / BAND))


def golden_minimiser(
    function: Callable[[float], float], low: float, high: float
) -> float:
    """Return the minimiser t of a function that is unimodal in log t, to about 5 %.

    Parameters
    ----------
    function : callable
        The function of t; may be infinite for large t.
    low, high : float
        Ends of the interval that is searched, positive.
    """
    ratio = (math.sqrt(5) - 1) / 2
    a, b = math.log(low), math.log(high)
    x, y = b - ratio * (b - a), a + ratio * (b - a)
    at_x, at_y = function(math.exp(x)), function(math.exp(y))
    while b - a > 0.05:
        if at_x <= at_y or math.isinf(at_y):
            b, y, at_y = y, x, at_x
            x = b - ratio * (b - a)
            at_x = function(math.exp(x))
        else:
            a, x, at_x = x, y, at_y
            y = a + ratio * (b - a)
            at_y = function(math.exp(y))
    return math.exp((a + b) / 2)


class Composition:
    """The composition of discretised laws on one lattice.

    Parameters
    ----------
    steps : list of LossSteps
        The discretised laws, each with its number of uses.
    step : float
        Spacing of the lattice.
    """

    def __init__(self, steps: list[LossSteps], step: float) -> None:
        self.steps, self.step = steps, step
        self.losses = [step * (s.first + np.arange(len(s.masses))) for s in steps]
        self.infinite = sum(s.times * s.infinite for s in steps)
        self.uses = sum(s.times for s in steps)

    def cumulant(self, t: float) -> float:
        """Return K(t) = log E e^(t L); infinite if it overflows."""
        total = self.uses * ROUNDING
        for part, losses in zip(self.steps, self.losses, strict=True):
            with np.errstate(over="ignore", invalid="ignore"):
                growth = float(part.masses @ np.expm1(t * losses))
            growth += float(part.masses.sum()) - 1
            if not -1 < growth < math.inf:
                return math.inf
            total += part.times * math.log1p(growth)
        return total

    def tilt(self, delta: float) -> float:
        """Return nearly the minimiser t of Chernoff's bound (K(t) - log delta) / t."""
        spread = 0.0
        for part, losses in zip(self.steps, self.losses, strict=True):
            mean = float(part.masses @ losses)
            spread += part.times * (float(part.masses @ losses**2) - mean**2)
        guess = math.sqrt(-2 * math.log(delta) / max(spread, self.step**2))
        largest = 600 / max(float(np.abs(x).max()) for x in self.losses)
        high = min(4 * guess, largest)
        goal = math.log(delta)
        return golden_minimiser(
            lambda t: (self.cumulant(t) - goal) / t, high / 256, high
        )

    def window(self, t: float, delta: float) -> tuple[int, int]:
        """Return the lattice indices of a window large enough for the FFT.

        A sum v above the length L of the array wraps around to v - L, and its mass
        grows by e^(t L) when the tilt is undone. So P(L_T > L) e^(t L), which is at
        most e^(K(u) - u L + t L), is made negligible. Sums below the window hold a
        negligible part of the tilted mass.
        """
        at, negligible = self.cumulant(t), math.log(delta * 1e-6)
        tops = [
            (self.cumulant(u * t) - negligible) / (u * t - t)
            for u in (1.3, 1.7, 2.2, 3, 5)
        ]
        lows = [
            (math.log(1e-9) + at - self.cumulant(t - s * t)) / (s * t)
            for s in (0.2, 0.5, 1)
        ]
        first = sum(s.times * s.first for s in self.steps)
        last = sum(s.times * (s.first + len(s.masses) - 1) for s in self.steps)
        low = max(first, math.floor(max(max(lows), -1e15) / self.step) - 1)
        top = min(tops) + max(0, low) * self.step
        return low, last if math.isinf(top) else min(last, math.ceil(top / self.step))

    def tilted_bounds(self, t: float, low: int, size: int) -> Floats:
        """Return upper bounds on the tilted probabilities of a window of sums.

        Parameters
        ----------
        t : float
            The tilt.
        low : int
            Lattice index of the first sum.
        size : int
            Number of sums, the length of the FFT.
        """
        product, smallest = np.ones(1, np.complex128), np.full(1, np.inf)
        for part, losses in zip(self.steps, self.losses, strict=True):
            weights = part.masses * np.exp(t * losses)
            index = (part.first + np.arange(len(weights))) % size
            factor = fft.rfft(np.bincount(index, weights / weights.sum(), size))
            # Named, since numpy swaps the factors if it may overwrite one of them.
            power = np.power(factor, part.times)
            product = product * power
            smallest = np.minimum(smallest, np.abs(factor))
        error = np.mean(np.abs(product) / np.maximum(smallest, ROUNDING))
        values: Floats = np.roll(fft.irfft(product, size), -(low % size))
        values = np.maximum(values, 0) + (self.uses + 1) * ROUNDING * float(error)
        return values

    def tails(
        self, t: float, start: int, low: int, size: int
    ) -> tuple[Floats, Floats, Floats]:
        """Return losses from ``start`` on, and two masses at and above each loss.

        The first is the sum of all probabilities at and above a loss v. In the second,
        the probability of each loss L is weighted by e^(b - L), with
        b = ``round_to_band(v)``. A mass that overflows is infinite and hence proves
        nothing.

        Parameters
        ----------
        t : float
            The tilt.
        start : int
            Lattice index of the first loss that is returned, at least ``low``.
        low : int
            Lattice index of the first sum of the window.
        size : int
            Number of sums in the window.
        """
        losses: Floats = self.step * np.arange(start, low + size).astype(np.float64)
        masses = self.tilted_bounds(t, low, size)[start - low :]
        with np.errstate(over="ignore"):
            masses = masses * np.exp(self.cumulant(t) - t * losses)
        over: Floats = np.cumsum(masses[::-1])[::-1]
        base = round_to_band(losses)
        under: Floats = masses * np.exp(base - losses)
        ends = [*(np.flatnonzero(np.diff(base)) + 1), base.size]
        above, last = 0.0, base[-1]
        for first, end in zip([0, *ends[:-1]][::-1], ends[::-1], strict=True):
            above *= math.exp(base[first] - last)
            under[first:end] = above + np.cumsum(under[first:end][::-1])[::-1]
            above, last = under[first], base[first]
        return losses, over, under

    def epsilon(self, delta: float) -> float:
        """Return an epsilon >= 0 proved at ``delta``; infinite if none was found."""
        best = self.tilt(delta)
        proofs = (self.epsilon_by(share * best, delta) for share in (0.6, 0.4, 0.2))
        return next(filter(math.isfinite, proofs), math.inf)

    def epsilon_by(self, t: float, delta: float) -> float:
        """Return the epsilon proved under one tilt.

        Let U be the mass of {L > eps} under P, and W the same with each loss weighted
        by e^(b - L), which is e^b times the mass under Q. Both are constant between
        lattice points, and delta(eps) = U - e^(eps - b) W + rest. The rest is the mass
        at infinity and a share of delta for the sums above the window.
        """
        low, top = self.window(t, delta)
        rest = self.infinite + delta * 1e-6
        size = fft.next_fast_len(max(top - low + 1, 16), real=True)
        if size > LARGEST or rest >= delta:
            return math.inf
        start = max(low, 0)
        losses, over, under = self.tails(t, start, low, size)
        base = round_to_band(losses)
        with np.errstate(invalid="ignore"):
            met = over - np.exp(losses - base) * under + rest <= delta
        cell = int(np.argmax(met))
        if not met[-1]:
            return math.inf
        exact = (over[cell] + rest - delta) / under[cell]
        proved = math.log(exact) + base[cell] if cell else losses[0]
        return max(0.0, float(proved))

    def deltas(self, epsilons: Floats) -> Floats:
        """Return upper bounds on delta, E (1 - e^(eps - L))_+, at given epsilons."""
        t = 0.4 * self.tilt(TYPICAL)
        low, top = self.window(t, TYPICAL * 1e-8)
        losses, over, under = self.tails(t, low, low, max(top - low + 1, 16))
        above = np.searchsorted(losses, epsilons, side="right")
        over, under = np.append(over, 0.0), np.append(under, 0.0)
        base = np.append(round_to_band(losses), np.inf)
        deltas = over[above] - np.exp(epsilons - base[above]) * under[above]
        deltas += self.infinite + TYPICAL * 1e-14
        # Below the window some of the mass is missing.
        return np.where(epsilons < losses[0], 1.0, np.clip(deltas, 0.0, 1.0))


FINENESS = 6e-5
CELLS = 1 << 18
COARSE = 1 << 14
SMALLEST_DELTA = 1e-250


def pairs_of(
    laws: Laws, z: float, adjacency: Adjacency, tail: float
) -> list[Dominating]:
    """Return the dominating pairs of laws, with one pair for all Gaussian releases.

    Parameters
    ----------
    laws : tuple of Law
        The laws of all releases; those that are not Gaussian must have a pair.
    z : float
        Common noise multiplier, positive.
    adjacency : Adjacency
        The neighbouring relation for which sensitivities are declared.
    tail : float
        Largest mass that may be cut off per use.
    """
    mu, others = fold_gaussians(laws, z)
    pairs = [law.dominating(z, adjacency, tail) for law in others]
    if mu:
        pair = gaussian_pair(mu)
        one = Dominating(
            1, mu, pair.span(tail), lambda step, tail, _: pair.law(step, tail)
        )
        pairs.insert(0, one)
    return pairs


def is_tractable(laws: Laws, z: float) -> bool | None:
    """Return whether the losses of the laws can be composed with few enough nodes.

    The result is None if a law has no dominating pair.
    """
    slopes = [law.steepness(z) for law in laws]
    if None in slopes:
        return None
    return all(slope is not None and slope <= STEEPEST for slope in slopes)


def lattice_step(pairs: list[Dominating], cells: int) -> float:
    """Return the spacing of the lattice, a power of two.

    Splitting adds at most step^2 / 4 to the variance of a loss, so step^2 is taken as
    FINENESS times the mean squared privacy loss of one use. The law of one use, and
    about 20 standard deviations of the sum, must fit on ``cells`` points. A power of
    two keeps the lattice fixed during nearly all of a search for z.
    """
    uses = sum(pair.times for pair in pairs)
    square = sum(pair.times * pair.scale**2 for pair in pairs)
    step = math.sqrt(FINENESS * square / uses)
    step = min(step, sum(pair.times * pair.span for pair in pairs) / (1 << 15))
    spread = sum(math.sqrt(pair.times) * pair.scale for pair in pairs)
    step = max([step, 5 * spread / cells, *(pair.span / cells for pair in pairs)])
    return float(2.0 ** math.floor(math.log2(step)))


def compositions(
    pairs: list[Dominating], step: float, tail: float
) -> Iterator[Composition]:
    """Yield the composition on a lattice for each order of the neighbours.

    One order is enough if all pairs are their own mirror images.

    Parameters
    ----------
    pairs : list of Dominating
        The dominating pairs of the releases.
    step : float
        Spacing of the lattice.
    tail : float
        Largest mass that may be cut off per use.
    """
    for order in (False,) if all(pair.mirrored for pair in pairs) else (False, True):
        laws = [(pair.losses(step, tail, order), pair.times) for pair in pairs]
        yield Composition(
            [discretise_law(law, step, times) for law, times in laws], step
        )


def pld_epsilon(
    laws: Laws, z: float, delta: float, adjacency: Adjacency, cells: int = CELLS
) -> float | None:
    """Return the epsilon that PLD accounting proves; None for a law without a pair.

    Infinity means that nothing was proved: delta is 0, or the noise is so small that
    the lattice would not fit into memory.

    Parameters
    ----------
    laws : tuple of Law
        The laws of all releases.
    z : float
        Common noise multiplier, positive.
    delta : float
        In [0, 1).
    adjacency : Adjacency
        The neighbouring relation for which sensitivities are declared.
    cells : int
        Size of the lattice. Fewer cells are faster and prove a somewhat larger epsilon.
    """
    tractable = is_tractable(laws, z)
    if tractable is None:
        return None
    if delta < SMALLEST_DELTA or not tractable:
        return math.inf
    tail = 1e-7 * delta / sum(law.times for law in laws)
    pairs = pairs_of(laws, z, adjacency, tail)
    step = lattice_step(pairs, cells)
    tries = (compositions(pairs, coarser * step, tail) for coarser in (1, 4, 16))
    epsilons = (max(one.epsilon(delta) for one in orders) for orders in tries)
    return next(filter(math.isfinite, epsilons), math.inf)


def pld_deltas(laws: Laws, z: float, adjacency: Adjacency, epsilons: Floats) -> Floats:
    """Return the deltas that PLD accounting proves for laws with dominating pairs.

    Parameters
    ----------
    laws : tuple of Law
        The laws of all releases, for which ``is_tractable`` is true.
    z : float
        Common noise multiplier, positive.
    adjacency : Adjacency
        The neighbouring relation for which sensitivities are declared.
    epsilons : array of shape (m,)
        At least 0.
    """
    tail = 1e-13 / sum(law.times for law in laws)
    pairs = pairs_of(laws, z, adjacency, tail)
    orders = compositions(pairs, lattice_step(pairs, CELLS), tail)
    return np.asarray(np.max([one.deltas(epsilons) for one in orders], axis=0))
