"""Accounting by privacy-loss distributions (PLD): mixed and sampled compositions.

An adaptive composition is dominated by the product of the steps' dominating pairs
(Zhu, Dong, Wang, AISTATS 2022, Theorem 10; Dong, Roth, Su 2022, Theorem 3.2), whose
loss is the sum of the steps' independent losses. Where a pair is not its own mirror
image the two orders of the neighbours are composed apart, each with all steps in the
same order, and the larger epsilon counts.
"""

import math
from collections.abc import Iterator

import numpy as np

from dp_erm_bench.accounting.bounds import Laws, folded
from dp_erm_bench.accounting.lattice import Composition, discretised
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.losses import STEEPEST, Dominating, Floats, gaussian_pair

FINENESS = 6e-5
CELLS = 1 << 18
COARSE = 1 << 14
SMALLEST_DELTA = 1e-250


def pairs_of(
    laws: Laws, z: float, adjacency: Adjacency, tail: float
) -> list[Dominating]:
    """Return the dominating pairs of laws, all Gaussian releases folded into one."""
    mu, others = folded(laws, z)
    pairs = [law.dominating(z, adjacency, tail) for law in others]
    if mu:
        pair = gaussian_pair(mu)
        one = Dominating(
            1, mu, pair.span(tail), lambda step, tail, _: pair.law(step, tail)
        )
        pairs.insert(0, one)
    return pairs


def is_tractable(laws: Laws, z: float) -> bool | None:
    """Return whether the laws have few enough nodes.

    None where a law has no dominating pair.
    """
    slopes = [law.steepness(z) for law in laws]
    if None in slopes:
        return None
    return all(slope is not None and slope <= STEEPEST for slope in slopes)


def lattice_step(pairs: list[Dominating], cells: int) -> float:
    """Return the spacing of the lattice, a power of two.

    Splitting adds at most step^2 / 4 to the variance of a loss, so step^2 is taken as
    FINENESS times the mean square loss of a step. The law of a step, and about 20
    deviations of the sum, must fit on ``cells`` points. Powers of two keep the lattice
    fixed along nearly all of a search for z.
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
    """Yield the composition on a lattice in each order of the neighbours.

    One order is enough where all pairs are their own mirror images; ``tail`` bounds
    the mass that each use cuts off.
    """
    for order in (False,) if all(pair.mirrored for pair in pairs) else (False, True):
        laws = [(pair.losses(step, tail, order), pair.times) for pair in pairs]
        yield Composition([discretised(law, step, times) for law, times in laws], step)


def pld_epsilon(
    laws: Laws, z: float, delta: float, adjacency: Adjacency, cells: int = CELLS
) -> float | None:
    """Return the epsilon that PLD accounting proves, None for unknown laws.

    Infinity means that nothing was proved: delta is 0, or the noise is so small that
    the lattice would not fit into memory. Fewer ``cells`` are faster and prove a
    somewhat larger epsilon.
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
    """Return the deltas that PLD accounting proves for laws that it knows."""
    tail = 1e-13 / sum(law.times for law in laws)
    pairs = pairs_of(laws, z, adjacency, tail)
    orders = compositions(pairs, lattice_step(pairs, CELLS), tail)
    return np.asarray(np.max([one.deltas(epsilons) for one in orders], axis=0))
