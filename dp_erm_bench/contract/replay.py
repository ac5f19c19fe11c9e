"""Replays of an algorithm: the same answers on a neighbouring dataset, and findings.

What a solver keeps between runs (a dictionary of its module, a cache, an attribute of a
class) holds constants of the first D that it saw. In one interpreter it carries them to
D', where nothing seems to move. So one process runs all cases on D, another one all on
D', told the first one's answers as they come: fresh interpreters, where that can be.
Each has folders of its own (``told``).
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import itertools
import multiprocessing
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from dp_erm_bench.cached import RUN, run_folder
from dp_erm_bench.contract import reads, side, told
from dp_erm_bench.contract.candidate import (
    Candidate,
    ContractError,
    NotAllRun,
    NotApplicable,
    Variant,
    candidate_of,
    is_bounded,
    require,
)
from dp_erm_bench.contract.cases import (
    CLIP,
    Case,
    at_each_place,
    is_sampled,
    pairwise_covering,
    params_of,
    resized,
    varied,
)
from dp_erm_bench.contract.covered import directed, sources_of, squeezed, unrun, watch
from dp_erm_bench.contract.problems import CORNERS, LARGE, Parts, neighbours
from dp_erm_bench.contract.side import EQUAL, Account, Side
from dp_erm_bench.errors import BudgetExhausted, NotSampled
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.solvers.base import Solver
from dp_erm_bench.trust.replay import PAST, ReplayReport, compare

AT_ONCE = 20
"""Cases that a process runs together."""
ROUNDED = 1e-13
"""Change of a release by rounding / its sensitivity, for each unit of noise."""
AGAIN, DOUBTS = 8, 12
"""Runs of a case in which sides tell different things; cases that are run so."""
NO_LINE = (
    "; no line of the solver reads data past the mechanisms there: an earlier run may "
    "have left it (in a module, a class, a file), or it knows the noise"
)
ENDED = "it ends the interpreter that it is run in"


@dataclass
class ReplayResult:
    """The result of replaying a case.

    Attributes
    ----------
    case : Case
    violations : list of str
        Of data past the mechanisms, or beyond the sensitivities.
    declared : list of str
        Of what is declared for neighbours.
    sampled : list of str
        Of samples.
    read : list of str
        Of records that are read more often than charged.
    ratios : dict
        Per release, the largest change / its declared sensitivity.
    refusal : str
        The reason why nothing was run; empty if something was.
    told : (list, list), optional
        What the sides told beside their iterates, if they told anything.
    near : bool
        Whether numbers that they told may differ by what solving to a tolerance leaves.
    place : str
        Where the solver read the data last, not to publish it.
    ran : frozenset of int
        What of the sources ran, on either side (``covered``).
    length : int
        The number of steps.
    """

    case: Case
    violations: list[str] = field(default_factory=list)
    declared: list[str] = field(default_factory=list)
    sampled: list[str] = field(default_factory=list)
    read: list[str] = field(default_factory=list)
    ratios: dict[str, float] = field(default_factory=dict)
    refusal: str = ""
    told: tuple[told.Told, told.Told] | None = None
    near: bool = False
    place: str = ""
    ran: frozenset[int] = frozenset()
    length: int = 0

    @property
    def all(self) -> list[str]:
        """Return all sentences."""
        return [*self.violations, *self.declared, *self.sampled, *self.read]


def replayed(candidate: Candidate, cases: Sequence[Case]) -> Iterator[ReplayResult]:
    """Yield the results of cases, in order, as they come.

    Raises
    ------
    ContractError
        If a side ended before it was done.
    """
    with replaying(candidate) as run:
        yield from run(cases)


@contextlib.contextmanager
def replaying(candidate: Candidate) -> Iterator[Callable[..., Iterator[ReplayResult]]]:
    """Yield `replayed` of a candidate, whose sides go on from one call to the next.

    With ``interpreted=True`` what the solver compiles is run as it is written.
    """
    with contextlib.ExitStack() as stack:

        @functools.cache
        def sides(interpreted: bool) -> Sides:
            made = Sides(candidate.pin, interpreted)
            return stack.enter_context(contextlib.closing(made))

        listener = Listener(candidate.pin)

        def run(
            cases: Sequence[Case], interpreted: bool = False
        ) -> Iterator[ReplayResult]:
            if not candidate.pin:
                yield from _in_turn(candidate, cases, interpreted)
            elif cases:
                parts = [cases[k : k + AT_ONCE] for k in range(0, len(cases), AT_ONCE)]
                for results in sides(interpreted).run(parts):
                    listener.judge(results)
                    yield from results

        yield run


def _in_turn(
    candidate: Candidate, cases: Sequence[Case], interpreted: bool
) -> Iterator[ReplayResult]:
    """Yield the results of cases, both sides in this process."""
    with watch(candidate, interpreted) as ran:
        sides = [_played(ran, Side(candidate, case, 0)) for case in cases]
        for case, first in zip(cases, sides, strict=True):
            yield _replay(candidate, ran, case, first)


def _replay(
    candidate: Candidate,
    ran: Callable[[], frozenset[int]],
    case: Case,
    first: Account,
) -> ReplayResult:
    """Return the result of a case whose run on D has an account."""
    told_of = None if case.untold else first
    return compared(case, first, _played(ran, Side(candidate, case, 1, told_of)))


def _played(ran: Callable[[], frozenset[int]], side: Side) -> Account:
    """Return the account of a side, with what it ran."""
    account = side.play()
    account.ran = ran()
    return account


class Listener:
    """Judges what sides tell, and runs them again where it differs.

    What lasts is a violation. What does not differs between two runs of a side, as the
    time does, and so do words in the same places of such lines.
    """

    def __init__(self, pin: str) -> None:
        self.pin = pin
        self.found = False
        self.doubts = DOUBTS
        self.vary: set[told.Fact] = set()

    def judge(self, results: Sequence[ReplayResult]) -> None:
        """Add the violations that some results have by what was told."""
        for result in results:
            while not self.found and (apart := self._apart(result)) and self.doubts:
                self.doubts -= 1
                with contextlib.closing(Sides(self.pin)) as sides:
                    again = itertools.chain(*sides.run([[result.case] * AGAIN]))
                    pairs = [told.paired(*one.told) for one in again if one.told]
                lasting = told.lasting(apart, pairs)
                self.vary |= {told.kind(fact) for fact in apart.keys() - lasting.keys()}
                if lasting:
                    self._accuse(result, lasting)

    def _apart(self, result: ReplayResult) -> dict[told.Fact, Any]:
        """Return the facts that differ, but for those that are known to vary."""
        if result.told is None:
            return {}
        apart = told.differing(*result.told, result.near)
        return {k: both for k, both in apart.items() if told.kind(k) not in self.vary}

    def _accuse(self, result: ReplayResult, lasting: dict[told.Fact, Any]) -> None:
        assert result.told is not None
        self.found = True
        words = told.sentence(*result.told, lasting) + _located(result.place)
        if result.case.toggled is None:
            result.violations.append(words)
        else:
            result.sampled.append(f"{words}, by a record's coin alone")


class Sides:
    """The processes that run cases of a solver, one all on D, one all on D'.

    They keep what the solver keeps from one call to the next, until `close`.

    Parameters
    ----------
    pin : str
        The solver.
    interpreted : bool
        Whether what it compiles is run as it is written.
    """

    def __init__(self, pin: str, interpreted: bool = False) -> None:
        context = multiprocessing.get_context("forkserver")
        # Whose children begin with the package imported, and no solver run.
        context.set_forkserver_preload([__name__])
        (accounts, told_of), (self.results, results) = (
            context.Pipe(False) for _ in range(2)
        )
        (first, self.first), (second, self.second) = (
            context.Pipe(False) for _ in range(2)
        )
        folder = run_folder()
        self.places = [tempfile.mkdtemp(prefix="side-", dir=folder) for _ in range(2)]
        known = (pin, interpreted)
        targets = [
            (told_of, _first, *known, first),
            (results, _second, *known, second, accounts),
        ]
        self.processes = [
            context.Process(target=_send, args=(str(folder), place, *args))
            for place, args in zip(self.places, targets, strict=True)
        ]
        for process in self.processes:
            process.start()
        for pipe in (accounts, told_of, results, first, second):
            pipe.close()

    def run(self, parts: Sequence[Sequence[Case]]) -> Iterator[Sequence[ReplayResult]]:
        """Yield the results of parts, one after the other."""
        try:
            for tasks in (self.first, self.second):
                tasks.send(parts)
            for _ in parts:
                yield _receive(self.results)
        except (EOFError, BrokenPipeError):
            raise ContractError(ENDED) from None

    def close(self) -> None:
        """End the processes and remove their folders."""
        for process in self.processes:
            process.kill()
            process.join()
        for pipe in (self.first, self.second, self.results):
            pipe.close()
        for place in self.places:
            shutil.rmtree(place, ignore_errors=True)


def _send(
    folder: str,
    place: str,
    pipe: Connection,
    side: Callable[..., Iterator[Any]],
    *args: Any,
) -> None:
    """Send the results of a side or its error; the process of a side.

    It hears of no Ctrl-C, which is its parent's to handle, and it is killed when its
    parent ends, whatever it is at: the kernel signals the end of the pipe between them.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ[RUN] = folder
    parent = multiprocessing.parent_process()
    if parent and hasattr(fcntl, "F_SETSIG"):  # Linux
        fcntl.fcntl(parent.sentinel, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(parent.sentinel, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(parent.sentinel, fcntl.F_SETFL, os.O_ASYNC)
        if not parent.is_alive():
            return
    told.settle(Path(place))
    try:
        for part in side(*args):
            pipe.send(part)
    except BrokenPipeError:  # nobody needs the rest
        return
    except Exception as error:
        pipe.send(error)


def _receive(pipe: Connection) -> Any:
    part = pipe.recv()
    if isinstance(part, Exception):
        raise part
    return part


def _first(pin: str, interpreted: bool, tasks: Connection) -> Iterator[list[Account]]:
    """Run cases on D and yield their accounts, by parts."""
    candidate = candidate_of(pin)
    with watch(candidate, interpreted) as ran:
        for part in _parts(tasks):
            yield [_played(ran, Side(candidate, case, 0)) for case in part]


def _second(
    pin: str, interpreted: bool, tasks: Connection, accounts: Connection
) -> Iterator[list[ReplayResult]]:
    """Run cases on D', told the answers of D, and yield the results, by parts."""
    candidate = candidate_of(pin)
    reads.watch(candidate.solver)
    with watch(candidate, interpreted) as ran:
        for part in _parts(tasks):
            both = zip(part, _receive(accounts), strict=True)
            yield [_replay(candidate, ran, case, first) for case, first in both]


def _parts(tasks: Connection) -> Iterator[Sequence[Case]]:
    """Yield the cases that a side is told to run, until it is ended."""
    while True:
        yield from tasks.recv()


def compared(case: Case, first: Account, second: Account) -> ReplayResult:
    """Return the result of a run on D and one on D' with the same answers."""
    result = ReplayResult(case, ran=first.ran | second.ran)
    result.length = max(first.steps, default=0)
    if case.untold:
        result.refusal = first.refusal or second.refusal or "its answers differ"
        return result
    if first.told or second.told:
        result.told, result.near = (first.told, second.told), bool(first.matched)
        result.place = _place(second)
        result.violations += _unseen(first.told)
    if not case.judged:
        result.refusal = first.refusal or second.refusal
        return result
    if first.refusal or second.refusal:
        result.refusal = first.refusal or second.refusal
        if first.refusal != second.refusal:
            place = _located(_place(second))
            words = f"a refusal depends on the data: {result.refusal}"
            result.declared.append(words + place)
        return result
    if first.error or second.error:
        _raised(result, first.error, second.error)
        return result
    result.violations += [*first.complaints, *second.complaints]
    if first.declared != second.declared:
        place = _place(second, second.asked[0] if second.asked else None)
        result.declared.append(f"what is declared depends on the data{_located(place)}")
    if first.matched:
        _round(first, second)
    report = compare(first.log, second.log)
    for one in first.matched:
        result.violations += [one.complaint] if one.complaint else []
        report.ratios["the objective"] = one.ratio
    if case.toggled is not None:
        # Of a sample in which another record stands in our place.
        for name in first.zeroed & report.ratios.keys():
            report.ratios[name] /= 2.0
    result.ratios = report.ratios
    sentences = _departures(report, second, case.z)
    if case.toggled is None:
        result.violations += sentences
        result.sampled += side.unsampled(first, second)
        result.read += side.read_again(first, second)
    else:
        result.sampled += [f"{words}, by a record's coin alone" for words in sentences]
        if case.adjacency is Adjacency.REPLACE_ONE:
            result.sampled += side.too_large(first, report.ratios)
    return result


def _departures(report: ReplayReport, second: Account, z: float) -> list[str]:
    """Return the violations of a report, with the step and the line of each."""
    # What is computed of iterates that noise drives far away is rounded as they are.
    slack = max(side.SLACK, ROUNDED * z)
    words = dict.fromkeys(report.violations(slack), "")
    if PAST in words and report.iterate is not None:
        k, steps = report.iterate, second.steps
        step = f"step {steps[k]}" if k < len(steps) else "the end"
        if 0 < k < len(steps) and steps[k] > steps[k - 1] + 1:
            step = f"steps {steps[k - 1] + 1} to {steps[k]}"
        asked = second.asked[k + 1] if k + 1 < len(second.asked) else None
        listened = second.reads is not None and second.reads.files
        place = _located(_place(second, asked)) or (NO_LINE if listened else "")
        signs = " in the sign of a zero" if report.signs_alone else ""
        words[PAST] = f": {step}: w differs{signs} though all answers were equal{place}"
    for departure in (text for text in words if "depend" in text and not words[text]):
        words[departure] = _located(_place(second))
    return [f"{text}{more}" for text, more in words.items()]


def _place(second: Account, asked: int | None = None) -> str:
    """Return where the solver read the data last within so many reads, or all."""
    found = second.reads
    return found.last(found.count if asked is None else asked) if found else ""


def _located(place: str) -> str:
    """Return the words on what is to be done about a line."""
    if not place:
        return ""
    return f"; data are read at {place}: publish it (declare a release) or take it out"


def _unseen(first: told.Told) -> list[str]:
    """Return sentences on what is told where nobody listens."""
    calls = {text for how, text in first if how == told.CALLS}
    return [f"it opens {text}, and what it says there is not seen" for text in calls]


def _raised(result: ReplayResult, first: str, second: str) -> None:
    """Judge errors: a solver may refuse unusual parameters or data."""
    message = f"it raises {first or second}"
    kinds = {error.partition(":")[0] for error in (first, second)}
    if NotSampled.__name__ in kinds:
        result.sampled.append(message)
    elif len(kinds) > 1:
        result.violations.append(f"{message}, which depends on the data")
    elif result.case.brief or BudgetExhausted.__name__ in kinds:
        result.violations.append(message)
    else:
        result.refusal = message


def _round(first: Account, second: Account) -> None:
    """Equate values computed from equal minimisers where they nearly agree."""
    queries = zip(first.log.exchanges, second.log.exchanges, strict=False)
    both = [(one.query.value, other.query.value) for one, other in queries]
    ends = zip(first.log.iterates, second.log.iterates, strict=False)
    for one, other in [*both, *ends]:
        if one.shape == other.shape:
            near = np.isclose(one, other, rtol=EQUAL, atol=EQUAL)
            other[near] = one[near]


TRIALS = 6
LOUD = 30.0
FAR, LONGER = 20.0, 60
"""Times a parameter, and steps: every record is sampled, far from the start."""
SHARES = (5.0, 500.0)
"""Of the second, released constants are above the floor that noise puts under them."""
WEAK = 0.02


def replay_audit(candidate: Candidate) -> None:
    """Let data through the mechanisms alone, within the declared sensitivities."""
    results = replay_results(candidate)
    _require_none(results, lambda one: one.violations)
    if all(one.refusal for one in results):
        raise NotApplicable("it serves no problem of the check")


def declarations_know_no_data(candidate: Candidate) -> None:
    """Declare the same for neighbours: releases, their sizes, lengths, refusals."""
    _require_none(replay_results(candidate), lambda one: one.declared)


def samples_are_those_charged(candidate: Candidate) -> None:
    """Let a record into the sums over samples that hold it, and nothing else."""
    _require_none(replay_results(candidate), lambda one: one.sampled)


def records_are_read_once(candidate: Candidate) -> None:
    """Read no record twice, and none that was not handed out, where that is charged."""
    _require_none(replay_results(candidate), lambda one: one.read)


def sensitivities_are_tight(candidate: Candidate) -> None:
    """Declare no more than three times the change that a record makes.

    That is no matter of privacy: a loose sensitivity costs noise.
    """
    # All pairs of each, which what was sought by itself has not.
    known = {case for case in corners(candidate) if case.toggled is None}
    at_corners = [one for one in replay_results(candidate) if one.case in known]
    least = {one.case.title: _least(one.case) for one in at_corners}
    grouped = _grouped(at_corners)
    loose = {
        title
        for title, ratios in grouped.items()
        if any(ratio < least[title] for ratio in ratios.values())
    }
    far = [case for case in _stretched(candidate) if case.title in loose]
    for title, ratios in _grouped([*at_corners, *replayed(candidate, far)]).items():
        for name, ratio in ratios.items():
            require(
                ratio >= least[title],
                f"{title}: release {name} changes by {ratio:.2g} of its declared "
                f"sensitivity at most, at least {least[title]} is expected; that is "
                "no matter of privacy, but of noise that nobody needs: declare less, "
                "or name sensitivities_are_tight in `exempt` with the reason",
            )


def private_constants_are_audited(candidate: Candidate) -> None:
    """Keep what is declared with smoothness=private: the M_j are released first."""
    served = [one for one in private_results(candidate) if not one.refusal]
    if not served:
        raise NotApplicable("it serves no constants that are released")
    _require_none(served, lambda one: one.all)
    for title, ratios in _grouped(served).items():
        ratio = ratios.get("smoothness", 0.0)
        require(ratio > 0.99, f"{title}: the M_j change by {ratio:.2g} only")


def all_of_it_was_run(candidate: Candidate) -> None:
    """Have every line run in a replay, and every condition come out both ways.

    But for what ends in an error, declares cost or accuracy, or is named in `exempt`.
    """
    try:
        made = sources_of(candidate.solver)
    except (OSError, TypeError):
        raise NotApplicable("no file holds its source") from None
    results = [*replay_results(candidate), *private_results(candidate)]
    ran = set[int]().union(*(one.ran for one in results))
    missed = unrun(made, candidate.solver, ran)
    exempt = {squeezed(name): why for name, why in candidate.solver.exempt.items()}
    left, reasons = [], dict[str, str]()
    for one in missed:
        names = (squeezed(one.name), *one.place.scope)
        why = next((exempt[name] for name in names if name in exempt), "")
        if why:
            reasons[one.where(made)] = why
        else:
            left.append(one)
    count = sum(not one.refusal for one in results)
    if left:
        places = "; ".join(one.sentence(made, count) for one in left)
        raise NotAllRun(
            f"{places}: what follows is not checked; make it a parameter, or name it "
            "in `exempt` with a reason"
        )
    if reasons:
        raise NotApplicable("; ".join(f"{a}: {why}" for a, why in reasons.items()))


def _require_none(
    results: Iterable[ReplayResult], of: Callable[[ReplayResult], list[str]]
) -> None:
    for one in results:
        words = "; ".join(dict.fromkeys(of(one)))
        title = f"{one.case.title}, neighbours: {one.case.family}"
        require(not words, f"{title}: {words}")


@functools.lru_cache(maxsize=16)
def replay_results(candidate: Candidate) -> list[ReplayResult]:
    """Return the results of all cases but those of released constants.

    What they do not run of the sources is sought by further ones.
    """
    others = functools.partial(private_results, candidate)
    with replaying(candidate) as run:
        results = list(run(list(all_cases(candidate))))
        if candidate.pin:
            # In other processes: what is told once is heard before.
            results += replayed(candidate, list(answered_anew(candidate)))
        for cases, interpreted in directed(candidate, results, others):
            results += run(cases, interpreted)
    return results


def answered_anew(candidate: Candidate) -> Iterator[Case]:
    """Yield a case of each small family behind a run in which D' is told nothing.

    An answer that is kept for later runs is another one on D' than on D then.
    """
    firsts = {case.family: case for case in reversed([*varied(candidate)])}
    for case in [*firsts.values(), *itertools.islice(corners(candidate), 1)]:
        if case.family not in LARGE and case.toggled is None:
            yield replace(case, untold=True)
            yield case


@functools.lru_cache(maxsize=16)
def private_results(candidate: Candidate) -> list[ReplayResult]:
    """Return the results of the cases of released constants."""
    return list(replayed(candidate, list(_private(candidate))))


def all_cases(candidate: Candidate) -> Iterator[Case]:
    """Yield all cases but those of released constants."""
    # First those in which the record decides most: caches keep what they see first.
    yield from varied(candidate)
    for number, case in enumerate(corners(candidate)):
        yield case
        if number == 0:  # the budget decides on noise, or on the length
            how: dict[str, Any] = {"trials": 1, "points": "all", "calibrated": True}
            for adjacency, epsilon in itertools.product(Adjacency, (1.0, 50.0)):
                yield replace(case, adjacency=adjacency, epsilon=epsilon, **how)
    yield from at_each_place(candidate)


def corners(candidate: Candidate, least: int = 0, **params: Any) -> Iterator[Case]:
    """Yield variants on problems, their records at the extremes, any two together once.

    That is: each variant meets each loss, penalty and set that it serves, and so do
    these each other; what meets has both adjacencies, and all pairs of neighbours.

    Parameters
    ----------
    candidate : Candidate
    least : int
        Steps of a run, about; 0: as many as by default.
    **params
        Parameters.
    """
    groups: dict[tuple[Any, ...], list[Case]] = {}
    for (variant, clip, group), parts, adjacency in itertools.product(
        _clipped(candidate), candidate.objectives(), Adjacency
    ):
        solver = candidate.build(variant, clip=clip, **params)
        pairs = candidate.corners(parts, adjacency, WEAK)
        problem = pairs[0][0]
        if solver.refusal(problem) or not is_bounded(problem, solver, adjacency):
            continue
        if least:
            solver = resized(solver, problem, least, 2 * least)
        case = _loud(candidate, solver, parts, adjacency, group)
        # All other candidates meet toggled coins where they are varied.
        both = candidate.foreign and is_sampled(problem, solver, adjacency)
        groups.setdefault((group, *parts), []).extend(
            replace(case, family=f"{CORNERS} {number}", toggled=toggled)
            for number in range(len(pairs))
            for toggled in ((None, 0, 1) if both else (None,))
        )
    for what in pairwise_covering(groups):
        yield from groups[what]


def _clipped(candidate: Candidate) -> list[tuple[Variant, float | None, str]]:
    """Return variants, each with a threshold or None, and their names in messages."""
    clipped: list[tuple[Variant, float | None, str]] = []
    for variant in candidate.variants:
        if "clip" in candidate.parameters:
            clipped.append((variant, CLIP, f"{candidate.title(variant)}, clip={CLIP}"))
        clipped.append((variant, None, candidate.title(variant)))
    return clipped


def _loud(
    candidate: Candidate, solver: Solver, parts: Parts, adjacency: Adjacency, group: str
) -> Case:
    """Return a loud case on records at the corners of their bounds."""
    trials = TRIALS if candidate.solver.batchable else 1
    head = (params_of(solver), parts, CORNERS, adjacency, trials)
    return Case(*head, z=LOUD, strength=WEAK, brief=True, group=group)


def _stretched(candidate: Candidate) -> Iterator[Case]:
    """Yield long corners at the default, and at each batched number times `FAR`."""
    yield from corners(candidate, LONGER)
    usual = dict(params_of(candidate.build()))
    for name, one in candidate.parameters.items():
        # Corners have thresholds of their own.
        if one.metadata["kind"] == "value" and usual[name] and name != "clip":
            yield from corners(candidate, LONGER, **{name: FAR * usual[name]})


def _least(case: Case) -> float:
    """Return the least part of a sensitivity that a change must reach.

    No run visits all corners of a constraint, and no release that is made a few times
    meets its worst iterate. Squared loss on a box: at the start gradients are as large
    as labels alone make them; where margins are large all lean towards w, so that a
    replaced record changes less than two opposite ones would.
    """
    free = dict(case.params).get("clip") is None and case.parts[0] == "squared"
    return 0.1 if free else 0.3


def _grouped(results: Iterable[ReplayResult]) -> dict[str, dict[str, float]]:
    """Return the largest ratio of each release, by title of cases."""
    grouped: dict[str, dict[str, float]] = {}
    for one in results:
        ratios = grouped.setdefault(one.case.title, {})
        for name, ratio in one.ratios.items():
            ratios[name] = max(ratios.get(name, 0.0), ratio)
    return grouped


def _private(candidate: Candidate) -> Iterator[Case]:
    """Yield cases in which the smoothness constants are released."""
    parts = ("logistic", "l2", "none")
    for (variant, clip, group), adjacency in itertools.product(
        _clipped(candidate), Adjacency
    ):
        solver = candidate.build(variant, clip=clip, smoothness="private")
        group = f"{group}, smoothness=private"
        case = _loud(candidate, solver, parts, adjacency, group)
        # A record of zeros moves the M_j most: it is a replacement, too.
        for kind in sorted({adjacency, Adjacency.ZERO_OUT}):
            for number in range(len(neighbours(kind, parts, WEAK))):
                for epsilon in SHARES:
                    family = f"{CORNERS} {number} {kind.value}"
                    yield replace(case, family=family, epsilon=epsilon)
