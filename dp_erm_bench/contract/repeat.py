"""Checks that a trial's numbers depend on its identity and on nothing else."""

from __future__ import annotations

import pickle
import random

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.contract.candidate import Candidate
from dp_erm_bench.contract.errors import NotApplicable, require
from dp_erm_bench.contract.runs import listen, run_at
from dp_erm_bench.problems.erm.problem import ERMProblem
from dp_erm_bench.run import Run
from dp_erm_bench.solvers.base import Solver, stack

Array = NDArray[np.float64]
TIGHT = {"rtol": 1e-9, "atol": 1e-12}
MANY = 64
NEWS, ALONE = 200, 60
FAR_OFF = 5.0
"""Deviations of a fair coin, at which a sound solver is not accused by chance."""


def compiled_steps_agree(candidate: Candidate) -> None:
    """Make the same steps compiled, with noise taken ahead, as one by one."""
    for variant, problem in candidate.each():
        clips = (0.7, 2.0)
        solvers = [candidate.build(variant, clip=c, step=0.5) for c in clips]
        for names in candidate.trials("ab"):
            plain, fast = (
                run_at(problem, solvers[: len(names)], identities=names, ahead=ahead)
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
    problem: ERMProblem,
    solver: Solver,
    ahead: bool,
    identities: tuple[str, ...] = ("a",),
) -> list[Array]:
    return run_at(problem, [solver], identities=identities, ahead=ahead).iterates()


def checkpoints_change_nothing(candidate: Candidate) -> None:
    """Return the same iterates whatever the checkpoints are."""
    served = 0
    for variant, problem in candidate.first():
        solver = candidate.build(variant, clip=1.0)
        length = solver.iterations(problem)
        if length < 2:
            continue
        served += 1
        part = max(1, length // 3)
        for ahead in (False, True):
            full = _ended(problem, solver, ahead)
            few = run_at(problem, [solver], ahead=ahead, checkpoints=(0, part, length))
            off = _difference([full[0], full[part], full[-1]], few.iterates())
            told = candidate.told(variant, problem)
            require(off <= 1.0, f"{told}: with fewer checkpoints it differs")
    if not served:
        raise NotApplicable("it has one iteration, or none")


def batches_change_nothing(candidate: Candidate) -> None:
    """Draw the same in any batch, in any order of the trials."""
    if not candidate.solver.batchable:
        raise NotApplicable("batchable=False: every trial runs alone")
    named = {"a": 0.5, "b": 1.0, "c": 2.0, "d": 0.7, "e": 1.3}
    for variant, problem in candidate.first():
        made = {k: candidate.build(variant, clip=c) for k, c in named.items()}
        alone = {k: _drawn(run_at(problem, [made[k]], identities=(k,))) for k in made}
        for order in ("edcba", "cab"):
            solvers = [made[k] for k in order]
            run = run_at(problem, solvers, identities=tuple(order))
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


def noise_is_news_to_the_solver(candidate: Candidate) -> None:
    """Be moved by a trial's own noise as by that of another one.

    What a schedule may know, the identity, seeds the noise, too: who draws it a second
    time can take it off.
    """
    for variant in candidate.variants:
        problem = _widest(candidate.problems(variant))
        solver = candidate.build(variant, clip=1.0)
        names = [f"news {k}" for k in range(NEWS if solver.batchable else ALONE)]
        batches = [names] if solver.batchable else [[name] for name in names]
        nearer = sum(_nearer(problem, solver, tuple(batch)) for batch in batches)
        off = (nearer - len(names) / 2) / (np.sqrt(len(names)) / 2)
        told = candidate.told(variant, problem)
        require(
            abs(off) <= FAR_OFF,
            f"{told}: {nearer:g} of {len(names)} trials end nearer to a run without "
            "noise with their own noise than with another's: the schedule knows it",
        )


def _nearer(problem: ERMProblem, solver: Solver, names: tuple[str, ...]) -> float:
    """Return how many trials are moved less by their own noise, ties being halves."""
    given = (problem, [solver] * len(names))
    others = tuple(f"{name}, other" for name in names)
    quiet = run_at(*given, z=0.0, identities=names).iterates()[-1]
    with np.errstate(all="ignore"):
        own = run_at(*given, z=1.0, identities=names).iterates()[-1]
        other = run_at(*given, z=1.0, identities=names, streams=others).iterates()[-1]
    moved, instead = (np.linalg.norm(w - quiet, axis=1) for w in (own, other))
    less, more = (moved < instead).sum(), (moved > instead).sum()
    return float(len(names) + less - more) / 2


def draws_are_distinct(candidate: Candidate) -> None:
    """Draw other noise for every identity and every use."""
    names = [f"trial {k}" for k in range(MANY)]
    for variant in candidate.variants:
        problem = _widest(candidate.problems(variant))
        told = candidate.told(variant, problem)
        drawn, ends = [], []
        for name in names:
            solver = candidate.build(variant, clip=1.0)
            noise, w = _drawn(run_at(problem, [solver], identities=(name,)))
            drawn += [values for parts in noise.values() for values in parts.ravel()]
            ends.append(w)
        # Thresholds may set all of few entries to zero, in a few trials.
        places = len({w.tobytes() for w in ends})
        full = [w.tobytes() for w in ends if w.all()]
        apart = places > MANY // 2 and len(set(full)) == len(full)
        require(apart, f"{told}: {MANY} trials end at {places} places")
        kept = [value for value in drawn if value != 0.0]
        again = len(kept) - len(set(kept))
        require(not again, f"{told}: {again} of {len(kept)} draws are used again")


def _widest(problems: list[ERMProblem]) -> ERMProblem:
    """Return a problem without a box if there is one: loud noise ends in corners."""
    return min(problems, key=lambda problem: "box" in problem.title)


def global_random_state_is_untouched(candidate: Candidate) -> None:
    """Leave the global random states of numpy and of Python as they are."""
    for variant, problem in candidate.first():
        before = pickle.dumps((np.random.get_state(), random.getstate()))
        solver = candidate.build(variant, clip=1.0)
        run_at(problem, [solver], ahead=True).iterates()
        after = pickle.dumps((np.random.get_state(), random.getstate()))
        told = candidate.told(variant, problem)
        require(before == after, f"{told} draws from a global random state")
