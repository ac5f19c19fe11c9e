"""The engine with Dask: workers on this machine, at an address, or in jobs.

The engine uses Dask's own client, since joblib's Dask backend waits for ever once a
worker was killed. Only this module and `cluster` import Dask. Every answer describes
the worker's environment; an answer from a worker with other code, versions or data is
refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import queue
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError
from typing import Any, Self

import dask
from distributed import Client, KilledWorker, LocalCluster, Security, get_worker, rpc
from distributed.versions import VersionMismatchWarning

from dp_erm_bench.errors import UsageError, escape_line, printable_text
from dp_erm_bench.experiment.schema import EngineConfig
from dp_erm_bench.runner.engines.base import believe_answer, explain_missing_dask
from dp_erm_bench.runner.engines.cluster import (
    Elsewhere,
    Jobs,
    LocalWorkers,
    run_to_end,
    silence_connections,
)
from dp_erm_bench.runner.environment import (
    INSTALL,
    at_first,
    first_difference,
    own_cpu,
    own_environment,
    pins_of,
)
from dp_erm_bench.runner.host import run_on_host
from dp_erm_bench.runner.ledger import Answer, HostExit, Ledger

SETTINGS = {
    # A task whose worker is lost comes back to the ledger, which decides what to do.
    "distributed.scheduler.allowed-failures": 0,
    "distributed.scheduler.work-stealing": False,
    # Trials run in a child of the worker, so the worker itself can always answer.
    "distributed.scheduler.worker-ttl": "60s",
    "distributed.worker.daemon": False,
    "distributed.admin.low-level-log-length": 100,
    "distributed.admin.large-graph-warning-threshold": "1TB",
}
BRIEF = 5.0
"""Seconds within which a scheduler must accept a connection."""

LOOK = 1.0
"""Seconds between two updates of the list of workers, if there are any."""

SOON = 0.1
"""Seconds between two updates of this list while there is no worker."""

GRACE = 5.0
"""Seconds to wait for another worker after all existing ones were refused."""

REASONS = 3
"""Largest number of refusals that a message lists."""

LONGEST = 400
"""Largest number of characters of a refusal, which quotes the worker."""

CALL = "__import__('pkgutil').resolve_name(name)(argument)"
"""Code that calls a function, which is found by its name on the worker.

