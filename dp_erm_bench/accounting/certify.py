"""The smallest epsilon and the privacy profile that are proved for a composition."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from dp_erm_bench.accounting import bounds
from dp_erm_bench.accounting.bounds import Laws
from dp_erm_bench.accounting.pld import is_tractable, pld_deltas, pld_epsilon
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.gaussian import gdp_delta
from dp_erm_bench.releases.law import compose_laws
from dp_erm_bench.releases.losses import Floats


@dataclass(frozen=True)
class Certificate:
    """An epsilon and the accountant that proves it.

    Attributes
    ----------
    epsilon : float
        At least 0; infinite if no privacy is proved.
    accountant : str
        ``gdp``, ``rdp``, ``pld``, ``pure``, or ``profile`` (of a law with a privacy
        profile, as in objective perturbation). ``none`` if nothing had to be proved, or
        if nothing is proved.
    """

    epsilon: float
    accountant: str


NOTHING = Certificate(math.inf, "none")
BY_EPSILON = attrgetter("epsilon")


def profile_of(laws: Laws, z: float) -> Callable[[float], float] | None:
    """Return the privacy profile delta(epsilon) of a composition, or None.

    The profile is known for a single use of a law that has one, alone or together with
    Gaussian releases.
    """
    special = [law for law in laws if law.profiled]
    mu, others = bounds.fold_gaussians(laws, z)
    if others != special or [law.times for law in special] != [1]:
        return None
    return lambda epsilon: special[0].delta(epsilon, z, mu)


def profile_epsilon(laws: Laws, z: float, delta: float) -> float | None:
    """Return the epsilon of the privacy profile; None for laws without a profile.

    Parameters
    ----------
    laws : tuple of Law
        The laws of all releases.
    z : float
        Common noise multiplier, positive.
    delta : float
        In [0, 1); the result is infinite at 0.
    """
    profile = profile_of(laws, z)
    if profile is None:
        return None
    if delta <= 0:
        return math.inf
    return bounds.smallest_true(lambda epsilon: profile(epsilon) <= delta)


def check_known(laws: Laws, delta: float) -> None:
    """Raise an error if no accountant can certify the laws at ``delta``.

    Raises
    ------
    TypeError
        For a law that no accountant knows, or whose class is not itself a dataclass.
    Unsupported
        For delta = 0 with noise that is not purely private.
    """
    impure = set()
    for law in laws:
        z = 1 / law.weight
        level = law.level(z)
        answers = (level, law.mu_square(z), law.steepness(z))
        if not law.profiled and all(answer is None for answer in answers):
            if law.rdp(z, bounds.default_orders()) is None:
                raise TypeError(f"law {law.name!r}: no accountant knows it")
        if "__dataclass_params__" not in vars(type(law)):
            # Otherwise its fields would be lost when laws are compared and composed.
            raise TypeError(f"{type(law).__name__}: a law must be a dataclass")
        if level is None and law.times:
            impure.add(law.name)
    if delta == 0 and impure:
        raise Unsupported(
            f"delta=0: must be positive, because {min(impure)} noise has no finite "
            "epsilon at delta = 0"
        )


def certify(laws: Laws, z: float, delta: float, adjacency: Adjacency) -> Certificate:
    """Return the smallest epsilon proved by the accountants that know all laws.

    Parameters
    ----------
    laws : tuple of Law
        The laws of all releases, which may be adaptive.
    z : float
        Common noise multiplier, at least 0. The scale / sensitivity of a law is
        z * weight.
    delta : float
        In [0, 1).
    adjacency : Adjacency
        The neighbouring relation for which sensitivities are declared.

    Returns
    -------
    Certificate
        The epsilon and the accountant that proves it.

    Raises
    ------
    TypeError
        For a law that no accountant knows.
    Unsupported
        For delta = 0 with noise that is not purely private.
    """
    check_known(laws, delta)
    laws = compose_laws(laws)
    if not laws:
        return Certificate(0.0, "none")
    if not z > 0:
        return NOTHING
    proofs = (
        quick_certificate(laws, z, delta),
        pld_certificate(laws, z, delta, adjacency),
    )
    return min(proofs, key=BY_EPSILON)


def quick_certificate(laws: Laws, z: float, delta: float) -> Certificate:
    """Return the best certificate of all accountants except the slow PLD accountant.

    Parameters
    ----------
    laws : tuple of Law
        The laws of all releases.
    z : float
        Common noise multiplier, positive.
    delta : float
        In [0, 1).
    """
    with np.errstate(over="ignore"):
        exact = bounds.gaussian_epsilon(laws, z, delta)
        if exact is not None:
            return Certificate(exact, "gdp")
        proved = {
            "pure": bounds.pure_epsilon(laws, z),
            "rdp": bounds.rdp_epsilon(laws, z, delta),
            "profile": profile_epsilon(laws, z, delta),
        }
    proofs = [Certificate(e, name) for name, e in proved.items() if e is not None]
    return min([NOTHING, *proofs], key=BY_EPSILON)


def pld_certificate(
    laws: Laws, z: float, delta: float, adjacency: Adjacency
) -> Certificate:
    """Return the certificate of the PLD accountant, or one with infinite epsilon.

    Epsilon is infinite if the accountant is not used. This is so for delta = 0, and for
    Gaussian releases alone, for which it never beats the exact answer.

    Parameters
    ----------
    laws : tuple of Law
        The laws of all releases.
    z : float
        Common noise multiplier, positive.
    delta : float
        In [0, 1).
    adjacency : Adjacency
        The neighbouring relation for which sensitivities are declared.
    """
    if delta == 0 or not bounds.fold_gaussians(laws, z)[1]:
        return NOTHING
    epsilon = pld_epsilon(laws, z, delta, adjacency)
    return Certificate(math.inf if epsilon is None else epsilon, "pld")


def delta_at(laws: Laws, z: float, adjacency: Adjacency, epsilons: Floats) -> Floats:
    """Return upper bounds on delta at given epsilons.

    Parameters
    ----------
    laws : tuple of Law
        The laws of all releases, which may be adaptive.
    z : float
        Common noise multiplier.
    adjacency : Adjacency
        The neighbouring relation for which sensitivities are declared.
    epsilons : array of shape (m,)
        At least 0.

    Returns
    -------
    array of shape (m,)
        The deltas are exact for Gaussian releases, and come from the privacy profile if
        a law has one. Otherwise they come from the privacy-loss distribution, which is
        good for deltas above about 1e-12, or from Renyi divergences. They are 1 where
        nothing is proved.
    """
    check_known(laws, 1.0)
    laws = compose_laws(laws)
    if not laws:
        return np.zeros_like(epsilons)
    if not z > 0:
        return np.ones_like(epsilons)
    profile, (mu, others) = profile_of(laws, z), bounds.fold_gaussians(laws, z)
    if profile is None and not others:
        profile = functools.partial(gdp_delta, mu=mu)
    if profile is not None:
        return np.array([profile(epsilon) for epsilon in epsilons.tolist()])
    proved = bounds.rdp_deltas(laws, z, epsilons)
    if is_tractable(laws, z):
        proved = np.minimum(proved, pld_deltas(laws, z, adjacency, epsilons))
    return proved
