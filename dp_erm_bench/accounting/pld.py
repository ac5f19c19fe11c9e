"""Accounting by privacy-loss distributions (PLD): mixed and sampled compositions.

An adaptive composition is dominated by the product of the steps' dominating pairs
(Zhu, Dong, Wang, AISTATS 2022, Theorem 10; Dong, Roth, Su 2022, Theorem 3.2), whose
loss is the sum of the steps' independent losses. Where a pair is not its own mirror
image the two orders of the neighbours are composed apart, each with all steps in the
same order, and the larger epsilon counts.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from dp_erm_bench.accounting.lattice import Composition, discretised
from dp_erm_bench.releases import losses
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.events import PURE_KINDS, Event

KNOWN = ("gaussian", "poisson_gaussian", *PURE_KINDS)
FINENESS = 6e-5
CELLS = 1 << 18
COARSE = 1 << 14
SMALLEST_DELTA = 1e-250


class Part(NamedTuple):
    """One mechanism: its uses, typical loss and span of losses.

    ``law`` makes its loss law from (lattice step, cut-off mass, reversed).
    """

    times: int
    scale: float
    span: float
    law: Callable[[float, float, bool], losses.Law]
    mirrored: bool = True


def bounded_part(event: Event, z: float) -> Part:
    """Return the part of an event whose loss is bounded by its level."""
    level = event.level(z)

    def law(step: float, tail: float, reverse: bool) -> losses.Law:
        if event.kind == "laplace":
            return losses.laplace_law(level, step)
        if event.kind == "bounded_range":
            return losses.bounded_range_law(level, step)
        return losses.pure_law(level)

    return Part(event.times, level, 2 * level, law)


def gaussian_part(mu: float, tail: float) -> Part:
    """Return all Gaussian releases as the single one that they amount to."""
    pair = losses.gaussian_pair(mu)
    return Part(1, mu, pair.span(tail), lambda step, tail, _: pair.law(step, tail))


def sampled_part(event: Event, z: float, adjacency: Adjacency, tail: float) -> Part:
    """Return a Poisson sampled Gaussian, z being scale / sensitivity (see Event)."""
    mu, rate = 1 / event.multiplier(z), event.rate
    if adjacency is Adjacency.REPLACE_ONE:
        pair = losses.replacement_pair(rate, mu)
        pairs = (pair, pair)
        scale = 2 * rate * math.sqrt(math.sinh(min(mu * mu / 4, 600)))
    else:
        pairs = (losses.removal_pair(rate, mu), losses.addition_pair(rate, mu))
        scale = rate * math.sqrt(math.expm1(min(mu * mu, 600)))
    span = max(pair.span(tail) for pair in pairs)
    return Part(
        event.times,
        scale,
        span,
        lambda step, tail, reverse: pairs[reverse].law(step, tail),
        adjacency is Adjacency.REPLACE_ONE,
    )


def tractable(event: Event, z: float) -> bool:
    """Return whether the losses of one use stay within the range of exponentials."""
    steepness = 1 / event.multiplier(z)
    if event.kind == "gaussian":
        return steepness * math.sqrt(event.times) <= losses.STEEPEST
    if event.kind == "poisson_gaussian":
        return steepness <= losses.STEEPEST
    return event.level(z) <= 2 * losses.STEEPEST


def parts_of(
    events: tuple[Event, ...], z: float, adjacency: Adjacency, tail: float
) -> list[Part]:
    """Return what is composed, all Gaussian releases folded into one."""
    square = sum(e.times / e.multiplier(z) ** 2 for e in events if e.kind == "gaussian")
    parts = [gaussian_part(math.sqrt(square), tail)] if square else []
    for event in events:
        if event.kind == "poisson_gaussian":
            parts.append(sampled_part(event, z, adjacency, tail))
        elif event.kind != "gaussian":
            parts.append(bounded_part(event, z))
    return parts


def lattice_step(parts: list[Part], cells: int) -> float:
    """Return the spacing of the lattice, a power of two.

    Splitting adds at most step^2 / 4 to the variance of a loss, so step^2 is taken as
    FINENESS times the mean square loss of a step. The law of a step, and about 20
    deviations of the sum, must fit on ``cells`` points. Powers of two keep the lattice
    fixed along nearly all of a search for z.
    """
    uses = sum(part.times for part in parts)
    square = sum(part.times * part.scale**2 for part in parts)
    step = math.sqrt(FINENESS * square / uses)
    step = min(step, sum(part.times * part.span for part in parts) / (1 << 15))
    spread = sum(math.sqrt(part.times) * part.scale for part in parts)
    step = max([step, 5 * spread / cells, *(part.span / cells for part in parts)])
    return float(2.0 ** math.floor(math.log2(step)))


def pld_epsilon(
    events: tuple[Event, ...],
    z: float,
    delta: float,
    adjacency: Adjacency,
    cells: int = CELLS,
) -> float | None:
    """Return the epsilon that PLD accounting proves, None for unknown kinds.

    Infinity means that nothing was proved: delta is 0, or the noise is so small that
    the lattice would not fit into memory. Fewer ``cells`` are faster and prove a
    somewhat larger epsilon.
    """
    if any(event.kind not in KNOWN for event in events):
        return None
    if delta < SMALLEST_DELTA or not all(tractable(event, z) for event in events):
        return math.inf
    tail = 1e-7 * delta / sum(event.times for event in events)
    parts = parts_of(events, z, adjacency, tail)
    step = lattice_step(parts, cells)
    orders = (False,) if all(part.mirrored for part in parts) else (False, True)
    for coarser in (1, 4, 16):
        found = [
            directed_epsilon(parts, coarser * step, tail, delta, o) for o in orders
        ]
        if math.isfinite(max(found)):
            return max(found)
    return math.inf


def directed_epsilon(
    parts: list[Part], step: float, tail: float, delta: float, reverse: bool
) -> float:
    """Return the epsilon proved for one order of the neighbours."""
    steps = [discretised(p.law(step, tail, reverse), step, p.times) for p in parts]
    return Composition(steps, step).epsilon(delta)
