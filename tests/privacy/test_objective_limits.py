"""Test objective perturbation for a non-smooth psi or a set, by exact laws.

The proof in ``privacy.objective`` is for smooth psi, and passes to the limit. Here the
law of the minimiser in two dimensions is written down. It has densities where both
coordinates are free, and on lines where one coordinate is at a kink of psi. It also has
atoms.
"""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import norm

from dp_erm_bench.releases.objective_gaussian import objective_delta
from tests.loops import each

BETA, CELLS = 0.25, 250
EPSILONS = (0.05, 0.3, 1.0, 2.0)
COMMON = [(0.6, -0.8), (0.6, -0.8), (-1.0, 0.0)]


class L1:
    """n psi = strength norm1: each coordinate may sit at 0."""

    corners = (0.0,)

    def __init__(self, strength, ridge, sigma):
        self.strength, self.reach = strength, (8 * sigma + 4 + strength) / ridge

    def cells(self):
        half = (np.arange(CELLS) + 0.5) * self.reach / CELLS
        return np.concatenate([-half[::-1], half])

    def slope(self, w):
        return self.strength * np.sign(w)

    def sits(self, g, corner, sigma):
        """Return the probability of -b being in g + the subdifferential."""
        ends = [norm.cdf((g + s * self.strength) / sigma) for s in (1, -1)]
        return ends[0] - ends[1]


class Box(L1):
    """psi is 0 on [-strength, strength], infinite outside."""

    def __init__(self, strength, ridge, sigma):
        self.strength = self.reach = strength
        self.corners = (-strength, strength)

    def slope(self, w):
        return 0.0 * w

    def sits(self, g, corner, sigma):
        return norm.cdf(-np.sign(corner) * g / sigma)


def terms(w, records, ridge):
    """Return the gradient and the Hessian of the smooth part, entry by entry."""
    g, h = [ridge * w[0], ridge * w[1]], [ridge + 0 * w[0], ridge + 0 * w[0], 0 * w[0]]
    for x in records:
        right = 1 / (1 + np.exp(np.clip(x[0] * w[0] + x[1] * w[1], -700, 700)))
        bend = right * (1 - right)
        g = [g[k] - right * x[k] for k in (0, 1)]
        products = (x[0] * x[0], x[1] * x[1], x[0] * x[1])
        h = [have + bend * more for have, more in zip(h, products, strict=True)]
    return g, h


def law(records, psi, ridge, sigma):
    """Return the masses of all cells, of the lines and of the atoms."""
    t = psi.cells()
    step = t[1] - t[0]
    w = np.meshgrid(t, t, indexing="ij")
    g, h = terms(w, records, ridge)
    density = np.prod(
        [norm.pdf(g[k] + psi.slope(w[k]), scale=sigma) for k in (0, 1)], 0
    )
    found = [(density * (h[0] * h[1] - h[2] ** 2) * step * step).ravel()]
    for corner, k in itertools.product(psi.corners, (0, 1)):
        still = np.full_like(t, corner)
        g, h = terms((still, t) if k == 0 else (t, still), records, ridge)
        free = norm.pdf(g[1 - k] + psi.slope(t), scale=sigma) * h[1 - k] * step
        found.append(psi.sits(g[k], corner, sigma) * free)
    for point in itertools.product(psi.corners, repeat=2):
        g, _ = terms([np.array([c]) for c in point], records, ridge)
        atom = [psi.sits(g[k], point[k], sigma) for k in (0, 1)]
        found.append(atom[0] * atom[1])
    return np.concatenate(found)


PAIRS = {
    "zero_out": ([(1.0, 0.0)], []),
    "opposite": ([(1.0, 0.0)], [(-1.0, 0.0)]),
    "orthogonal": ([(0.6, 0.8)], [(0.8, -0.6)]),
}


@each("pair", PAIRS)
@each(("kind", "strength"), [(L1, 0.3), (L1, 3.0), (Box, 0.5)])
@each("sigma", [1.0, 4.0])
@each("ridge", [0.3, 2.0])
def test_no_exact_law_exceeds_the_profile(ridge, sigma, kind, strength, pair):
    first, second = PAIRS[pair]
    psi = kind(strength, ridge, sigma)
    p, q = (law([*side, *COMMON], psi, ridge, sigma) for side in (first, second))
    assert p.sum() == pytest.approx(1.0, abs=2e-3)
    assert q.sum() == pytest.approx(1.0, abs=2e-3)
    count, curvature = len(first) + len(second), math.log1p(BETA / ridge)
    for a, b in ((p, q), (q, p)):
        for epsilon in EPSILONS:
            stick = np.maximum(a - math.exp(epsilon) * b, 0.0).sum()
            claimed = objective_delta(epsilon, sigma / count, curvature, count)
            assert stick <= claimed


def test_the_law_has_atoms_and_the_profile_is_not_idle():
    psi = Box(0.5, 0.3, 1.0)
    p, q = (law(side, psi, 0.3, 1.0) for side in PAIRS["zero_out"])
    assert p[-4:].sum() > 0.1  # in the four corners of the box
    far = L1(0.05, 2.0, 1.0)
    p, q = (law(side, far, 2.0, 1.0) for side in PAIRS["zero_out"])
    stick = np.maximum(p - math.exp(0.3) * q, 0.0).sum()
    assert stick > 0.1 * objective_delta(0.3, 1.0, math.log1p(BETA / 2.0), 1)
