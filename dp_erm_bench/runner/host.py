"""Hosts, which run each task in a child process and outlive the child.

A host is a thread of this process, a process of joblib, or a worker of Dask on another
machine. It calls `run_in_child`; this module imports neither joblib nor Dask. The child
has one thread. However the child ends, its host returns an `Answer`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path

from dp_erm_bench import paths
from dp_erm_bench.cached import RUN, run_folder
from dp_erm_bench.errors import UsageError
from dp_erm_bench.results.files import RECORDS, size_of
from dp_erm_bench.results.store import take_lines, traces_of
from dp_erm_bench.runner.ledger import Answer, Death, parse_report
from dp_erm_bench.runner.worker import Batch, Job, Outcome, Report

THREADS = ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMEXPR", "NUMBA", "VECLIB_MAXIMUM")
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in THREADS}
"""Environment of a process that runs trials, set before it imports numpy."""

SERVE = (
    "import sys; sys.path[:] = sys.argv[{0}:]; from {1} import serve; "
    "serve(*sys.argv[1:{0}])"
)
PATIENCE = 1.0
"""Seconds after which a silent worker is checked."""

MARK = "DP_ERM_BENCH_WORKER"
"""Environment variable that marks a worker and all processes that it starts."""

GRACE = 1.0
"""Seconds beyond its time limit after which the parent ends a worker."""

ROUNDS = 10
"""Largest number of searches for processes that a worker has started.

