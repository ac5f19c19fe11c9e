"""The smallest epsilon that can be proved for a composition of events."""

import functools
import math
from dataclasses import dataclass

import numpy as np

from dp_erm_bench.accounting.gdp import gdp_epsilon
from dp_erm_bench.accounting.objective import objective_epsilon
from dp_erm_bench.accounting.pld import pld_epsilon
from dp_erm_bench.accounting.rdp import rdp_epsilon
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.events import KINDS, PURE_KINDS, Event, composed

Events = tuple[Event, ...]


@dataclass(frozen=True)
class Certificate:
    """An epsilon and the accountant that proves it.

    Attributes
    ----------
    epsilon : float
        At least 0; infinite where nothing is private.
    accountant : str
        ``gdp``, ``rdp``, ``pld``, ``pure``, ``profile`` (of objective perturbation),
        or ``none`` where nothing had to be proved.
    """

    epsilon: float
    accountant: str


def pure_epsilon(events: Events, z: float) -> float | None:
    """Return the sum of the pure levels, None if a kind has none.

    Basic composition (Dwork and Roth, 2014, Theorem 3.16); it holds at delta = 0.
    """
    if any(event.kind not in PURE_KINDS for event in events):
        return None
    total = sum(event.times * event.level(z) for event in events)
    return total * (1 + 4e-16 * len(events))


def gaussian_epsilon(events: Events, z: float, delta: float) -> float | None:
    """Return the exact epsilon of Gaussian releases, None if a kind is another."""
    if any(event.kind != "gaussian" for event in events):
        return None
    square = math.fsum(e.times / e.multiplier(z) ** 2 for e in events)
    return gdp_epsilon(math.sqrt(square), delta)


def check_known(events: Events, delta: float) -> None:
    """Refuse kinds that no accountant knows, and delta = 0 where noise is Gaussian."""
    for event in events:
        if event.kind not in KINDS:
            raise TypeError(
                f"event kind {event.kind!r}: no accountant knows it "
                f"(known: {', '.join(KINDS)})"
            )
    mixed = {e.kind for e in events if e.times} - set(PURE_KINDS)
    if delta == 0 and mixed:
        raise Unsupported(
            f"delta=0: must be positive, as {sorted(mixed)[0]} noise is private "
            "for no finite epsilon at delta = 0"
        )


def certify(
    events: Events, z: float, delta: float, adjacency: Adjacency
) -> Certificate:
    """Return the smallest epsilon proved by the accountants that know all events.

    Parameters
    ----------
    events : tuple of Event
        What is released, adaptively.
    z : float
        Common noise multiplier, at least 0; scale / sensitivity of an event is
        z * weight.
    delta : float
        In [0, 1).
    adjacency : Adjacency
        The relation for which z is meant.

    Returns
    -------
    Certificate
        The epsilon and who proves it.

    Raises
    ------
    TypeError
        For an event that no accountant knows.
    Unsupported
        For delta = 0 with noise that is not purely private.
    """
    check_known(events, delta)
    events = composed(events)
    trivial = without_proof(events, z)
    if trivial is not None:
        return trivial
    return smaller(quick(events, z, delta), slow(events, z, delta, adjacency))


def without_proof(events: Events, z: float) -> Certificate | None:
    """Return the certificate where nothing is released, or without noise."""
    if not events:
        return Certificate(0.0, "none")
    return None if z > 0 else Certificate(math.inf, "none")


def smaller(first: Certificate, second: Certificate) -> Certificate:
    """Return the certificate of the smaller epsilon, the first if they are equal."""
    return first if first.epsilon <= second.epsilon else second


def quick(events: Events, z: float, delta: float) -> Certificate:
    """Return the best certificate of the accountants that take microseconds."""
    with np.errstate(over="ignore"):
        exact = gaussian_epsilon(events, z, delta)
        if exact is not None:
            return Certificate(exact, "gdp")
        proved = {
            "pure": pure_epsilon(events, z),
            "rdp": rdp_epsilon(events, z, delta),
            "profile": objective_epsilon(events, z, delta),
        }
    known = [Certificate(e, name) for name, e in proved.items() if e is not None]
    return functools.reduce(smaller, known, Certificate(math.inf, "none"))


def slow(events: Events, z: float, delta: float, adjacency: Adjacency) -> Certificate:
    """Return the certificate of the PLD accountant where it may win.

    It never beats the exact answer for Gaussian releases.
    """
    if delta == 0 or all(event.kind == "gaussian" for event in events):
        return Certificate(math.inf, "none")
    epsilon = pld_epsilon(events, z, delta, adjacency)
    return Certificate(math.inf if epsilon is None else epsilon, "pld")
