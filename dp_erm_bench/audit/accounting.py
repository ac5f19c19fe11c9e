"""How much noise each accountant asks for, and what a printed constant is worth.

Nothing is run: a solver declares its releases, and accountants are asked for the noise
multiplier z = scale / sensitivity of a budget, up to the releases' weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache

import numpy as np

from dp_erm_bench import registry
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.calibration import calibrate
from dp_erm_bench.accounting.certify import Laws, certify
from dp_erm_bench.accounting.single import accountants, multiplier
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.problems.erm.arrays import problem_from_arrays
from dp_erm_bench.problems.erm.problem import ERMProblem
from dp_erm_bench.releases.law import composed
from dp_erm_bench.run import Run
from dp_erm_bench.solvers.base import Solver

DELTA, N, P = 1e-6, 1000, 20
EPSILONS = (0.1, 1.0, 10.0)
LENGTHS = (1, 10, 50, 100, 1000, 10000)


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
        Why an accountant has no answer.
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
def unit_problem(n: int = N, p: int = P) -> ERMProblem:
    """Return a logistic problem with features in [-1, 1]: only its bounds are read."""
    X = np.ones((n, p))
    X[::2] = -1.0
    labels = np.where(np.arange(n) % 3, 1.0, -1.0)
    return problem_from_arrays(X, labels, loss="logistic", bounds={"columns": 1.0})


def declared(solver: Solver, problem: ERMProblem, budget: Budget) -> Laws:
    """Return what a solver releases, as an accountant sees it."""
    run = Run(problem, [solver], budget, 1.0, ["accounting"])
    return composed(tuple(release.law() for release in run.releases))


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
    problem = unit_problem() if problem is None else problem
    budget = budget.resolved(problem.n)
    solver = _solver(algorithm, n_iter)
    known = (budget.adjacency.value, budget.epsilon, budget.number, n_iter)
    blank = NoiseRow(algorithm, "default", *known, "best", math.nan)
    if reason := solver.refusal(problem):
        return [replace(blank, reason=reason)]
    laws = declared(solver, problem, budget)
    best = calibrate(laws, budget)
    rows = [replace(blank, z=best.z, epsilon_proved=best.epsilon_certified)]
    rows += _asked(blank, laws, budget, best.z)
    for mode in ("paper", "authors"):
        if mode in solver.calibrations:
            printed = replace(blank, form="printed", accountant=mode)
            how = (solver, problem, budget, laws)
            rows += _printed(printed, *how, best.z)
    return [replace(row, relative=row.z / best.z) for row in rows]


def _solver(algorithm: str, n_iter: int) -> Solver:
    """Return an algorithm of some iterations, where it has any."""
    known = {field.name for field in fields(registry.target("algorithm", algorithm))}
    wanted = {"n_iter": n_iter, "smoothness": "public"}
    given = {name: value for name, value in wanted.items() if name in known}
    solver: Solver = registry.build("algorithm", algorithm, **given)
    return solver


def _asked(
    blank: NoiseRow, laws: Laws, budget: Budget, start: float
) -> Iterator[NoiseRow]:
    """Yield a row per accountant; asked near the answer, a PLD is cheap."""
    for name, (epsilon_at, reason) in accountants(laws, budget).items():
        row = replace(blank, accountant=name)
        z = multiplier(epsilon_at, budget.epsilon, start)
        if z is None:
            yield replace(row, reason=reason)
        else:
            yield replace(row, z=z, epsilon_proved=budget.epsilon)


def _printed(
    blank: NoiseRow,
    solver: Solver,
    problem: ERMProblem,
    budget: Budget,
    laws: Laws,
    start: float,
) -> Iterator[NoiseRow]:
    """Yield the noise of a printed rule, and what else its releases would need."""
    mode = blank.accountant
    try:
        form = solver.printed_form() if mode == "paper" else solver
    except Unsupported as reason:
        yield replace(blank, reason=str(reason))
        return
    released = declared(form, problem, budget)
    z = calibrate(released, budget, mode, solver.printed).z
    proof = certify(released, z, budget.number, budget.adjacency)
    yield replace(blank, z=z, epsilon_proved=proof.epsilon)
    if released != laws:
        yield from _asked(blank, released, budget, start)


def noise_table(
    algorithms: Sequence[str],
    lengths: Sequence[int] = LENGTHS,
    epsilons: Sequence[float] = EPSILONS,
    delta: float = DELTA,
    adjacency: str = "replace_one",
) -> list[dict[str, object]]:
    """Return the rows of all algorithms, lengths and epsilons."""
    problem = unit_problem()
    return [
        {"study": "noise", **asdict(row)}
        for algorithm in algorithms
        for n_iter in lengths
        for epsilon in epsilons
        for row in noise_rows(
            algorithm,
            n_iter,
            Budget(epsilon, delta, adjacency),  # type: ignore[arg-type]
            problem,
        )
    ]
