"""Replays, each side in a fresh interpreter where that can be, and what they find.

What a solver keeps between runs (a dictionary of its module, a cache, an attribute of a
class) holds constants of the first D that it saw. In one interpreter it carries them to
D', where nothing seems to move. So one process runs all cases on D, another one all on
D', told the first one's answers as they come. Each has folders of its own (``told``).
"""

from __future__ import annotations

import fcntl
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
from dp_erm_bench.contract.hidden import EQUAL
from dp_erm_bench.contract.runs import ContractError
from dp_erm_bench.contract.side import Account, Side
from dp_erm_bench.errors import BudgetExhausted, NotSampled
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.trust.replay import PAST, ReplayReport, compare

AT_ONCE = 20
"""Cases that a process runs together."""
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
    if candidate.pin and cases:
        parts = [cases[k : k + AT_ONCE] for k in range(0, len(cases), AT_ONCE)]
        listener = Listener(candidate.pin)
        for results in _apart(candidate.pin, parts):
            listener.judge(results)
            yield from results
        return
    sides = [Side(candidate, case, 0).play() for case in cases]
    for case, first in zip(cases, sides, strict=True):
        yield compared(case, first, Side(candidate, case, 1, first).play())


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
                again = itertools.chain(*_apart(self.pin, [[result.case] * AGAIN]))
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


def _apart(
    pin: str, parts: Sequence[Sequence[Case]]
) -> Iterator[Sequence[ReplayResult]]:
    """Yield the results of parts, one after the other."""
    context = multiprocessing.get_context("forkserver")
    # Whose children begin with the package imported, and no solver run.
    context.set_forkserver_preload([__name__])
    (accounts, first), (results, second) = (context.Pipe(False) for _ in range(2))
    targets = [(first, _first, pin, parts), (second, _second, pin, parts, accounts)]
    folder = run_folder()
    places = [tempfile.mkdtemp(prefix="side-", dir=folder) for _ in targets]
    sides = [
        context.Process(target=_send, args=(str(folder), place, *args))
        for place, args in zip(places, targets, strict=True)
    ]
    try:
        for side in sides:
            side.start()
        for pipe in (accounts, first, second):
            pipe.close()
        for _ in parts:
            yield _receive(results)
    except EOFError:
        raise ContractError(ENDED) from None
    finally:
        for side in sides:
            if side.is_alive():
                side.kill()
            side.join()
        for place in places:
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


def _first(pin: str, parts: Sequence[Sequence[Case]]) -> Iterator[list[Account]]:
    """Run cases on D and yield their accounts, by parts."""
    candidate = candidate_of(pin)
    for part in parts:
        yield [Side(candidate, case, 0).play() for case in part]


def _second(
    pin: str, parts: Sequence[Sequence[Case]], accounts: Connection
) -> Iterator[list[ReplayResult]]:
    """Run cases on D', told the answers of D, and yield the results, by parts."""
    candidate = candidate_of(pin)
    reads.watch(candidate.solver)
    for part in parts:
        yield [
            compared(case, first, Side(candidate, case, 1, first).play())
            for case, first in zip(part, _receive(accounts), strict=True)
        ]


def compared(case: Case, first: Account, second: Account) -> ReplayResult:
    """Return the result of a run on D and one on D' with the same answers."""
    result = ReplayResult(case)
    if first.told or second.told:
        result.told, result.near = (first.told, second.told), bool(first.matched)
        result.place = _place(second)
        result.violations += _unseen(first.told)
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
    sentences = _departures(report, second)
    if case.toggled is None:
        result.violations += sentences
        result.sampled += charged.unsampled(first, second)
        result.read += charged.read_again(first, second)
    else:
        result.sampled += [f"{words}, by a record's coin alone" for words in sentences]
        if case.adjacency is Adjacency.REPLACE_ONE:
            result.sampled += charged.too_large(first, report.ratios)
    return result


def _departures(report: ReplayReport, second: Account) -> list[str]:
    """Return the violations of a report, with the step and the line of each."""
    words = dict.fromkeys(report.violations(charged.SLACK), "")
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
