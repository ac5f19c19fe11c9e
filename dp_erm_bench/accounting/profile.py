"""The whole privacy profile delta(epsilon) of a composition, not one point of it."""

import math

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.accounting.certify import Events, check_known
from dp_erm_bench.accounting.lattice import Composition, discretised
from dp_erm_bench.accounting.objective import objective_facts
from dp_erm_bench.accounting.pld import CELLS, KNOWN, lattice_step, parts_of, tractable
from dp_erm_bench.accounting.rdp import default_orders, rdp_curve
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.events import composed
from dp_erm_bench.releases.gaussian import gdp_delta
from dp_erm_bench.releases.objective_gaussian import objective_delta

Floats = NDArray[np.float64]

# The delta that the tilt and the cut-offs are made for.
TYPICAL = 0.05


def delta_at(
    events: Events, z: float, adjacency: Adjacency, epsilons: Floats
) -> Floats:
    """Return upper bounds on delta at given epsilons.

    Parameters
    ----------
    events : tuple of Event
        What is released, adaptively.
    z : float
        Common noise multiplier.
    adjacency : Adjacency
        The relation for which z is meant.
    epsilons : array
        At least 0.

    Returns
    -------
    array
        Exact for Gaussian releases, else by the privacy-loss distribution, good for
        deltas above about 1e-12, or by Renyi divergences; 1 where nothing is proved.
    """
    check_known(events, TYPICAL)
    events = composed(events)
    if not events:
        return np.zeros_like(epsilons)
    if not z > 0:
        return np.ones_like(epsilons)
    facts = objective_facts(events, z)
    if facts is not None:
        return np.array([objective_delta(e, *facts) for e in epsilons.tolist()])
    if all(event.kind == "gaussian" for event in events):
        mu = math.sqrt(math.fsum(e.times / e.multiplier(z) ** 2 for e in events))
        return np.array([gdp_delta(epsilon, mu) for epsilon in epsilons.tolist()])
    proved = _renyi_deltas(events, z, epsilons)
    if all(event.kind in KNOWN and tractable(event, z) for event in events):
        proved = np.minimum(proved, _pld_deltas(events, z, adjacency, epsilons))
    return proved


def _renyi_deltas(events: Events, z: float, epsilons: Floats) -> Floats:
    """Return min over a of e^((a-1) (eps(a) - eps)) (1 - 1/a)^a / (a - 1), at most 1.

    Canonne, Kamath, Steinke, NeurIPS 2020, Proposition 12, solved for delta.
    """
    orders = default_orders()
    curves = [(event.times, rdp_curve(event, z, orders)) for event in events]
    total = np.zeros_like(orders)
    for times, curve in curves:
        total = total + times * (np.inf if curve is None else curve)
    gain = orders * np.log1p(-1 / orders) - np.log(orders - 1)
    logs = (orders - 1) * (total - epsilons[:, None]) + gain
    return np.asarray(np.exp(np.minimum(logs.min(axis=1), 0.0)))


def _pld_deltas(
    events: Events, z: float, adjacency: Adjacency, epsilons: Floats
) -> Floats:
    tail = 1e-13 / sum(event.times for event in events)
    parts = parts_of(events, z, adjacency, tail)
    step = lattice_step(parts, CELLS)
    orders = (False,) if all(part.mirrored for part in parts) else (False, True)
    found = []
    for order in orders:
        steps = [discretised(p.law(step, tail, order), step, p.times) for p in parts]
        found.append(_deltas(Composition(steps, step), epsilons))
    worst: Floats = np.max(found, axis=0)
    return worst


def _deltas(law: Composition, epsilons: Floats) -> Floats:
    """Return E (1 - e^(eps - L))_+ of the composed loss L, and what was cut off."""
    t = 0.4 * law.tilt(TYPICAL)
    low, top = law.window(t, TYPICAL * 1e-8)
    size = max(top - low + 1, 16)
    losses = law.step * np.arange(low, low + size)
    masses = law.tilted(t, low, size) * np.exp(law.cumulant(t) - t * losses)
    over = np.append(np.cumsum(masses[::-1])[::-1], 0.0)
    under = np.append(np.cumsum((masses * np.exp(-losses))[::-1])[::-1], 0.0)
    above = np.searchsorted(losses, epsilons, side="right")
    deltas = over[above] - np.exp(epsilons) * under[above]
    deltas += law.infinite + TYPICAL * 1e-14
    # Below the window some of the mass is missing.
    return np.where(epsilons < losses[0], 1.0, np.clip(deltas, 0.0, 1.0))
