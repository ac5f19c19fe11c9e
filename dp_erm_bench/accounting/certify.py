"""The smallest epsilon that can be proved for a composition of laws."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dp_erm_bench.accounting.gdp import folded, gaussian_mu, gdp_epsilon
from dp_erm_bench.accounting.pld import pld_epsilon
from dp_erm_bench.accounting.rdp import default_orders, rdp_epsilon
from dp_erm_bench.accounting.search import smallest_true
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.law import Law, composed

Laws = tuple[Law, ...]


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


def pure_epsilon(laws: Laws, z: float) -> float | None:
    """Return the sum of the pure levels, None if a law has none.

    Basic composition (Dwork and Roth, 2014, Theorem 3.16); it holds at delta = 0.
    """
    total = 0.0
    for law in laws:
        level = law.level(z)
        if level is None:
            return None
        total += law.times * level
    return total * (1 + 4e-16 * len(laws))


def gaussian_epsilon(laws: Laws, z: float, delta: float) -> float | None:
    """Return the exact epsilon of Gaussian releases, None if a law is another."""
    mu = gaussian_mu(laws, z)
    return None if mu is None else gdp_epsilon(mu, delta)


def profile_of(laws: Laws, z: float) -> Callable[[float], float] | None:
    """Return delta(epsilon) of one use of a law that has a profile.

    Gaussian releases may be beside it; None for all other compositions.
    """
    special = [law for law in laws if law.profiled]
    mu, others = folded(laws, z)
    if others != special or [law.times for law in special] != [1]:
        return None
    return lambda epsilon: special[0].delta(epsilon, z, mu)


def profile_epsilon(laws: Laws, z: float, delta: float) -> float | None:
    """Return the epsilon of the profile, None for laws that it does not know."""
    profile = profile_of(laws, z)
    if profile is None:
        return None
    if delta <= 0:
        return math.inf
    return smallest_true(lambda epsilon: profile(epsilon) <= delta)


def is_known(law: Law) -> bool:
    """Return whether a law answers an accountant."""
    z = 1 / law.weight
    asked = (law.mu_square, law.level, law.steepness)
    if law.profiled or any(ask(z) is not None for ask in asked):
        return True
    return law.rdp(z, default_orders()) is not None


def check_known(laws: Laws, delta: float) -> None:
    """Refuse laws that no accountant knows, and delta = 0 where noise is Gaussian."""
    for law in laws:
        if not is_known(law):
            raise TypeError(f"law {law.name!r}: no accountant knows it")
        if "__dataclass_params__" not in vars(type(law)):
            # Else fields would be lost where laws are compared and composed.
            raise TypeError(f"{type(law).__name__}: a law must be a dataclass")
    impure = [law for law in laws if law.level(1 / law.weight) is None]
    mixed = {law.name for law in impure if law.times}
    if delta == 0 and mixed:
        raise Unsupported(
            f"delta=0: must be positive, as {sorted(mixed)[0]} noise is private "
            "for no finite epsilon at delta = 0"
        )


def certify(laws: Laws, z: float, delta: float, adjacency: Adjacency) -> Certificate:
    """Return the smallest epsilon proved by the accountants that know all laws.

    Parameters
    ----------
    laws : tuple of Law
        What is released, adaptively.
    z : float
        Common noise multiplier, at least 0; scale / sensitivity of a law is
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
        For a law that no accountant knows.
    Unsupported
        For delta = 0 with noise that is not purely private.
    """
    check_known(laws, delta)
    laws = composed(laws)
    trivial = without_proof(laws, z)
    if trivial is not None:
        return trivial
    return smaller(quick(laws, z, delta), slow(laws, z, delta, adjacency))


def without_proof(laws: Laws, z: float) -> Certificate | None:
    """Return the certificate where nothing is released, or without noise."""
    if not laws:
        return Certificate(0.0, "none")
    return None if z > 0 else Certificate(math.inf, "none")


def smaller(first: Certificate, second: Certificate) -> Certificate:
    """Return the certificate of the smaller epsilon, the first if they are equal."""
    return first if first.epsilon <= second.epsilon else second


def quick(laws: Laws, z: float, delta: float) -> Certificate:
    """Return the best certificate of the accountants that take microseconds."""
    with np.errstate(over="ignore"):
        exact = gaussian_epsilon(laws, z, delta)
        if exact is not None:
            return Certificate(exact, "gdp")
        proved = {
            "pure": pure_epsilon(laws, z),
            "rdp": rdp_epsilon(laws, z, delta),
            "profile": profile_epsilon(laws, z, delta),
        }
    known = [Certificate(e, name) for name, e in proved.items() if e is not None]
    return functools.reduce(smaller, known, Certificate(math.inf, "none"))


def slow(laws: Laws, z: float, delta: float, adjacency: Adjacency) -> Certificate:
    """Return the certificate of the PLD accountant where it may win.

    It never beats the exact answer for Gaussian releases.
    """
    if delta == 0 or gaussian_mu(laws, z) is not None:
        return Certificate(math.inf, "none")
    epsilon = pld_epsilon(laws, z, delta, adjacency)
    return Certificate(math.inf if epsilon is None else epsilon, "pld")
