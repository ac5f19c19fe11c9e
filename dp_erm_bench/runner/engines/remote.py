"""An engine that sends each worker of a scheduler its own tasks."""

from __future__ import annotations

import contextlib
import queue
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple, Self

from dp_erm_bench.errors import UsageError
from dp_erm_bench.runner.answers import Answer
from dp_erm_bench.runner.engines.base import believed
from dp_erm_bench.runner.engines.dask import Connection, Future, SchedulerLost
from dp_erm_bench.runner.host import shipped
from dp_erm_bench.runner.ledger import Ledger
from dp_erm_bench.runner.losses import LastWords

LOOK = 1.0
"""Seconds between two looks at who is there."""


class Flight(NamedTuple):
    """A task at work: what will bring its answer, and the address of its host."""

    future: Future
    address: str


class RemoteEngine:
    """Workers of a Dask scheduler host a worker of ours per thread.

    A task is sent to a worker that has a free thread, and to no other: so it is known
    with whom it was lost. Its answer brings the records, so that no file system is
    shared.

    Parameters
    ----------
    connection : Connection
        To the scheduler.
    patience : float
        Seconds to wait for a worker where there is none.

    Raises
    ------
    UsageError
        On entering, or later: if there is no scheduler, or no worker, for that long.
    """

    def __init__(self, connection: Connection, patience: float) -> None:
        self.connection, self.patience = connection, patience
        self._flights: dict[int, Flight] = {}
        self._done: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._threads: dict[str, int] = {}
        self._looked = 0.0

    def __enter__(self) -> Self:
        """Start workers, or reach those of a scheduler; wait for the first."""
        self.connection.__enter__()
        try:
            self._await_workers()
        except BaseException as error:
            self.connection.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(self, *error: Any) -> None:
        """End what was started here; a scheduler at an address stays."""
        for flight in self._flights.values():
            with contextlib.suppress(Exception):
                flight.future.release()
        self._flights.clear()
        self.connection.__exit__(*error)

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
        task = ledger.batches(number)
        future = self.connection.submit(
            address, f"{job.run}-{number}", shipped, number, task, job
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
        log = self.connection.log_of(flight.address) or str(reason)
        ledger.losses.told[number] = LastWords(flight.address, log)
        return None

    def _look(self, ledger: Ledger) -> None:
        """See who is there; what was at work on others is over."""
        if time.monotonic() < self._looked + LOOK:
            return
        try:
            self._threads = self.connection.threads()
        except SchedulerLost:
            # By nobody's fault.
            for number in list(self._flights):
                ledger.put_back(number)
            self._flights.clear()
            self.connection.renew()
            self._await_workers()
        self._looked, ledger.slots = time.monotonic(), self.slots
        for number, flight in self._flights.items():
            if flight.address not in self._threads and not flight.future.done():
                self._done.put(number)

    def _await_workers(self) -> None:
        """Wait until there is a worker."""
        until = time.monotonic() + self.patience
        while True:
            with contextlib.suppress(SchedulerLost):
                self._threads = self.connection.threads()
            if self._threads:
                return
            if time.monotonic() > until:
                why = self.connection.absence()
                raise UsageError(
                    f"runner=dask: no worker for runner.patience={self.patience:g} s"
                    f"{why and f' ({why})'}; what is recorded stays"
                )
            time.sleep(LOOK / 10)
