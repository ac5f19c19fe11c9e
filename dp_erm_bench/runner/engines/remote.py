"""An engine that sends each worker of a scheduler its own tasks."""

from __future__ import annotations

import contextlib
import pickle
import queue
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple, Self

from dp_erm_bench.errors import UsageError, printable
from dp_erm_bench.runner.engines.admission import Admission
from dp_erm_bench.runner.engines.base import GONE, Ending, SchedulerLost, believed
from dp_erm_bench.runner.engines.dask import Connection, Future, wish
from dp_erm_bench.runner.host import shipped
from dp_erm_bench.runner.ledger import Answer, LastWords, Ledger

LOOK = 1.0
"""Seconds between two looks at who is there."""

SOON = 0.1
"""The same while a worker that has come is asked what it would compute with."""


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
    admission : Admission
        Tells which workers may have trials.

    Raises
    ------
    UsageError
        On entering, or later: if there is no scheduler, or no worker, for that long.
    """

    def __init__(
        self, connection: Connection, patience: float, admission: Admission
    ) -> None:
        self.connection, self.patience = connection, patience
        self.admission = admission
        self._flights: dict[int, Flight] = {}
        self._ended: queue.SimpleQueue[tuple[int, Ending]] = queue.SimpleQueue()
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

    @property
    def cpus(self) -> dict[str, str]:
        """Return the kind of CPU of every machine that was accepted, by its name."""
        return self.admission.cpus

    def answers(self, ledger: Ledger) -> Iterator[tuple[int, Answer | None]]:
        """Yield the number and the answer of each task; None: lost with its worker."""
        while len(ledger):
            try:
                self._look(ledger)
                self._hand_out(ledger)
            except SchedulerLost:
                self._start_anew(ledger)
            if not self.slots:
                self._await_workers()
            for number, ending in self._endings():
                flight = self._flights.pop(number, None)
                if flight is None:
                    continue
                flight.future.release()
                if ending.cancelled:
                    # By nobody's fault; whether the scheduler is there is seen next.
                    ledger.put_back(number)
                    self._looked = 0.0
                else:
                    yield number, self._answer(number, flight, ending, ledger)

    def _hand_out(self, ledger: Ledger) -> None:
        """Give every free thread a task, on a machine that it was not lost with."""
        busy = Counter(flight.address for flight in self._flights.values())
        free = [
            address
            for address, threads in self._threads.items()
            for _ in range(threads - busy[address])
        ]
        while free and (number := ledger.take()) is not None:
            shunned = ledger.shunned(number)
            others = (a for a in free if shunned and machine(a) not in shunned)
            address = next(others, free[-1])
            free.remove(address)
            try:
                self._send(number, address, ledger)
            except SchedulerLost:
                ledger.put_back(number)
                raise

    def _send(self, number: int, address: str, ledger: Ledger) -> None:
        batches = ledger.batches(number)
        job = ledger.job._replace(folder="", secret="")
        job = self.admission.job(job, batches)
        # Dask would look into every trial for futures.
        task = pickle.dumps((number, batches, job))
        tell = partial(self._tell, number)
        key = f"{job.run}-{number}"
        future = self.connection.submit(address, key, (received, task), tell)
        self._flights[number] = Flight(future, address)

    @property
    def _interval(self) -> float:
        return SOON if self.admission.pending else LOOK

    def _tell(self, number: int, ending: Ending) -> None:
        self._ended.put((number, ending))

    def _endings(self) -> Iterator[tuple[int, Ending]]:
        """Yield the tasks that have ended and how, until the next look at most."""
        with contextlib.suppress(queue.Empty):
            yield self._ended.get(timeout=self._interval)
            while True:
                yield self._ended.get_nowait()

    def _answer(
        self, number: int, flight: Flight, ending: Ending, ledger: Ledger
    ) -> Answer | None:
        if not ending.problem:
            answer = believed(ending.value, number, ledger)
            if answer is None or not answer.problem:
                return answer
            # Its disk is full, not ours: the others go on.
            self.admission.refuse(flight.address, answer.problem)
            self._threads.pop(flight.address, None)
            self._looked = 0.0
            return answer._replace(problem="")
        if ending == GONE:
            # The scheduler may have told who was there just before.
            self._threads.pop(flight.address, None)
        log = self.connection.log_of(flight.address) or ending.problem
        ledger.losses.told[number] = LastWords(machine(flight.address), log)
        return None

    def _look(self, ledger: Ledger) -> None:
        """See who is there; what was at work on others is over."""
        if time.monotonic() < self._looked + self._interval:
            return
        self._threads = self.admission.accepted(self.connection.threads())
        self._looked, ledger.slots = time.monotonic(), self.slots
        ledger.losses.machines = len(set(map(machine, self._threads)))
        for number, flight in self._flights.items():
            if flight.address not in self._threads:
                self._tell(number, GONE)

    def _start_anew(self, ledger: Ledger) -> None:
        """Have what was at work wait again, and reach a scheduler that was lost."""
        for number in list(self._flights):
            ledger.put_back(number)
        self._flights.clear()
        self._threads = {}
        self.connection.renew()

    def _await_workers(self) -> None:
        """Wait until there is a worker; in a queue, for as long as that takes."""
        until, told = time.monotonic() + self.patience, ""
        while True:
            try:
                self._threads = self.admission.accepted(self.connection.threads())
            except SchedulerLost:
                self.connection.renew()
            if self._threads:
                return
            if self.admission.pending:
                until = time.monotonic() + self.patience
            if time.monotonic() > until and (turn := self.connection.turn()):
                if turn != told:
                    said = printable(f"dp-erm-bench: no worker yet ({turn})")
                    print(said, file=sys.stderr)
                until, told = time.monotonic() + self.patience, turn
            if time.monotonic() > until:
                why = self.connection.absence()
                raise UsageError(
                    f"runner=dask: no worker for runner.patience={self.patience:g} s"
                    f"{why and f' ({why})'}; what is recorded stays"
                )
            time.sleep(SOON)


def machine(address: str) -> str:
    """Return the machine of a worker's address."""
    return address.rpartition("://")[2].rpartition(":")[0]


def received(task: bytes) -> bytes:
    """Return the answer on a task that was sent to the worker which calls this."""
    number, batches, job = pickle.loads(task)
    _, answer = shipped(number, batches, job, wish())
    return answer
