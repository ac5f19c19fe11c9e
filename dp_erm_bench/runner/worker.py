"""Code of a worker process: run batches, catch their failures, record results."""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import math
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, Self

from dp_erm_bench.cached import vouch_for_cache
from dp_erm_bench.code_identity import package_state
from dp_erm_bench.errors import Unlike, UsageError, printable_text, traceback_text
from dp_erm_bench.experiment.lines import EXECUTE, Trial
from dp_erm_bench.registry import locate
from dp_erm_bench.results.store import RecordWriter, failed_record, finals_of

PAUSE = 0.1
"""Least number of seconds between two signs of life of a worker.

Batches may follow each other much faster.
"""


class Speaker:
    """A worker's end of the pipe to its parent; a solver may close it.

    Reports are lines of JSON. So whatever a solver writes here is not executed by the
    parent, and is not mistaken for a report. An empty line is a *beat*: it restarts the
    clock of the running trials.
    """

    def __init__(self, handle: int) -> None:
        self._handle, self._file = handle, os.fstat(handle).st_ino
        self._last = -math.inf

    def beat(self) -> bool:
        """Send a sign of life unless one was just sent; return if the parent reads."""
        now = time.monotonic()
        if now - self._last < PAUSE:
            return True
        self._last = now
        return self._send_message(b"\n")

    def report(self, report: Sequence[object]) -> bool:
        """Send a report; return whether it was sent. The next beat is never skipped."""
        self._last = -math.inf
        return self._send_message(f"\n{json.dumps(report)}\n".encode())

    def _send_message(self, data: bytes) -> bool:
        try:
            if os.fstat(self._handle).st_ino != self._file:
                return False
            while data:
                data = data[os.write(self._handle, data) :]
        except OSError:
            return False
        return True


PR_SET_PDEATHSIG = 1
TASK_SECONDS = 1.0
"""After this time a worker hands back the batches that it has not begun."""

MOST_PRINTED = 4000
"""Largest number of characters of a solver's output that a record keeps."""

WARM_UP = "dp_erm_bench.runner.execute.warm_up"
CHECK = "dp_erm_bench.runner.environment.check_batch"
CHANGED = "the package's code was changed after the run had begun; start it again"
Batch = tuple[Trial, ...]
Beat = Callable[[], bool]


class Job(NamedTuple):
    """Settings that all batches of a pool have in common.

    Attributes
    ----------
    folder : str
        The results folder.
    run : str
        Id of the run.
    execute : str
        Dotted name of the function that runs a batch.
    limit : float or None
        Seconds that a batch, or a trial alone, may take; None for no limit.
    memory : float or None
        Bytes of memory above which a worker is replaced; None for no limit.
    secret : str
        Secret of the run, see `cached.vouch_for_cache`. If it is empty, every cached
        value is proved again when it is read.
    pins : mapping or None
        Identities that data and files must have (`environment.check_batch`); None for
        no check.
    cpu : str
        The parent's kind of CPU, if records from another kind of CPU must name that
        kind; otherwise empty.
    code : str
        State of the package with which the trials' keys were made (`code_identity`);
        empty for any state.
    shows : bool
        Whether output of a solver is also shown on stderr.
    """

    folder: str
    run: str
    execute: str
    limit: float | None = None
    memory: float | None = None
    secret: str = ""
    pins: Mapping[str, str] | None = None
    cpu: str = ""
    code: str = ""
    shows: bool = False


class Outcome(NamedTuple):
    """The key, status and last values of a trial; the rest is in the store.

    `finals` are the last values by quantity, see `store.finals_of`.
    """

    key: str
    status: str
    finals: Mapping[str, float]

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """Return the outcome that a record describes."""
        return cls(record["key"], record["status"], finals_of(record))


