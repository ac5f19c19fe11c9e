"""Choose the cases of replays: combinations of parameters, problems and neighbours.

A replay runs a solver on two neighbouring datasets and compares the two runs.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dp_erm_bench.audit.pairs import LENGTHS, alternative_values, nearest_allowed
from dp_erm_bench.contract.candidate import (
    ORIGINS,
    Candidate,
    Variant,
    is_bounded,
    run_at,
)
from dp_erm_bench.contract.problems import (
    LARGE,
    STRENGTH,
    Neighbours,
    Parts,
    name_of_size,
    neighbours_of,
)
from dp_erm_bench.problems.base import Problem
from dp_erm_bench.registry import build
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.nested import with_inside
from dp_erm_bench.releases.sampling import SampledRelease
from dp_erm_bench.solvers.base import Solver

INTEGERS = (1, 3, 12, 5)
REALS = (0.0, 0.3, 40.0, 1.0, 0.05)
VALUES = 5
DRAWN = 150
"""Number of combinations of parameters that are drawn at random."""
MOST = 25
"""Largest number of steps of an ordinary replay."""
Row = dict[str, Any]


def tried_values(field: dataclasses.Field[Any]) -> list[Any]:
    """Return values of a parameter that may lead to different branches of the code.

    The default comes first. The other values are the choices of the parameter, if it
    has any; otherwise up to `VALUES` numbers, the allowed words, and None if allowed.
    """
    limits, kind = field.metadata, str(field.type)
    if "choices" in limits or isinstance(field.default, bool):
        return [field.default, *alternative_values(field)]
    ends = [limits[key] for key in ("least", "most") if key in limits]
    tried = dict.fromkeys((*ends, *(INTEGERS if "int" in kind else REALS)))
    numbers = [x for x in tried if nearest_allowed(field, x) == x][:VALUES]
    values = [*numbers, *limits.get("words", ()), *([None] if "None" in kind else ())]
    return [field.default, *(x for x in dict.fromkeys(values) if x != field.default)]


def pairwise_covering(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return a subset of rows that still contains every pair of two entries.

    The subset is chosen greedily: the row with the most new pairs is taken next. The
    rows keep their order.
    """
    met = {row: set(itertools.combinations(enumerate(row), 2)) for row in rows}
    left, kept = set().union(*met.values()), set()
    while left:
        best = max(met, key=lambda row: len(met[row] & left))
        kept.add(best)
        left -= met[best]
    return [row for row in met if row in kept]


def covering_rows(
    factors: Mapping[str, Sequence[Any]], allowed: Callable[[Row], bool]
) -> list[Row]:
    """Return rows that together contain every allowed pair of values of two factors.

    The first row contains the first value of each factor, called the usual value. Other
    rows are drawn at random. A pair of values that no drawn row contains gets a row
    with the usual values of all other factors.
    """
    usual = {name: values[0] for name, values in factors.items()}
    rng = random.Random(0)
    drawn = [{k: rng.choice(xs) for k, xs in factors.items()} for _ in range(DRAWN)]
    rows = [*filter(allowed, [usual, *drawn])]
    met = {pair for row in rows for pair in itertools.combinations(row.items(), 2)}
    for (a, xs), (b, ys) in itertools.combinations(factors.items(), 2):
        pairs = (((a, x), (b, y)) for x, y in itertools.product(xs, ys))
        beside = (usual | dict(pair) for pair in pairs if pair not in met)
        rows += filter(allowed, beside)
    alone = [{**usual, k: x} for k, xs in factors.items() for x in xs]
    # The common entry "" lets a single factor form pairs, too.
    by_values = {("", *row.items()): row for row in [*rows, *filter(allowed, alone)]}
    kept = pairwise_covering(by_values)
    return [row for key, row in by_values.items() if row == usual or key in kept]


def resize_solver(
    solver: Solver, problem: Problem, least: int = 0, most: int = MOST
) -> Solver:
    """Return a solver whose number of iterations is within limits, if possible.

    Parameters on which this number depends are doubled or halved.

    Parameters
    ----------
    solver : Solver
        The solver to be changed.
    problem : Problem
        The problem on which iterations are counted.
    least : int
        Least number of iterations.
    most : int
        Largest number of iterations.
    """
    for longer, times in ((True, 12), (False, 40)):
        for _ in range(times):
            length = solver.iterations(problem)
            if length >= least if longer else length <= most:
                break
            solver = next(_rescaled_solvers(solver, problem, longer), solver)
    return solver


def _rescaled_solvers(
    solver: Solver, problem: Problem, longer: bool
) -> Iterator[Solver]:
    """Yield copies with one number halved or doubled, and more or fewer iterations."""
    length = solver.iterations(problem)
    for field in dataclasses.fields(solver):
        value = getattr(solver, field.name)
        if type(value) in (int, float):
            for other in (type(value)(value / 2), 2 * value):
                if nearest_allowed(field, other) == other:
                    changed = dataclasses.replace(solver, **{field.name: other})
                    change = changed.iterations(problem) - length
                    if change > 0 if longer else change < 0:
                        yield changed


