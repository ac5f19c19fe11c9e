"""The noise of each accountant, and the epsilon that a printed constant proves.

Nothing is run: a solver declares its releases, and accountants are asked for the noise
multiplier z = scale / sensitivity of a budget, up to the releases' weights.
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
    """The noise that one accountant asks for.

    Attributes
    ----------
    algorithm : str
    form : {'default', 'printed'}
        Its parameters: ours, or the variant that the printed constant is for.
    adjacency : str
    epsilon, delta : float
        The budget.
    n_iter : int
        T.
    accountant : str
        ``paper``, ``authors``, ``zcdp``, ``rdp``, ``pld``, ``pure``, ``profile``,
        ``exact``, or ``best``: what calibration=certified uses.
    z : float
        Noise scale / (weight * sensitivity); NaN with a reason.
    relative : float
        z over the ``best`` of the default form.
    epsilon_proved : float
        The smallest epsilon that is proved for this noise: an upper bound of the true
        one, exact for Gaussian noise.
    reason : str
        The reason why an accountant has no answer.
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
    """Return a logistic problem with features in [-1, 1]: only its bounds are read."""
    X = np.ones((n, p))
    X[::2] = -1.0
    labels = np.where(np.arange(n) % 3, 1.0, -1.0)
    return erm_from_arrays(X, labels, loss="logistic", bounds={"columns": 1.0})


def declared_laws(solver: Solver, problem: ERMProblem, budget: Budget) -> Laws:
    """Return the composed laws of a solver's releases."""
    run = Run(problem, [solver], budget, 1.0, ["accounting"])
    return compose_laws(tuple(release.law() for release in run.releases))


def noise_rows(
    algorithm: str, n_iter: int, budget: Budget, problem: ERMProblem | None = None
) -> list[NoiseRow]:
    """Return the noise of every accountant for some iterations of an algorithm.

    Parameters
    ----------
    algorithm : str
        A name of conf/algorithm, with its default parameters.
    n_iter : int
        T, at least 1.
    budget : Budget
        With a finite epsilon.
    problem : ERMProblem, optional
        Its size and bounds are read; by default `unit_problem`.

    Returns
    -------
    list of NoiseRow
        A single one with the reason if the algorithm refuses the problem.
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
        # Of boosting a run and its score have noise of their own: there is no one z.
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
        if released != laws:  # what else the releases of that form would need
            rows += _accountant_rows(row, released, budget, best.z)
    return [replace(row, relative=row.z / best.z) for row in rows]


def _reason_without_noise(solver: Solver, problem: ERMProblem) -> str | None:
    """Return why an algorithm has no noise to compare, None if it has."""
    if isinstance(solver, Prefixed):
        return "its noise is given, its length is not"
    return solver.refusal(problem)


def _solver_of_length(algorithm: str, n_iter: int) -> Solver:
    """Return an algorithm of some iterations, where it has any."""
    names = {field.name for field in fields(registry.target("algorithm", algorithm))}
    usual = {"n_iter": n_iter, "smoothness": "public"}
    params = {name: value for name, value in usual.items() if name in names}
    solver: Solver = registry.build("algorithm", algorithm, **params)
    return solver


def _accountant_rows(
    blank: NoiseRow, laws: Laws, budget: Budget, start: float
) -> Iterator[NoiseRow]:
    """Yield a row per accountant; asked near the answer, a PLD is cheap."""
    for name, (epsilon_at, reason) in epsilons_by_accountant(laws, budget).items():
        row = replace(blank, accountant=name)
        if epsilon_at(start) is None:
            yield replace(row, reason=reason)
        else:
            # A law that answers at one z answers at all.
            z = smallest_multiplier(epsilon_at, budget.epsilon, start, 1e-5)  # type: ignore[arg-type]
            yield replace(row, z=z, epsilon_proved=budget.epsilon)


def renyi_epsilon(laws: Laws, z: float, delta: float, zero_out: bool) -> float | None:
    """Return the epsilon by Renyi accounting; samples by dp_accounting, if zero-out."""
    if not any(law.sampled for law in laws):
        return bounds.rdp_epsilon(laws, z, delta)
    if not (zero_out and all(law.normal for law in laws)):
        return None
    return bounds.library_epsilon(laws, z, delta)


def epsilons_by_accountant(
    laws: Laws, budget: Budget
) -> dict[str, tuple[Epsilon, str]]:
    """Return each accountant's epsilon of z, and when it has none."""
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