class Report(NamedTuple):
    """The outcomes of the first batches of a task.

    `batches` is the number of these batches, and `seconds` the time that they took.
    `problem` says why no more trials can be recorded, and is empty otherwise. `full`
    says whether the worker uses more memory than it may.
    """

    outcomes: list[Outcome]
    batches: int
    seconds: float
    problem: str = ""
    full: bool = False


def serve(handle: str, parent: str, execute: str = "") -> None:
    """Run the tasks that the parent process sends through a pipe, until it closes.

    Parameters
    ----------
    handle : str
        File descriptor of the pipe; processes that a solver starts do not inherit it.
    parent : str
        Process id of the parent.
    execute : str
        Dotted name of the function that runs a batch. It is imported before the first
        task comes; empty to import nothing.
    """
    os.set_inheritable(int(handle), False)
    _die_with(int(parent))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    pipe, line, listening = Connection(int(handle)), Speaker(int(handle)), True
    if execute:
        with contextlib.suppress(Exception):
            locate(execute)
    with contextlib.suppress(EOFError, OSError):
        while listening:
            batches, job = pipe.recv()
            report = run_task(batches, job, line.beat)
            for stream in (sys.stdout, sys.stderr):
                # Later the process may be killed. A solver may have closed them.
                with contextlib.suppress(Exception):
                    stream.flush()
            listening = line.report(report)
    # Everything is written: a clean exit of numba and scipy would take time.
    os._exit(0)


