"""Dask carries the tasks, by its own client: to this machine, or to others.

joblib's backend of that name is not used: it waits for ever once a worker was killed.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import dask
from distributed import Client, Future, LocalCluster

from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.frame import EngineConfig
from dp_erm_bench.runner.answers import Answer
from dp_erm_bench.runner.engines.base import believed
from dp_erm_bench.runner.host import shipped
from dp_erm_bench.runner.ledger import Ledger
from dp_erm_bench.runner.losses import LastWords

SETTINGS = {
    # A task whose worker is lost comes back to the ledger, which knows what to do.
    "distributed.scheduler.allowed-failures": 0,
    "distributed.worker.daemon": False,
    "distributed.admin.low-level-log-length": 100,
    "distributed.scheduler.work-stealing": False,
}
LOOPBACK = "127.0.0.1"
LOOK = 1.0
"""Seconds between two looks at who is there."""

BRIEF = 5.0
"""Seconds in which a scheduler must take a connection."""


class Flight(NamedTuple):
    """A task at work: what will bring its answer, and the address of its host."""

    future: Future[Any]
    address: str


class DaskEngine:
    """Workers of Dask host a worker of ours per thread.

    A task is sent to a worker that has a free thread, and to no other: so it is known
    with whom it was lost. Its answer brings the records, so that no file system is
    shared.

    Parameters
    ----------
    options : EngineConfig
        Where the workers run.
    n_jobs : int or None
        Workers to start; None where a scheduler at an address has its own.

    Raises
    ------
    UsageError
        On entering: if nothing answers at the address within `options.patience`.
    """

    def __init__(self, options: EngineConfig, n_jobs: int | None) -> None:
        self.options, self.n_jobs = options, n_jobs
        self._stack = contextlib.ExitStack()
        self._flights: dict[int, Flight] = {}
        self._done: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._threads: dict[str, int] = {}
        self._looked = 0.0

    def __enter__(self) -> Self:
        """Start workers, or reach those of a scheduler; wait for the first."""
        self._stack.enter_context(dask.config.set(SETTINGS))
        try:
            self._start()
            self._await_workers()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *error: Any) -> None:
        """End what was started here; a scheduler at an address stays."""
        for flight in self._flights.values():
            with contextlib.suppress(Exception):
                flight.future.release()
        self._flights.clear()
        self._stack.close()

    def _start(self) -> None:
        if self.options.address:
            self._connect()
            return
        cluster = self._stack.enter_context(
            LocalCluster(
                n_workers=self.n_jobs,
                threads_per_worker=1,
                host=LOOPBACK,
                dashboard_address=None,
                silence_logs=logging.CRITICAL,
                # Its children, which hold what there is, have a limit of their own.
                memory_limit=0,
            )
        )
        self.client = self._stack.enter_context(Client(cluster, set_as_default=False))

    def _connect(self) -> None:
        """Reach the scheduler at the address, if need be again."""
        address, until = self.options.address, time.monotonic() + self.options.patience
        while True:
            try:
                client = Client(address, timeout=BRIEF, set_as_default=False)
                break
            except (OSError, TimeoutError, ValueError) as error:
                if isinstance(error, ValueError) or time.monotonic() > until:
                    raise UsageError(
                        f"runner.address={address}: no scheduler answers "
                        f"({str(error).splitlines()[0]}); what is recorded stays"
                    ) from None
                time.sleep(min(LOOK, self.options.patience))
        self.client = self._stack.enter_context(client)

    @property
    def slots(self) -> int:
        """Return the number of threads of all workers."""
        return sum(self._threads.values())

    def answers(self, ledger: Ledger) -> Iterator[tuple[int, Answer | None]]:
        """Yield the number and the answer of each task; None: lost with its worker."""
        while True:
            self._look(ledger)
            self._hand_out(ledger)
            if not self._flights:
                if self.slots:
                    return
                self._await_workers()
                continue
            for number in self._ended():
                flight = self._flights.pop(number)
                answer = self._answer(number, flight, ledger)
                flight.future.release()
                yield number, answer

    def _hand_out(self, ledger: Ledger) -> None:
        """Give every free thread a task."""
        busy = Counter(flight.address for flight in self._flights.values())
        for address, threads in self._threads.items():
            for _ in range(threads - busy[address]):
                number = ledger.take()
                if number is None:
                    return
                self._send(number, address, ledger)

    def _send(self, number: int, address: str, ledger: Ledger) -> None:
        job = ledger.job._replace(folder="", secret="")
        future = self.client.submit(
            shipped,
            number,
            ledger.batches(number),
            job,
            key=f"{job.run}-{number}",
            workers=[address],
            pure=False,
            retries=0,
        )
        self._flights[number] = Flight(future, address)
        future.add_done_callback(lambda _: self._done.put(number))

    def _ended(self) -> list[int]:
        """Return the tasks that are over, after `LOOK` seconds at most."""
        numbers: list[int] = []
        with contextlib.suppress(queue.Empty):
            numbers.append(self._done.get(timeout=LOOK))
            while True:
                numbers.append(self._done.get_nowait())
        return [number for number in numbers if number in self._flights]

    def _answer(self, number: int, flight: Flight, ledger: Ledger) -> Answer | None:
        reason: object = "its worker is gone"
        if flight.future.status == "finished":
            with contextlib.suppress(Exception):
                _, data = flight.future.result()
                return believed(data, number, ledger)
        elif flight.future.status == "error":
            reason = flight.future.exception()
        ledger.losses.told[number] = LastWords(flight.address, str(reason))
        return None

    def _look(self, ledger: Ledger) -> None:
        """See who is there; what was at work on others is over."""
        if time.monotonic() < self._looked + LOOK:
            return
        try:
            self._threads = dict(self.client.ncores())
        except Exception:
            # The scheduler is lost, by nobody's fault.
            for number in list(self._flights):
                ledger.put_back(number)
            self._flights.clear()
            self._reconnect()
        self._looked, ledger.slots = time.monotonic(), self.slots
        for number, flight in self._flights.items():
            if flight.address not in self._threads and not flight.future.done():
                self._done.put(number)

    def _reconnect(self) -> None:
        with contextlib.suppress(Exception):
            self.client.close(timeout=BRIEF)
        if self.options.address is None:
            raise UsageError("runner=dask: its scheduler ended; what is recorded stays")
        self._connect()
        self._await_workers()

    def _await_workers(self) -> None:
        """Wait until there is a worker."""
        until = time.monotonic() + self.options.patience
        while True:
            with contextlib.suppress(Exception):
                self._threads = dict(self.client.ncores())
            if self._threads:
                return
            if time.monotonic() > until:
                raise UsageError(
                    f"runner=dask: no worker for {self.options.patience:g} s; "
                    "what is recorded stays"
                )
            time.sleep(LOOK / 10)
