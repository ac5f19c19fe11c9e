"""Progress on stderr: a bar on a terminal, a line per 5 % elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from dp_erm_bench.results.index import FAILED

STEPS = 20
QUIET = 0.5
"""Seconds between two lines at least, the last line excepted."""


class Progress:
    """Count trials done and failed, and show them.

    Parameters
    ----------
    title : str
        What is counted.
    enabled : bool
        Whether to show anything.
    total : int
        Trials expected; it grows if more are announced.
    workers : function, optional
        Returns how many there are; it is not shown without.
    """

    def __init__(
        self,
        title: str,
        enabled: bool,
        total: int,
        workers: Callable[[], int] | None = None,
    ) -> None:
        self.title, self.enabled, self.total = title, enabled, total
        self._workers = workers
        self.done = self.failed = self.ran = self.announced = 0
        self._bar: Any = None
        self._task: Any = None
        self._step = 0
        self._start = self._last = time.monotonic()

    def __enter__(self) -> Progress:
        """Open the bar if stderr is a terminal."""
        if self.enabled and sys.stderr.isatty():
            from rich import progress
            from rich.console import Console

            columns = (progress.BarColumn(), progress.MofNCompleteColumn())
            self._bar = progress.Progress(
                "{task.description}",
                *columns,
                "{task.fields[failed]} failed{task.fields[alive]}",
                progress.TimeRemainingColumn(),
                console=Console(stderr=True),
                refresh_per_second=5,
            )
            fields = {"failed": 0, "alive": self._alive()}
            self._task = self._bar.add_task(self.title, total=self.total, **fields)
            self._bar.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Close the bar."""
        if self._bar is not None:
            self._bar.stop()

    def announce(self, recorded: int, todo: int) -> None:
        """Count the trials of a round: those recorded earlier are done."""
        self.announced += recorded + todo
        self.total = max(self.total, self.announced)
        self.done += recorded
        self._step = STEPS * self.done // max(self.total, 1)
        if self._bar is not None:
            self._bar.update(self._task, total=self.total, completed=self.done)

    def advance(self, statuses: Iterable[str]) -> None:
        """Count the trials of a batch."""
        statuses = list(statuses)
        self.done += len(statuses)
        self.ran += len(statuses)
        self.failed += sum(status in FAILED for status in statuses)
        if self._bar is not None:
            fields = {"failed": self.failed, "alive": self._alive()}
            self._bar.update(self._task, completed=self.done, **fields)
        elif self.enabled:
            self._line()

    def _line(self) -> None:
        now, step = time.monotonic(), STEPS * self.done // max(self.total, 1)
        soon = now - self._last < QUIET and self.done < self.total
        if step == self._step or soon:
            return
        self._step, self._last = step, now
        spent = now - self._start
        left = spent / self.ran * (self.total - self.done)
        text = (
            f"{self.title}: {100 * self.done // self.total} % "
            f"({self.done} of {self.total} trials, {self.failed} failed"
            f"{self._alive()}, {spent:.0f} s, {left:.0f} s left)"
        )
        # That nobody can read it is no reason to end a sweep.
        with contextlib.suppress(OSError):
            print(text, file=sys.stderr, flush=True)

    def _alive(self) -> str:
        """Return how many workers there are, to follow other words."""
        if self._workers is None:
            return ""
        number = self._workers()
        return f", {number} worker{'s' * (number != 1)}"
