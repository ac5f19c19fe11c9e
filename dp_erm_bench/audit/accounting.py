"""The noise that each accountant requires, and the epsilon of papers' constants.

No solver is run. A solver declares its releases, and each accountant gives the noise
multiplier z = scale / sensitivity for a budget, up to the releases' weights.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import numpy as np

from dp_erm_bench import registry
from dp_erm_bench.accounting import bounds
from dp_erm_bench.accounting.bounds import Laws
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.calibration import calibrate
from dp_erm_bench.accounting.certify import certify, profile_epsilon
from dp_erm_bench.accounting.least import smallest_multiplier
from dp_erm_bench.accounting.pld import pld_epsilon
from dp_erm_bench.accounting.repeated import LIU_TALWAR
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.problems.erm.build import erm_from_arrays
from dp_erm_bench.problems.erm.problem import ERMProblem
from dp_erm_bench.releases.law import compose_laws
from dp_erm_bench.run import Run
from dp_erm_bench.solvers.base import Solver
from dp_erm_bench.solvers.runs import Prefixed

Epsilon = Callable[[float], float | None]


@dataclass(frozen=True)
class NoiseRow:
    """The noise that one accountant requires of an algorithm.

    Attributes
    ----------
    algorithm : str
        A name of conf/algorithm.
    form : {'default', 'printed'}
        Whether the algorithm has its default parameters, or is the variant to which the
        constant stated in its paper applies (`printed`).
    adjacency : str
        The neighbouring relation.
    epsilon, delta : float
        The budget.
    n_iter : int
        The number of iterations, T.
    accountant : str
        ``paper``, ``authors``, ``zcdp``, ``rdp``, ``pld``, ``pure``, ``profile``,
        ``exact``, or ``best`` for the accountant that calibration=certified uses.
    z : float
        Noise scale divided by weight * sensitivity; NaN if there is a ``reason``.
    relative : float
        z divided by the z of ``best`` in the default form.
    epsilon_proved : float
        The smallest epsilon that is proved for this noise: an upper bound on the true
        epsilon, exact for Gaussian noise.
    reason : str
        The reason why the accountant gives no noise; empty if it gives one.
    """

    algorithm: str
    form: str
    adjacency: str
    epsilon: float
    delta: float
    n_iter: int
    accountant: str
    z: float
    relative: float = math.nan
    epsilon_proved: float = math.nan
    reason: str = ""


@lru_cache(maxsize=8)
def unit_problem(n: int = 1000, p: int = 20) -> ERMProblem:
    """Return a logistic problem with features in [-1, 1]; only its bounds matter."""
    X = np.ones((n, p))
    X[::2] = -1.0
    labels = np.where(np.arange(n) % 3, 1.0, -1.0)
    return erm_from_arrays(X, labels, loss="logistic", bounds={"columns": 1.0})


def declared_laws(solver: Solver, problem: ERMProblem, budget: Budget) -> Laws:
    """Return the composed laws of the releases that a solver declares.

    Parameters
    ----------
    solver : Solver
        The algorithm with its parameters.
    problem : ERMProblem
        The problem whose size and bounds the releases depend on.
    budget : Budget
        Delta must be a number.
    """
    run = Run(problem, [solver], budget, 1.0, ["accounting"])
    return compose_laws(tuple(release.law() for release in run.releases))


def noise_rows(
    algorithm: str, n_iter: int, budget: Budget, problem: ERMProblem | None = None
) -> list[NoiseRow]:
    """Return the noise that every accountant requires for T iterations of an algorithm.

    Parameters
    ----------
    algorithm : str
        A name of conf/algorithm, with its default parameters.
    n_iter : int
        T, at least 1.
    budget : Budget
        With a finite epsilon.
    problem : ERMProblem, optional
        Only its size and bounds are used; by default `unit_problem`.

    Returns
    -------
    list of NoiseRow
        One row per accountant, or a single row with the reason if the algorithm refuses
        the problem or has no noise to compare.
    """
    problem = problem or unit_problem()
    budget = budget.resolve_delta(problem.n)
    solver = _solver_of_length(algorithm, n_iter)
    question = (budget.adjacency.value, budget.epsilon, budget.number, n_iter)
    blank = NoiseRow(algorithm, "default", *question, "best", math.nan)
    if reason := _reason_without_noise(solver, problem):
        return [replace(blank, reason=reason)]
    laws = declared_laws(solver, problem, budget)
    best = calibrate(laws, budget)
    rows = [replace(blank, z=best.z, epsilon_proved=best.epsilon_certified)]
    rows += _accountant_rows(blank, laws, budget, best.z)
    blank = replace(blank, form="printed")
    for mode in ("paper", "authors"):
        # In boosting a run and its score have different noise: there is no common z.
        if mode not in solver.calibrations or solver.printed_constant == LIU_TALWAR:
            continue
        row = replace(blank, accountant=mode)
        try:
            form = solver.printed_form() if mode == "paper" else solver
            released = declared_laws(form, problem, budget)
            z = calibrate(released, budget, mode, solver.printed_constant).z
        except Unsupported as error:
            rows.append(replace(row, reason=str(error)))
            continue
        proof = certify(released, z, budget.number, budget.adjacency)
        rows.append(replace(row, z=z, epsilon_proved=proof.epsilon))
        if released != laws:  # the other accountants' noise for that form
            rows += _accountant_rows(row, released, budget, best.z)
    return [replace(row, relative=row.z / best.z) for row in rows]


def _reason_without_noise(solver: Solver, problem: ERMProblem) -> str | None:
    """Return the reason why an algorithm has no noise to compare, or None."""
    if isinstance(solver, Prefixed):
        return "its noise is given, its length is not"
    return solver.refusal(problem)


def _solver_of_length(algorithm: str, n_iter: int) -> Solver:
    """Return an algorithm with ``n_iter`` iterations, if it has that parameter."""
    names = {field.name for field in fields(registry.target("algorithm", algorithm))}
    usual = {"n_iter": n_iter, "smoothness": "public"}
    params = {name: value for name, value in usual.items() if name in names}
    solver: Solver = registry.build("algorithm", algorithm, **params)
    return solver


def _accountant_rows(
    blank: NoiseRow, laws: Laws, budget: Budget, start: float
) -> Iterator[NoiseRow]:
    """Yield a row per accountant; ``start`` is a z near the answer, to save time."""
    for name, (epsilon_at, reason) in epsilons_by_accountant(laws, budget).items():
        row = replace(blank, accountant=name)
        if epsilon_at(start) is None:
            yield replace(row, reason=reason)
        else:
            # An accountant that knows the laws at one z knows them at every z.
            z = smallest_multiplier(epsilon_at, budget.epsilon, start, 1e-5)  # type: ignore[arg-type]
            yield replace(row, z=z, epsilon_proved=budget.epsilon)


def renyi_epsilon(laws: Laws, z: float, delta: float, zero_out: bool) -> float | None:
    """Return the epsilon of Renyi accounting; None if the laws are not known to it.

    Sampled releases are left to dp_accounting, which is used under ``zero_out`` only.

    Parameters
    ----------
    laws : tuple of Law
        The laws of all releases.
    z : float
        Common noise multiplier, positive.
    delta : float
        In (0, 1).
    zero_out : bool
        Whether the adjacency is ``zero_out``.
    """
    if not any(law.sampled for law in laws):
        return bounds.rdp_epsilon(laws, z, delta)
    if not (zero_out and all(law.normal for law in laws)):
        return None
    return bounds.library_epsilon(laws, z, delta)


def epsilons_by_accountant(
    laws: Laws, budget: Budget
) -> dict[str, tuple[Epsilon, str]]:
    """Return functions of z that give each accountant's epsilon.

    Each comes with the reason for which its result may be None.
    """
    delta, adjacency = budget.number, budget.adjacency
    zero_out = adjacency.of_sum(1.0) == 1.0
    return {
        "zcdp": (
            lambda z: bounds.zcdp_epsilon(laws, z, delta),
            "no closed form is known for samples and objectives",
        ),
        "rdp": (
            lambda z: renyi_epsilon(laws, z, delta, zero_out),
            "samples with a replaced record are not offered",
        ),
        "pld": (lambda z: pld_epsilon(laws, z, delta, adjacency), "unknown noise"),
        "pure": (lambda z: bounds.pure_epsilon(laws, z), "Gaussian noise"),
        "profile": (
            lambda z: profile_epsilon(laws, z, delta),
            "known for one perturbed objective or pass with Gaussian noise beside it",
        ),
        "exact": (
            lambda z: bounds.gaussian_epsilon(laws, z, delta),
            "known for Gaussian noise only",
        ),
    }
