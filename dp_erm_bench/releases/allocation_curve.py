"""The profile of random allocation with normal noise, never rounded down.

Asked for is, for t independent standard normal numbers g_i and gamma = e^epsilon >= 1,

    delta = E (W_1 + ... + W_t)_+ / t,    W_i = X_i - gamma Y_i,
    X_i = e^(u g_i - u^2/2),  Y_i = e^(-v g_i - v^2/2),  u, v >= 0,

see ``dp_erm_bench/releases/allocation_gaussian.py``. W rises with g. Every change below
is of one of two kinds, neither of which makes delta smaller, as (.)_+ is convex and
rises: a W_i is moved up, or its mass is split between a point below and one above it
such that its mean stays (a mean-preserving spread: by Jensen's inequality, given all
other terms, the expectation of a convex function of the sum does not fall).

1. Cells. The line of outcomes g is cut into cells of width w (``PANEL``), and what W
   has in a cell is split between its values at both ends, the mean kept. Masses and
   means are Gauss and Legendre's, of relative error below 1e-14. Below the lowest end W
   is moved up to its value there.
2. Far out. Terms above the highest end c count as 0, and are paid: as W <= X,
   (sum W)_+ <= (sum of the W that are kept)_+ + sum of the X that are not, and
   E X 1(g > c) = Phi(u - c) is added to delta. So 0 gets the mass of g > c: the other
   terms of a sum in which one is beyond c stay. c is where that is the tail that the
   caller allows, or where X is ``FAR`` times gamma t: there (s + X)_+ is less than X
   by little.
3. Floor. W below -b is moved up to -b. For u = 0 all W are at most 1, so that with
   b = t the positive part does not change at all. Else b = ``FLOOR`` t gamma.
4. Lattice. The points, rounded up, are split between both neighbours on a lattice of a
   power of two, so that quotients and remainders have no rounding error.
5. Sum. The law of one term is tilted, by e^(theta W) / E e^(theta W), and the t-th
   power of its characteristic function phi is taken at the N frequencies of one Fourier
   transform of N cells. Each is off by at most t ``ROUNDING``
   (|phi| + ``ROUNDING``)^(t-1), hence each cell by the mean of that over the
   frequencies, which is added to every one; where (|phi| + ``ROUNDING``)^t is below
   e^-``NOTHING`` it is taken as 0, and as much is added to every cell. There is no
   transform back: the weights v e^(-theta v) of the sums v > 0 that are asked for are,
   at each frequency, a geometric series, whose rounding is paid (``SERIES``). Sums that
   leave the N cells come back within them, which is only more: all that is there
   counts. But the part of those above the window is lost, E S 1(S > top) <= max over
   s > top of s e^(-h s) E e^(h S) = top e^(K(h) - h top) for each h >= 1 / top, K the
   log of E e^(h S): it is added.

Where it would be larger, delta is that of one Gaussian mechanism (quasi-convexity).
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
"""Width of a cell of outcomes, divided by the larger of 1 and the slopes."""
BELOW = 9.0
"""Deviations beyond the lower slope below which all outcomes are moved up."""
FAR, FLOOR = 20.0, 16.0
FINE = 0.05
"""Spacing of the lattice in deviations of a term."""
LAST = 600.0
"""The epsilon at which a curve ends at the latest: the rest is paid as delta."""
POWERS = (1.1, 1.2, 1.3, 1.5, 1.7, 2.2, 3.0, 5.0)
"""Powers, in units of the tilt's, whose moments bound what lies far out."""
BEND, GAP, POINTS = 0.5, 0.15, 1000
"""Of a curve: the fall of log delta between points, the most that epsilon moves in
typical losses, and the largest number of points."""
COARSE = 5e-3
"""Spacing of the lattice in shares of what a sum must exceed, over sqrt(t)."""
LEAST, MOST = 1 << 14, 1 << 20
"""Fewest cells that a window is cut into, and most."""
SERIES = 2e-14
"""Error of a geometric series and of a sum of them, at most, in parts of their terms
(``geometric``)."""
UP = 1e-13
"""Relative error of a mass or a ratio, at most."""
ROUNDING = 2e-15
"""Error of a factor of a transform, at most (as in ``accounting/pld.py``)."""
NOTHING = 60.0
"""Powers below e^-60 are left out, and paid."""
STEEP, FARTHEST = 25.0, 300.0
"""Slopes and epsilons beyond which sampling is of no use: the Gaussian's is taken."""