If the function itself were sent, a worker that cannot import it would end, and the
scheduler would need to import it, too.
"""


class SchedulerLost(Exception):
    """The scheduler does not answer."""


class WorkerLost(Exception):
    """The worker of a call is gone."""


class Connection:
    """A client of a scheduler, and the cluster that was started for it, if any.

    Parameters
    ----------
    options : EngineConfig
        Where the workers run.
    n_jobs : int or None
        Number of workers to start; None if there is a scheduler at an address, which
        has workers of its own.

    Attributes
    ----------
    workers : Elsewhere
        Information on the workers: LocalWorkers or Jobs, if they are started here.
    """

    def __init__(self, options: EngineConfig, n_jobs: int | None) -> None:
        self.options, self.n_jobs = options, n_jobs
        self.workers = Elsewhere()
        self._brief = min(BRIEF, options.patience)
        # Dask's client has incomplete types.
        self._client: Any = None

    def __enter__(self) -> Self:
        """Start the cluster, or connect to the scheduler.

        Raises
        ------
        UsageError
            If no scheduler answers.
        """
        wait = {"distributed.comm.timeouts.connect": self._brief}
        with contextlib.ExitStack() as stack:
            stack.enter_context(silence_connections())
            stack.enter_context(dask.config.set(SETTINGS | wait))
            if self.options.address:
                stack.callback(self._hang_up)
                self._connect_client(self.options.address)
            else:
                run_to_end(self._start_cluster, stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        """Close the client, and end the cluster if it was started here.

        A scheduler at a given address keeps running.
        """
        self._stack.__exit__(*error)

    def _start_cluster(self, stack: contextlib.ExitStack) -> None:
        """Start the cluster and a client; the stack will end them."""
        if self.options.cluster == "local":
            made: Any = LocalWorkers(self.n_jobs, LocalCluster)
        else:
            with explain_missing_dask(f"runner.cluster={self.options.cluster}"):
                security = Security.temporary()
            made = Jobs(self.options, self.n_jobs or 1, security)
        self.workers = stack.enter_context(made)
        stack.callback(self._hang_up)
        self._open_client(made.cluster)

    def _open_client(self, scheduler: Any) -> None:
        """Make a client without Dask's warning about versions.

        Workers with other versions are refused later.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", VersionMismatchWarning)
            self._client = Client(scheduler, set_as_default=False)

    def _connect_client(self, address: str) -> None:
        until = time.monotonic() + self.options.patience
        while True:
            try:
                # A client would wait for ever for a scheduler that hangs.
                asyncio.run(_ask_identity(address, self._brief))
                run_to_end(self._open_client, address)
                return
            except (OSError, TimeoutError):
                if time.monotonic() > until:
                    raise UsageError(
                        f"runner.address={address}: no scheduler answered for "
                        f"{self.options.patience:g} s; what is recorded stays"
                    ) from None
                time.sleep(min(1.0, self.options.patience))

    def _hang_up(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(Exception):
                client.close(timeout=BRIEF)

    def renew(self) -> None:
        """Connect to a lost scheduler again; raise UsageError if it does not return."""
        self._hang_up()
        if not self.options.address:
            raise UsageError("runner=dask: its scheduler ended; what is recorded stays")
        self._connect_client(self.options.address)

    def threads(self) -> dict[str, int]:
        """Return the number of threads of every worker, by its address.

        Raises
        ------
        SchedulerLost
            If the scheduler does not answer.
        """
        try:
            ask, wait = self._client.scheduler.ncores, self.options.patience
            found = dict(self._client.sync(ask, workers=None, callback_timeout=wait))
        except Exception as error:
            raise SchedulerLost(str(error)) from error
        self.workers.note_ended()
        return found

    def submit(
        self,
        address: str,
        key: str,
        function: Callable[[bytes], object],
        argument: bytes,
        tell: Callable[[object], None],
    ) -> Any:
        """Submit a call to one given worker, and return its future.

        Parameters
        ----------
        address : str
            Address of the worker.
        key : str
            Name of the call.
        function : callable
            A function of this package. The worker calls the function of the same name
            in its own copy of the package.
        argument : bytes
            Argument of the function.
        tell : callable
            A function that is called in another thread with the result of the call, or
            with the exception by which the call ended. This function is never called if
            the worker is lost and the scheduler waits for it to come back.

        Raises
        ------
        SchedulerLost
            If nothing can be sent.
        """
        name = f"{function.__module__}:{function.__qualname__}"
        try:
            future = self._client.submit(
                eval,
                CALL,
                {"name": name, "argument": argument},
                key=key,
                workers=[address],
                pure=False,
                retries=0,
            )
            self._client.loop.add_callback(_follow_call, future, tell)
        except Exception as error:
            raise SchedulerLost(str(error)) from error
        return future


async def _ask_identity(address: str, seconds: float) -> None:
    """Ask a scheduler for its identity, to see that it answers."""
    known = Security().get_connection_args("client")
    async with rpc(address, timeout=seconds, connection_args=known) as scheduler:
        await asyncio.wait_for(scheduler.identity(), seconds)


async def _follow_call(future: Any, tell: Callable[[object], None]) -> None:
    """Wait for a call in the thread of the event loop, and pass on its result.

    `as_completed` would never report a value that cannot be unpickled.
    """
    try:
        tell(await future)
    except (Exception, asyncio.CancelledError) as error:
        tell(error)


class DaskEngine:
    """The engine with Dask: each thread of a Dask worker hosts one child process.

    A task is sent to one given worker with a free thread. So it is known which worker
    was lost with a task. An answer contains the records, so that no shared file system
    is needed, and describes the worker's environment. A worker with another environment
    gets no other task, and its tasks run elsewhere.

    Parameters
    ----------
    connection : Connection
        The connection to the scheduler.
    patience : float
        Seconds to wait for a worker if there is none.
    mixed : bool
        Whether several kinds of CPU are allowed. Records from another kind than the
        parent's then name that kind.

    Raises
    ------
    UsageError
        On entering or later, if there is no scheduler or no worker for `patience`
        seconds, or if all workers were refused.
    """

    def __init__(self, connection: Connection, patience: float, mixed: bool) -> None:
        self.connection, self.patience, self.mixed = connection, patience, mixed
        self._ours = at_first()
        self._refused: dict[str, str] = {}
        # The future of each task at work, and the address of its host.
        self._flights: dict[int, tuple[Any, str]] = {}
        self._ended: queue.SimpleQueue[tuple[int, object]] = queue.SimpleQueue()
        self._threads: dict[str, int] = {}
        self._proved, self._looked = False, 0.0

    def __enter__(self) -> Self:
        """Start workers, or connect to those of a scheduler; wait for the first one."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.connection)
            self._await_workers()
            stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        """Close the connection, and end the cluster if it was started here.

        A scheduler at a given address keeps running.
        """
        self._flights.clear()
        self.connection.__exit__(*error)

    @property
    def slots(self) -> int:
        """Return the number of threads of all workers."""
        return sum(self._threads.values())

    def answers(self, ledger: Ledger) -> Iterator[tuple[int, Answer | HostExit]]:
        """Yield the number of each task, and its answer or how its worker was lost."""
        while len(ledger):
            try:
                self._look_for_workers(ledger)
                self._hand_out(ledger)
            except SchedulerLost:
                self._start_anew(ledger)
            if not self.slots:
                self._await_workers()
            for number, value in self._ended_tasks():
                _, address = self._flights.pop(number, (None, ""))
                if address:
                    yield from self._settle_task(number, address, value, ledger)

    def _settle_task(
        self, number: int, address: str, value: object, ledger: Ledger
    ) -> Iterator[tuple[int, Answer | HostExit]]:
        """Yield the answer to a task that is over, unless the task is to run again."""
        if isinstance(value, CancelledError | asyncio.CancelledError):
            # This is nobody's fault; the next look shows if the scheduler is lost.
            ledger.put_back(number)
            self._looked = 0.0
        elif isinstance(value, KilledWorker | WorkerLost):
            # The last look may have been just before the loss.
            self._threads.pop(address, None)
            machine = address.rpartition("://")[2].rpartition(":")[0]
            log = self.connection.workers.log_of(address) or str(value)
            yield number, HostExit(machine, log)
        elif why := self._difference_of_worker(value):
            ledger.put_back(number)
            self._refuse_worker(address, why, ledger)
        else:
            answer = believe_answer(split_answer(value)[1], number, ledger)
            if isinstance(answer, Answer) and answer.problem:
                # Its data differ, or its disk is full; its completed trials count.
                self._refuse_worker(address, f"there, {answer.problem}", ledger)
                answer = answer._replace(problem="")
            else:
                self._proved = True
            yield number, answer

    def _hand_out(self, ledger: Ledger) -> None:
        """Send a task to every free thread, as long as there are tasks."""
        busy = Counter(address for _, address in self._flights.values())
        for address, threads in self._threads.items():
            for _ in range(threads - busy[address]):
                if (number := ledger.take()) is None:
                    return
                self._send_task(number, address, ledger)

    def _send_task(self, number: int, address: str, ledger: Ledger) -> None:
        batches = ledger.batches(number)
        cpu = own_cpu() if self.mixed else ""
        job = ledger.job._replace(folder="", secret="", pins=pins_of(batches), cpu=cpu)
        # Pickled here: Dask would search every trial for futures, and a worker of
        # another version could not read them.
        task = pickle.dumps((number, batches, job))
        sent = pickle.dumps((self._ours, self.mixed, task))
        future = self.connection.submit(
            address,
            f"{job.run}-{number}",
            answer_task,
            sent,
            lambda value: self._ended.put((number, value)),
        )
        self._flights[number] = future, address

    def _ended_tasks(self) -> Iterator[tuple[int, object]]:
        """Yield tasks that have ended, with their results; wait for at most `LOOK`."""
        with contextlib.suppress(queue.Empty):
            yield self._ended.get(timeout=LOOK)
            while True:
                yield self._ended.get_nowait()

    def _difference_of_worker(self, value: object) -> str:
        """Return the difference of an answer's worker from this process, or empty."""
        if isinstance(value, Exception):
            why = printable_text(
                f"{type(value).__name__}: {value}".partition("\n")[0], 200
            )
            if not isinstance(value, ImportError | AttributeError):
                return f"its answer failed ({why})"
            return f"it has no dp_erm_bench, or another version ({why}): {INSTALL}"
        return first_difference(split_answer(value)[0], self._ours, self.mixed)

    def _refuse_worker(self, address: str, why: str, ledger: Ledger) -> None:
        """Refuse a worker from now on, and let its other tasks wait again."""
        for number, (future, at) in [*self._flights.items()]:
            if at == address:
                del self._flights[number]
                future.release()
                ledger.put_back(number)
        why = escape_line(f"worker {address} gets no trial: {why}", LONGEST)
        self._refused[address] = why
        self._threads.pop(address, None)
        print(f"dp-erm-bench: runner=dask: {why}", file=sys.stderr)

    def _find_workers(self) -> None:
        """Update the list of existing workers that are not refused."""
        found = self.connection.threads()
        self._refused = {a: why for a, why in self._refused.items() if a in found}
        self._threads = {a: n for a, n in found.items() if a not in self._refused}

    def _look_for_workers(self, ledger: Ledger) -> None:
        """Update the list of workers, and end the tasks of workers that are gone."""
        if time.monotonic() < self._looked + LOOK:
            return
        self._find_workers()
        self._looked, ledger.slots = time.monotonic(), self.slots
        for number, (_, address) in self._flights.items():
            if address not in self._threads:
                self._ended.put((number, WorkerLost("its worker is gone")))

    def _start_anew(self, ledger: Ledger) -> None:
        """Let all tasks at work wait again, and connect to the lost scheduler."""
        for number in ledger.at_work():
            ledger.put_back(number)
        self._flights.clear()
        self._threads = {}
        self.connection.renew()

    def _await_workers(self) -> None:
        """Wait until there is a worker; while jobs are queued, wait without limit."""
        start, told = time.monotonic(), ""
        until = start + self.patience
        while True:
            try:
                self._find_workers()
            except SchedulerLost:
                self.connection.renew()
            if self._threads:
                return
            turn, now = self.connection.workers.reason_of_waiting(), time.monotonic()
            if turn:
                # A job that leaves the queue may need all of the patience to start.
                until = now + self.patience
            if turn not in ("", told) and now > start + self.patience:
                told = turn
                print(
                    printable_text(f"dp-erm-bench: no worker yet ({turn})"),
                    file=sys.stderr,
                )
            hopeless = self._refused and not self._proved
            if now > (start + GRACE if hopeless else until):
                raise UsageError(f"runner=dask: {self._reason_of_absence()}")
            time.sleep(SOON)

    def _reason_of_absence(self) -> str:
        """Return a message for the case that no worker is left, or none has come."""
        if reasons := [*self._refused.values()][:REASONS]:
            return f"no worker is left: {'; '.join(reasons)}"
        why = self.connection.workers.reason_of_absence()
        return (
            f"no worker for runner.patience={self.patience:g} s{why and f' ({why})'}; "
            "what is recorded stays"
        )


def answer_task(sent: bytes) -> tuple[dict[str, str], object]:
    """Run a task on the worker that it was sent to; return environment and answer.

    The environment is that of the worker. If it differs from the parent's environment,
    the task is not run, and the answer is None.
    """
    ours, mixed, task = pickle.loads(sent)
    if first_difference(at_first(), ours, mixed):
        return own_environment(), None
    number, batches, job = pickle.loads(task)
    _, answer = run_on_host(number, batches, job, wish_of_client())
    return own_environment(), answer


def split_answer(value: object) -> tuple[Mapping[str, str], object]:
    """Return the environment in a worker's answer ({} if none), and the other part."""
    match value:
        case (dict(told), rest) if all(isinstance(v, str) for v in told.values()):
            return told, rest
    return {}, None


def wish_of_client() -> Callable[[], bool]:
    """Return a function that tells whether the client still waits for the call."""
    worker = get_worker()
    key = worker.get_current_task()

    tasks = worker.state.tasks
    return lambda: getattr(tasks.get(key), "state", "gone") == "executing"
