"""What the runner asks of an engine: whatever carries tasks to their hosts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol, Self

from dp_erm_bench.runner.answers import Answer
from dp_erm_bench.runner.ledger import Ledger


class Engine(AbstractContextManager["Engine"], Protocol):
    """Carries the tasks of a ledger to hosts, and their answers back.

    It is entered once for all rounds of a run. Leaving it ends all that it started.
    """

    def __enter__(self) -> Self:
        """Start what hosts the tasks."""

    @property
    def slots(self) -> int:
        """Return the number of tasks that may be at work now."""

    def answers(self, ledger: Ledger) -> Iterator[tuple[int, Answer | None]]:
        """Yield the number and the answer of each task, until none can be handed out.

        None: it was lost with its host, of which the ledger was told (`Ledger.tell`).
        What is handed back meanwhile may wait for the next call.
        """
