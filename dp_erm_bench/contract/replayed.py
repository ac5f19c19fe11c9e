"""Replays, each side in a fresh interpreter where that can be, and what they find.

What a solver keeps between runs (a dictionary of its module, a cache, an attribute of a
class) holds constants of the first D that it saw. In one interpreter it carries them to
D', where nothing seems to move. So one process runs all cases on D, another one all on
D', told the first one's answers as they come.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from dp_erm_bench.cached import RUN, run_folder
from dp_erm_bench.contract import charged
from dp_erm_bench.contract.candidate import Candidate, candidate_of
from dp_erm_bench.contract.cases import Case
from dp_erm_bench.contract.hidden import EQUAL
from dp_erm_bench.contract.runs import ContractError
from dp_erm_bench.contract.side import Account, Side
from dp_erm_bench.errors import BudgetExhausted, NotSampled
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.trust.replay import compare

AT_ONCE = 20
"""Cases that a process runs together."""
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
    """

    case: Case
    violations: list[str] = field(default_factory=list)
    declared: list[str] = field(default_factory=list)
    sampled: list[str] = field(default_factory=list)
    read: list[str] = field(default_factory=list)
    ratios: dict[str, float] = field(default_factory=dict)
    refusal: str = ""

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
        yield from _apart(candidate.pin, cases)
        return
    sides = [Side(candidate, case, 0).play() for case in cases]
    for case, first in zip(cases, sides, strict=True):
        yield compared(case, first, Side(candidate, case, 1, first).play())


def _apart(pin: str, cases: Sequence[Case]) -> Iterator[ReplayResult]:
    context = multiprocessing.get_context("forkserver")
    # Whose children begin with the package imported, and no solver run.
    context.set_forkserver_preload([__name__])
    parts = [cases[k : k + AT_ONCE] for k in range(0, len(cases), AT_ONCE)]
    (accounts, first), (results, second) = (context.Pipe(False) for _ in range(2))
    targets = [(first, _first, pin, parts), (second, _second, pin, parts, accounts)]
    folder = str(run_folder())
    sides = [context.Process(target=_send, args=(folder, *args)) for args in targets]
    try:
        for side in sides:
            side.start()
        for pipe in (accounts, first, second):
            pipe.close()
        for _ in parts:
            yield from _receive(results)
    except EOFError:
        raise ContractError(ENDED) from None
    finally:
        for side in sides:
            if side.is_alive():
                side.kill()
                side.join()


def _send(
    folder: str, pipe: Connection, side: Callable[..., Iterator[Any]], *args: Any
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
    for part in parts:
        yield [
            compared(case, first, Side(candidate, case, 1, first).play())
            for case, first in zip(part, _receive(accounts), strict=True)
        ]


def compared(case: Case, first: Account, second: Account) -> ReplayResult:
    """Return the result of a run on D and one on D' with the same answers."""
    result = ReplayResult(case)
    if first.refusal or second.refusal:
        result.refusal = first.refusal or second.refusal
        if first.refusal != second.refusal:
            result.declared.append(f"a refusal depends on the data: {result.refusal}")
        return result
    if first.error or second.error:
        _raised(result, first.error, second.error)
        return result
    result.violations += [*first.complaints, *second.complaints]
    if first.declared != second.declared:
        result.declared.append("what is declared depends on the data")
    if first.matched:
        _round(first, second)
    report = compare(first.log, second.log)
    for one in first.matched:
        result.violations += [one.complaint] if one.complaint else []
        report.ratios["the objective"] = one.ratio
    result.ratios = report.ratios
    sentences = report.violations(charged.SLACK)
    if case.toggled is None:
        result.violations += sentences
        result.sampled += charged.unsampled(first, second)
        result.read += charged.read_again(first, second)
    else:
        result.sampled += [f"{words}, by a record's coin alone" for words in sentences]
        if case.adjacency is Adjacency.REPLACE_ONE:
            result.sampled += charged.too_large(first, report.ratios)
    return result


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
