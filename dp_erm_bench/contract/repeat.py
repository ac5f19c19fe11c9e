"""Checks that a trial's random numbers depend on its identity and on nothing else."""

from __future__ import annotations

import contextlib
import functools
import itertools
import pickle
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.contract.candidate import (
    Candidate,
    NotApplicable,
    Subject,
    require,
    run_at,
)
from dp_erm_bench.contract.cases import Case, varied_cases
from dp_erm_bench.contract.problems import LARGE
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.releases.repeat_and_select import RepeatAndSelectMechanism
from dp_erm_bench.releases.streams import stream_seeds
from dp_erm_bench.run import Run
from dp_erm_bench.solvers.runs import stack_solvers

Array = NDArray[np.float64]
CLIPS = {"a": 0.5, "b": 1.0, "c": 2.0, "d": 0.7, "e": 1.3}
MANY = 64
NEWS, ALONE = 200, 60
FAR_OFF = 5.0
"""Number of standard deviations from the mean at which a count of trials fails.

If the solver is sound, the count has the law of a number of heads of fair coins.
"""
BESIDE = [(1, 0), (0, 1), (4, 2)]
"""Numbers of worse runs that are placed before and after the best run."""
TRIED = 300
"""Number of seeds that are tried until the coins stop the runs as wanted."""


def compiled_steps_agree(candidate: Candidate) -> None:
    """Check that compiled steps, with noise taken in advance, agree with plain ones."""
    batches = ["ab"] if candidate.solver.batchable else ["a", "b"]
    parameters = [{"clip": clip, "step": 0.5} for clip in (0.7, 2.0)]
    for on, names in itertools.product(candidate.each(), batches):
        plain, fast = (
            on.run(*parameters[: len(names)], names=names, ahead=ahead).iterates()
            for ahead in (False, True)
        )
        off = _largest_difference(plain, fast)
        require(off <= 1.0, f"{on.title}: compiled and plain steps differ by {off:.2g}")


def _largest_difference(first: list[Array], second: list[Array]) -> float:
    """Return the largest difference, in units of the allowed rounding."""
    if len(first) != len(second):
        return np.inf
    a, b = np.array(first), np.array(second)
    off = np.abs(a - b) / (1e-12 + 1e-9 * np.abs(b))
    return float(np.where(np.isnan(off), np.inf, off).max(initial=0.0))


def runs_repeat(candidate: Candidate) -> None:
    """Check that a run repeats bit for bit, and differs for another identity."""
    for on, ahead in itertools.product(candidate.first(), (False, True)):
        first, again, other = (
            on.run(names=name, ahead=ahead).iterates() for name in "aab"
        )
        require(np.array_equal(first, again), f"{on.title}: a second run differs")
        same = np.allclose(first[-1], other[-1])
        require(not same, f"{on.title}: other noise makes no difference")


