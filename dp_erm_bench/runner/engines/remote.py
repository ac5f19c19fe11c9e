"""An engine that sends each worker of a scheduler its own tasks.

Every answer tells what the worker computes with; none is taken of a worker that has
other code, versions or data than the parent.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import queue
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, Self

from dp_erm_bench.errors import UsageError, escaped, printable
from dp_erm_bench.runner.engines.base import GONE, Ending, SchedulerLost, believed
from dp_erm_bench.runner.engines.dask import Connection, Future, wish
from dp_erm_bench.runner.environment import (
    CPU,
    MACHINE,
    at_first,
    difference,
    own,
    own_cpu,
    pins_of,
)
from dp_erm_bench.runner.host import shipped
from dp_erm_bench.runner.ledger import Answer, LastWords, Ledger

LOOK = 1.0
"""Seconds between two looks at who is there."""

SOON = 0.1
"""The same where there is none."""

GRACE = 5.0
"""Seconds in which another worker may come where all that are there were refused."""

REASONS = 3
"""Refusals in a sentence."""

LONGEST = 400
"""Characters of a refusal, which quotes what the worker says."""

OLDER = ("ImportError", "ModuleNotFoundError", "AttributeError")


class Flight(NamedTuple):
    """A task at work: what will bring its answer, and the address of its host."""

    future: Future
    address: str


class RemoteEngine:
    """Workers of a Dask scheduler host a worker of ours per thread.

    A task is sent to a worker that has a free thread, and to no other: so it is known
    with whom it was lost. Its answer brings the records, so that no file system is
    shared, and what the worker computes with. One that computes otherwise gets no other
    task, and what it was at runs elsewhere.

    Parameters
    ----------
    connection : Connection
        To the scheduler.
    patience : float
        Seconds to wait for a worker where there is none.
    mixed : bool
        Whether there may be several kinds of CPU; records name theirs then.

    Attributes
    ----------
    cpus : dict of str to str
        The kind of CPU of every machine that has answered, by name.

    Raises
    ------
    UsageError
        On entering, or later: if there is no scheduler, or no worker, for that long;
        or if all workers were refused.
    """

    def __init__(self, connection: Connection, patience: float, mixed: bool) -> None:
        self.connection, self.patience, self.mixed = connection, patience, mixed
        self.cpus: dict[str, str] = {}
        self._ours = at_first()
        self._proved: set[str] = set()
        self._refused: dict[str, str] = {}
        self._said: set[str] = set()
        self._until = 0.0
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

    def answers(self, ledger: Ledger) -> Iterator[tuple[int, Answer | None]]:
        """Yield the number and the answer of each task; None: lost with its worker."""
        while len(ledger):
            try:
                self._look(ledger)
                self._tell_refusals()
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
                elif why := self._unlike(flight.address, ending):
                    ledger.put_back(number)
                    self._refuse(flight.address, why, ledger)
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
        job = ledger.job._replace(folder="", secret="", pins=pins_of(batches))
        if self.mixed:
            job = job._replace(cpu=own_cpu())
        # Dask would look into every trial for futures, another version not read it.
        task = pickle.dumps((number, batches, job))
        sent = pickle.dumps((self._ours, self.mixed, task))
        tell, key = partial(self._tell, number), f"{job.run}-{number}"
        future = self.connection.submit(address, key, (received, sent), tell)
        self._flights[number] = Flight(future, address)

    def _tell(self, number: int, ending: Ending) -> None:
        self._ended.put((number, ending))

    def _endings(self) -> Iterator[tuple[int, Ending]]:
        """Yield the tasks that have ended and how, until the next look at most."""
        with contextlib.suppress(queue.Empty):
            yield self._ended.get(timeout=LOOK)
            while True:
                yield self._ended.get_nowait()

    def _unlike(self, address: str, ending: Ending) -> str:
        """Return why an answer is of a worker unlike this process; empty if not."""
        if ending == GONE:
            return ""
        if ending.problem:
            return _failed(ending.problem)
        theirs, _ = parted(ending.value)
        if why := difference(theirs, self._ours, self.mixed):
            return why
        self._proved.add(address)
        self.cpus[printable(theirs[MACHINE], 100)] = printable(theirs[CPU], 100)
        return ""

    def _answer(
        self, number: int, flight: Flight, ending: Ending, ledger: Ledger
    ) -> Answer | None:
        if not ending.problem:
            _, lines = parted(ending.value)
            answer = believed(lines, number, ledger)
            if answer is None or not answer.problem:
                return answer
            # Its data are others, or its disk is full; what it had done before counts.
            self._refuse(flight.address, f"there, {answer.problem}", ledger)
            return answer._replace(problem="")
        # The scheduler may have told who was there just before.
        self._threads.pop(flight.address, None)
        log = self.connection.log_of(flight.address) or ending.problem
        ledger.losses.told[number] = LastWords(machine(flight.address), log)
        return None

    def _refuse(self, address: str, why: str, ledger: Ledger) -> None:
        """Give a worker no other task, and have what else it is at wait again."""
        for number, flight in [*self._flights.items()]:
            if flight.address == address:
                del self._flights[number]
                flight.future.release()
                ledger.put_back(number)
        why = escaped(f"worker {address} gets no trial: {why}", LONGEST)
        self._refused[address] = why
        self._threads.pop(address, None)
        self._looked = 0.0
        self._until = max(self._until, time.monotonic() + GRACE)

    def _present(self) -> dict[str, int]:
        """Return the threads of the workers that are there and not refused."""
        found = self.connection.threads()
        if self._proved - found.keys():
            # It may be started again, as nannies and batch systems do.
            self._until = time.monotonic() + self.patience
        self._proved &= found.keys()
        self._refused = {a: why for a, why in self._refused.items() if a in found}
        return {a: n for a, n in found.items() if a not in self._refused}

    def _tell_refusals(self) -> None:
        """Say who was refused: beside others that work, or that nobody is left.

        Raises
        ------
        UsageError
            If so, and no other has come for a while.
        """
        reasons = [*dict.fromkeys(self._refused.values())]
        if self._proved - self._refused.keys():
            for sentence in reasons:
                if sentence not in self._said:
                    print(f"dp-erm-bench: runner=dask: {sentence}", file=sys.stderr)
            self._said.update(reasons)
        elif reasons and not self._threads and time.monotonic() > self._until:
            more = len(reasons) - REASONS
            rest = f"; and {more} more" if more > 0 else ""
            told = "; ".join(reasons[:REASONS])
            raise UsageError(f"runner=dask: no worker is left: {told}{rest}")

    def _look(self, ledger: Ledger) -> None:
        """See who is there; what was at work on others is over."""
        if time.monotonic() < self._looked + LOOK:
            return
        self._threads = self._present()
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
                self._threads = self._present()
            except SchedulerLost:
                self.connection.renew()
            if self._threads:
                return
            self._tell_refusals()
            if self._refused:
                until = time.monotonic() + self.patience
            if time.monotonic() > until:
                turn = self.connection.turn()
                if turn and turn != told:
                    said = printable(f"dp-erm-bench: no worker yet ({turn})")
                    print(said, file=sys.stderr)
                if turn or told:
                    # Who has left the queue may need all of it to start.
                    until = time.monotonic() + self.patience
                told = turn
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


def received(sent: bytes) -> bytes:
    """Return the answer on a task that was sent to the worker which calls this.

    Its first line is what the worker computes with, as JSON. Where that is not what the
    parent does, the task is not run, and the line is all.
    """
    ours, mixed, task = pickle.loads(sent)
    if difference(at_first(), ours, mixed):
        return json.dumps(own()).encode()
    number, batches, job = pickle.loads(task)
    _, answer = shipped(number, batches, job, wish())
    return json.dumps(own()).encode() + b"\n" + answer


def parted(value: object) -> tuple[Mapping[str, str], bytes]:
    """Return what an answer says that it was computed with, {} if nothing; the rest."""
    if not isinstance(value, bytes):
        return {}, b""
    first, _, rest = value.partition(b"\n")
    try:
        told = json.loads(first)
        whole = all(isinstance(one, str) for one in {**told}.values())
    except (ValueError, TypeError, RecursionError):
        whole = False
    return (told, rest) if whole else ({}, rest)


def _failed(problem: str) -> str:
    """Return why a call failed on a worker, which can answer none."""
    first = printable(problem.partition("\n")[0], 200)
    if "ModuleNotFoundError" in first and "'dp_erm_bench'" in first:
        return "it has no dp_erm_bench: install the same there and start it again"
    if any(word in first for word in OLDER):
        return (
            f"its dp_erm_bench is another version ({first}): install the same there "
            "and start it again"
        )
    return f"its answer failed ({first})"