LONG = 200
"""Number of steps of a long replay."""
FEW, LEAST = 3, 6
"""Number of families of neighbours for each combination of parameters.

The second number is the smallest number of combinations for each family.
"""
PAIRS = [
    *((Adjacency.REPLACE_ONE, 30.0), (Adjacency.ZERO_OUT, 1.0)),
    *((Adjacency.REPLACE_ONE, 1.0), (Adjacency.ZERO_OUT, 30.0)),
    *((Adjacency.REPLACE_ONE, 0.1), (Adjacency.ZERO_OUT, 0.1)),
]
"""Adjacencies with noise multipliers, in the order in which cases take them."""


@dataclass(frozen=True)
class Case:
    """One replay: a run on a dataset D and one on a neighbouring dataset D'.

    Attributes
    ----------
    params : tuple of (str, value)
        Parameters of the solver.
    parts : tuple of str
        Loss, penalty and constraint.
    family : str
        Family of the neighbours, see `contract.problems`.
    adjacency : Adjacency
        The relation between D and D'.
    trials : int
        Number of trials in the batch.
    z : float
        Noise multiplier; 0 for no noise.
    points : str
        Which iterations are checkpoints: ``all``, ``few`` or ``ends``.
    toggled : int or None
        If not None, both runs have the dataset of this side (0 for D, 1 for D'). They
        differ only in their samples: in each sample, the exchanged record is present in
        exactly one of the two runs.
    epsilon : float
        The privacy budget, of which released smoothness constants take a share.
    strength : float
        Strength of the penalty.
    brief : bool
        True if other cases check the noise and the compiled steps.
    group : str
        Name of the cases whose ratios are judged together.
    calibrated : bool
        Whether the noise is calibrated to the budget instead of fixed by z.
    untold : bool
        Whether the run on D' gets its own answers instead of those on D. If a solver
        keeps something of its answers, this then differs between D and D'.
    long : bool
        Whether the runs have more steps than usual.
    """

    params: tuple[tuple[str, Any], ...]
    parts: Parts
    family: str
    adjacency: Adjacency
    trials: int = 1
    z: float = 30.0
    points: str = "all"
    toggled: int | None = None
    epsilon: float = 5.0
    strength: float = STRENGTH
    brief: bool = False
    group: str = ""
    calibrated: bool = False
    untold: bool = False
    long: bool = False

    @property
    def title(self) -> str:
        """Return a name of the case for messages; it does not mention the family."""
        words = " + ".join(part for part in self.parts if part != "none")
        return f"{self.group} on {words}, {self.adjacency.value}"

    def neighbours(self, candidate: Candidate) -> Neighbours:
        """Return the neighbouring problems of the case."""
        return candidate.neighbours(
            self.family, self.adjacency, self.parts, self.strength
        )


def params_of(solver: Solver) -> tuple[tuple[str, Any], ...]:
    """Return the names and values of a solver's parameters."""
    return tuple(
        (field.name, getattr(solver, field.name))
        for field in dataclasses.fields(solver)
    )