def checkpoints_change_nothing(candidate: Candidate) -> None:
    """Check that the iterates do not depend on the checkpoints."""
    served = [on for on in candidate.first() if on.solver().iterations(on.problem) >= 2]
    if not served:
        raise NotApplicable("it has one iteration, or none")
    for on in served:
        length = on.solver().iterations(on.problem)
        points = (0, max(1, length // 3), length)
        for ahead in (False, True):
            full = on.run(ahead=ahead).iterates()
            few = on.run(ahead=ahead, checkpoints=points).iterates()
            off = _largest_difference([full[point] for point in points], few)
            require(off <= 1.0, f"{on.title}: with fewer checkpoints it differs")


def batches_change_nothing(candidate: Candidate) -> None:
    """Check that a trial's noise does not depend on its batch or the batch's order."""
    if not candidate.solver.batchable:
        raise NotApplicable("batchable=False: every trial runs alone")
    for on in candidate.first():
        alone = {name: _run_batch(on, name) for name in CLIPS}
        for order in ("edcba", "cab"):
            together, w = _run_batch(on, order)
            title = f"{on.title}: in a batch of {len(order)}"
            for b, k in enumerate(order):
                single, w_alone = alone[k]
                for name, noise in together.items():
                    own, other = noise[b], single.get(name, noise[:, :0])[0]
                    if candidate.solver.may_stop_early:  # the others may go on
                        length = min(own.size, other.size)
                        own, other = own[:length], other[:length]
                    same = np.array_equal(own, other)
                    require(same, f"{title} the noise of {name} is another")
                values = on.problem.value(w[b]), on.problem.value(w_alone[0])
                same = np.allclose(*values, rtol=1e-9)
                require(same, f"{title} a trial ends at another objective")


def _run_batch(on: Subject, names: str) -> tuple[dict[str, Array], Array]:
    """Return noise and last iterates of a batch whose trials differ in ``clip``."""
    return _noise_and_ends(
        on.run(*({"clip": CLIPS[name]} for name in names), names=names)
    )


def _noise_and_ends(run: Run) -> tuple[dict[str, Array], Array]:
    """Return the noise of each release, of shape (B, uses), and the last iterates."""
    run.mechanisms.ahead = True
    noises: dict[str, list[Array]] = {}

    def keep_noise(unit_noise: Callable[..., Array], name: str, *size: int) -> Array:
        noise = unit_noise(*size)
        noises.setdefault(name, []).append(noise.reshape(len(noise), -1).copy())
        return noise

    for name, mechanism in run.mechanisms.items():
        plain: Any = mechanism
        plain.unit_noise = functools.partial(keep_noise, plain.unit_noise, name)
    last = run.iterates()[-1]
    return {name: np.hstack(parts) for name, parts in noises.items()}, last


def public_draws_belong_to_the_trial(candidate: Candidate) -> None:
    """Check that a random schedule depends on the trial's identity only."""

    def plan_of(on: Subject, *names: str) -> Any:
        return stack_solvers([on.solver()] * len(names)).plan(on.problem, names)

    for on in candidate.first():
        schedule, title = plan_of(on, "a", "b"), on.title
        same = pickle.dumps(schedule) == pickle.dumps(plan_of(on, "a", "b"))
        require(same, f"{title}: a second schedule differs")
        if not isinstance(schedule, np.ndarray) or not candidate.solver.batchable:
            continue
        require(len(schedule) == 2, f"{title}: the schedule has no row per trial")
        same = np.array_equal(schedule, [*plan_of(on, "a"), *plan_of(on, "b")])
        require(same, f"{title}: the schedule of a trial depends on its batch")


def noise_is_news_to_the_solver(candidate: Candidate) -> None:
    """Check that a solver does not know the noise of its own trial.

    In about half of the trials, the trial's own noise must move the last iterate less
    than the noise of another trial does.

    The public random schedule of a trial may use the identity of the trial, which also
    seeds the noise. So a solver could draw the same noise there, and subtract it.
    """
    batchable = candidate.solver.batchable
    names = [f"news {k}" for k in range(NEWS if batchable else ALONE)]
    batches = [names] if batchable else [[name] for name in names]
    least = (len(names) - FAR_OFF * np.sqrt(len(names))) / 2
    # Loud noise ends in the corners of a box.
    for on in candidate.first(without="box"):
        nearer, tried = 0.0, 0
        for batch in batches:
            nearer, tried = nearer + _count_nearer(on, batch), tried + len(batch)
            # The remaining trials cannot change the verdict.
            if least < nearer < tried - least:
                break
        require(
            least <= nearer <= len(names) - least,
            f"{candidate.title(on.variant)}: {nearer:g} of {tried} trials end "
            "nearer to a run without noise with their own noise than with another's: "
            "the schedule knows it",
        )


def _count_nearer(on: Subject, names: Sequence[str]) -> float:
    """Return the number of trials that their own noise moves less than other noise.

    The other noise is that of another trial. A tie counts 1/2.
    """
    others = tuple(f"{name}, other" for name in names)

    def last_iterates(z: float, streams: Sequence[str] = ()) -> Array:
        return on.run(names=names, z=z, streams=streams).iterates()[-1]

    with np.errstate(all="ignore"):
        # Each trial has the samples of its streams, also without noise.
        moved, instead = (
            np.linalg.norm(
                last_iterates(1.0, streams) - last_iterates(0.0, streams), axis=1
            )
            for streams in ((), others)
        )
    less, more = (moved < instead).sum(), (moved > instead).sum()
    return float(len(names) + less - more) / 2


def draws_are_distinct(candidate: Candidate) -> None:
    """Check that no noise is drawn twice, for any identity and any use."""
    # Loud noise ends in the corners of a box.
    for on in candidate.first(without="box"):
        runs = [_noise_and_ends(on.run(names=[f"trial {k}"])) for k in range(MANY)]
        # Thresholding may set all entries to zero in a few trials.
        places = len({w.tobytes() for _, w in runs})
        full = [w.tobytes() for _, w in runs if w.all()]
        apart = places > MANY // 2 and len(set(full)) == len(full)
        require(apart, f"{on.title}: {MANY} trials end at {places} places")
        every = [x for noise, _ in runs for parts in noise.values() for x in parts.flat]
        draws = [x for x in every if x != 0.0]
        again = len(draws) - len(set(draws))
        require(not again, f"{on.title}: {again} of {len(draws)} draws are used again")


def losers_are_secret(candidate: Candidate) -> None:
    """Check that repeated runs publish the best run only, and nothing about others.

    The best run is made alone, before losing runs, and after losing runs. The published
    bits, the number of iterates and the passes must be equal.
    """
    served = [_is_secret(on.title, on.run, BESIDE) for on in candidate.first()]
    if not any(served):
        raise NotApplicable("it publishes no best of many runs")
    # Losing runs may leave a trace under some parameters only.
    rows = {
        case.params: case
        for case in varied_cases(candidate)
        if case.family not in LARGE
    }
    for case in rows.values():
        made = functools.partial(_run_of, candidate, case)
        with contextlib.suppress(Unsupported):
            _is_secret(case.title, made, [(2, 1)])


def _run_of(candidate: Candidate, case: Case) -> Run:
    """Return the run of a case with one trial."""
    problem = case.neighbours(candidate).first
    solvers = [candidate.build(dict(case.params))]
    return run_at(problem, solvers, case.z, adjacency=case.adjacency)


def _is_secret(
    title: str, made: Callable[[], Run], beside: Sequence[tuple[int, int]]
) -> bool:
    """Check that worse runs do not change the best run; False if no run is repeated."""
    kept = _published_bytes(made(), 0, 0)
    for before, after in beside if kept else ():
        same = _published_bytes(made(), before, after) == kept
        words = f"with {before} that lost before it and {after} after it"
        require(same, f"{title}: the best run gives something else alone than {words}")
    return bool(kept)


def _published_bytes(run: Run, before: int, after: int) -> bytes:
    """Return the bytes that a run publishes if worse repetitions surround the best one.

    The bytes contain the iterates bit for bit, the length and the passes of the run,
    and the scores of the best repetition. The result is empty if the run repeats
    nothing.
    """
    repeated = [
        one
        for one in run.mechanisms.values()
        if isinstance(one, RepeatAndSelectMechanism)
    ]
    if not repeated:
        return b""
    scores = list[float]()
    for mechanism in repeated:
        _place_best(mechanism, before, after, scores)
    with np.errstate(all="ignore"):
        ends = [(w.shape, w.tobytes()) for w in run.iterates()]
    length = run.solver.iterations(run.problem)
    passes = [run.solver.passes_at(run.problem, k) for k in (0, 1, length)]
    return pickle.dumps((ends, length, passes, scores))


def _place_best(
    mechanism: RepeatAndSelectMechanism, before: int, after: int, scores: list[float]
) -> None:
    """Make the repetition with the first streams the best one, in a given place.

    There are ``before`` worse repetitions before it and ``after`` of them after it. The
    score of the winner is appended to ``scores``.
    """
    plain, every = mechanism._run_attempt, before + 1 + after
    order = [*range(1, before + 1), 0, *range(before + 1, every)]

    def run_in_order(number: int, attempt: Any) -> tuple[Array, float]:
        output, score = plain(order[number], attempt)
        loses = order[number] > 0
        scores.extend([] if loses else [score])
        return output, float(loses)

    falls = [False] * (every - 1) + [True]
    # A solver that draws the coins again must find this number of runs, too.
    for name in map(str, range(TRIED)):
        mechanism.seeds = stream_seeds([name], "number of runs")
        if [mechanism._is_last(k) for k in range(every)] == falls:
            break
    mechanism._run_attempt = run_in_order  # type: ignore[method-assign]
    mechanism._is_last = lambda number: number == every - 1  # type: ignore[method-assign]


def global_random_state_is_untouched(candidate: Candidate) -> None:
    """Check that the global random states of numpy and of Python do not change."""
    for on in candidate.first():
        before = _random_states()
        on.run(ahead=True).iterates()
        require(
            before == _random_states(),
            f"{on.title} draws from a global random state",
        )


def _random_states() -> bytes:
    return pickle.dumps((np.random.get_state(), random.getstate()))
