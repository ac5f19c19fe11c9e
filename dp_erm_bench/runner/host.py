"""Hosts: a task runs in a child of the process that was asked, which outlives it.

What carries tasks about (a thread of this process, a process of joblib, a worker of
Dask on another machine) calls `hosted`; it imports neither of them. However a child
ends, its host returns an `Answer`.
"""

from __future__ import annotations

import atexit
import functools
import os
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from dp_erm_bench import paths
from dp_erm_bench.errors import UsageError
from dp_erm_bench.results import files
from dp_erm_bench.results.store import traces_of
from dp_erm_bench.runner.answers import Answer, Death, packed
from dp_erm_bench.runner.process import PATIENCE, Worker
from dp_erm_bench.runner.worker import Batch, Job, Outcome


class Children:
    """The workers of this process, one per thread that hosts tasks."""

    def __init__(self) -> None:
        self._own = threading.local()
        self._all: set[Worker] = set()
        self._spare: list[Worker] = []
        self._starting = threading.Lock()
        self._open = True

    def open(self, early: Worker | None = None) -> None:
        """Let threads start workers; the first task is for one that was started."""
        self._spare = [early] if early else []
        self._open = True

    def of_thread(self, owner: str, run: str) -> Worker:
        """Return this thread's worker, a new one if it may not run an owner's solver.

        It has run nothing but the solvers of one owner, and ours; nothing of another
        run, whose data it may hold.
        """
        own: Worker | None = getattr(self._own, "worker", None)
        if own in self._all and own.owner in ("", owner) and own.run in ("", run):
            return own
        if own is not None:
            self.let_go(own)
        with self._starting:
            if not self._open:
                raise RuntimeError("the run is over")
            own = self._spare.pop() if self._spare else Worker()
            self._all.add(own)
        self._own.worker = own
        return own

    def let_go(self, worker: Worker) -> int:
        """Return the exit code of a worker that gets no other task."""
        self._all.discard(worker)
        return worker.end()

    def end(self, patience: float = PATIENCE) -> None:
        """End all workers, at once without patience, and start no other.

        With patience no thread may be waiting for its worker.
        """
        with self._starting:
            self._open = False
            workers = [*self._all, *self._spare]
            self._all.clear()
            self._spare.clear()
        if patience:
            for one in workers:
                one.pipe.close()
        for one in workers:
            one.end(patience) if patience else one.kill()


children = Children()
atexit.register(children.end, 0.0)


def hosted(
    number: int,
    task: Sequence[Batch],
    job: Job,
    ship: bool = False,
    wanted: Callable[[], bool] = lambda: True,
) -> Answer:
    """Run a task in a child of this thread, and return how it ended.

    Parameters
    ----------
    number : int
        Names the task in the answer.
    task : sequence of tuple of Trial
        Batches of one owner.
    job : Job
        What the child must know.
    ship : bool
        Whether the lines travel with the answer: the child writes into a folder of
        this machine. Else it writes into the results folder.
    wanted : callable
        Returns whether somebody waits for the answer; if not, the child is ended.
    """
    if ship:
        job = job._replace(folder=paths.scratch(), secret=_secret())
    child = children.of_thread(task[0][0].owner, job.run)
    child.give(task, job)
    child.wait(wanted)
    answer = _reported(number, child) or _mourned(number, child, task, job)
    lines = b"".join(_taken_lines(child, job)) if ship else b""
    if child.report and child.report.full:
        children.let_go(child)
    return answer._replace(lines=lines, host=f"{os.uname().nodename}:{os.getpid()}")


def shipped(
    number: int, task: Sequence[Batch], job: Job, wanted: Callable[[], bool]
) -> tuple[int, bytes]:
    """Return the answer of a host that need not share a folder with the parent.

    Where its machine has no room for a process or a file, that is the answer's problem.
    """
    try:
        return number, packed(hosted(number, task, job, True, wanted))
    except (UsageError, OSError) as error:
        return number, packed(Answer(number, [], problem=str(error) or repr(error)))


def _reported(number: int, child: Worker) -> Answer | None:
    if child.report is None:
        return None
    outcomes, _, seconds, problem, _ = child.report
    return Answer(number, outcomes, seconds, problem)


def _mourned(number: int, child: Worker, task: Sequence[Batch], job: Job) -> Answer:
    """Return what a dead child recorded of a task, and what it had begun."""
    code = children.let_go(child)
    traces = traces_of(Path(job.folder), job.run, child.pid)
    keys = {trial.key for batch in task for trial in batch}
    outcomes = [Outcome.of(traces.records[key]) for key in keys & set(traces.records)]
    begun = {key: traces.begun[key] for key in keys & set(traces.begun)}
    return Answer(number, outcomes, death=Death(code, child.overdue, begun))


@functools.cache
def _secret() -> str:
    """Return what the children of this host know each other by (`cached.vouch`)."""
    return secrets.token_hex(16)


def _taken_lines(child: Worker, job: Job) -> Iterator[bytes]:
    """Yield the marks and records that a child has written, and remove them there.

    It is idle, or dead, and appends to a file that is empty then.
    """
    segments = Path(job.folder, "segments").glob(f"{job.run}-{child.pid}-*.jsonl")
    for path in sorted(segments):
        data = path.read_bytes()
        os.truncate(path, 0)
        # Who dies may leave half a line.
        for line in data[: data.rfind(b"\n") + 1].splitlines(keepends=True):
            if line.startswith((files.BEGIN, files.START)):
                yield line