def allocation_delta(
    epsilon: float, steps: int, up: float, down: float, tail: float
) -> float:
    """Return an upper bound on delta at an epsilon >= 0.

    Parameters
    ----------
    epsilon : float
    steps : int
        t.
    up, down : float
        u and v.
    tail : float
        What may be added to delta for far terms.
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
    """Return points and masses of W after the steps 1 to 3, points increasing."""
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

    It is infinite where the tilted sum leaves the floats. The lattice is no finer than
    needs be: than ``FINE`` deviations, or ``coarse`` where the tilt hardly sees that.
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
    # The tilted sum, its rounding added.
    at = cumulant(index * step, masses, theta)
    weights = np.exp(theta * step * index - at) * masses
    factor = fft.rfft(np.bincount(index.astype(np.int64) % size, weights, size))
    if not np.isfinite(weights).all():
        return math.inf
    lengths = np.abs(factor)
    seen = np.flatnonzero(lengths + ROUNDING > math.exp(-NOTHING / steps))
    power, lengths = np.power(factor[seen], steps), lengths[seen]
    # All but the first and, of an even size, the last stand for two frequencies.
    twice = np.where((seen > 0) & (2 * seen < size), 2.0, 1.0) / size
    error = float(twice @ (lengths + ROUNDING) ** (steps - 1))
    off = (steps + 1) * ROUNDING * error + math.exp(-NOTHING)
    series, most = geometric(theta * step, seen, size, first + size)
    # Not a product of vectors: numpy adds in pairs, with less rounding.
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
    """Return sum_(m < count) m r^m, r = e^(-rate + 2 pi i k / size), of each k.

    With q = 1 - r it is r (1 - r^(count - 1) - (count - 1) q r^(count - 1)) / q^2.
    Beside it stands a bound on its modulus and, times ``SERIES``, on its rounding: |r|
    times the numerator's terms without their signs, T = 1 + (1 + n |q|) e^-x, over
    |q|^2, where n = count - 1 and x = rate n; that of the first k, 0, bounds the sum of
    m e^(-rate m).

    ``SERIES``, in units of 2^-53. A turn has a relative error of 3, an exponential one
    of 4 besides, hence r of 3 pi + 4 < 14 and q of 3 pi / 2 < 5, as
    |q| >= 2 |r|^(1/2) sin(turn / 2), and of 12 more by ``expm1``, whose parts either
    have one sign or are at most 2 where |q| >= 1. r^n is off by x + 6 pi + 4 < x + 23
    of itself, so that the numerator is by (x + 23 + 17 + 5) (T - 1) + 2 T. As
    n |q| < 2^22, x (T - 1) / T is at most x min(1, (1 + 2^22) e^-x) < 16: the
    numerator's is below 63 T. With 2 x 17 + 3 of q^2, and 12 of products and the
    quotient, a series' is 126. A mean of up to 2^20 of them, times powers and added in
    pairs (blocks of 128 of 8 sums each), adds 35, which makes 161, or 1.8e-14.
    """
    turns = 2j * math.pi / size
    ratio = np.exp(-rate + turns * frequencies)
    # The turns of a power are whole numbers of 1 / size, kept exact.
    far = np.exp(-rate * (count - 1) + turns * (frequencies * (count - 1) % size))
    gap = -np.expm1(-rate + turns * frequencies)
    wide = np.abs(gap)
    series = ratio * (1 - far - (count - 1) * gap * far) / gap**2
    ends = math.exp(-rate * (count - 1))
    # Where r underflows its absolute error is paid.
    length = max(math.exp(-rate), 1e-300)
    most = length * (1 + ends + (count - 1) * wide * ends) / wide**2
    return series, most


def cumulant(values: Floats, masses: Floats, power: float) -> float:
    """Return log E e^(power W)."""
    shift = power * float(values[-1])
    return shift + math.log(float(masses @ np.exp(power * values - shift)))


def tilt(values: Floats, masses: Floats, steps: int) -> float:
    """Return about the power at which the tilted mean of W is 0.

    At least one at which t cumulants are about 1, where gamma is near 1.
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
    """Return sums between which nearly all is, one at most 0 and one above it.

    Sums above the window that come back are heavier by e^(theta L), L its length;
    those below hold little of the tilted mass. It only has to be about right.
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
    """Return epsilons from 0 on and bounds on delta at each, down to about ``tail``.

    They are so dense that a chord over e^epsilon is above delta by about BEND^2 / 8,
    and near 0 by the square of GAP.

    Parameters
    ----------
    steps, up, down, tail
        As in ``allocation_delta``.
    scale : float
        A typical loss.
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
    """Return the corners of the lower convex hull of points, x increasing.

    Bounds on a convex function stay bounds: a corner's chord is above the function.
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
    """Return losses > 0, masses under Q there, and P's at infinity, of a profile.

    Between its corners delta is linear in gamma = e^epsilon, the profile of masses q
    under Q at their losses, the changes of its slope, and of e^loss q under P.
    """
    gammas, corners = hull(np.expm1(epsilons), deltas)
    slopes = np.append(np.diff(corners) / np.diff(gammas), 0.0)
    return np.log1p(gammas[1:]), np.maximum(np.diff(slopes), 0.0), float(corners[-1])


def curve_losses(first: tuple[Floats, Floats], second: tuple[Floats, Floats]) -> Losses:
    """Return a law whose profile bounds that of (P, Q), for curves of both orders.

    ``first`` is of P against Q at epsilons >= 0, ``second`` of Q against P, which gives
    what is below: H_gamma(P, Q) = 1 - gamma + gamma H_(1 / gamma)(Q, P). All other mass
    is at loss 0.
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
