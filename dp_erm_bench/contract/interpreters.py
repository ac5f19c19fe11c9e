"""The two sides of replays, each in a fresh interpreter where that can be.

What a solver keeps between runs (a dictionary of its module, a cache, an attribute of a
class) holds constants of the first D that it saw. In one interpreter it carries them to
D', where nothing seems to move. So one process runs all cases on D, another one all on
D', told the first one's answers as they come.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.connection import Connection

from dp_erm_bench.contract.candidate import Candidate, candidate_of
from dp_erm_bench.contract.cases import Case
from dp_erm_bench.contract.errors import ContractError
from dp_erm_bench.contract.side import Side, Told
from dp_erm_bench.contract.verdicts import Verdict, verdict

ME = __name__
AT_ONCE = 20
"""Verdicts that are sent together."""
ENDED = "it ends the interpreter that it is run in"


def replayed(candidate: Candidate, cases: Sequence[Case]) -> Iterator[Verdict]:
    """Yield the verdicts of cases, in order, as they come.

    Raises
    ------
    ContractError
        If a side ended before it was done.
    """
    if not candidate.pin or not cases:
        return _here(candidate, cases)
    return _apart(candidate.pin, cases)


def _apart(pin: str, cases: Sequence[Case]) -> Iterator[Verdict]:
    context = multiprocessing.get_context("forkserver")
    # Whose children begin with the package imported, and no solver run.
    context.set_forkserver_preload([ME])
    told_by, told_to = context.Pipe(duplex=False)
    heard_by, heard_to = context.Pipe(duplex=False)
    sides = [
        context.Process(target=_first, args=(pin, cases, told_to), daemon=True),
        context.Process(
            target=_second, args=(pin, cases, told_by, heard_to), daemon=True
        ),
    ]
    try:
        for side in sides:
            side.start()
        for pipe in (told_by, told_to, heard_to):
            pipe.close()
        yield from _received(heard_by, len(cases))
    finally:
        for side in sides:
            side.kill()
            side.join()
        heard_by.close()


def _received(pipe: Connection, count: int) -> Iterator[Verdict]:
    while count:
        try:
            part = pipe.recv()
        except EOFError:
            raise ContractError(ENDED) from None
        if isinstance(part, str):
            raise ContractError(part)
        yield from part
        count -= len(part)


def _here(candidate: Candidate, cases: Iterable[Case]) -> Iterator[Verdict]:
    first = [Side(candidate, case, 0).play() for case in cases]
    for case, told in zip(cases, first, strict=True):
        yield verdict(case, told, Side(candidate, case, 1, told).play())


def _first(pin: str, cases: Sequence[Case], out: Connection) -> None:
    """Run cases on D and send what was told."""
    candidate = candidate_of(pin)
    for case in cases:
        out.send(Side(candidate, case, 0).play())
    out.close()


def _second(
    pin: str, cases: Sequence[Case], told_by: Connection, out: Connection
) -> None:
    """Run cases on D', told the answers of D, and send the verdicts."""
    candidate = candidate_of(pin)
    part: list[Verdict] = []
    for number, case in enumerate(cases, start=1):
        try:
            told: Told = told_by.recv()
        except EOFError:
            out.send(ENDED)
            return
        part.append(verdict(case, told, Side(candidate, case, 1, told).play()))
        if number % AT_ONCE == 0 or number == len(cases):
            out.send(part)
            part = []