Several searches are needed, because such a process may start another one.
"""

SOON = 0.02
"""Seconds after which a worker with a closed pipe is checked."""

MOST = 1 << 24
"""Largest number of bytes in a line from a worker; a report is shorter."""


def start_process(
    module: str, arguments: Sequence[str], own: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], Connection]:
    """Start a process of one thread; return it, and this side's end of the pipe to it.

    The process runs `serve(handle, *arguments)` of a module, with the `sys.path` of
    this process. It is started without `multiprocessing`, which would import the user's
    main module again, and cannot set an environment for the new process only.

    Parameters
    ----------
    module : str
        Dotted name of the module.
    arguments : sequence of str
        Arguments of `serve` after the file descriptor of its end of the pipe.
    own : mapping
        Environment variables of the new process, in addition to those of this one.
    """
    pipe, theirs = Pipe()
    handle, process = theirs.fileno(), None
    code = SERVE.format(len(arguments) + 2, module)
    try:
        with theirs, hold_interrupts():
            process = subprocess.Popen(
                [sys.executable, "-c", code, str(handle), *arguments, *sys.path],
                env={**os.environ, **ONE_THREAD, RUN: str(run_folder()), **own},
                stdin=subprocess.DEVNULL,
                pass_fds=(handle,),
            )
    except BaseException:
        # Perhaps a Ctrl-C that was held back. Nothing else can end the process yet.
        pipe.close()
        if process is not None:
            process.kill()
            process.wait()
        raise
    return process, pipe


@contextlib.contextmanager
def hold_interrupts() -> Iterator[None]:
    """Block Ctrl-C in processes started in this context; their parent handles it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Worker:
    """A process of one thread that runs one task at a time.

    Parameters
    ----------
    execute : str
        Dotted name of the function that runs a batch; it is imported at the start. If
        empty, nothing is imported.

    Attributes
    ----------
    pid : int
        The id of the process.
    task : sequence of tuple of Trial
        The batches of the worker's last task; empty before the first task.
    owner : str
        The solver from outside the package that the worker has run; empty if none. A
        worker with an owner runs no other solver, so a solver can harm only its own
        process.
    run : str
        Id of the run whose tasks the worker has had; empty before the first task.
    fresh : bool
        Whether the worker has not had a task yet.
    overdue : bool
        Whether the worker was killed because it exceeded its time limit.
    hears : bool
        Whether the worker's end of the pipe is open.
    report : Report or None
        The worker's report on its task; None if there is none so far.
    """

    def __init__(self, execute: str = "") -> None:
        self.task: Sequence[Batch] = ()
        self.owner, self.run = "", ""
        self.overdue, self.fresh, self.hears = False, True, True
        self.report: Report | None = None
        self._said = b""
        self._limit: float | None = None
        self._due = float("inf")
        self._mark = secrets.token_hex(8)
        self._closing = threading.Lock()
        service = ("dp_erm_bench.runner.worker", [str(os.getpid()), execute])
        try:
            self._process, self.pipe = start_process(*service, {MARK: self._mark})
        except OSError as error:
            raise UsageError(f"no worker can be started: {error.strerror}") from None
        self.pid = self._process.pid

    def give(self, task: Sequence[Batch], job: Job) -> None:
        """Send a task; if the worker is dead, its report will be None."""
        self.task, self.fresh = task, False
        self.owner, self.run = self.owner or task[0][0].owner, job.run
        self.report, self._limit, self._due = None, job.limit, float("inf")
        if self.owner:
            # With the secret its code could seal any cached value for other workers.
            job = job._replace(secret="")
        with contextlib.suppress(OSError):
            self.pipe.send((task, job))

    def _patience_left(self) -> float:
        """Return the seconds until the next check of the worker."""
        due = max(0.0, self._due - time.monotonic())
        return min(PATIENCE, due) if self.hears else SOON

    def _has_spoken(self, ready: Sequence[object]) -> bool:
        """Return whether the worker has reported or died.

        Kill the worker if it exceeds its time limit. The pipes in `ready` can be read.
        """
        if self.pipe in ready:
            self._take_messages()
        if self.report is None and time.monotonic() > self._due:
            self.overdue = True
            self.kill()
        if self.report is None and self._process.poll() is not None:
            with contextlib.suppress(OSError):
                while self.report is None and self.hears and self.pipe.poll():
                    self._take_messages()
            return True
        return self.report is not None

    def _take_messages(self) -> None:
        """Read the worker's messages: beats, a report, and anything else it wrote."""
        try:
            said = os.read(self.pipe.fileno(), 1 << 16)
        except OSError:
            said = b""
        self.hears = bool(said)
        *lines, rest = (self._said + said).split(b"\n")
        self._said = rest if len(rest) < MOST else b""
        if lines and self._limit is not None:
            self._due = time.monotonic() + self._limit + GRACE
        for line in filter(None, lines):
            self.report = self.report or parse_report(line, self.task)

    def wait(self, wanted: Callable[[], bool]) -> Report | None:
        """Wait for the report and return it; None if the worker dies or is killed.

        The worker is killed as soon as ``wanted`` returns False.
        """
        ready: Sequence[object] = ()
        while not self._has_spoken(ready):
            if not wanted():
                self.kill()
            ready = wait([self.pipe] if self.hears else [], self._patience_left())
        return self.report

    def kill(self) -> None:
        """Kill the worker, and all processes that its solver has started.

        Another thread may be waiting for the worker.
        """
        self._process.kill()
        self._process.wait()
        if self.owner:
            end_strays(self._mark)

    def end(self, patience: float = PATIENCE) -> int:
        """End the worker, by force after some seconds, and return its exit code.

        Processes that its solver has started end with the worker. Several threads may
        call this method at the same time. The pipe is closed only once, since its
        descriptor could already belong to another file.
        """
        with self._closing:
            self.pipe.close()
        try:
            self._process.wait(0.0 if self.fresh else patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
        code = self._process.wait()
        if self.owner:
            end_strays(self._mark)
        return code


def end_strays(mark: str) -> None:
    """Kill every process whose environment has a worker's mark (on Linux).

    A process that was started with another environment is missed.
    """
    sought = f"{MARK}={mark}".encode()
    for _ in range(ROUNDS):
        strays = False
        for path in Path("/proc").glob("[0-9]*/environ"):
            # It may be another user's, or gone; a killed process has no environment.
            with contextlib.suppress(OSError):
                if sought in path.read_bytes().split(b"\0"):
                    strays = True
                    os.kill(int(path.parent.name), signal.SIGKILL)
        if not strays:
            return


class Children:
    """The workers of this process, one per thread that hosts tasks."""

    def __init__(self) -> None:
        self._own = threading.local()
        self._all: set[Worker] = set()
        self._spare: list[Worker] = []
        self._starting = threading.Lock()
        self._open = True

    def open(self, early: Worker | None = None) -> None:
        """Let threads start workers; an early worker gets the first task."""
        self._spare = [early] if early else []
        self._open = True

    def of_thread(self, owner: str, run: str) -> Worker:
        """Return this thread's worker, or a new one if that one must not run the task.

        A worker that has run a user's solver runs no other solver. A worker runs only
        tasks of one run, since it may have the data of that run in memory.
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
        """End a worker, so that it gets no other task, and return its exit code."""
        self._all.discard(worker)
        return worker.end()

    def end(self, patience: float = PATIENCE) -> None:
        """End all workers, and start no more; kill the workers if patience is 0.

        If patience is positive, no thread may be waiting for its worker.
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


def run_in_child(
    number: int,
    task: Sequence[Batch],
    job: Job,
    ship: bool = False,
    wanted: Callable[[], bool] = lambda: True,
) -> Answer:
    """Run a task in this thread's child process, and return the answer to the task.

    Parameters
    ----------
    number : int
        Number of the task, which the answer repeats.
    task : sequence of tuple of Trial
        Batches that all run the same solver of the user, or all run built-in solvers.
    job : Job
        Settings that all batches have in common.
    ship : bool
        Whether the answer contains the recorded lines. The child then writes into a
        folder of its own on this machine; otherwise into the results folder.
    wanted : callable
        A function that returns whether somebody waits for the answer. If nobody waits,
        the child is killed.
    """
    child = children.of_thread(task[0][0].owner, job.run)
    if ship:
        own = Path(paths.scratch_folder(), str(child.pid))
        own.mkdir(exist_ok=True)
        job = job._replace(folder=str(own), secret=_secret_of_host())
    folder = Path(job.folder)
    start = max(size_of(folder / RECORDS), 0)
    child.give(task, job)
    child.wait(wanted)
    if child.report is None:
        code = children.let_go(child)
        keys = {trial.key for batch in task for trial in batch}
        traces = traces_of(folder, start, job.run, keys)
        outcomes = [*map(Outcome.from_record, traces.records.values())]
        death = Death(code, child.overdue, traces.begun)
        answer = Answer(number, outcomes, death=death)
    else:
        outcomes, _, seconds, problem, _ = child.report
        answer = Answer(number, outcomes, seconds, problem)
    if ship:
        answer = answer._replace(lines=take_lines(folder))
    if child.report and child.report.full:
        children.let_go(child)
    return answer


def run_on_host(
    number: int, task: Sequence[Batch], job: Job, wanted: Callable[[], bool]
) -> tuple[int, Answer]:
    """Run a task on a host that shares no folder with the parent; return its answer.

    If the machine of the host cannot start a process or write a file, the answer's
    ``problem`` says so.

    Parameters
    ----------
    number : int
        Number of the task, which is returned with the answer.
    task : sequence of tuple of Trial
        Batches that all run the same solver of the user, or all run built-in solvers.
    job : Job
        Settings that all batches have in common.
    wanted : callable
        A function that returns whether somebody waits for the answer. If nobody waits,
        the child is killed.
    """
    try:
        return number, run_in_child(number, task, job, True, wanted)
    except (UsageError, OSError) as error:
        return number, Answer(number, [], problem=str(error) or repr(error))


@functools.cache
def _secret_of_host() -> str:
    """Return the secret that the children of this host share (`vouch_for_cache`)."""
    return secrets.token_hex(16)
