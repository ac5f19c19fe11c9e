"""Calibration: the noise multiplier with which releases spend a privacy budget.

Releases that take a fixed share of the budget are certified separately. The search for
the multiplier uses the budget that they leave.
"""

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import scipy

from dp_erm_bench import releases
from dp_erm_bench.accounting.bounds import Laws, pure_epsilon
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.certify import Certificate, certify, check_known
from dp_erm_bench.accounting.least import (
    authors_multiplier,
    certified_multiplier,
    proof_of_least,
)
from dp_erm_bench.cached import is_sealing, load_json, save_json
from dp_erm_bench.errors import Unsupported, UsageError
from dp_erm_bench.paths import digest_of_json
from dp_erm_bench.plugins.passed import NOT_RECOUNTED
from dp_erm_bench.releases.base import Mechanisms, Release
from dp_erm_bench.releases.l1_laplace import Shared
from dp_erm_bench.releases.law import compose_laws
from dp_erm_bench.releases.printed import printed_multiplier

MODES = ("certified", "paper", "authors")
ROUNDING = 4e-16
"""Relative margin by which sums are rounded to the safe side.

The margin is a few units in the last place.
"""


@dataclass(frozen=True)
class Calibration:
    """The noise of a trial and the epsilon that is proved for it.

    Attributes
    ----------
    z : float
        Common noise multiplier; 0 without noise. The noise scale of a release is z *
        weight * sensitivity.
    budget : Budget
        The budget, with delta as a number.
    accountant : str
        The accountant that proves ``epsilon_certified``.
    epsilon_certified : float
        Proved epsilon at the budget's delta, infinite without noise.
    label : str
        ``certified``, ``authors``, ``paper``, or ``paper (not proved)`` if the epsilon
        certified for the noise stated in the paper exceeds the budget. The label ends
        in ``(not recounted)`` if a release has no twin.
    """

    z: float
    budget: Budget
    accountant: str
    epsilon_certified: float
    label: str


def calibrate(
    laws: Laws, budget: Budget, mode: str = "certified", printed: str | None = None
) -> Calibration:
    """Return the noise multiplier for a budget, and the epsilon that is proved for it.

    Parameters
    ----------
    laws : tuple of Law
        The laws of everything that a run releases.
    budget : Budget
        Delta must be a number (``Budget.resolve_delta(n)``).
    mode : str
        With ``certified``, z is the smallest one whose certified epsilon is within the
        budget. With ``paper``, z follows from the constant ``printed``. With
        ``authors``, the noise is that of the DP-SGD that Mangold et al. compare with.
    printed : str or None
        Name of the constant stated in the algorithm's paper, see ``printed.PAPERS``;
        None if the paper states none.

    Returns
    -------
    Calibration
        The calibration, cached in memory. For laws of the package it is also cached on
        disk, by laws, budget, mode and :func:`digest_of_sources`. A value read from
        disk is proved again, once per process.

    Raises
    ------
    UsageError
        For a mode that is unknown, or that the algorithm does not have.
    TypeError
        For a law that no accountant knows.
    Unsupported
        For delta = 0 with noise that is not purely private. Also if no noise is enough,
        because the curvature of perturbed objectives alone exceeds the budget; the
        message then states the cost of log(1 + beta / ridge).
    """
    if mode not in MODES:
        raise UsageError(f"calibration={mode}: must be one of {', '.join(MODES)}")
    refuse_unreachable(laws, budget)
    rule = printed if mode == "paper" else None
    return _load_calibration(compose_laws(laws), budget, mode, rule)


def refuse_unreachable(laws: Laws, budget: Budget) -> None:
    """Raise an error if no noise brings the laws within a budget, see `calibrate`."""
    check_known(laws, budget.number)
    least = math.fsum(law.times * law.least() for law in laws)
    if least >= budget.epsilon:
        raise Unsupported(
            f"epsilon={budget.epsilon:g}: the curvature alone, log(1 + beta / ridge), "
            f"costs an epsilon of {least:.3g} with any noise; use a larger ridge"
        )


def label_without_twins(
    calibration: Calibration, releases: Iterable[Release]
) -> Calibration:
    """Return the calibration, labelled as not recounted if a release has no twin."""
    if all(release.is_recounted() for release in releases) or not calibration.z:
        return calibration
    return replace(calibration, label=calibration.label + NOT_RECOUNTED)


def shared_mechanisms(
    releases: Shared, budget: Budget, identities: Sequence[str]
) -> Mechanisms:
    """Return the mechanisms of releases that take a fixed share of a budget.

    Parameters
    ----------
    releases : tuple of L1Laplace
        The releases, each with its share of epsilon.
    budget : Budget
        The whole budget of a trial.
    identities : sequence of str
        One per trial; they seed the noise.
    """
    mechanisms = Mechanisms(len(identities))
    for release in releases:
        z = release.multiplier(budget.epsilon)
        mechanisms[release.name] = release.mechanism(release, z, identities)
    return mechanisms


def epsilon_spent(releases: Shared, budget: Budget) -> float:
    """Return the pure epsilon that releases spend out of a finite budget.

    Raises
    ------
    Unsupported
        If the law of a release has no pure level.
    """
    spent = []
    for release in releases:
        level = pure_epsilon((release.law(),), release.multiplier(budget.epsilon))
        if level is None:
            raise Unsupported(
                f"release {release.name}: has no level at delta = 0, so it cannot "
                "take a share of epsilon"
            )
        spent.append(level)
    return math.fsum(spent)


