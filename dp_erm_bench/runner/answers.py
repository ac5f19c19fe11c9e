"""Answers: what a host says of a task, and the lines in which it travels."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from dp_erm_bench.errors import printable
from dp_erm_bench.registry import QUANTITIES
from dp_erm_bench.results import files
from dp_erm_bench.results.store import STATUSES
from dp_erm_bench.runner.worker import Batch, Outcome, Report

LONGEST = 200
"""Characters of what an answer says of its host, or of what is wrong with it."""

WRONG = (TypeError, LookupError, AttributeError, OverflowError)
"""Raised by lines of JSON whose values are of other types than ours."""


class Death(NamedTuple):
    """How a child ended in the middle of a task.

    Attributes
    ----------
    code : int
        Its exit code; minus the number of the signal that ended it.
    overdue : bool
        Whether its host ended it, since it took longer than it may.
    begun : dict of str to float
        When it began each trial, in seconds since 1970.
    """

    code: int
    overdue: bool
    begun: dict[str, float]

    @property
    def ending(self) -> str:
        """Return the name of the signal that ended it, or its exit code."""
        names = {-number: number.name for number in signal.Signals}
        return names.get(self.code, f"exit code {self.code}")


class Answer(NamedTuple):
    """What a host says of a task.

    Attributes
    ----------
    number : int
        The task's.
    outcomes : list of Outcome
        Of the trials that are recorded.
    seconds : float
        What their batches took.
    problem : str
        Why nothing more can be recorded; empty if it can.
    death : Death or None
        How the child ended; None if it lives.
    lines : bytes
        Marks and records that belong into the results folder; empty where the child
        wrote them there itself.
    host : str
        Machine and process id of the host.
    """

    number: int
    outcomes: list[Outcome]
    seconds: float = 0.0
    problem: str = ""
    death: Death | None = None
    lines: bytes = b""
    host: str = ""


def packed(answer: Answer) -> bytes:
    """Return an answer as lines of JSON: what it says, then marks and records.

    The outcomes do not travel: they are those of the records.
    """
    head = answer._asdict() | {"outcomes": None, "lines": None}
    return files.sealed(files.line(head)) + answer.lines


def unpacked(data: Any, task: Sequence[Batch]) -> Answer:
    """Return the answer on a task that travelled as lines.

    Raises
    ------
    ValueError
        If it is no whole answer on this task: a line is damaged, of a trial that the
        task has not, or the second record of one.
    """
    if not isinstance(data, bytes):
        raise ValueError("an answer must be bytes")
    first, *lines = data.splitlines(keepends=True) or [b""]
    keys = {trial.key for batch in task for trial in batch}
    head = files.parsed(first) if files.is_sealed(first) else None
    outcomes: list[Outcome] = []
    try:
        answer = _head(dict(head or {}))
        checked = b"".join(_checked(lines, keys, outcomes))
    except WRONG as error:
        reason = printable(str(error), LONGEST)
        raise ValueError(f"a value of an answer: {reason}") from None
    if not (outcomes or answer.death or answer.problem):
        raise ValueError("an answer says nothing")
    return answer._replace(outcomes=outcomes, lines=checked)


def _head(head: dict[str, Any]) -> Answer:
    """Return an answer without its lines; every value is of its type."""
    death = head.pop("death")
    if death is not None:
        code, overdue, begun = death
        times = {str(key): float(time) for key, time in begun.items()}
        death = Death(int(code), bool(overdue), times)
    number, seconds = int(head["number"]), float(head["seconds"])
    problem = printable(str(head["problem"]), 5 * LONGEST)
    host = printable(str(head["host"]), LONGEST)
    return Answer(number, [], seconds, problem, death, b"", host)


def _checked(
    lines: Iterable[bytes], keys: set[str], outcomes: list[Outcome]
) -> Iterator[bytes]:
    """Yield marks and records of these keys; collect the outcomes of the records."""
    left = set(keys)
    for line in lines:
        content = files.parsed(line)
        if content is None:
            raise ValueError("a line of an answer holds no object")
        if line.startswith(files.BEGIN):
            begun = [str(key) for key in content["begin"]]
            if not keys.issuperset(begun):
                raise ValueError("a mark of an answer is of another task")
            yield files.line({"begin": begun, "time": float(content["time"])})
        elif _is_record(line, content) and content["key"] in left:
            left.remove(content["key"])
            outcomes.append(Outcome.of(content))
            yield line
        else:
            raise ValueError("a record of an answer is damaged, or of another task")


def _is_record(line: bytes, content: dict[str, Any]) -> bool:
    """Return whether a line is whole, and would be found in the results folder."""
    found = files.RECORD.match(line) and files.is_sealed(line)
    columns = content.get("trajectory")
    lists = isinstance(columns, dict) and all(type(c) is list for c in columns.values())
    return bool(found) and lists and content.get("status") in STATUSES


def understood(text: bytes, task: Sequence[Batch]) -> Report | None:
    """Return the report of a worker on a task that a line holds; None if it is none.

    Whoever wrote the line: every value is of its type, and the outcomes are those of
    the first batches of the task.
    """
    try:
        outcomes, batches, seconds, problem, full = json.loads(text)
        found = [
            Outcome(str(key), _status(status), _finals(finals), str(message))
            for key, status, finals, message in outcomes
        ]
        report = Report(found, int(batches), float(seconds), str(problem), bool(full))
        due = [trial.key for batch in task[: report.batches] for trial in batch]
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
    whole = due == [one.key for one in found] and 0 <= report.seconds < math.inf
    return report if whole else None


def _status(status: Any) -> str:
    if status not in STATUSES:
        raise ValueError(f"{status!r}: no status")
    return str(status)


def _finals(finals: Any) -> dict[str, float]:
    return {name: float(finals[name]) for name in QUANTITIES if name in finals}
