"""Worst-case neighbours, and the parameters with which an algorithm is audited.

All records but the first are zero (x = 0). The first one is at a corner of the declared
bounds, and its neighbour at the opposite corner (``replace_one``) or at zero
(``zero_out``). The loss is the smoothed hinge, and iterates stay so near to zero that
all margins are in the linear part of the loss. So every derivative is exactly +-1, and
each step leaks the whole declared sensitivity. The sum over a Poisson sample is the
first record's gradient times its coin, so with noise its law is a mixture of two
normals.

Some kinds of releases need another pair.

* A selection by |g_j|: opposite gradients have equal scores. The other records are
  therefore at one corner, which fixes the sign of the mean gradient, and the first
  record raises half of the scores and lowers the others.
* Private smoothness constants: x_ij^2 does not distinguish opposite corners, so the
  neighbour is the record of zeros under both relations.
* Outer products xx' do not distinguish opposite corners either. Solvers that publish
  sums of outer products declare this (`leaks_by`). ``orthogonal`` records are the
  farthest apart; traces distinguish only the record of zeros (``nothing``). The loss
  is then the logistic one, whose second derivative is largest at 0.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import Field, dataclass, fields
from typing import Any

import numpy as np

from dp_erm_bench import registry
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.datasets.base import Array, Bounds
from dp_erm_bench.datasets.prepare import dataset_from_arrays
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.problems.base import Problem
from dp_erm_bench.problems.erm.build import build_problem
from dp_erm_bench.problems.erm.problem import ERMProblem
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.run import Run
from dp_erm_bench.solvers.base import Solver

RECORDS = 40
# With noise inside |.|, scores leak only if they are large compared with the noise.
CROWD = 400
RADIUS = np.array([1.0, 2.0, 0.5, 1.0])
SIGNS = np.array([1.0, 1.0, -1.0, -1.0])
HINGE = "smoothed_hinge"
TINY, FAR, LITTLE, TWICE = 1e-9, 1e6, 1.5, 0.5
RIDGE = 10.0
LENGTH = 10
LENGTHS = ("passes", "n_epochs", "n_iter")
# Choices that use the data uncharged, or values that are declared public.
UNCHARGED = ("data", "public")
UNVARIED = ("smoothness_bounds", *LENGTHS)


@dataclass(frozen=True, eq=False)
class Pair:
    """Two problems whose datasets are neighbours."""

    first: Problem
    second: Problem


def variants(algorithm: str) -> list[dict[str, Any]]:
    """Return the parameter settings with which an algorithm is audited.

    These settings are

    * the defaults;
    * long steps, which carry the iterates to points where derivatives alternate between
      0 and 1, because only there differences of gradients leak;
    * each choice of each shape parameter, one at a time;
    * the settings that the class lists in ``worst_cases``, if any. A string that is a
      value in this list is not tried in other settings.

    The parameters are read from the fields of the class.
    """
    solver = registry.target("algorithm", algorithm)
    parameters = {field.name: field for field in fields(solver)}
    base = {"n_iter": LENGTH} if "n_iter" in parameters else {}
    tried = [base]
    if "step" in parameters:
        tried.append(base | {"step": parameters["step"].metadata.get("most", FAR)})
    tried += [base | dict(one) for one in solver.worst_cases]
    words = [x for one in solver.worst_cases for x in one.values()]
    there = (*UNCHARGED, *(x for x in words if isinstance(x, str)))
    for name, field in parameters.items():
        if field.metadata["kind"] == "shape" and name not in UNVARIED:
            # For batch sizes only words are tried; a number is a share of the records.
            kind = str if "words" in field.metadata else object
            values: list[Any] = [
                x for x in alternative_values(field) if isinstance(x, kind)
            ]
            tried += [base | {name: x} for x in values if x not in there]
    different = [one for i, one in enumerate(tried) if one not in tried[:i]]
    return [
        c
        for c in different
        if c == base or _has_objective(audited_solver(algorithm, c))
    ]


def _has_objective(solver: Solver) -> bool:
    """Return whether a solver accepts at least one objective at a finite epsilon.

    Not every combination of parameters has a meaning. Parameters that are refused at
    every finite epsilon claim no privacy, so there is nothing to audit.
    """
    if solver.unbounded_reason:
        return False
    try:
        worst_pair(solver, Adjacency.REPLACE_ONE)
    except Unsupported:
        return False
    return True


def alternative_values(field: "Field[Any]") -> list[Any]:
    """Return the values of a shape parameter besides its default.

    These are the parameter's choices, if it has a list of choices. Otherwise they are
    True and False for a boolean. For other parameters, they are the strings that the
    parameter allows and, if it is an integer, 5 or the nearest allowed number.
    """
    values: list[Any] = [True, False]
    if not isinstance(field.default, bool):
        numbers = (
            [nearest_allowed(field, LENGTH // 2)] if "int" in str(field.type) else []
        )
        values = [*numbers, *field.metadata.get("words", ())]
    values = list(field.metadata.get("choices", values))
    return [value for value in values if value != field.default]


def nearest_allowed(field: "Field[Any]", x: Any) -> Any:
    """Return the value closest to ``x`` that a parameter may have.

    The default is returned if there is no nearest number, as for an open limit
    (``above``), or if ``x`` is None and None is not allowed. Any other ``x`` that is
    not a number is returned unchanged.
    """
    if x is None and "None" not in str(field.type):
        return field.default
    if isinstance(x, bool) or not isinstance(x, int | float):
        return x
    limits = field.metadata
    if "choices" in limits:
        numbers = [c for c in limits["choices"] if type(c) in (int, float)]
        return min(numbers, key=lambda c: abs(c - x), default=x)
    x = min(max(x, limits.get("least", x)), limits.get("most", math.inf))
    return x if x > limits.get("above", -math.inf) else field.default


def audited_solver(algorithm: str, params: dict[str, Any]) -> Solver:
    """Return the solver for an audit, with steps so small that iterates hardly move.

    Unless ``params`` say otherwise, batches are a quarter of the records, because
    audits of rarely sampled records detect nothing. Noise that no budget fixes is
    small. Solvers that repeat runs make two runs on average, because the runs that are
    not selected are secret.
    """
    names = {field.name for field in fields(registry.target("algorithm", algorithm))}
    quiet = {"step": TINY, "batch_size": RECORDS // 4, "multiplier": LITTLE}
    quiet["gamma"] = TWICE
    usual = {name: value for name, value in quiet.items() if name in names}
    solver: Solver = registry.build("algorithm", algorithm, **{**usual, **params})
    return solver


def worst_pair(solver: Solver, adjacency: Adjacency) -> Pair:
    """Return the pair of neighbours on which a solver leaks most.

    Problems of a class other than `ERM` name their own pair.

    Raises
    ------
    Unsupported
        If the solver accepts none of the objectives that are tried.
    """
    if not issubclass(ERMProblem, solver.serves):
        pair = Pair(*solver.serves.neighbours(adjacency is Adjacency.ZERO_OUT))
        if reason := solver.refusal(pair.first):
            raise Unsupported(reason)
        return pair
    private = getattr(solver, "smoothness", "auto") == "private"
    leaks_by = getattr(solver, "leaks_by", "opposite")
    gone = private or leaks_by == "nothing" or adjacency is Adjacency.ZERO_OUT
    here, others, bounds = RADIUS * SIGNS, np.zeros((RECORDS, RADIUS.size)), RADIUS
    if leaks_by != "opposite":
        ones = np.ones(RADIUS.size)
        there = 0.0 * ones if gone else ones
        datasets = (np.concatenate([[x], others[1:]]) for x in (SIGNS, there))
        return Pair(*(_build_problem(solver, X, ones, "logistic") for X in datasets))
    problem, budget = (
        _build_problem(solver, others, bounds),
        Budget(math.inf, 0.0, adjacency),
    )
    run = Run(problem, [solver], budget, 0.0, ["pair"]).declare()
    if any(release.selects for release in run.releases):
        here, bounds = SIGNS, np.ones(RADIUS.size)
        others = np.ones((CROWD, RADIUS.size))
    there = np.zeros(RADIUS.size) if gone else -here
    datasets = (np.concatenate([[record], others[1:]]) for record in (here, there))
    return Pair(*(_build_problem(solver, X, bounds) for X in datasets))


def _build_problem(
    solver: Solver, X: Array, bounds: Array, loss: str = HINGE
) -> Problem:
    declared = Bounds(bounds, float(np.linalg.norm(bounds)), 1.0)
    dataset = dataset_from_arrays(X, np.ones(len(X)), bounds=declared)
    for parts in _objective_names(loss):
        problem = build_problem(dataset, *parts)
        if solver.refusal(problem) is None:
            return problem
    name = type(solver).__name__
    raise Unsupported(f"{name} serves no objective that audits know")


def _objective_names(loss: str) -> Iterator[Sequence[Any]]:
    """Yield the loss, penalty and constraint of objectives, the plain ones first.

    Constraint sets are so small, and penalties so strong, that no |x.w| leaves the
    linear part of the hinge.
    """
    penalties = dict.fromkeys(["none", "l2", *registry.names("penalty")])
    constraints = dict.fromkeys(["none", *registry.names("constraint")])
    for constraint, penalty in itertools.product(constraints, penalties):
        built = registry.build("penalty", penalty)
        psi = {"name": penalty} | built.example(RADIUS.size)
        psi |= {"strength": RIDGE} if hasattr(built, "strength") else {}
        size = registry.target("constraint", constraint).example(RADIUS.size, 0.1)
        yield loss, psi, {"name": constraint} | size
