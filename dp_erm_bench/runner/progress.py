"""Progress on stderr: a bar on a terminal, a line per 5 % elsewhere."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from dp_erm_bench.results.store import FAILED

STEPS = 20
QUIET = 0.5
"""Seconds between two lines at least, the last line excepted."""

FIRST, PAUSE = 3.0, 60.0
"""Seconds from the start to the first line, and between two of them at most."""


def say(text: str) -> None:
    """Print a line on stderr; that nobody can read it is no reason to end a sweep."""
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def awaited(text: str, enabled: bool) -> Iterator[None]:
    """Say what is done within, if that takes more than `FIRST` seconds."""
    timer = threading.Timer(FIRST, say, [text])
    timer.daemon = True
    if enabled:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


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
    begun : float, optional
        When the run began, by `time.monotonic`; now by default. Elsewhere than on a
        terminal there is a line `FIRST` seconds after that, and then at least every
        `PAUSE` seconds, be it that no trial has ended.
    """

    def __init__(
        self,
        title: str,
        enabled: bool,
        total: int,
        workers: Callable[[], int] | None = None,
        begun: float | None = None,
    ) -> None:
        self.title, self.enabled, self.total = title, enabled, total
        self._workers = workers
        self.done = self.failed = self.ran = self.announced = 0
        self._bar: Any = None
        self._task: Any = None
        self._step = 0
        self._start = self._last = time.monotonic()
        self._begun = self._start if begun is None else begun
        self._lock, self._over = threading.Lock(), threading.Event()
        self._clock = threading.Thread(target=self._tick, daemon=True)

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
                console=Console(file=getattr(sys.stderr, "inside", sys.stderr)),
                refresh_per_second=5,
            )
            fields = {"failed": 0, "alive": self._alive()}
            self._task = self._bar.add_task(self.title, total=self.total, **fields)
            self._bar.start()
        elif self.enabled:
            self._clock.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Close the bar, stop the clock."""
        self._over.set()
        if self._bar is not None:
            self._bar.stop()
        elif self.enabled:
            self._clock.join()

    def _tick(self) -> None:
        # What is recorded already is counted in no time.
        due = max(QUIET, self._begun + FIRST - time.monotonic())
        while not self._over.wait(due):
            with self._lock:
                since = time.monotonic() - self._last
                if self._last == self._start or since >= PAUSE:
                    # Who counts workers may be at it when one comes.
                    with contextlib.suppress(RuntimeError):
                        self._print()
                    since = 0.0
            due = PAUSE - since

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
        step = STEPS * self.done // max(self.total, 1)
        with self._lock:
            soon = time.monotonic() - self._last < QUIET and self.done < self.total
            if step != self._step and not soon:
                self._step = step
                self._print()

    def _print(self) -> None:
        self._last = time.monotonic()
        spent, left = self._last - self._start, "time left not known yet"
        if self.ran:
            left = f"{spent / self.ran * (self.total - self.done):.0f} s left"
        say(
            f"{self.title}: {100 * self.done // max(self.total, 1)} % "
            f"({self.done} of {self.total} trials, {self.failed} failed"
            f"{self._alive()}, {spent:.0f} s, {left})"
        )

    def _alive(self) -> str:
        """Return how many workers there are, to follow other words."""
        if self._workers is None:
            return ""
        number = self._workers()
        return f", {number} worker{'s' * (number != 1)}"