def _die_with(parent: int) -> None:
    """Ask the kernel to kill this process when its parent ends (on Linux).

    The kernel does so when the *thread* that started this process ends, so workers are
    started from the main thread. On other systems a worker ends after its batch.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def beat_of_nobody() -> bool:
    """Return True, in place of a sign of life, for a worker without a parent."""
    return True


def run_task(batches: Sequence[Batch], job: Job, beat: Beat = beat_of_nobody) -> Report:
    """Run batches, one after the other, for about `TASK_SECONDS`; return a report.

    The task ends early if the worker uses too much memory, or if the parent has closed
    the pipe.

    Parameters
    ----------
    batches : sequence of tuple of Trial
        The batches of the task.
    job : Job
        Settings that all batches have in common.
    beat : callable
        Sends a beat to the parent; returns whether the parent reads.
    """
    if job.code and job.code != package_state():
        return Report([], 0, 0.0, CHANGED)
    vouch_for_cache(job.secret)
    start, outcomes, number = time.monotonic(), [], 0
    problem, seconds, full, listening = "", 0.0, False, True
    while number < len(batches) and seconds < TASK_SECONDS and listening and not full:
        try:
            outcomes += run_recorded(batches[number], job, beat)
            number += 1
        except UsageError as error:
            problem = str(error)
            break
        full = job.memory is not None and own_memory() > job.memory
        listening = beat()
        seconds = time.monotonic() - start
    return Report(outcomes, number, seconds, problem, full)


def own_memory() -> int:
    """Return the bytes of memory that belong to this process alone, not mapped files.

    On systems other than Linux the result is the largest resident memory so far.
    """
    try:
        with open("/proc/self/statm", "rb") as file:
            _, resident, shared, *_ = map(int, file.read().split())
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most << 10
    return (resident - shared) * resource.getpagesize()


def run_recorded(batch: Batch, job: Job, beat: Beat = beat_of_nobody) -> list[Outcome]:
    """Run a batch, append its mark and its records to the store, and return outcomes.

    Parameters
    ----------
    batch : tuple of Trial
        The trials, which run together.
    job : Job
        Settings that all batches have in common.
    beat : callable
        Sends a beat to the parent.

    Raises
    ------
    UsageError
        If records cannot be written, or data and files are not those of the run.
    """
    writer = RecordWriter(Path(job.folder), job.run)
    writer.begin([trial.key for trial in batch])
    start = time.perf_counter()
    records = run_guarded(batch, job, beat)
    if job.cpu:
        from dp_erm_bench.runner.environment import own_cpu

        for record in records if own_cpu() != job.cpu else ():
            record["facts"] = {**(record.get("facts") or {}), "cpu": own_cpu()}
    writer.append(records, (time.perf_counter() - start) / len(batch))
    return list(map(Outcome.from_record, records))


def run_guarded(
    trials: Sequence[Trial], job: Job, beat: Beat = beat_of_nobody
) -> list[dict[str, Any]]:
    """Run a batch and return its records; an exception becomes a record, too.

    If a batch ends in errors, its trials run again one by one, since the error of one
    must not be recorded for the others. Each of these runs may take as long as the
    limit, not counting the time for imports in a new process. If a solver has forked
    and the forked process returns from the solver, this process ends here: only the
    original process records the trials.

    Parameters
    ----------
    trials : sequence of Trial
        The trials of the batch.
    job : Job
        Settings that all batches have in common.
    beat : callable
        Sends a beat to the parent, before and after the batch.

    Raises
    ------
    Unlike
        If data or files are not those of the run.
    """
    asked, heard = os.getpid(), Heard(job.shows)
    try:
        run = locate(job.execute)
        _warm_up(trials[0].spec, job)
        for name in (WARM_UP, CHECK) if job.pins is not None else ():
            locate(name)  # imported here, so that it does not count as a trial's time
        streams = redirect_stdout(heard), redirect_stderr(heard)
        with _set_alarm(job.limit, beat), streams[0], streams[1]:
            if job.pins is not None:
                locate(CHECK)(trials[0].spec, job.pins)
            records = {record["key"]: record for record in run(trials)}
        none = "the batch returned no record of this trial"
        results = [
            records.get(t.key) or failed_record(t.key, "error", none) for t in trials
        ]
    except Unlike:
        raise
    except BaseException as error:  # workers get no Ctrl-C: it comes from the solver
        results = [
            failed_record(trial.key, "error", traceback_text(error)) for trial in trials
        ]
    if os.getpid() != asked:
        os._exit(0)
    for record in results if heard.kept else ():
        record["output"] = heard.kept
    if len(trials) > 1:
        for place, trial in enumerate(trials):
            if results[place]["status"] == "error":
                (results[place],) = run_guarded([trial], job, beat)
    return results


def _warm_up(spec: Mapping[str, Any], job: Job) -> None:
    """Load or compile the machine code that the package's own algorithms need.

    This happens once per process, before the clock of the first trial starts. A user's
    solver or loss is compiled in the time of its trial, since it may never finish.
    """
    parts = [spec.get("algorithm"), spec.get("loss")]
    ours = all(isinstance(one, Mapping) and "file" not in one for one in parts)
    if job.execute == EXECUTE and "task" not in spec and ours:
        loss = json.dumps(spec["loss"], sort_keys=True)
        locate(WARM_UP)(spec["algorithm"]["name"], loss)


class Heard(io.TextIOBase):
    """A stream that keeps the beginning of what is written to it.

    Parameters
    ----------
    shows : bool
        Whether what is written is also written to stderr.

    Attributes
    ----------
    kept : str
        The first `MOST_PRINTED` characters, in printable form.
    """

    def __init__(self, shows: bool) -> None:
        self.kept, self.out = "", sys.stderr if shows else None

    def fileno(self) -> int:
        """Return the file descriptor of stderr; text written to it is not kept."""
        return 2

    def write(self, text: str) -> int:
        """Keep as much of a string as there is room for; return the string's length."""
        said = printable_text(text[:MOST_PRINTED], MOST_PRINTED)
        self.kept += said[: MOST_PRINTED - len(self.kept)]
        if self.out is not None:
            self.out.write(said)
        return len(text)


@contextlib.contextmanager
def _set_alarm(seconds: float | None, beat: Beat) -> Iterator[None]:
    """Let the kernel end this process after some time, even during native code.

    A solver may prevent that. So the parent, which gets a beat at the start, measures
    the time, too.
    """
    beat()
    signal.setitimer(signal.ITIMER_REAL, seconds or 0.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        beat()
