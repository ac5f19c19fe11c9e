"""Replays, each side in a fresh interpreter where that can be, and what they find.

What a solver keeps between runs (a dictionary of its module, a cache, an attribute of a
class) holds constants of the first D that it saw. In one interpreter it carries them to
D', where nothing seems to move. So one process runs all cases on D, another one all on
D', told the first one's answers as they come. Each has folders of its own (``told``).
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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from dp_erm_bench.cached import RUN, run_folder
from dp_erm_bench.contract import charged, reads, told
from dp_erm_bench.contract.candidate import Candidate, candidate_of
from dp_erm_bench.contract.cases import Case
from dp_erm_bench.contract.covered import watch
from dp_erm_bench.contract.hidden import EQUAL
from dp_erm_bench.contract.runs import ContractError
from dp_erm_bench.contract.side import Account, Side
from dp_erm_bench.errors import BudgetExhausted, NotSampled
from dp_erm_bench.releases.adjacency import Adjacency
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
            second = _played(ran, Side(candidate, case, 1, first))
            yield compared(case, first, second)


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
            yield [
                compared(case, first, _played(ran, Side(candidate, case, 1, first)))
                for case, first in both
            ]


def _parts(tasks: Connection) -> Iterator[Sequence[Case]]:
    """Yield the cases that a side is told to run, until it is ended."""
    while True:
        yield from tasks.recv()


def compared(case: Case, first: Account, second: Account) -> ReplayResult:
    """Return the result of a run on D and one on D' with the same answers."""
    result = ReplayResult(case, ran=first.ran | second.ran)
    result.length = max(first.steps, default=0)
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
    result.ratios = report.ratios
    sentences = _departures(report, second, case.z)
    if case.toggled is None:
        result.violations += sentences
        result.sampled += charged.unsampled(first, second)
        result.read += charged.read_again(first, second)
    else:
        result.sampled += [f"{words}, by a record's coin alone" for words in sentences]
        if case.adjacency is Adjacency.REPLACE_ONE:
            result.sampled += charged.too_large(first, report.ratios)
    return result


def _departures(report: ReplayReport, second: Account, z: float) -> list[str]:
    """Return the violations of a report, with the step and the line of each."""
    # What is computed of iterates that noise drives far away is rounded as they are.
    slack = max(charged.SLACK, ROUNDED * z)
    words = dict.fromkeys(report.violations(slack), "")
    if PAST in words and report.iterate is not None:
        k, steps = report.iterate, second.steps
        step = f"step {steps[k]}" if k < len(steps) else "the end"
        if 0 < k < len(steps) and steps[k] > steps[k - 1] + 1:
            step = f"steps {steps[k - 1] + 1} to {steps[k]}"
        asked = second.asked[k + 1] if k + 1 < len(second.asked) else None
        listened = second.reads is not None and second.reads.files
        place = _located(_place(second, asked)) or (NO_LINE if listened else "")
        words[PAST] = f": {step}: w differs though all answers were equal{place}"
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
