"""Upper bounds on the privacy profile of random allocation with normal noise.

For t independent standard normal numbers g_i and gamma = e^epsilon >= 1, this module
bounds

    delta = E (W_1 + ... + W_t)_+ / t,    W_i = X_i - gamma Y_i,
    X_i = e^(u g_i - u^2/2),  Y_i = e^(-v g_i - v^2/2),  u, v >= 0,

see ``dp_erm_bench/releases/allocation_gaussian.py``. W increases with g. Every change
below is of one of two kinds. Neither makes delta smaller, as (.)_+ is convex and
increasing:

- A W_i is moved up.
- The mass of a W_i is split between a point below and a point above, and its mean is
  kept (a mean-preserving spread). By Jensen's inequality, given all other terms, the
  expectation of a convex function of the sum does not fall.

1. Cells. The line of outcomes g is cut into cells of width w (``PANEL``). The mass that
   W has in a cell is split between the values of W at both ends of the cell, with the
   mean kept. Masses and means are computed by Gauss-Legendre quadrature, with a
   relative error below 1e-14. Below the lowest end, W is moved up to its value there.
2. Far out. Terms above the highest end c count as 0, and this is paid for: as W <= X,
   (sum W)_+ <= (sum of the W that are kept)_+ + sum of the X that are not, and
   E X 1(g > c) = Phi(u - c) is added to delta. So 0 gets the mass of g > c, and a sum
   in which one term is beyond c keeps its other terms. c is the point at which this
   cost is the tail that the caller allows, or the point at which X is ``FAR`` times
   gamma t, if that comes first: there (s + X)_+ is only a little less than X.
3. Floor. W below -b is moved up to -b. For u = 0, all W are at most 1, so that with
   b = t the positive part does not change at all. Otherwise b = ``FLOOR`` t gamma.
4. Lattice. The points, rounded up, are split between their two neighbours on a lattice.
   Its spacing is a power of two, so that quotients and remainders have no rounding
   error.
5. Sum. The law of one term is tilted by e^(theta W) / E e^(theta W). The t-th power of
   its characteristic function phi is taken at the N frequencies of one Fourier
   transform of N cells. Each power is off by at most t ``ROUNDING``
   (|phi| + ``ROUNDING``)^(t-1). Hence each cell is off by at most the mean of this
   bound over the frequencies. The mean is added to every cell.
   If (|phi| + ``ROUNDING``)^t is below e^-``NOTHING``, the power is taken as 0, and
   e^-``NOTHING`` is added to every cell. No inverse transform is needed: the sums v > 0
   have the weights v e^(-theta v), which form a geometric series at each frequency. Its
   rounding error is paid for (``SERIES``). Sums that leave the N cells wrap around into
   the cells. This only adds, as everything within the cells counts. But the
   contribution of the sums above the window is lost. It is
   E S 1(S > top) <= max over s > top of s e^(-h s) E e^(h S) = top e^(K(h) - h top)
   for each h >= 1 / top, where K is the log of E e^(h S). This bound is added.

If the result is larger than the delta of one Gaussian mechanism, that delta is returned
(quasi-convexity).
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from dp_erm_bench.releases.gaussian import gdp_delta
from dp_erm_bench.releases.losses import Floats, Losses, integration_nodes

Complexes = NDArray[np.complex128]
Indices = NDArray[np.int64]

PANEL = 0.004
"""Width of a cell of outcomes; it is divided by the larger of 1, u and v."""
BELOW = 9.0
"""Outcomes more than this number of standard deviations below -v are moved up."""
FAR, FLOOR = 20.0, 16.0
FINE = 0.05
"""Spacing of the lattice in standard deviations of a term."""
LAST = 600.0
"""Largest epsilon of a curve; the delta that remains there is charged."""
POWERS = (1.1, 1.2, 1.3, 1.5, 1.7, 2.2, 3.0, 5.0)
"""Powers, as multiples of the tilt theta, whose moments bound the mass of far sums."""
BEND, GAP, POINTS = 0.5, 0.15, 1000
"""For a curve: the fall of log delta between points, the largest step of epsilon in
units of the typical loss, and the largest number of points.
"""
COARSE = 5e-3
"""Spacing of a coarse lattice: this share of t (gamma - 1), divided by sqrt(t).

