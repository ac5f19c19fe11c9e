"""What runs inside a worker process: batches, their failures, their records."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from dp_erm_bench.errors import UsageError
from dp_erm_bench.paths import vouch
from dp_erm_bench.registry import locate
from dp_erm_bench.results.segment import Segment
from dp_erm_bench.results.store import final_objective
from dp_erm_bench.runner.trial import Trial

PR_SET_PDEATHSIG = 1
TASK_SECONDS = 1.0
"""A worker hands back what it has not begun after this time."""

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
    secret : str
        Of the run, see `paths.vouch`; empty: everything read is proved again.
    """

    folder: str
    run: str
    execute: str
    limit: float | None = None
    secret: str = ""


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
    """

    outcomes: list[Outcome]
    batches: int
    seconds: float
    problem: str = ""


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
    if execute:
        with contextlib.suppress(Exception):
            locate(execute)
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            pipe.send(run_task(*pipe.recv()))
    # All is written: to take numba and scipy apart would keep the parent waiting.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _die_with(parent: int) -> None:
    """Ask the kernel to kill this process when its parent ends.

    It does so when the *thread* that made this process ends, so that workers are
    made from the main thread. Elsewhere a worker ends at the end of its batch.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def run_task(batches: Sequence[Batch], job: Job) -> Report:
    """Run batches, one after the other, for about `TASK_SECONDS`."""
    if job.secret:
        vouch(job.secret)
    start, outcomes, number = time.monotonic(), [], 0
    problem, seconds = "", 0.0
    while number < len(batches) and seconds < TASK_SECONDS and not problem:
        try:
            outcomes += run_recorded(batches[number], job)
            number += 1
        except UsageError as error:
            problem = str(error)
        seconds = time.monotonic() - start
    return Report(outcomes, number, seconds, problem)


def run_recorded(batch: Batch, job: Job) -> list[Outcome]:
    """Run a batch, append its records to this worker's segment, return outcomes.

    Raises
    ------
    UsageError
        If the segment cannot be written.
    """
    segment = _segment(job.folder, job.run)
    segment.begin([trial.key for trial in batch])
    start = time.perf_counter()
    records = run_guarded(batch, job.execute, job.limit)
    segment.append(records, (time.perf_counter() - start) / len(batch))
    return list(map(outcome_of, records))


def outcome_of(record: dict[str, Any]) -> Outcome:
    """Return what the parent must know of a record."""
    message = str(record.get("message") or "").partition("\n")[0]
    return Outcome(record["key"], record["status"], final_objective(record), message)


def run_guarded(
    trials: Sequence[Trial], execute: str, limit: float | None = None
) -> list[dict[str, Any]]:
    """Run a batch; what raises becomes a record, and an error is its trial's own.

    Where a batch ends in errors its trials run again one by one: what one raised
    must not be written against the others. Each of these calls may take `limit`
    seconds; what a new process must import first is none of theirs.
    """
    try:
        run = locate(execute)
        with _alarm(limit):
            found = {record["key"]: record for record in run(trials)}
        records = [found.get(trial.key) or _forgotten(trial) for trial in trials]
    except (Exception, SystemExit) as error:
        records = [failed(trial.key, "error", _told(error)) for trial in trials]
    if len(trials) == 1:
        return records
    return [
        run_guarded([trial], execute, limit)[0]
        if record["status"] == "error"
        else record
        for trial, record in zip(trials, records, strict=True)
    ]


@contextlib.contextmanager
def _alarm(seconds: float | None) -> Iterator[None]:
    """Have the kernel end this process after some time, even in native code."""
    signal.setitimer(signal.ITIMER_REAL, seconds or 0.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)


def failed(key: str, status: str, message: str) -> dict[str, Any]:
    """Return the record of a trial that has no trajectory."""
    return {
        "key": key,
        "status": status,
        "message": message,
        "facts": {},
        "trajectory": {},
    }


def _forgotten(trial: Trial) -> dict[str, Any]:
    return failed(trial.key, "error", "the batch returned no record of this trial")


def _told(error: BaseException) -> str:
    """Return a first line that says what happened, then the traceback."""
    lines = traceback.format_exception(error)
    return f"{type(error).__name__}: {error}\n{''.join(lines)}".rstrip()


@functools.cache
def _segment(folder: str, run: str) -> Segment:
    return Segment(Path(folder), run)