def varied_cases(candidate: Candidate) -> Iterator[Case]:
    """Yield cases in which every two values of two parameters occur together.

    Each combination of parameters is run on several families of neighbours. Each family
    takes the adjacencies and noise multipliers of `PAIRS` in turn, and also the
    objectives that the solver supports.
    """
    if candidate.foreign:  # the families consist of records with labels
        return
    rows: Sequence[Variant] | None = candidate.rows

    def is_served(row: Variant) -> bool:
        return _serves(candidate, *row.items())

    if rows is None:
        fields = {k: f for k, f in candidate.parameters.items() if k not in ORIGINS}
        rows = covering_rows({k: tried_values(f) for k, f in fields.items()}, is_served)
    rows = [row for row in rows if is_served(row)]
    families = candidate.families
    few = min(FEW, len(families))
    again = math.ceil(LEAST * len(families) / (few * len(rows))) if rows else 0
    counts = collections.defaultdict[str, Iterator[int]](itertools.count)
    turns = counts.copy()
    places = itertools.product(enumerate([*rows] * again), range(few))
    for ((number, row), k), family in zip(
        places, itertools.cycle(families), strict=False
    ):
        served, large = _served_objectives(candidate, *row.items()), family in LARGE
        if family == "range of labels":
            served = [one for one in served if not _is_classification(one[0])]
        if not served:
            continue
        count = next(counts[family])
        # Large families run one time in three, and two times in three at first.
        if large and count % 3 >= (2 if count < LEAST else 1):
            continue
        turn = next(turns[family])
        # Shifted against the pairs, so that each objective meets each pair.
        parts = served[(turn + turn // len(PAIRS)) % len(served)]
        how = (candidate, row, parts, family, PAIRS[turn % len(PAIRS)], number, turn)
        if number == k == 0:  # the first case is short; others are built on it
            yield from _cases_on_family(*how, long=False)
        # Steps cost time: long runs are made on some families only.
        yield from _cases_on_family(*how, not large and turn == 0 and len(turns) <= FEW)


SMALL = 5, 8
"""Numbers of records of datasets in which each record is exchanged in turn."""
CLIP = 0.3
"""A clipping threshold below the longest gradients of the small problems."""


def at_each_place(candidate: Candidate) -> Iterator[Case]:
    """Yield cases with few records, each of which is the exchanged record in turn.

    Suppose that a solver divides n records into k parts, and n is not a multiple of k.
    A record may then be in two parts, but only at some places. So each integer
    parameter takes each of its tried values here.
    """
    if candidate.foreign or candidate.rows is not None:
        return
    shapes = {k: one for k, one in candidate.parameters.items() if k not in ORIGINS}
    usual = {name: one.default for name, one in shapes.items()}
    usual |= {"clip": CLIP} if "clip" in shapes else {}
    counts = {
        name: tried_values(one)[1:]
        for name, one in shapes.items()
        if "int" in str(one.type) and name not in LENGTHS
    }
    rows = [usual, *({**usual, k: x} for k, xs in counts.items() for x in xs)]
    places = [(n, record) for n in SMALL for record in range(n)]
    for row, (n, record) in itertools.product(rows, places):
        family = name_of_size("outlier", n, 4, record)
        for parts in _served_objectives(candidate, *row.items())[:1]:
            how = (candidate, row, parts, family, PAIRS[1], 1, 1)
            # Only the first: cases with toggled samples are made elsewhere.
            yield next(_cases_on_family(*how, long=False))


@functools.cache
def _is_classification(loss: str) -> bool:
    """Return whether the labels of a loss are classes (otherwise real numbers)."""
    return bool(build("loss", loss).classification)


@functools.lru_cache(maxsize=4096, typed=True)
def _serves(candidate: Candidate, *row: tuple[str, Any]) -> bool:
    """Return whether a solver with these parameters supports any objective.

    Objectives for which a sensitivity is infinite do not count.
    """
    return any(True for _ in _each_served(candidate, row))


@functools.lru_cache(maxsize=4096, typed=True)
def _served_objectives(candidate: Candidate, *row: tuple[str, Any]) -> list[Parts]:
    """Return the objectives that a solver supports with finite sensitivities."""
    return [*_each_served(candidate, row)]


def _each_served(
    candidate: Candidate, row: Iterable[tuple[str, Any]]
) -> Iterator[Parts]:
    try:
        solver = candidate.build(dict(row))
    except Exception:  # two values that do not go together
        return
    for parts in candidate.objectives():
        problem = candidate.problem(parts)
        if solver.refusal(problem) is None and _is_hidden(problem, solver):
            yield parts


def _is_hidden(problem: Problem, solver: Solver) -> bool:
    """Return whether all sensitivities are finite; True if that cannot be computed."""
    try:
        return is_bounded(problem, resize_solver(solver, problem))
    except Exception:
        return True


def _cases_on_family(
    candidate: Candidate,
    row: Variant,
    parts: Parts,
    family: str,
    pair: tuple[Adjacency, float],
    number: int,
    turn: int,
    long: bool,
) -> Iterator[Case]:
    """Yield the cases of one combination of parameters on one family of neighbours."""
    adjacency, z = pair
    problem = neighbours_of(family, adjacency, parts).first
    solver, usual = candidate.build(row), candidate.parameters
    with contextlib.suppress(Exception):  # a replay will report the error
        solver = resize_solver(solver, problem, *((LONG, 2 * LONG) if long else ()))
    apart = {k: f"{k}={x}" for k, x in row.items() if x != usual[k].default}
    case = Case(
        params_of(solver),
        parts,
        family,
        adjacency,
        # These periods differ from each other and from that of the pairs.
        trials=3 if candidate.solver.batchable and (turn + turn // 6) % 3 == 0 else 1,
        z=z,
        points=("all", "few", "ends")[(turn + turn // 3) % 3 if number else 0],
        group=candidate.title(apart),
        long=long,
    )
    yield case
    if not long and has_sampled_release(problem, solver, adjacency):
        # With the record of D, and with that of D' (absent under zero_out).
        for side in (0, 1) if adjacency is Adjacency.REPLACE_ONE else (0,):
            yield replace(case, toggled=side)


def has_sampled_release(problem: Problem, solver: Solver, adjacency: Adjacency) -> bool:
    """Return whether a solver declares a release over random samples of the records.

    The result is False if the run of the solver cannot be created.

    Parameters
    ----------
    problem : Problem
        The problem that is solved.
    solver : Solver
        The solver whose releases are examined.
    adjacency : Adjacency
        The relation between neighbouring datasets.
    """
    try:
        run = run_at(problem, [solver], adjacency=adjacency)
        releases = list(with_inside(run.releases, 1.0))
    except Exception:
        return False
    return any(isinstance(one, SampledRelease) and one.rate < 1 for one in releases)
