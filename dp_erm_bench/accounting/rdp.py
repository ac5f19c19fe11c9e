"""Renyi accounting: curves, their sum, and the conversion to (epsilon, delta).

A mechanism is (alpha, eps(alpha))-RDP if the Renyi divergence of order alpha between
its outputs on neighbours is at most eps(alpha); curves add up under adaptive
composition (Mironov, "Renyi Differential Privacy", CSF 2017, Proposition 1).
"""

import functools
import math

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.releases.law import Law

Floats = NDArray[np.float64]


@functools.cache
def default_orders() -> Floats:
    """Return the orders alpha > 1 over which every conversion minimises."""
    near_one = 1 + np.geomspace(1e-3, 1, 60)[:-1]
    middle = np.arange(2, 64, 0.25)
    powers = 2.0 ** np.arange(8.25, 15.76, 0.25)
    return np.concatenate([near_one, middle, np.arange(64, 257), powers])


def converted_epsilon(orders: Floats, curve: Floats, delta: float) -> float:
    """Return the smallest epsilon >= 0 that an RDP curve proves at ``delta``.

    eps = min over a of eps(a) + log(1 - 1/a) - log(delta a)/(a - 1) (Canonne, Kamath,
    Steinke, "The Discrete Gaussian for Differential Privacy", NeurIPS 2020,
    Proposition 12).
    """
    if delta <= 0:
        return math.inf
    gain = np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
    return max(0.0, float(np.min(curve + gain)))


def rdp_epsilon(laws: tuple[Law, ...], z: float, delta: float) -> float | None:
    """Return the epsilon that Renyi accounting proves, None for unknown laws."""
    orders = default_orders()
    total = np.zeros_like(orders)
    for law in laws:
        curve = law.rdp(z, orders)
        if curve is None:
            return None
        total += law.times * curve
    return converted_epsilon(orders, total, delta)


def zcdp_epsilon(laws: tuple[Law, ...], z: float, delta: float) -> float | None:
    """Return the closed form of concentrated privacy, None if a law has none.

    epsilon = rho + 2 sqrt(rho log(1 / delta)) (Bun and Steinke, "Concentrated
    differential privacy", TCC 2016, Proposition 1.3).
    """
    total = 0.0
    for law in laws:
        rho = law.rho(z)
        if rho is None:
            return None
        total += law.times * rho
    return total + 2 * math.sqrt(-total * math.log(delta))


def library_epsilon(laws: tuple[Law, ...], z: float, delta: float) -> float:
    """Return the epsilon of dp_accounting's Renyi accountant under zero-out.

    It amplifies by sampling, which ours leaves to privacy-loss distributions.
    """
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant()
    for law in laws:
        accountant.compose(law.library_event(z), law.times)
    return float(accountant.get_epsilon(delta))
