"""The whole privacy profile delta(epsilon) of a composition, not one point of it."""

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.accounting.certify import Laws, check_known, profile_of
from dp_erm_bench.accounting.gdp import gaussian_mu
from dp_erm_bench.accounting.lattice import Composition, discretised
from dp_erm_bench.accounting.pld import CELLS, is_tractable, lattice_step, pairs_of
from dp_erm_bench.accounting.rdp import default_orders
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.gaussian import gdp_delta
from dp_erm_bench.releases.law import composed

Floats = NDArray[np.float64]

# The delta that the tilt and the cut-offs are made for.
TYPICAL = 0.05


def delta_at(laws: Laws, z: float, adjacency: Adjacency, epsilons: Floats) -> Floats:
    """Return upper bounds on delta at given epsilons.

    Parameters
    ----------
    laws : tuple of Law
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
    check_known(laws, TYPICAL)
    laws = composed(laws)
    if not laws:
        return np.zeros_like(epsilons)
    if not z > 0:
        return np.ones_like(epsilons)
    profile, mu = profile_of(laws, z), gaussian_mu(laws, z)
    if profile is not None:
        return np.array([profile(epsilon) for epsilon in epsilons.tolist()])
    if mu is not None:
        return np.array([gdp_delta(epsilon, mu) for epsilon in epsilons.tolist()])
    proved = _renyi_deltas(laws, z, epsilons)
    if is_tractable(laws, z):
        proved = np.minimum(proved, _pld_deltas(laws, z, adjacency, epsilons))
    return proved


def _renyi_deltas(laws: Laws, z: float, epsilons: Floats) -> Floats:
    """Return min over a of e^((a-1) (eps(a) - eps)) (1 - 1/a)^a / (a - 1), at most 1.

    Canonne, Kamath, Steinke, NeurIPS 2020, Proposition 12, solved for delta.
    """
    orders = default_orders()
    curves = [(law.times, law.rdp(z, orders)) for law in laws]
    total = np.zeros_like(orders)
    for times, curve in curves:
        total = total + times * (np.inf if curve is None else curve)
    gain = orders * np.log1p(-1 / orders) - np.log(orders - 1)
    logs = (orders - 1) * (total - epsilons[:, None]) + gain
    return np.asarray(np.exp(np.minimum(logs.min(axis=1), 0.0)))


def _pld_deltas(laws: Laws, z: float, adjacency: Adjacency, epsilons: Floats) -> Floats:
    tail = 1e-13 / sum(law.times for law in laws)
    pairs = pairs_of(laws, z, adjacency, tail)
    step = lattice_step(pairs, CELLS)
    orders = (False,) if all(pair.mirrored for pair in pairs) else (False, True)
    found = []
    for order in orders:
        steps = [discretised(p.losses(step, tail, order), step, p.times) for p in pairs]
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