def budget_left(budget: Budget, releases: Shared) -> Budget:
    """Return the budget that remains after fixed shares, never rounded up."""
    if not releases or math.isinf(budget.epsilon):
        return budget
    left = budget.epsilon - epsilon_spent(releases, budget)
    return replace(budget, epsilon=left * (1 - ROUNDING))


def with_shares(
    calibration: Calibration, budget: Budget, releases: Shared
) -> Calibration:
    """Return the calibration of the remaining budget, with the shares added.

    This is basic composition: the shares are eps'-DP. Given their published values, the
    other releases are (eps_r, delta)-DP, because their z is fixed before and their
    sensitivities are functions of the published values. All releases together are
    (eps' + eps_r, delta)-DP (Dwork and Roth, 2014, Theorem 3.16 and appendix B,
    adaptive). This is true whichever rule chose z: ``epsilon_certified`` is proved, and
    is within the budget in the mode ``certified``.

    Parameters
    ----------
    calibration : Calibration
        The calibration of all other releases, for the budget that the shares leave.
    budget : Budget
        The whole budget of a trial.
    releases : tuple of L1Laplace
        The releases that take a share; may be empty.
    """
    if not releases:
        return calibration
    if math.isinf(budget.epsilon):
        return replace(calibration, budget=budget)
    alone = calibration.accountant in ("pure", "none")
    return replace(
        calibration,
        budget=budget,
        accountant="pure" if alone else f"{calibration.accountant}+pure",
        epsilon_certified=epsilon_spent(releases, budget)
        + calibration.epsilon_certified,
    )


@functools.lru_cache(maxsize=4096)
def _load_calibration(
    laws: Laws, budget: Budget, mode: str, printed: str | None
) -> Calibration:
    """Load or compute the calibration of laws in canonical order."""
    if math.isinf(budget.epsilon) or not laws:
        spent = math.inf if laws else 0.0
        return Calibration(0.0, budget, "none", spent, mode)
    package = f"{releases.__name__}."
    if not all(type(law).__module__.startswith(package) for law in laws):
        return compute_calibration(
            laws, budget, mode, printed
        )  # ``digest_of_sources`` covers only our laws
    named = [[law.name, asdict(law)] for law in laws]
    key = digest_of_json([digest_of_sources(), named, asdict(budget), mode, printed])
    read = load_json("calibration", key)
    if read is not None and read.vouched:
        return Calibration(budget=budget, **read.value)
    found: Calibration | None = None
    if read is not None and mode == "certified":
        # Only z and the name of the accountant are taken from the file; the rest is
        # proved now.
        z, name = read.value.get("z"), read.value.get("accountant")
        if isinstance(z, float) and isinstance(name, str):
            if proof := proof_of_least(z, name, laws, budget):
                found = Calibration(z, budget, name, proof.epsilon, mode)
    if found is None or is_sealing():
        found = found or compute_calibration(laws, budget, mode, printed)
        facts = {k: v for k, v in asdict(found).items() if k != "budget"}
        save_json("calibration", key, facts)
    return found


@functools.cache
def digest_of_sources() -> str:
    """Return a digest of the code of accountants and laws, and of library versions."""
    layers = (Path(__file__).parent, Path(releases.__file__).parent)
    files = [path for layer in layers for path in sorted(layer.glob("*.py"))]
    code = [[path.name, path.read_text()] for path in files]
    return digest_of_json([code, np.__version__, scipy.__version__])


def compute_calibration(
    laws: Laws, budget: Budget, mode: str, printed: str | None
) -> Calibration:
    """Compute the calibration for a finite budget, without the cache.

    Parameters
    ----------
    laws : tuple of Law
        The laws of all releases, at least one.
    budget : Budget
        The budget, with a finite epsilon, and delta as a number.
    mode : {'certified', 'paper', 'authors'}
        The rule that chooses the noise, see `calibrate`.
    printed : str or None
        Name of the constant stated in a paper, for the mode ``paper``.
    """
    delta, adjacency = budget.number, budget.adjacency
    if mode == "certified":
        z, proof = certified_multiplier(laws, budget)
        return calibration_of_proof(z, budget, proof, mode)
    if mode == "authors":
        z = authors_multiplier(budget, laws)
    else:
        z = printed_multiplier(printed, laws, budget.epsilon, delta, adjacency)
    return calibration_of_proof(z, budget, certify(laws, z, delta, adjacency), mode)


def calibration_of_proof(
    z: float, budget: Budget, proof: Certificate, mode: str
) -> Calibration:
    """Return the calibration that a certificate proves for a noise multiplier.

    If the epsilon certified for a paper's noise exceeds the budget, the label says
    ``paper (not proved)``.

    Parameters
    ----------
    z : float
        Common noise multiplier.
    budget : Budget
        The budget, with delta as a number.
    proof : Certificate
        The epsilon proved at z, and its accountant.
    mode : {'certified', 'paper', 'authors'}
        The rule that chose z.
    """
    unproved = mode == "paper" and proof.epsilon > budget.epsilon
    label = "paper (not proved)" if unproved else mode
    return Calibration(z, budget, proof.accountant, proof.epsilon, label)
