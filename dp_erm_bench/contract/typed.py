"""Checks of a solver that gets private values instead of real data.

The modules `private` and `guards` make these values. If a private value would bypass
the mechanisms, the checks name the line of code where it does so, for any number of
records, features or steps. A condition on sizes could hide such a line (``if problem.n
>= 30000``). So each public condition is made true and false in runs on small problems.
A block that no run entered is reported.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
import types
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dp_erm_bench import extend
from dp_erm_bench.contract import private
from dp_erm_bench.contract.candidate import (
    Candidate,
    NotAllRun,
    NotApplicable,
    is_bounded,
    require,
    run_at,
)
from dp_erm_bench.contract.cases import varied_cases
from dp_erm_bench.contract.guards import (
    GuardedMechanisms,
    GuardedOracle,
    GuardedProblem,
    guard_copies,
    kept_beyond,
    lift_globals,
    refuse_private_logs,
    require_public,
)
from dp_erm_bench.contract.loading import modules_of
from dp_erm_bench.contract.private import FOUND, WATCHED, Ended, Leak
from dp_erm_bench.contract.problems import ENORMOUS, LARGE, name_of_size
from dp_erm_bench.contract.rewritten import (
    Conditions,
    load_rewritten,
    without_blanks,
)
from dp_erm_bench.errors import NotSolved, Unsupported, UsageError
from dp_erm_bench.problems.base import Problem
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.run import Run
from dp_erm_bench.solvers.base import Solver
from dp_erm_bench.solvers.private import UnchargedUses, publish_by_declaration

SMALL = ("outlier", "sparse", "wide", "one column", "no bounds")
"""Families of neighbouring datasets D and D'; a run uses the problem on D."""
STEPS = 4
SIZES = (
    name_of_size("outlier", 66, 40),
    "many",
    name_of_size("sparse", 130, 120),
    "sparse and many",
    name_of_size("outlier", 6, 260),
)
"""Larger problems, tried if a block is not entered on the small problems."""
SOLVERS = "dp_erm_bench.solvers"
BOTH = (Adjacency.REPLACE_ONE, Adjacency.ZERO_OUT)


@dataclass(frozen=True)
class TypedCase:
    """A solver with the problem, adjacency and noise of one run."""

    solver: Solver
    problem: Problem
    adjacency: Adjacency
    ahead: bool = False
    noise: str | float = 1.0


@dataclass
class Findings:
    """The findings of a candidate's runs with private values.

    Attributes
    ----------
    leaks : dict of str to None
        Sentences about leaks, in the order in which they were found.
    ended : int
        Number of runs that were completed.
    refusals : dict of str to None
        Reasons for which nothing was run.
    error : BaseException or None
        The error of the first run that failed without a leak.
    conditions : Conditions or None
        The observed values of the conditions in the sources; None if there is no
        source file.
    """

    leaks: dict[str, None] = field(default_factory=dict)
    ended: int = 0
    refusals: dict[str, None] = field(default_factory=dict)
    error: BaseException | None = None
    conditions: Conditions | None = None


def private_values_stay_private(candidate: Candidate) -> None:
    """Check that conditions, strings, lengths and iterates depend on no private value.

    All of these may depend on records through the answers of mechanisms only.
    """
    found = findings_of(candidate)
    require(not found.leaks, "; ".join([*found.leaks][:3]))
    if found.error:
        raise found.error
    if not found.ended:
        raise NotApplicable(next(iter(found.refusals), "it serves no problem"))


def conditions_come_out_both_ways(candidate: Candidate) -> None:
    """Check that each block runs, and that each condition is both true and false.

    If a condition has only one value on the problems of the check, the other value is
    forced.
    """
    found = findings_of(candidate)
    if found.conditions is None:
        raise NotApplicable("no file holds its source")
    if found.leaks or not found.ended:
        raise NotApplicable("its private values are to be judged first")
    places = [*found.conditions.points_left()]
    if left := [place.sentence for place in places if not place.reason]:
        raise NotAllRun(
            f"{'; '.join(left)}: what follows is not checked; make it a parameter, or "
            "name it in `exempt` with a reason"
        )
    if reasons := [f"{place.sentence}: {place.reason}" for place in places]:
        raise NotApplicable("; ".join(reasons))


def exempt_names(candidate: Candidate) -> set[str]:
    """Return the lines, conditions, classes and functions that `exempt` may name."""
    made = findings_of(candidate).conditions
    places = [*made.blocks, *made.conditions] if made else []
    scopes = {name for place in places for name in place.scope}
    return scopes | {without_blanks(place.text) for place in places}


