"""What a worker tells its parent: beats while it works, and a report at the end."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

Beat = Callable[[], bool]

PAUSE = 0.1
"""Seconds between beats: there may be thousands of batches in a second."""


class Outcome(NamedTuple):
    """What the parent learns of a trial; the rest is in the store."""

    key: str
    status: str
    final: float
    message: str = ""


class Report(NamedTuple):
    """What a worker says of a task.

    Attributes
    ----------
    outcomes : list of Outcome
        Of the batches that were run.
    batches : int
        How many those are, the first ones.
    seconds : float
        What they took.
    problem : str
        Why nothing more can be recorded, if so.
    full : bool
        Whether the worker holds more memory than it may.
    """

    outcomes: list[Outcome]
    batches: int
    seconds: float
    problem: str = ""
    full: bool = False


class Line:
    """A worker's end of the pipe to its parent; a solver may close it.

    Reports are lines of JSON, so that nothing that a solver writes here is executed
    by the parent, or kept for a report. An empty line is a *beat*: it starts the
    clock of what runs now anew.

    Parameters
    ----------
    handle : int
        File descriptor of the pipe.
    """

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._last = -math.inf
        self._file = os.fstat(handle).st_ino

    def beat(self) -> bool:
        """Beat, if the last was not just now; return whether it was heard."""
        now = time.monotonic()
        if now - self._last < PAUSE:
            return True
        self._last = now
        return self.say()

    def report(self, report: Report) -> bool:
        """Send a report; return whether it went. The next beat is not left out."""
        self._last = -math.inf
        return self.say(json.dumps(report))

    def say(self, text: str = "") -> bool:
        """Send a line, apart from what was sent by others; return whether it went."""
        data = f"\n{text}\n".encode() if text else b"\n"
        try:
            if os.fstat(self._handle).st_ino != self._file:
                return False
            while data:
                data = data[os.write(self._handle, data) :]
        except OSError:
            return False
        return True


def unheard() -> bool:
    """Stand for the beat of a worker that has no parent."""
    return True


def understood(text: bytes, keys: Sequence[Sequence[str]]) -> Report | None:
    """Return the report that a line holds, None if it is anything else.

    Parameters
    ----------
    text : bytes
        A line, by whomever.
    keys : sequence of sequence of str
        The keys of the trials of each batch that the worker has.
    """
    try:
        outcomes, *rest = json.loads(text)
        report = Report([Outcome(*one) for one in outcomes], *rest)
        due = [key for batch in keys[: report.batches] for key in batch]
    except (ValueError, TypeError, RecursionError):
        return None
    return report if due == [one.key for one in report.outcomes] else None
