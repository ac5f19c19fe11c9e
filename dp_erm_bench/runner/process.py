"""A worker process as its parent sees it."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import wait
from pathlib import Path

from dp_erm_bench.runner.batches import Batch
from dp_erm_bench.runner.line import Report, understood
from dp_erm_bench.runner.worker import Job

THREADS = ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMEXPR", "NUMBA", "VECLIB_MAXIMUM")
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in THREADS}
"""Environment of a worker, set before it imports numpy."""

SERVE = (
    "import sys; sys.path[:] = sys.argv[4:]; "
    "from dp_erm_bench.runner.worker import serve; "
    "serve(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])"
)
PATIENCE = 1.0
"""Seconds after which a worker is looked at though it has said nothing."""

MARK = "DP_ERM_BENCH_WORKER"
"""Variable in a worker's environment, inherited by all that is started in it."""

GRACE = 1.0
"""Seconds beyond its time limit after which the parent ends a worker."""

ROUNDS = 10
"""So often a worker's processes are looked for: one may start another meanwhile."""

SOON = 0.02
"""Seconds after which one is looked at that can say nothing any more."""

MOST = 1 << 24
"""Bytes of a line; a report has fewer."""


class Worker:
    """A process of one thread that runs one task at a time.

    It is started by hand, not by `multiprocessing`: that would import the user's main
    module again, and cannot set the environment of the new process alone.

    Parameters
    ----------
    execute : str
        Dotted name of the function that runs a batch, imported at once.

    Attributes
    ----------
    task : sequence of tuple of Planned
        What it is at; empty if it is idle.
    owner : str
        The solver from outside the package that it has run, empty if none. It runs no
        other code then: what a solver does to its process is felt by itself alone.
    alone : bool
        Whether no other worker was at work meanwhile.
    fresh : bool
        Whether it has never had a task.
    overdue : bool
        Whether it was ended here since it took longer than it may.
    """

    def __init__(self, execute: str = "") -> None:
        self.pipe, theirs = Pipe()
        self.task: Sequence[Batch] = ()
        self.owner = ""
        self.alone, self.fresh, self.overdue = False, True, False
        self._deaf = False
        self._said = b""
        self._report: Report | None = None
        self._limit: float | None = None
        self._due = float("inf")
        self._mark = secrets.token_hex(8)
        handle = theirs.fileno()
        given = [str(handle), str(os.getpid()), execute]
        try:
            with theirs, _interrupts_held():
                self._process = subprocess.Popen(
                    [sys.executable, "-c", SERVE, *given, *sys.path],
                    env={**os.environ, **ONE_THREAD, MARK: self._mark},
                    stdin=subprocess.DEVNULL,
                    pass_fds=(handle,),
                )
        except BaseException:
            # A Ctrl-C that was held back: nobody else knows of the process yet.
            with contextlib.suppress(AttributeError):
                self.end()
            raise

    @property
    def pid(self) -> int:
        """Return the id of the process."""
        return self._process.pid

    def give(self, task: Sequence[Batch], job: Job, alone: bool = False) -> None:
        """Send a task; should the worker be dead, its report will be None."""
        self.task, self.alone, self.fresh = task, alone, False
        self.owner = self.owner or task[0][0].owner
        self._limit, self._report = job.limit, None
        if self.owner:
            # Its code could seal what it likes for the others.
            job = job._replace(secret="")
        trials = [tuple(one.trial for one in batch) for batch in task]
        with contextlib.suppress(OSError):
            self.pipe.send((trials, job))

    @property
    def hears(self) -> bool:
        """Return whether its end of the pipe is open."""
        return not self._deaf

    def patience(self) -> float:
        """Return the seconds after which it is to be looked at."""
        if self._deaf:
            return SOON
        return min(PATIENCE, max(0.0, self._due - time.monotonic()))

    def spoke(self, ready: Iterable[object]) -> bool:
        """Return whether it has reported, given the pipes that are ready, or died.

        It is ended if it takes longer than it may.
        """
        if self.pipe in ready:
            self._listen()
        if self._report is None and time.monotonic() > self._due:
            self.overdue = True
            self._process.kill()
            self._process.wait()
        return self._report is not None or self._process.poll() is not None

    def report(self) -> Report | None:
        """Return what it says of its task, None if it died."""
        with contextlib.suppress(OSError):
            while self._report is None and not self._deaf and self.pipe.poll():
                self._listen()
        self._due = float("inf")
        return self._report

    def _listen(self) -> None:
        """Take in what it says: beats, a report, and what is none of both."""
        try:
            said = os.read(self.pipe.fileno(), 1 << 16)
        except OSError:
            said = b""
        self._deaf = not said
        *lines, rest = (self._said + said).split(b"\n")
        self._said = rest if len(rest) < MOST else b""
        if lines and self._limit is not None:
            self._due = time.monotonic() + self._limit + GRACE
        for line in filter(None, lines):
            keys = [[trial.key for trial in batch] for batch in self.task]
            self._report = self._report or understood(line, keys)

    def end(self, patience: float = PATIENCE) -> int:
        """Let it go, by force if it does not; return its exit code.

        What a solver has started ends with it.
        """
        self.pipe.close()
        try:
            self._process.wait(0.0 if self.fresh else patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
        code = self._process.wait()
        if self.owner:
            end_strays(self._mark)
        return code


def heard(workers: Sequence[Worker]) -> list[Worker]:
    """Wait until some of the workers have reported or died, and return those."""
    found: list[Worker] = []
    while not found:
        pipes = [worker.pipe for worker in workers if worker.hears]
        ready = wait(pipes, min(worker.patience() for worker in workers))
        found = [worker for worker in workers if worker.spoke(ready)]
    return found


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """Let what is started here never hear of Ctrl-C: that is its parent's to handle."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_strays(mark: str) -> None:
    """Kill every process whose environment has a worker's mark (on Linux).

    One that was started in an environment of its own is not found.
    """
    sought = f"{MARK}={mark}".encode()
    for _ in range(ROUNDS):
        found = list(_marked(sought))
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            return


def _marked(sought: bytes) -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/environ"):
        # It may be another user's, or gone; what was killed has none any more.
        with contextlib.suppress(OSError):
            if sought in path.read_bytes().split(b"\0"):
                yield int(path.parent.name)
