"""What runs inside a worker process: batches, their failures, their records."""

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
"""Seconds between beats: there may be thousands of batches in a second."""


class Speaker:
    """A worker's end of the pipe to its parent; a solver may close it.

    Reports are lines of JSON, so that nothing that a solver writes here is executed
    by the parent, or kept for a report. An empty line is a *beat*: it starts the
    clock of what runs now anew.
    """

    def __init__(self, handle: int) -> None:
        self._handle, self._file = handle, os.fstat(handle).st_ino
        self._last = -math.inf

    def beat(self) -> bool:
        """Beat, if the last was not just now; return whether the parent takes it."""
        now = time.monotonic()
        if now - self._last < PAUSE:
            return True
        self._last = now
        return self._send_message(b"\n")

    def report(self, report: Sequence[object]) -> bool:
        """Send a report; return whether it went. The next beat is not left out."""
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
"""A worker hands back what it has not begun after this time."""

MOST_PRINTED = 4000
"""Characters that a record keeps of what a solver prints."""

WARM_UP = "dp_erm_bench.runner.execute.warm_up"
CHECK = "dp_erm_bench.runner.environment.check_batch"
CHANGED = "the package's code was changed after the run had begun; start it again"
Batch = tuple[Trial, ...]
Beat = Callable[[], bool]


class Job(NamedTuple):
    """What all batches of a pool have in common.

    The results `folder` and the id of the `run`; the dotted name of the function that
    runs a batch; the seconds that a batch, or a trial alone, may take; the bytes after
    which a worker is replaced; and the secret of the run, see `cached.vouch_for_cache`:
    if it is empty, everything read is proved again. Data and files must be those of
    `pins`, if that is not None (`environment.check_batch`); `cpu` is the parent's kind
    where records of another shall name theirs. `code` is the state of the package of
    which the keys tell (`code_identity`), empty for any. What a solver prints is shown
    if `shows`.
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
    """What the parent learns of a trial; the rest is in the store.

    `finals` are its last values by quantity, see `store.finals_of`.
    """

    key: str
    status: str
    finals: Mapping[str, float]

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """Return the outcome of a record."""
        return cls(record["key"], record["status"], finals_of(record))


class Report(NamedTuple):
    """The outcomes of the first `batches` of a task, and the `seconds` they took.

    `problem` is why nothing more can be recorded, if so; `full` whether the worker
    holds more memory than it may.
    """

    outcomes: list[Outcome]
    batches: int
    seconds: float
    problem: str = ""
    full: bool = False


def serve(handle: str, parent: str, execute: str = "") -> None:
    """Run the tasks that the process `parent` sends through a pipe until it closes.

    No process that a solver starts may keep the pipe's file descriptor `handle`. What
    the tasks will need, `execute`, is imported while none has come yet.
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
                # Who is ended has no time for it. A solver may have closed them.
                with contextlib.suppress(Exception):
                    stream.flush()
            listening = line.report(report)
    # All is written: to take numba and scipy apart would keep the parent waiting.
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


def beat_of_nobody() -> bool:
    """Stand for the beat of a worker that has no parent."""
    return True


def run_task(batches: Sequence[Batch], job: Job, beat: Beat = beat_of_nobody) -> Report:
    """Run batches, one after the other, for about `TASK_SECONDS`.

    It ends early where the memory is full, or where the parent no longer hears.
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


def run_recorded(batch: Batch, job: Job, beat: Beat = beat_of_nobody) -> list[Outcome]:
    """Run a batch, append its mark and its records, return outcomes.

    Raises
    ------
    UsageError
        If they cannot be written, or data and files are not those of the run.
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
    """Run a batch; what raises becomes a record, and an error is its trial's own.

    Where a batch ends in errors its trials run again one by one: what one raised
    must not be written against the others. Each of these calls may take the
    limit; what a new process must import first is none of theirs. A child that a
    solver has forked and that comes back from its call ends here: the trials are those
    of the process that was asked.
    """
    asked, heard = os.getpid(), Heard(job.shows)
    try:
        run = locate(job.execute)
        _warm_up(trials[0].spec, job)
        for name in (WARM_UP, CHECK) if job.pins is not None else ():
            locate(name)  # to import them is not the trial's time
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
    except BaseException as error:  # Ctrl-C is not for workers: it is the solver's own
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
    """Load or compile the machine code that trials of the package's own need.

    Once in a process, before the clock of the first trial: it is the worker's start.
    What a user's own solver or loss needs is its trial's, for it may take for ever.
    """
    parts = [spec.get("algorithm"), spec.get("loss")]
    ours = all(isinstance(one, Mapping) and "file" not in one for one in parts)
    if job.execute == EXECUTE and "task" not in spec and ours:
        loss = json.dumps(spec["loss"], sort_keys=True)
        locate(WARM_UP)(spec["algorithm"]["name"], loss)


class Heard(io.TextIOBase):
    """A stream that keeps the beginning of what is printed.

    Parameters
    ----------
    shows : bool
        Whether it goes to stderr all the same.

    Attributes
    ----------
    kept : str
        The first `MOST_PRINTED` characters, printable.
    """

    def __init__(self, shows: bool) -> None:
        self.kept, self.out = "", sys.stderr if shows else None

    def fileno(self) -> int:
        """Return the handle of stderr, for who needs a file: that is not heard."""
        return 2

    def write(self, text: str) -> int:
        """Keep what there is room for."""
        said = printable_text(text[:MOST_PRINTED], MOST_PRINTED)
        self.kept += said[: MOST_PRINTED - len(self.kept)]
        if self.out is not None:
            self.out.write(said)
        return len(text)


@contextlib.contextmanager
def _set_alarm(seconds: float | None, beat: Beat) -> Iterator[None]:
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
