"""Checks that a trial's numbers depend on its identity and on nothing else."""

from __future__ import annotations

import pickle
import random

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.contract.candidate import STEPS, Candidate
from dp_erm_bench.contract.errors import NotApplicable, require
from dp_erm_bench.contract.runs import Run, listen
from dp_erm_bench.problems.problem import Problem
from dp_erm_bench.solvers.base import Solver, stack

Array = NDArray[np.float64]
TIGHT = {"rtol": 1e-9, "atol": 1e-12}
MANY = 64


def compiled_steps_agree(candidate: Candidate) -> None:
    """Make the same steps compiled, with noise taken ahead, as one by one."""
    for variant, problem in candidate.each():
        clips = (0.7, 2.0)
        solvers = [candidate.build(variant, clip=c, step=0.5) for c in clips]
        for names in candidate.trials("ab"):
            plain, fast = (
                Run(problem, solvers[: len(names)], identities=names, ahead=ahead)
                for ahead in (False, True)
            )
            off = _difference(plain.iterates(), fast.iterates())
            told = candidate.told(variant, problem)
            require(off <= 1.0, f"{told}: compiled and plain steps differ by {off:.2g}")


def _difference(first: list[Array], second: list[Array]) -> float:
    """Return the largest difference in units of what rounding may do."""
    if len(first) != len(second):
        return np.inf
    a, b = np.array(first), np.array(second)
    off = np.abs(a - b) / (TIGHT["atol"] + TIGHT["rtol"] * np.abs(b))
    return float(np.where(np.isnan(off), np.inf, off).max(initial=0.0))


def runs_repeat(candidate: Candidate) -> None:
    """Return the same bits again, and other numbers for another identity."""
    for variant, problem in candidate.first():
        solver = candidate.build(variant, clip=1.0)
        for ahead in (False, True):
            told = candidate.told(variant, problem)
            first, again = (_ended(problem, solver, ahead) for _ in range(2))
            require(np.array_equal(first, again), f"{told}: a second run differs")
            other = _ended(problem, solver, ahead, identities=("b",))
            same = np.allclose(first[-1], other[-1])
            require(not same, f"{told}: other noise makes no difference")


def _ended(
    problem: Problem, solver: Solver, ahead: bool, identities: tuple[str, ...] = ("a",)
) -> list[Array]:
    return Run(problem, [solver], identities=identities, ahead=ahead).iterates()


def checkpoints_change_nothing(candidate: Candidate) -> None:
    """Return the same iterates whatever the checkpoints are."""
    if "n_iter" not in candidate.parameters:
        raise NotApplicable("it has no parameter n_iter")
    for variant, problem in candidate.first():
        solver = candidate.build(variant, clip=1.0)
        for ahead in (False, True):
            full = _ended(problem, solver, ahead)
            few = Run(problem, [solver], ahead=ahead, checkpoints=(0, 3, STEPS))
            off = _difference([full[0], full[3], full[-1]], few.iterates())
            told = candidate.told(variant, problem)
            require(off <= 1.0, f"{told}: with fewer checkpoints it differs")


def batches_change_nothing(candidate: Candidate) -> None:
    """Draw the same in any batch, in any order of the trials."""
    if not candidate.solver.batchable:
        raise NotApplicable("batchable=False: every trial runs alone")
    named = {"a": 0.5, "b": 1.0, "c": 2.0, "d": 0.7, "e": 1.3}
    for variant, problem in candidate.first():
        made = {k: candidate.build(variant, clip=c) for k, c in named.items()}
        alone = {k: _drawn(Run(problem, [made[k]], identities=(k,))) for k in made}
        for order in ("edcba", "cab"):
            solvers = [made[k] for k in order]
            run = Run(problem, solvers, identities=tuple(order))
            together, w = _drawn(run)
            told = f"{candidate.told(variant, problem)}: in a batch of {len(order)}"
            for b, k in enumerate(order):
                single, w_alone = alone[k]
                for name, noise in together.items():
                    same = np.array_equal(noise[b], single[name][0])
                    require(same, f"{told} the noise of {name} is another")
                values = problem.value(w[b]), problem.value(w_alone[0])
                same = np.allclose(*values, rtol=1e-9)
                require(same, f"{told} a trial ends at another objective")


def _drawn(run: Run) -> tuple[dict[str, Array], Array]:
    """Return the noise of every use by release, (B, uses), and the last iterates."""
    run.mechanisms.ahead = True
    seen = listen(run)
    last = run.iterates()[-1]
    return {name: np.hstack(parts) for name, parts in seen.items() if parts}, last


def public_draws_belong_to_the_trial(candidate: Candidate) -> None:
    """Draw a random schedule from the identity, equal in any batch."""
    for variant, problem in candidate.first():
        solver = candidate.build(variant, clip=1.0)
        schedule = stack([solver] * 2).plan(problem, ("a", "b"))
        again = stack([solver] * 2).plan(problem, ("a", "b"))
        told = candidate.told(variant, problem)
        same = pickle.dumps(schedule) == pickle.dumps(again)
        require(same, f"{told}: a second schedule differs")
        if not isinstance(schedule, np.ndarray) or not candidate.solver.batchable:
            continue
        require(len(schedule) == 2, f"{told}: the schedule has no row per trial")
        for b, identity in enumerate("ab"):
            alone = stack([solver]).plan(problem, (identity,))
            same = np.array_equal(schedule[b], alone[0])
            require(same, f"{told}: the schedule of a trial depends on its batch")


def draws_are_distinct(candidate: Candidate) -> None:
    """Draw other noise for every identity and every use."""
    names = [f"trial {k}" for k in range(MANY)]
    for variant in candidate.variants:
        problem = _widest(candidate.problems(variant))
        told = candidate.told(variant, problem)
        drawn, ends = [], set()
        for name in names:
            solver = candidate.build(variant, clip=1.0)
            noise, w = _drawn(Run(problem, [solver], identities=(name,)))
            drawn += [values for parts in noise.values() for values in parts.ravel()]
            ends.add(w.tobytes())
        require(len(ends) == MANY, f"{told}: {MANY} trials end at {len(ends)} places")
        kept = [value for value in drawn if value != 0.0]
        again = len(kept) - len(set(kept))
        require(not again, f"{told}: {again} of {len(kept)} draws are used again")


def _widest(problems: list[Problem]) -> Problem:
    """Return a problem without a box if there is one: loud noise ends in corners."""
    return min(problems, key=lambda problem: bool(np.isfinite(problem.penalty.upper)))


def global_random_state_is_untouched(candidate: Candidate) -> None:
    """Leave the global random states of numpy and of Python as they are."""
    for variant, problem in candidate.first():
        before = pickle.dumps((np.random.get_state(), random.getstate()))
        solver = candidate.build(variant, clip=1.0)
        Run(problem, [solver], ahead=True).iterates()
        after = pickle.dumps((np.random.get_state(), random.getstate()))
        told = candidate.told(variant, problem)
        require(before == after, f"{told} draws from a global random state")