A sum counts only if it exceeds t (gamma - 1).
"""
LEAST, MOST = 1 << 14, 1 << 20
"""Smallest and largest number of cells in a window of sums."""
SERIES = 2e-14
"""Largest error of a geometric series, and of a sum of such series, relative to the
size of their terms (``geometric``)."""
UP = 1e-13
"""Largest relative error of a mass or a ratio."""
ROUNDING = 2e-15
"""Largest error of a factor of a transform (as in ``accounting/pld.py``)."""
NOTHING = 60.0
"""Powers below e^-60 are taken as 0, and a bound on this error is added."""
STEEP, FARTHEST = 25.0, 300.0
"""Slopes and epsilons beyond which sampling does not help: one Gaussian is charged."""


def allocation_delta(
    epsilon: float, steps: int, up: float, down: float, tail: float
) -> float:
    """Return an upper bound on the delta of one round at an epsilon >= 0.

    Parameters
    ----------
    epsilon : float
        At least 0.
    steps : int
        t, the number of steps of a round.
    up, down : float
        u and v, at least 0.
    tail : float
        Largest amount that may be added to delta for far terms (step 2).
    """
    whole = gdp_delta(epsilon, up + down)
    steep = up + down > STEEP or down * (down / 2 + BELOW) > FARTHEST
    if whole <= tail or epsilon > FARTHEST or steep:
        return whole
    gamma = math.exp(epsilon) * (1 + UP)
    top = up - float(ndtri(tail))
    if up > 0:
        top = min(top, (math.log(FAR * gamma * steps) + up * up / 2) / up)
    paid = float(ndtr(up - top)) * (1 + UP)
    if paid >= whole:
        return whole
    floor = -steps * (1.0 if up == 0 else FLOOR * gamma)
    values, masses = terms(gamma, up, down, top, floor)
    if values[-1] <= 0:
        return min(whole, paid)
    coarse = COARSE * math.sqrt(steps) * (gamma - 1)
    return min(whole, paid + positive_part(values, masses, steps, coarse) / steps)


def terms(
    gamma: float, up: float, down: float, top: float, floor: float
) -> tuple[Floats, Floats]:
    """Return the increasing points of W and their masses after the module's steps 1-3.

    Parameters
    ----------
    gamma : float
        e^epsilon.
    up, down : float
        u and v.
    top : float
        c, the highest end of a cell.
    floor : float
        -b, the smallest value of W.
    """
    low = -down - BELOW
    count = 1 + math.ceil((top - low) * max(1.0, up, down) / PANEL)
    ends = np.linspace(low, top, count)
    nodes, widths = integration_nodes(ends)

    def ratio(g: Floats) -> Floats:  # rounded up
        y = np.exp(-down * g - down * down / 2)
        return np.exp(up * g - up * up / 2) * (1 + UP) - gamma * y * (1 - UP)

    points = np.maximum(ratio(ends), floor)
    inside = np.clip(ratio(nodes).reshape(-1, 3), points[:-1, None], points[1:, None])
    density = np.exp(-nodes * nodes / 2) * widths / math.sqrt(2 * math.pi)
    density = density.reshape(-1, 3)
    gaps = np.diff(points)[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(gaps > 0, (inside - points[:-1, None]) / gaps, 1.0)
    masses = np.append((density * (1 - share)).sum(axis=1), 0.0)
    masses[1:] += (density * share).sum(axis=1)
    masses[0] += float(ndtr(low))
    zero = int(np.searchsorted(points, 0.0))
    points = np.insert(points, zero, 0.0)
    masses = np.insert(masses, zero, float(ndtr(-top)))
    return points, masses * (1 + UP)


def positive_part(values: Floats, masses: Floats, steps: int, coarse: float) -> float:
    """Return an upper bound on E (W_1 + ... + W_t)_+ for points and masses of W.

    The bound is infinite if the tilted sum exceeds the range of floats. The lattice is
    no finer than necessary: its spacing is ``FINE`` standard deviations, or ``coarse``
    if that is larger and the tilt hardly changes over it.

    Parameters
    ----------
    values, masses : arrays of shape (k,)
        Points of W, increasing, and their masses.
    steps : int
        t.
    coarse : float
        A spacing of the lattice that is fine enough for the sum.
    """
    mean = float(masses @ values) / float(masses.sum())
    deviation = math.sqrt(float(masses @ (values - mean) ** 2))
    theta = tilt(values, masses, steps)
    low, top = window(values, masses, steps, theta)
    length = min(top, steps * float(values[-1])) - low
    step = min(max(FINE * deviation, min(coarse, 0.5 / theta)), length / LEAST)
    step = 2.0 ** math.floor(math.log2(max(step, 2 * length / MOST)))
    places = values / step
    cells = np.floor(places)
    upper = masses * (places - cells)
    index, inverse = np.unique([cells, cells + 1], return_inverse=True)
    split = np.concatenate([masses - upper, upper])
    masses = np.asarray(np.bincount(inverse.ravel(), split) * (1 + UP), np.float64)
    first = math.floor(low / step)
    last = min(math.ceil(top / step), steps * int(index[-1]))
    size = fft.next_fast_len(last - first + 1, real=True)
    # The tilted sum, with a bound on its rounding added.
    at = cumulant(index * step, masses, theta)
    weights = np.exp(theta * step * index - at) * masses
    factor = fft.rfft(np.bincount(index.astype(np.int64) % size, weights, size))
    if not np.isfinite(weights).all():
        return math.inf
    lengths = np.abs(factor)
    seen = np.flatnonzero(lengths + ROUNDING > math.exp(-NOTHING / steps))
    power, lengths = np.power(factor[seen], steps), lengths[seen]
    # Each counts for two frequencies, except the first and, if size is even, the last.
    twice = np.where((seen > 0) & (2 * seen < size), 2.0, 1.0) / size
    error = float(twice @ (lengths + ROUNDING) ** (steps - 1))
    off = (steps + 1) * ROUNDING * error + math.exp(-NOTHING)
    series, most = geometric(theta * step, seen, size, first + size)
    # No dot product: np.sum adds in pairs, with less rounding.
    sums = float(np.sum(twice * (power * series).real))
    sums += SERIES * float(twice @ (np.abs(power) * most)) + off * float(most[0])
    grown = steps * (at + 4 * UP)
    if grown > 600:
        return math.inf
    # What lies beyond the window.
    lost, end = 0.0, (first + size - 1) * step
    if first + size - 1 < steps * index[-1]:
        logs = [
            steps * (cumulant(index * step, masses, power) + 4 * UP) - power * end
            for power in (theta * factor for factor in POWERS)
            if power * end >= 1
        ]
        least = min(logs, default=math.inf)
        lost = end * math.exp(least) if least < 600 else math.inf
    kept = math.exp(grown) * step * max(sums, 0.0)
    return (kept + lost) * (1 + 1e-9)


def geometric(
    rate: float, frequencies: Indices, size: int, count: int
) -> tuple[Complexes, Floats]:
    """Return sum_(m < count) m r^m, r = e^(-rate + 2 pi i k / size), for each k.

    With q = 1 - r the sum is r (1 - r^(count - 1) - (count - 1) q r^(count - 1)) / q^2.
    The second array bounds its modulus and, times ``SERIES``, its rounding error: it is
    |r| T / |q|^2, where T = 1 + (1 + n |q|) e^-x adds up the numerator's terms without
    their signs, n = count - 1 and x = rate n. Its entry for the first k, 0, bounds the
    sum of m e^(-rate m).

    ``SERIES`` is derived in units of 2^-53. An angle has a relative error of 3, and an
    exponential one of 4 more. Hence r has one of 3 pi + 4 < 14. q has one of
    3 pi / 2 < 5, as |q| >= 2 |r|^(1/2) sin(angle / 2), and of 12 more from ``expm1``,
    whose parts either have one sign or are at most 2 where |q| >= 1. r^n has one of
    x + 6 pi + 4 < x + 23, so that the numerator is off by (x + 23 + 17 + 5) (T - 1)
    + 2 T. As n |q| < 2^22, x (T - 1) / T is at most x min(1, (1 + 2^22) e^-x) < 16: the
    numerator's error is below 63 T. With 2 x 17 + 3 for q^2, and 12 for products and
    the quotient, a series has 126. The mean of up to 2^20 series, multiplied by powers
    and added in pairs (blocks of 128 of 8 sums each), adds 35. The total is 161, or
    1.8e-14.

    Parameters
    ----------
    rate : float
        Decay of the terms, positive.
    frequencies : int array of shape (K,)
        The k, of which the first is 0.
    size : int
        N, the number of cells of the transform.
    count : int
        Number of terms of the sum.
    """
    turns = 2j * math.pi / size
    ratio = np.exp(-rate + turns * frequencies)
    # The angles of a power are whole multiples of a turn / size, kept exact.
    far = np.exp(-rate * (count - 1) + turns * (frequencies * (count - 1) % size))
    gap = -np.expm1(-rate + turns * frequencies)
    wide = np.abs(gap)
    series = ratio * (1 - far - (count - 1) * gap * far) / gap**2
    ends = math.exp(-rate * (count - 1))
    # If r underflows, its absolute error is paid for.
    length = max(math.exp(-rate), 1e-300)
    most = length * (1 + ends + (count - 1) * wide * ends) / wide**2
    return series, most


def cumulant(values: Floats, masses: Floats, power: float) -> float:
    """Return log E e^(power W) for given points and masses of W.

    Parameters
    ----------
    values, masses : arrays of shape (k,)
        Points of W, increasing, and their masses.
    power : float
        The factor of W in the exponent.
    """
    shift = power * float(values[-1])
    return shift + math.log(float(masses @ np.exp(power * values - shift)))


def tilt(values: Floats, masses: Floats, steps: int) -> float:
    """Return approximately the power at which W has mean 0 after tilting.

    If gamma is near 1, the result is at least a power at which t times the cumulant is
    about 1.

    Parameters
    ----------
    values, masses : arrays of shape (k,)
        Points of W, increasing, and their masses.
    steps : int
        t.
    """

    def mean(power: float) -> float:
        return float((masses * values) @ np.exp(power * (values - values[-1])))

    power = 600 / float(values[-1] - values[0])
    while steps * cumulant(values, masses, power) > 1:
        power /= 2
    high = power
    while mean(high) < 0:
        high *= 2
    return power if high == power else float(brentq(mean, high / 2, high, rtol=1e-2))


def window(
    values: Floats, masses: Floats, steps: int, theta: float
) -> tuple[float, float]:
    """Return two sums that enclose nearly all tilted mass; the lower is at most 0.

    Sums above this window wrap around and gain a factor e^(theta L), where L is the
    length of the window. Sums below the window hold little of the tilted mass. The
    window need only be roughly right.

    Parameters
    ----------
    values, masses : arrays of shape (k,)
        Points of W, increasing, and their masses.
    steps : int
        t.
    theta : float
        The tilt of one term.
    """
    at = steps * cumulant(values, masses, theta)
    powers = [theta * factor for factor in POWERS]
    grown = [steps * cumulant(values, masses, power) - at + 25 for power in powers]
    tops = [k / u for k, u in zip(grown, powers, strict=True)]
    lengths = [k / (u - theta) for k, u in zip(grown, powers, strict=True)]
    lows = [
        (at - steps * cumulant(values, masses, theta - s * theta) - 21) / (s * theta)
        for s in (0.2, 0.5, 1.0)
    ]
    low = min(0.0, max([*lows, steps * float(values[0])]))
    top = max(low + min(lengths), min(tops))
    return low, top


def curve(
    steps: int, up: float, down: float, scale: float, tail: float
) -> tuple[Floats, Floats]:
    """Return epsilons from 0 on, and a bound on delta at each, down to about ``tail``.

    The points are so dense that a chord over e^epsilon lies above delta by about
    BEND^2 / 8. Near 0, it lies above delta by the square of GAP.

    Parameters
    ----------
    steps, up, down, tail
        As in ``allocation_delta``.
    scale : float
        A typical privacy loss.
    """
    epsilons, deltas, gap = [0.0], [1.0], GAP * scale
    deltas[0] = allocation_delta(0.0, steps, up, down, max(tail, 1e-7 * scale))
    while deltas[-1] > tail and len(epsilons) < POINTS and epsilons[-1] < LAST:
        epsilons.append(min(epsilons[-1] + gap, LAST))
        cut = max(tail, 1e-4 * deltas[-1])
        delta = allocation_delta(epsilons[-1], steps, up, down, cut)
        deltas.append(min(delta, deltas[-1]))
        fall = math.log(deltas[-2] / max(deltas[-1], 1e-300))
        gap *= min(max(BEND / max(fall, 1e-9), 0.5), 1.5)
        gap = max(min(gap, GAP * scale * max(1.0, epsilons[-1] / scale / 4)), 1e-12)
    return np.array(epsilons), np.array(deltas)


def hull(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Return the corners of the lower convex hull of points with increasing x.

    If the points bound a convex function from above, so does the hull, because a chord
    between corners lies above the function.
    """
    kept: list[int] = []
    for i in range(x.size):
        while len(kept) > 1:
            a, b = kept[-2], kept[-1]
            if (y[b] - y[a]) * (x[i] - x[a]) < (y[i] - y[a]) * (x[b] - x[a]):
                break
            kept.pop()
        kept.append(i)
    return x[kept], y[kept]


