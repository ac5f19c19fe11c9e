"""What the runner asks of an engine: whatever carries tasks to their hosts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, Self

from dp_erm_bench.errors import UsageError
from dp_erm_bench.runner.ledger import Answer, LastWords, Ledger, check_answer

HANG = {
    "dask": ("DaskDistributedBackend", "runner=dask, which uses Dask's own client"),
    "multiprocessing": ("MultiprocessingBackend", "loky or threading"),
}
"""Backends of joblib that wait for ever once a worker was killed.

Their classes, and what to use.
"""

ACTIVE = "active"


class SchedulerLost(Exception):
    """The scheduler does not answer."""


class Ending(NamedTuple):
    """How a call on a worker ended: its value, or a problem.

    `cancelled`: it ended with the connection to the scheduler.
    """

    value: Any = None
    problem: str = ""
    cancelled: bool = False


GONE = Ending(problem="its worker is gone")


class Engine(AbstractContextManager["Engine"], Protocol):
    """Carries the tasks of a ledger to hosts, and their answers back.

    It is entered once for all rounds of a run. Leaving it ends all that it started.
    """

    def __enter__(self) -> Self:
        """Start what hosts the tasks."""

    @property
    def slots(self) -> int:
        """Return the number of tasks that may be at work now."""

    @property
    def cpus(self) -> Mapping[str, str]:
        """Return the kind of CPU of other machines that have worked, by their name."""

    def answers(self, ledger: Ledger) -> Iterator[tuple[int, Answer | None]]:
        """Yield the number and the answer of each task, until none can be handed out.

        None: it was lost with its host, of which the ledger was told (`Ledger.losses`).
        What is handed back meanwhile may wait for the next call.
        """


def believed(value: object, number: int, ledger: Ledger) -> Answer | None:
    """Return an answer that can be taken; None, of which the ledger hears, if none."""
    try:
        return check_answer(value, ledger.batches(number))
    except ValueError as error:
        reason = f"its answer could not be read: {error}"
        ledger.losses.told[number] = LastWords("a host", reason)
        return None


def hanging(setting: str, backend: str) -> UsageError:
    """Return the refusal of a backend of joblib that waits for ever."""
    return UsageError(
        f"{setting}: joblib waits for ever there once a worker was killed; "
        f"use {HANG[backend][1]}"
    )
