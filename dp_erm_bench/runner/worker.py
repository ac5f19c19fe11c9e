"""What runs inside a worker process: batches, their failures, their records."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from dp_erm_bench.cached import vouch
from dp_erm_bench.errors import UsageError, printable, told
from dp_erm_bench.experiment.trials import Trial
from dp_erm_bench.registry import locate
from dp_erm_bench.results.segment import Segment, failed
from dp_erm_bench.results.store import final_objective
from dp_erm_bench.runner.line import Beat, Line, Outcome, Report, unheard

PR_SET_PDEATHSIG = 1
TASK_SECONDS = 1.0
"""A worker hands back what it has not begun after this time."""

LONGEST = 1000
"""Characters of a message that the parent is told."""

Batch = tuple[Trial, ...]


class Job(NamedTuple):
    """What all batches of a pool have in common.

    Attributes
    ----------
    folder : str
        The results folder.
    run : str
        The id of the run.
    execute : str
        Dotted name of the function that runs a batch.
    limit : float or None
        Seconds that a batch, or a trial alone, may take.
    memory : float or None
        Bytes after which a worker is replaced.
    secret : str
        Of the run, see `cached.vouch`; empty: everything read is proved again.
    """

    folder: str
    run: str
    execute: str
    limit: float | None = None
    memory: float | None = None
    secret: str = ""


def serve(handle: int, parent: int, execute: str = "") -> None:
    """Run the tasks that come through a pipe until it closes.

    Parameters
    ----------
    handle : int
        File descriptor of the pipe; no process that a solver starts may keep it.
    parent : int
        The process that sends the tasks.
    execute : str
        What the tasks will need, imported while none has come yet.
    """
    os.set_inheritable(handle, False)
    _die_with(parent)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    pipe = Connection(handle)
    line, heard = Line(handle), True
    if execute:
        with contextlib.suppress(Exception):
            locate(execute)
    with contextlib.suppress(EOFError, OSError):
        while heard:
            batches, job = pipe.recv()
            report = run_task(batches, job, line.beat)
            _flush()
            heard = line.report(report)
    # All is written: to take numba and scipy apart would keep the parent waiting.
    os._exit(0)


def _flush() -> None:
    """Let out what was printed: who is ended has no time for it."""
    for stream in (sys.stdout, sys.stderr):
        # A solver may have closed them, or put something else in their place.
        with contextlib.suppress(Exception):
            stream.flush()


def _die_with(parent: int) -> None:
    """Ask the kernel to kill this process when its parent ends.

    It does so when the *thread* that made this process ends, so that workers are
    made from the main thread. Elsewhere a worker ends at the end of its batch.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def run_task(batches: Sequence[Batch], job: Job, beat: Beat = unheard) -> Report:
    """Run batches, one after the other, for about `TASK_SECONDS`.

    It ends early where the memory is full, or where the parent no longer hears.
    """
    vouch(job.secret)
    start, outcomes, number = time.monotonic(), [], 0
    problem, seconds, full, heard = "", 0.0, False, True
    while number < len(batches) and seconds < TASK_SECONDS and heard and not full:
        try:
            outcomes += run_recorded(batches[number], job, beat)
            number += 1
        except UsageError as error:
            problem = str(error)
            break
        full = job.memory is not None and own_memory() > job.memory
        heard = beat()
        seconds = time.monotonic() - start
    return Report(outcomes, number, seconds, problem, full)


def own_memory() -> int:
    """Return the bytes that this process holds alone: not files that it maps.

    Where the kernel does not tell (other than Linux) it is the most it ever held.
    """
    try:
        with open("/proc/self/statm", "rb") as file:
            _, resident, shared, *_ = map(int, file.read().split())
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most << 10
    return (resident - shared) * resource.getpagesize()


def run_recorded(batch: Batch, job: Job, beat: Beat = unheard) -> list[Outcome]:
    """Run a batch, append its records to this worker's segment, return outcomes.

    Raises
    ------
    UsageError
        If the segment cannot be written.
    """
    segment = _segment(job.folder, job.run)
    segment.begin([trial.key for trial in batch])
    start = time.perf_counter()
    records = run_guarded(batch, job.execute, job.limit, beat)
    segment.append(records, (time.perf_counter() - start) / len(batch))
    return list(map(outcome_of, records))


def outcome_of(record: dict[str, Any]) -> Outcome:
    """Return what the parent must know of a record."""
    message = str(record.get("message") or "").partition("\n")[0]
    said = printable(message, LONGEST)
    return Outcome(record["key"], record["status"], final_objective(record), said)


def run_guarded(
    trials: Sequence[Trial],
    execute: str,
    limit: float | None = None,
    beat: Beat = unheard,
) -> list[dict[str, Any]]:
    """Run a batch; what raises becomes a record, and an error is its trial's own.

    Where a batch ends in errors its trials run again one by one: what one raised
    must not be written against the others. Each of these calls may take `limit`
    seconds; what a new process must import first is none of theirs. A child that a
    solver has made and that comes back from its call ends here: the trials are those
    of the process that was asked.
    """
    asked = os.getpid()
    try:
        run = locate(execute)
        with _alarm(limit, beat):
            found = {record["key"]: record for record in run(trials)}
        records = [found.get(trial.key) or _forgotten(trial) for trial in trials]
    except BaseException as error:  # Ctrl-C is not for workers: it is the solver's own
        records = [failed(trial.key, "error", told(error)) for trial in trials]
    if os.getpid() != asked:
        os._exit(0)
    if len(trials) == 1:
        return records
    return [
        run_guarded([trial], execute, limit, beat)[0]
        if record["status"] == "error"
        else record
        for trial, record in zip(trials, records, strict=True)
    ]


@contextlib.contextmanager
def _alarm(seconds: float | None, beat: Beat) -> Iterator[None]:
    """Have the kernel end this process after some time, even in native code.

    A solver may not let it: the parent, who hears when it began, has a clock, too.
    """
    beat()
    signal.setitimer(signal.ITIMER_REAL, seconds or 0.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        beat()


def _forgotten(trial: Trial) -> dict[str, Any]:
    return failed(trial.key, "error", "the batch returned no record of this trial")


@functools.cache
def _segment(folder: str, run: str) -> Segment:
    return Segment(Path(folder), run)