@functools.lru_cache(maxsize=16)
def findings_of(candidate: Candidate) -> Findings:
    """Return what was found in runs of an algorithm with private values."""
    with contextlib.ExitStack() as stack:
        return _Typed(candidate, stack).judge_all()


def solver_modules() -> list[types.ModuleType]:
    """Return the modules of the package's solvers, which get private values, too."""
    return [m for name, m in sys.modules.items() if name.startswith(SOLVERS)]


class _Typed:
    """Runs a candidate with private values.

    A user's modules are loaded a second time with their conditions under observation
    (`rewritten`). The package's own algorithms run as they are.
    """

    def __init__(self, candidate: Candidate, stack: contextlib.ExitStack) -> None:
        self.found = Findings()
        self.candidate = candidate
        self.modules = watched = solver_modules()
        if modules_of(candidate):
            loaded = stack.enter_context(load_rewritten(candidate))
            self.candidate, own, self.found.conditions = loaded
            watched = [*own.values()]
            self.modules += [*watched, extend]
        stack.callback(WATCHED.clear)
        WATCHED.update(str(module.__file__) for module in watched)

    def judge_all(self) -> Findings:
        """Run all cases, force each condition both ways, and return the findings."""
        todo = list(subjects(self.candidate))
        few = todo[:: len(todo) // 4 + 1]
        compiled = [replace(one, ahead=True) for one in few]
        certified = [replace(one, noise="certified") for one in few]
        for one in (*todo, *compiled, *certified):
            self.play(one)
        conditions = self.found.conditions
        if conditions is None or self.found.leaks or not self.found.ended:
            return self.found
        for one in itertools.chain(
            self._rows_of_replays(), self._larger_problems(todo)
        ):
            if conditions.is_complete():
                break
            self.play(one)
        self._force_conditions(conditions, todo)
        return self.found

    def _rows_of_replays(self) -> Iterator[TypedCase]:
        """Yield a case for each combination of parameters that replays use."""
        rows = {case.params: case for case in varied_cases(self.candidate)}
        for number, case in enumerate(rows.values()):
            is_large = case.family in (*LARGE, ENORMOUS)
            family = "outlier" if is_large else case.family
            how = family, case.adjacency, case.parts, case.strength
            problem = self.candidate.neighbours(*how).first
            solver = self.candidate.build(dict(case.params))
            yield TypedCase(solver, problem, case.adjacency, ahead=number % 2 == 1)

    def _larger_problems(self, todo: Sequence[TypedCase]) -> Iterator[TypedCase]:
        """Yield cases of the first solver on larger problems."""
        families = () if self.candidate.foreign else SIZES
        for family, one in itertools.product(families, todo[:1]):
            found = served_cases(self.candidate, one.solver, family, one.adjacency)
            yield from itertools.islice(found, 1)

    def _force_conditions(
        self, conditions: Conditions, todo: Sequence[TypedCase]
    ) -> None:
        """Run cases with each condition forced to the value that it has not had."""
        few = [*todo[:4], *itertools.islice(self._larger_problems(todo), 1)]
        for place, value in conditions.missing():
            conditions.force(place, value)
            note = f"if `{place.text}` were {value}: "
            judged = [self.play(one, note) for one in (place.met_by, *few)]
            conditions.force(None, False)
            if self.found.leaks:
                return
            if not any(judged):
                conditions.note_unjudged(place, value)

    def play(self, one: TypedCase, note: str = "") -> bool:
        """Run a case; return whether the run could be judged."""
        FOUND.clear()
        judged = True
        if self.found.conditions:
            self.found.conditions.running = one
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
                run_with_private_values(one, self.modules)
            self.found.ended += 1
        except (Unsupported, Ended, NotSolved) as reason:
            self.found.refusals[str(reason)] = None
        except (Exception, SystemExit) as error:
            judged = bool(FOUND)
            if not (note or judged):
                self.found.error = self.found.error or error
        for leak in FOUND[:1]:  # later ones may be its consequences
            self.found.leaks[f"{note}{leak}"] = None
        return judged


def run_with_private_values(
    one: TypedCase, modules: Sequence[types.ModuleType]
) -> list[Any]:
    """Run a solver once with private values, and return copies of its iterates.

    Raises
    ------
    Leak
        If a private value would become public.
    """
    solver, problem = one.solver, one.problem
    with lift_globals(modules, solver):
        # The reason for refusing a problem must be public, too.
        guarded: Any = GuardedProblem(problem)
        require_public(solver.refusal(guarded), "a refusal")
    run, made, steps = begin_run(one)
    uses, length = UnchargedUses(solver.uncharged), max(steps)
    guarded = GuardedProblem(run.problem)
    solver, names = run.solver, tuple(run.identities)
    ends: list[Any] = []
    private.PUBLIC_SIZES.clear()
    private.PUBLIC_SIZES.update((1, run.problem.n, run.problem.p, len(names)))
    with (
        lift_globals(modules, solver, run.mechanisms.values()),
        guard_copies(),
        refuse_private_logs(),
        publish_by_declaration(uses),
    ):
        passes = [solver.passes_at(guarded, t) for t in (0, 1, length)]
        require_public([solver.iterations(guarded), *passes], "a length of the run")
        require_public(solver.plan(guarded, names), "the plan")
        for release in solver.releases(guarded, one.adjacency, run.schedule):
            declared = list(vars(release).values())
            require_public(declared, f"what release {release.name} declares")
        oracle = GuardedOracle(guarded, made)
        mechanisms: Any = GuardedMechanisms(run.mechanisms)
        for w in solver.iterates(oracle, mechanisms, steps, run.schedule):
            ends.append(require_public(w, "what is yielded").copy())
        for name in kept_beyond(solver, modules):
            raise Leak(f"{name} keeps a private value beyond the run")
    return ends


def begin_run(one: TypedCase) -> tuple[Run, Any, list[int]]:
    """Return the run of a case, its oracle, and its checkpoints."""
    # Three, since a length of two may be private, as the number of distinct labels.
    trials = 3 if one.solver.batchable else 1
    length = one.solver.iterations(one.problem)
    points = tuple(sorted({0, length // 2, length}))
    names = tuple("abc"[:trials])
    run = run_at(
        one.problem,
        [one.solver] * trials,
        *(one.noise, names, one.adjacency),
        checkpoints=points,
        ahead=one.ahead,
    )
    oracle = run.oracle()  # publishes constants, if any, and declares the releases
    for name, mechanism in run.mechanisms.items():
        if not np.isfinite(mechanism.scale).all():  # no noise can hide a record
            raise Unsupported(f"release {name} has no finite sensitivity")
    paid = run.solver.iterations(run.problem)
    return run, oracle, sorted({min(t, paid) for t in points})


def subjects(candidate: Candidate) -> Iterator[TypedCase]:
    """Yield cases of each variant.

    The first variant runs on all objectives and all small families.
    """
    for number, variant in enumerate(candidate.variants):
        solver = _build_bounded(candidate, variant)
        if solver is None:
            continue
        small = SMALL if number == 0 else SMALL[number % 2 : number % 2 + 1]
        # Problems of other kinds run under both adjacencies.
        families = SMALL[:2] if candidate.foreign else small
        count = 0
        for family, parts in itertools.product(families, candidate.objectives()):
            adjacency = BOTH[count % 2]
            of = candidate.neighbours(family, adjacency, parts, 1.0)
            is_served = solver.refusal(of.first) is None
            count += is_served
            yield TypedCase(solver, of.first, adjacency)
            if number and is_served:
                break
        if number == 0:
            yield from _at_their_ends(candidate, variant)


def _at_their_ends(candidate: Candidate, variant: Any) -> Iterator[TypedCase]:
    """Yield cases of a variant without clipping, without steps, and with full batches.

    Without clipping, the declared bounds on the records limit the gradients.
    """
    for more in ({"clip": None}, {"n_iter": 0}, {"batch_size": 10}):
        solver = _build_bounded(candidate, {**variant, **more}, **more)
        if solver is None or next(iter(more)) not in candidate.parameters:
            continue
        for one in served_cases(candidate, solver, "outlier", Adjacency.REPLACE_ONE):
            if is_bounded(one.problem, solver):
                yield one


def served_cases(
    candidate: Candidate, solver: Solver, family: str, adjacency: Adjacency
) -> Iterator[TypedCase]:
    """Yield a case for each problem of a family that the solver supports.

    Parameters
    ----------
    candidate : Candidate
        The candidate of the solver.
    solver : Solver
        The solver that is run.
    family : str
        Name of a family of neighbouring datasets D and D'. Only problems on D are used.
    adjacency : Adjacency
        The relation between neighbouring datasets.
    """
    for parts in candidate.objectives():
        problem = candidate.neighbours(family, adjacency, parts, 1.0).first
        if solver.refusal(problem) is None:
            yield TypedCase(solver, problem, adjacency)


def _build_bounded(candidate: Candidate, variant: Any, **more: Any) -> Solver | None:
    """Return a variant's solver; None if it is invalid or has unbounded sensitivity."""
    try:
        usual = {"clip": 1.0, "batch_size": 3, "n_iter": STEPS}
        solver = candidate.build(variant, **{**usual, **more})
    except UsageError:
        return None
    return None if solver.unbounded_reason else solver