def atoms_of_profile(epsilons: Floats, deltas: Floats) -> tuple[Floats, Floats, float]:
    """Return losses > 0 of a profile, their masses under Q, and P's mass at infinity.

    Between the corners of the profile, delta is linear in gamma = e^epsilon. This is
    the profile of a pair (P, Q). At the loss of each corner, the mass q under Q is the
    change of the slope, and the mass under P is e^loss q.
    """
    gammas, corners = hull(np.expm1(epsilons), deltas)
    slopes = np.append(np.diff(corners) / np.diff(gammas), 0.0)
    return np.log1p(gammas[1:]), np.maximum(np.diff(slopes), 0.0), float(corners[-1])


def curve_losses(first: tuple[Floats, Floats], second: tuple[Floats, Floats]) -> Losses:
    """Return losses whose profile bounds that of a pair (P, Q), from its two curves.

    ``first`` is the curve of P against Q at epsilons >= 0. ``second`` is that of Q
    against P, which gives the profile at epsilons below 0:
    H_gamma(P, Q) = 1 - gamma + gamma H_(1 / gamma)(Q, P). All other mass is at loss 0.
    """
    top = max(first[1][0], second[1][0])
    (ups, over, infinite), (downs, under, _) = (
        atoms_of_profile(at, np.append(top, deltas[1:]))
        for at, deltas in (first, second)
    )
    masses = np.concatenate([np.exp(ups) * over, under])
    rest = 1 - infinite - float(masses.sum())
    losses = np.concatenate([ups, -downs, [0.0]])
    return Losses(losses, np.append(masses, max(rest, 0.0)), infinite)
