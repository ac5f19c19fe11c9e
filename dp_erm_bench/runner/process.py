"""A worker process as its parent sees it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import wait

from dp_erm_bench.runner.batches import Batch
from dp_erm_bench.runner.worker import Job, Report

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
    alone : bool
        Whether no other worker was at work meanwhile.
    fresh : bool
        Whether it has never had a task.
    """

    def __init__(self, execute: str = "") -> None:
        self.pipe, theirs = Pipe()
        self.task: Sequence[Batch] = ()
        self.alone = False
        self.fresh = True
        handle = theirs.fileno()
        given = [str(handle), str(os.getpid()), execute]
        try:
            with theirs, _interrupts_held():
                self._process = subprocess.Popen(
                    [sys.executable, "-c", SERVE, *given, *sys.path],
                    env={**os.environ, **ONE_THREAD},
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
        trials = [tuple(one.trial for one in batch) for batch in task]
        with contextlib.suppress(OSError):
            self.pipe.send((trials, job))

    def spoke(self, ready: Iterable[object]) -> bool:
        """Return whether it has reported, given the pipes that are ready, or died."""
        return self.pipe in ready or self._process.poll() is not None

    def report(self) -> Report | None:
        """Return what it says of its task, None if it died."""
        try:
            report: Report | None = self.pipe.recv() if self.pipe.poll() else None
        except (EOFError, OSError):
            return None
        return report

    def end(self, patience: float = PATIENCE) -> int:
        """Let it go, by force if it does not; return its exit code."""
        self.pipe.close()
        try:
            return self._process.wait(0.0 if self.fresh else patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
        return self._process.wait()


def heard(workers: Iterable[Worker]) -> list[Worker]:
    """Wait until some of the workers have reported or died, and return those."""
    found: list[Worker] = []
    while not found:
        ready = wait([worker.pipe for worker in workers], PATIENCE)
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
